"""A backend to test ordering with: lanes that a seeded scheduler runs in random order, honouring only events.

Every tier is plain memory. A copy happens in two steps, and in between its target holds NaN (every bit set). A lane's
copies start as late or as early as the seed has it, but never before the events they wait for. So a wait that is
missing from the executor shows as a wrong result for some seed.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.engine import numpy_arrays
from penstock.engine import packing as packing_module
from penstock.engine.executor import Wait
from penstock.engine.layout import Layout
from penstock.engine.packing import Packing, Place
from penstock.errors import EngineError
from penstock.metrics import Metrics


@dataclass(eq=False)
class Event:
    """Done, or not yet."""

    done: bool = False


@dataclass(eq=False)
class _Copy:
    target: NDArray[np.uint8]
    source: NDArray[np.uint8]
    after: list[Event]
    event: Event
    begun: bool = False


class VirtualBackend:
    """Memory for every tier, lanes without a clock."""

    def __init__(self, kinds: Sequence[Any], seed: int, without: str | None = None) -> None:
        self.metrics = Metrics()
        self._kinds = kinds
        self._random = random.Random(seed)
        # Some seeds starve the lanes until something waits for them, others let them run far ahead.
        self._eagerness = self._random.choice((0.0, 0.1, 0.5, 3.0))
        self._without = without
        self._lanes: dict[str, deque[_Copy]] = {}
        self._memory: dict[int, NDArray[np.uint8]] = {}

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier, holding NaN."""
        self._memory[tier] = np.full(nbytes, 0xFF, np.uint8)

    def block(self, tier: int, offset: int, nbytes: int) -> Any:
        """Give a piece of memory."""
        return self._memory[tier][offset : offset + nbytes]

    def passed(self, event: Any) -> bool:
        """Tell whether something is done."""
        return bool(event.done)

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Queue a copy."""
        event = Event()
        self._lanes.setdefault(lane, deque()).append(_Copy(target, source, self._needed(after), event))
        if lane == "compute":
            self._run_until(lambda: event.done)
        self._run_some()
        return event

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Copy arrays into a block, once what it waits for is done."""
        self.wait(step, after)
        numpy_arrays.copy_in(block, layout, arrays)
        self._run_some()
        return Event(done=True)

    def encode(
        self, step: int, staging: Any, layout: Layout, packing: Packing, arrays: Sequence[Any]
    ) -> Callable[[], Sequence[int]]:
        """Encode arrays at once."""
        sizes = packing_module.encode(packing, staging, [numpy_arrays.as_numpy(array) for array in arrays])
        self._run_some()
        return lambda: sizes

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, places: Sequence[Place], after: Sequence[Wait]
    ) -> Any:
        """Copy encodings to where they stay, once what it waits for is done."""
        self.wait(step, after)
        packing_module.gather(packing, staging, places, target)
        self._run_some()
        return Event(done=True)

    def decode(
        self,
        step: int,
        target: Any,
        source: Any,
        layout: Layout,
        packing: Packing,
        places: Sequence[Place],
        after: Sequence[Wait],
    ) -> Any:
        """Decode a block into another, once what it waits for is done."""
        self.wait(step, after)
        arrays = numpy_arrays.arrays_in(target, layout, [None] * len(layout.leaves))
        packing_module.decode(packing, places, source, arrays)
        self._run_some()
        return Event(done=True)

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Run the lanes until the events are done."""
        needed = self._needed(after)
        self._run_until(lambda: all(event.done for event in needed))

    def mark(self) -> Any:
        """Give an event that is done: the computation runs at once."""
        return Event(done=True)

    def forget(self, tier: int, step: int, reads: Sequence[Any]) -> None:
        """Nothing to do: the block is taken again after its events."""

    def pause(self) -> None:
        """Nothing to do: the computation runs at once."""

    def arrays(self, block: NDArray[np.uint8], layout: Layout) -> list[Any]:
        """Give the arrays that lie in a block."""
        return numpy_arrays.arrays_in(block, layout, self._kinds)

    def describe(self, array: Any) -> Any:
        """Give shape and dtype of an array."""
        return numpy_arrays.describe(array)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Let the lanes run before and after."""
        self._run_some()
        yield
        self._run_some()

    def finish(self) -> None:
        """Run the lanes to their end."""
        self._run_until(lambda: not any(self._lanes.values()))

    def close(self) -> None:
        """Nothing is held."""

    def _needed(self, after: Sequence[Wait]) -> list[Event]:
        return [wait.event for wait in after if wait.why != self._without]

    def _run_some(self) -> None:
        while self._random.random() < self._eagerness / (1 + self._eagerness) and self._run_one():
            pass

    def _run_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if not self._run_one():
                raise EngineError("the lanes wait for each other: no copy can start")

    def _run_one(self) -> bool:
        """Take one step of one lane, any that can be taken."""
        ready = [
            lane for lane in self._lanes.values() if lane and (lane[0].begun or all(e.done for e in lane[0].after))
        ]
        if not ready:
            return False
        lane = self._random.choice(ready)
        copy = lane[0]
        if not copy.begun:
            copy.target[:] = 0xFF
            copy.begun = True
        else:
            copy.target[:] = copy.source
            copy.event.done = True
            lane.popleft()
        return True
