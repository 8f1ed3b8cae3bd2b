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
from forebay.machine.arrays.dispatch import view_of
from forebay.machine.host import HostSnapshots, PlainSlab
from forebay.machine.lanes import Event, Lanes, Task
from forebay.machine.machine import Move, ReversalMachine
from forebay.machine.packing import Packing
from forebay.machine.region import Region
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

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Any]:
        """Queue copies; a target on the device was allocated for its copy, and holds NaN until it begins."""
        if lane.startswith("up"):
            for target, _, _ in moves:
                target.bytes[:] = 0xFF
        return [self._copy(lane, target, source, after) for target, source, after in moves]

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

    def _copy(self, lane: str, target: Region, source: Region, after: Sequence[Wait]) -> Event:
        def act() -> None:
            self.check(target, source)
            np.copyto(room, data)

        room, data = target.bytes[: source.nbytes], source.bytes
        return self._queue(lane, [room], [data], act, after, lambda: self.check(target, source))

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


class VirtualReversal(VirtualMachine, HostSnapshots, ReversalMachine):
    """A reversal whose computation runs at once, and whose copies run when the seed has it."""

    def copy(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Queue a copy."""
        event = self._copy(lane, target, source, after)
        if lane == "compute":
            self.lanes.wait([event])
        return event

    def computed(self, what: str, step: int, after: Sequence[Wait], act: Callable[[], None]) -> Any:
        """Carry something out at once."""
        self.sync(after)
        act()
        self.lanes.run_some()
        return Event(done=True)

    def encode(self, step: int, staging: Any, packing: Packing, arrays: Sequence[Any]) -> Callable[[], Sequence[int]]:
        """Encode arrays at once."""
        sizes = host_bytes.encode(packing, staging.bytes, list(map(view_of, arrays)))
        self.lanes.run_some()
        return lambda: sizes

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Run the lanes until the events are done."""
        self.sync(after)

    def mark(self) -> Any:
        """Return an event that is done: the computation runs at once."""
        return Event(done=True)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Let the lanes run before and after."""
        self.lanes.run_some()
        yield
        self.lanes.run_some()
