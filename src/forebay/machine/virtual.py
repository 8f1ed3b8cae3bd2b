"""Machines to test ordering with: lanes that a seeded scheduler runs in random order, honouring only events.

Every tier is plain memory, and holds NaN where nothing has been written. The computation runs at once, in the caller's
thread. A wait that is missing shows as a wrong result for some seed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import EngineError
from forebay.machine.arrays import host_bytes
from forebay.machine.host import PlainSlab
from forebay.machine.lanes import Event, Lanes, Task
from forebay.machine.machine import Coded, Encoding, Move, Pair, ReversalMachine
from forebay.machine.region import Region
from forebay.machine.spec import Leaf
from forebay.machine.waits import Wait
from forebay.metrics import Metrics


class VirtualMachine:
    """Memory for every tier, lanes without a clock.

    Parameters
    ----------
    seed
        Of the order in which the lanes go on.
    without
        The name of the wait to leave out.
    """

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

    def pin(self, nbytes: int) -> PlainSlab:
        """Allocate host memory, holding NaN."""
        slab = PlainSlab(nbytes, self._check_idle)
        slab.array[:] = 0xFF
        return slab

    def passed(self, event: Any) -> bool:
        """Tell whether something is done."""
        return bool(event.done)

    def copies(self, lane: str, what: str, step: int, pairs: Sequence[Pair], after: Sequence[Wait]) -> Event:
        """Queue copies."""
        regions = [region for pair in pairs for region in pair if region is not None]

        def act() -> None:
            self.check(*regions)
            host_bytes.copy(pairs)

        arrays = [region.bytes for region in regions]
        return self._queue(lane, arrays[::2], arrays[1::2], act, after, lambda: self.check(*regions))

    def encode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Encoding:
        """Queue encoders."""
        sizes: list[int] = []

        def act() -> None:
            sizes[:] = host_bytes.encode(coded)

        event = self._queue(lane, [each.encoding.bytes for each in coded], [], act, after)

        def known() -> list[int]:
            self.lanes.wait([event])
            return sizes

        if all(each.codec.fixed for each in coded):
            return Encoding(event, lambda: [each.encoding.nbytes for each in coded], lambda: True)
        return Encoding(event, known, lambda: event.done)

    def decode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Event:
        """Queue decoders."""
        return self._queue(lane, [each.array.bytes for each in coded], [], lambda: host_bytes.decode(coded), after)

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Any]:
        """Queue copies; a target on the device was allocated for its copy, and holds NaN until it begins."""
        if lane.startswith("up"):
            for target, _, _ in moves:
                target.bytes[:] = 0xFF
        return [self.copies(lane, "", 0, [(target, source)], after) for target, source, after in moves]

    def has_waited(self, event: Any) -> bool:
        """Return False: asking is not worth it."""
        return False

    def hold(self, wait: Wait) -> None:
        """Run the lanes until a copy is done."""
        self.sync([wait])

    def free_after(self, wait: Wait) -> bool:
        """Run the lanes until the copy is done that uses the memory."""
        self.sync([wait])
        return True

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
        event = self.lanes.put(lane, Task(targets, sources, act, self.lanes.needed(after), Event(), check))
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

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Run the lanes until the events are done."""
        self.sync(after)

    def mark(self) -> Event:
        """Return an event that is done: the computation runs at once."""
        return Event(done=True)

    def arrays(self, region: Region, leaves: Sequence[Leaf]) -> list[Any]:
        """List the arrays that lie in a region."""
        return host_bytes.arrays_in(region, leaves)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Let the lanes run before and after."""
        self.lanes.run_some()
        yield
        self.lanes.run_some()
