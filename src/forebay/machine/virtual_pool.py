"""A machine without a GPU: an arena in host memory, and lanes that a seeded scheduler runs, honouring only events.

Blocks compute later than Python runs them, as on a GPU. So a block is handed copies of what will be in its arrays
once everything it waits for has happened; that is found out by letting it happen, and taking it back. When the block is
left, its results wait in the computation's lane, which makes sure that what the block was handed is there when its turn
comes. So a wait that is missing from the pool shows as a wrong result, or as an error, for some seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.errors import EngineError, StateError
from forebay.machine.lanes import Event, Lanes, Task, Wait
from forebay.machine.machine import Encoding
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec
from forebay.metrics import Metrics


@dataclass(frozen=True, eq=False)
class _Open:
    """A block that is open."""

    after: list[Event]
    reads: Sequence[Region]
    writes: Sequence[Region]
    results: Sequence[Region]
    """what it writes"""
    handed: dict[int, NDArray[np.uint8]]
    """what its code reads and writes, by address"""
    seen: dict[int, NDArray[np.uint8]]
    """what was in those that come with values"""


@dataclass(eq=False)
class PlainSlab:
    """Host memory; nothing needs to be pinned."""

    nbytes: int
    check: Callable[[NDArray[np.uint8]], None]
    """refuses to let memory go that a lane is about to touch"""
    array: NDArray[np.uint8] = field(init=False)
    pointer: int = 0

    def __post_init__(self) -> None:
        self.array = np.full(self.nbytes, 0xFF, np.uint8)

    def close(self) -> None:
        """Let it go."""
        self.check(self.array)
        self.array = np.empty(0, np.uint8)


class VirtualMachine:
    """Memory for both tiers, lanes without a clock.

    Parameters
    ----------
    seed
        Of the order in which the lanes go on.
    without
        The name of the wait to leave out.
    """

    def __init__(self, seed: int = 0, without: str | None = None) -> None:
        self.metrics = Metrics(title="pool")
        self.lanes = Lanes(seed, without)
        self._arena = np.empty(0, np.uint8)
        self._open: dict[int, _Open] = {}  # by index, the latest last

    def reserve(self, nbytes: int) -> None:
        """Allocate the arena, holding NaN."""
        self._arena = np.full(nbytes, 0xFF, np.uint8)

    def block(self, offset: int, nbytes: int) -> Region:
        """Give a piece of the arena."""
        return Region(offset, nbytes, self._arena[offset : offset + nbytes])

    def pin(self, nbytes: int) -> PlainSlab:
        """Allocate host memory."""
        return PlainSlab(nbytes, self._check_idle)

    def form(self, array: Any) -> ArraySpec:
        """Describe a NumPy array."""
        if not isinstance(array, np.ndarray | np.generic):
            raise StateError(
                f"this pool keeps arrays of NumPy, not {type(array).__name__}: use numpy.asarray(x), or a pool with "
                "arrays='cupy' or arrays='torch'"
            )
        return self.form_of(array.shape, array.dtype)

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of NumPy."""
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise StateError("an array of Python objects cannot be kept: give it a number type")
        return ArraySpec(shape, dtype)

    def handles(self, codec: Codec, form: ArraySpec) -> bool:
        """Ask the codec."""
        return codec.handles(form.dtype)

    def on_host(self, array: Any) -> bool:
        """Say yes."""
        return True

    def array(self, block: Region, form: ArraySpec, writable: bool) -> Any:
        """Give what the open block was handed."""
        latest = next(reversed(self._open.values()))
        view = latest.handed[block.pointer][: form.nbytes].view(form.dtype).reshape(form.shape)
        view.flags.writeable = writable
        return view

    def host_copy(self, data: NDArray[np.uint8], form: ArraySpec) -> Any:
        """Give bytes as an array."""
        return data[: form.nbytes].view(form.dtype).reshape(form.shape)

    def copy_in(self, data: NDArray[np.uint8], array: Any) -> None:
        """Copy an array into bytes; one with gaps is gathered on the way."""
        np.copyto(data[: array.nbytes].view(array.dtype).reshape(array.shape), array)

    def fill(self, target: Region, array: Any, after: Sequence[Wait]) -> Event:
        """Queue a copy behind the computation, of what the array holds now."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
        room = _bytes(target)[: data.nbytes]
        return self._queue("compute", [room], [], lambda: np.copyto(room, data), after)

    def read(self, source: Region, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a block once what it waits for is done."""
        self.sync(after)
        return _bytes(source).copy()

    def move(self, lane: str, what: str, key: int, target: Region, source: Region, after: Sequence[Wait]) -> Event:
        """Queue a copy."""
        room, there = _bytes(target)[: source.nbytes], _bytes(source)
        return self._queue(lane, [room], [there], lambda: np.copyto(room, there), after)

    def encode(
        self, key: int, codec: Codec, form: ArraySpec, target: Region, source: Region, after: Sequence[Wait]
    ) -> Encoding:
        """Queue an encoder."""
        sizes: list[int] = []
        room = _bytes(target)

        def act() -> None:
            sizes[:] = [codec.encode_host(_view(source, form), room[: codec.max_bytes(form.shape, form.dtype)])]

        event = self._queue("codec", [room], [], act, after)

        def size() -> int:
            self.lanes.wait([event])
            return sizes[0]

        if codec.fixed:
            return Encoding(event, lambda: codec.max_bytes(form.shape, form.dtype), lambda: True)
        return Encoding(event, size, lambda: event.done)

    def decode(
        self, key: int, codec: Codec, form: ArraySpec, target: Region, source: Region, after: Sequence[Wait]
    ) -> Event:
        """Queue a decoder."""

        def act() -> None:
            codec.decode_host(_bytes(source), _view(target, form))

        return self._queue("codec", [_bytes(target)], [], act, after)

    def enter(
        self,
        index: int,
        after: Sequence[Wait],
        reads: Sequence[Region],
        writes: Sequence[Region],
        overwrites: Sequence[Region],
    ) -> None:
        """Hand out what will be in the blocks once the events are done, and all that was computed before."""
        needed = self.lanes.needed(after)
        before = [task.event for task in self.lanes.waiting("compute")]
        handed = self._foresee([*needed, *before], [*reads, *writes])
        seen = {pointer: array.copy() for pointer, array in handed.items()}
        handed |= {block.pointer: np.full(block.nbytes, 0xFF, np.uint8) for block in overwrites}
        self._open[index] = _Open(needed, reads, writes, [*writes, *overwrites], handed, seen)

    def leave(self, index: int) -> Event:
        """Let the results wait for their turn."""
        block = self._open.pop(index)

        def check(blocks: Sequence[Region]) -> None:
            if any(not np.array_equal(_bytes(one), block.seen[one.pointer]) for one in blocks):
                raise EngineError("what a block was handed is not there when it is computed")

        def act() -> None:
            check(block.reads)
            for one in block.results:
                _bytes(one)[:] = block.handed[one.pointer]

        task = Task(
            [_bytes(one) for one in block.results],
            [_bytes(one) for one in block.reads],
            act,
            block.after,
            Event(),
            lambda: check([*block.reads, *block.writes]),
        )
        return self._put("compute", task)

    def passed(self, event: Any) -> bool:
        """Tell whether something is done."""
        return bool(event.done)

    def sync(self, after: Sequence[Wait]) -> None:
        """Run the lanes until events are done."""
        self.lanes.wait(self.lanes.needed(after))

    def stalled(self) -> float | None:
        """Give nothing: there is no clock."""
        return None

    def settle(self) -> None:
        """Let the lanes run."""
        self.lanes.run_some()

    def finish(self) -> None:
        """Run the lanes to their end."""
        self.lanes.finish()

    def close(self) -> None:
        """Let the arena go."""
        self._arena = np.empty(0, np.uint8)

    def _queue(
        self,
        lane: str,
        targets: Sequence[NDArray[np.uint8]],
        sources: Sequence[NDArray[np.uint8]],
        act: Callable[[], None],
        after: Sequence[Wait],
    ) -> Event:
        return self._put(lane, Task(targets, sources, act, self.lanes.needed(after), Event()))

    def _put(self, lane: str, task: Task) -> Event:
        event = self.lanes.put(lane, task)
        self.lanes.run_some()
        return event

    def _foresee(self, events: Sequence[Event], blocks: Sequence[Region]) -> dict[int, NDArray[np.uint8]]:
        """Tell what blocks will hold when events are done, and leave everything as it is."""
        with self.lanes.rehearsal():
            self.lanes.wait(events)
            return {block.pointer: _bytes(block).copy() for block in blocks}

    def _check_idle(self, memory: NDArray[np.uint8]) -> None:
        for task in self.lanes.waiting():
            if any(np.may_share_memory(memory, one) for one in (*task.targets, *task.sources)):
                raise EngineError("memory is let go of that a copy is about to touch")


def _bytes(block: Region) -> NDArray[np.uint8]:
    assert block.array is not None
    return block.array


def _view(block: Region, form: ArraySpec) -> NDArray[Any]:
    return _bytes(block)[: form.nbytes].view(form.dtype).reshape(form.shape)
