"""Machines to test ordering with: lanes that a seeded scheduler runs in random order, honouring only events.

Every tier is plain memory, and holds NaN where nothing has been written. The computation runs at once, in the caller's
thread. A wait that is missing shows as a wrong result for some seed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import EngineError, StateError
from forebay.machine import host
from forebay.machine.arrays.dispatch import array_in
from forebay.machine.lanes import Event, Lanes, Task
from forebay.machine.machine import Coded, Encoding, Move, Pair, ReversalMachine, TensorMachine, UseRegions, Wait
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec
from forebay.metrics import Metrics


class VirtualMachine(TensorMachine):
    """Memory for every tier, and `Lanes`, with a seed and without a wait."""

    def __init__(self, seed: int = 0, without: str | None = None) -> None:
        self.metrics = Metrics()
        self.lanes = Lanes(seed, without)
        self._memory: dict[int, NDArray[np.uint8]] = {}

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier, holding NaN."""
        self._memory[tier] = np.full(nbytes, 0xFF, np.uint8)

    def region(self, tier: int, offset: int, nbytes: int) -> Region:
        """Return a piece of memory."""
        return Region(offset, nbytes, self._memory[tier][offset : offset + nbytes])

    def pin(self, nbytes: int) -> host.PlainSlab:
        """Allocate host memory, holding NaN."""
        slab = host.PlainSlab(nbytes, self._check_idle)
        slab.array[:] = 0xFF
        return slab

    def passed(self, event: Any) -> bool:
        """Tell whether something is done."""
        return bool(event.done)

    def copies(self, lane: str, what: str, step: int, pairs: Sequence[Pair], after: Sequence[Wait]) -> Event:
        """Queue copies."""
        regions = [region for pair in pairs for region in pair]

        def act() -> None:
            self.check(*regions)
            host.copy(pairs)

        arrays = [region.bytes for region in regions]
        return self._queue(lane, arrays[::2], arrays[1::2], act, after, lambda: self.check(*regions))

    def encode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Encoding:
        """Queue encoders."""
        sizes: list[int] = []

        def act() -> None:
            sizes[:] = host.encode(coded)

        event = self._queue(lane, [each.encoding.bytes for each in coded], [], act, after)

        def known() -> list[int]:
            self.lanes.wait([event])
            return sizes

        if all(each.codec.fixed for each in coded):
            return Encoding(event, lambda: [each.encoding.nbytes for each in coded], lambda: True)
        return Encoding(event, known, lambda: event.done)

    def decode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Event:
        """Queue decoders."""
        return self._queue(lane, [each.array.bytes for each in coded], [], lambda: host.decode(coded), after)

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Any]:
        """Queue copies; a target on the device was allocated for its copy, and holds NaN until it begins."""
        if lane.startswith("up"):
            for target, _, _ in moves:
                target.bytes[:] = 0xFF
        return [self.copies(lane, "", 0, [(target, source)], after) for target, source, after in moves]

    def hold(self, wait: Wait) -> None:
        """Run the lanes until a copy is done."""
        self.sync([wait])

    def sync(self, after: Sequence[Wait]) -> None:
        """Run the lanes until events are done."""
        self.lanes.wait(self.lanes.needed(after))

    def check(self, *regions: Region) -> None:
        """Refuse to touch memory that is gone; here none ever is."""

    def finish(self) -> None:
        """Run the lanes to their end."""
        self.lanes.finish()

    def close(self) -> None:
        """Let the memory go."""
        self._memory.clear()

    def _queue(
        self,
        lane: str,
        targets: Sequence[NDArray[np.uint8]],
        sources: Sequence[NDArray[np.uint8]],
        act: Callable[[], None],
        after: Sequence[Wait],
        check: Callable[[], None] = lambda: None,
    ) -> Event:
        needed = self.lanes.needed(after)
        event = self.lanes.put(lane, Task(targets=targets, sources=sources, act=act, after=needed, check=check))
        self.lanes.run_some()
        return event

    def _check_idle(self, memory: NDArray[np.uint8]) -> None:
        for task in self.lanes.waiting():
            if any(np.may_share_memory(memory, other) for other in (*task.targets, *task.sources)):
                raise EngineError("memory is let go of that a copy is about to touch")


class VirtualReversal(VirtualMachine, ReversalMachine):
    """A reversal whose computation runs at once, and whose copies run when the seed has it."""

    def _queue(self, lane: str, *task: Any) -> Event:
        event = super()._queue(lane, *task)
        if lane == "compute":
            self.lanes.wait([event])
        return event

    def extend(self, tier: int, nbytes: int) -> Region:
        """Allocate further memory, holding NaN."""
        return Region(0, nbytes, np.full(nbytes, 0xFF, np.uint8))

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Run the lanes until the events are done."""
        self.sync(after)

    def mark(self) -> Event:
        """Return an event that is done: the computation runs at once."""
        return Event(done=True)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Let the lanes run before and after."""
        self.lanes.run_some()
        yield
        self.lanes.run_some()


class VirtualPool(VirtualMachine):
    """Memory for both tiers, lanes without a clock; the computation is a lane, too.

    Uses compute later than Python runs them, as on a GPU. So a use is handed copies of what will be in its arrays once
    everything it waits for has happened; that is found out by letting it happen, and taking it back. When the use is
    left, its results wait in the computation's lane, which makes sure that what the use was handed is there when its
    turn comes. So a wait that is missing from the pool shows as a wrong result, or as an error, for some seed.
    """

    tier = "host"

    def __init__(self, seed: int = 0, without: str | None = None) -> None:
        super().__init__(seed, without)
        self.metrics.title = "pool"
        # By the index of an open use, the latest last: what its code reads and writes, by address; and what it leaves.
        self._uses: dict[int, tuple[dict[int, NDArray[np.uint8]], Callable[[], Event]]] = {}

    def spec(self, array: Any) -> ArraySpec:
        """Describe a NumPy array."""
        if not isinstance(array, np.ndarray | np.generic):
            raise StateError(
                f"this pool keeps arrays of NumPy, not {type(array).__name__}: use numpy.asarray(x), or a pool with "
                "arrays='cupy' or arrays='torch'"
            )
        return self.spec_of(array.shape, array.dtype)

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of NumPy."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise StateError("an array of Python objects cannot be kept: give it a number type")
        return ArraySpec(shape, dtype)

    def array(self, region: Region, spec: ArraySpec, writable: bool) -> Any:
        """Return what the use that was entered last was handed."""
        handed, _ = next(reversed(self._uses.values()))
        view = array_in(handed[region.pointer], spec)
        view.flags.writeable = writable
        return view

    def fill(self, target: Region, array: Any, after: Sequence[Wait]) -> Event:
        """Queue a copy behind the computation, of what the array holds now."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
        return self.copies("compute", "put", 0, [(target, Region(0, data.nbytes, data))], after)

    def read(self, source: Region, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a region once what it waits for is done."""
        self.sync(after)
        return source.bytes.copy()

    def enter(self, index: int, after: Sequence[Wait], regions: UseRegions) -> None:
        """Hand out what will be in the regions once the events are done, and all that was computed before."""
        before, (reads, writes, overwrites) = self.lanes.waiting("compute"), regions
        with self.lanes.rehearsal():
            self.lanes.wait([*self.lanes.needed(after), *before])
            handed = {region.pointer: region.bytes.copy() for region in (*reads, *writes)}
        values = {pointer: array.copy() for pointer, array in handed.items()}
        handed |= {region.pointer: np.full(region.nbytes, 0xFF, np.uint8) for region in overwrites}
        results = [*writes, *overwrites]

        def check(*regions: Region) -> None:
            if any(not np.array_equal(region.bytes, values[region.pointer]) for region in regions):
                raise EngineError("what a use was handed is not there when it is computed")

        def act() -> None:
            check(*reads)
            for region in results:
                region.bytes[:] = handed[region.pointer]

        targets, sources = ([region.bytes for region in regions] for regions in (results, reads))
        leave = partial(self._queue, "compute", targets, sources, act, after, partial(check, *reads, *writes))
        self._uses[index] = handed, leave

    def leave(self, index: int) -> Event:
        """Let the results wait for their turn."""
        return self._uses.pop(index)[1]()

    def stalled(self) -> float | None:
        """Return None: there is no clock."""
        return None

    def settle(self) -> None:
        """Let the lanes run."""
        self.lanes.run_some()
