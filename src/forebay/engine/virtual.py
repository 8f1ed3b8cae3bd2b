"""A backend to test ordering with: lanes that a seeded scheduler runs in random order, honouring only events.

Every tier is plain memory. A wait that is missing from the executor shows as a wrong result for some seed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine import packing as packing_module
from forebay.engine.layout import Layout
from forebay.engine.packing import Packing, Place
from forebay.machine import numpy_arrays
from forebay.machine.lanes import Event, Lanes, Task, Wait
from forebay.metrics import Metrics


class VirtualBackend:
    """Memory for every tier, lanes without a clock."""

    def __init__(self, kinds: Sequence[Any], seed: int, without: str | None = None) -> None:
        self.metrics = Metrics()
        self._kinds = kinds
        self._lanes = Lanes(seed, without)
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
        needed = self._lanes.needed(after)
        event = self._lanes.put(lane, Task([target], [source], lambda: np.copyto(target, source), needed, Event()))
        if lane == "compute":
            self._lanes.wait([event])
        self._lanes.run_some()
        return event

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Copy arrays into a block, once what it waits for is done."""
        self.wait(step, after)
        numpy_arrays.copy_in(block, layout, arrays)
        self._lanes.run_some()
        return Event(done=True)

    def encode(
        self, step: int, staging: Any, layout: Layout, packing: Packing, arrays: Sequence[Any]
    ) -> Callable[[], Sequence[int]]:
        """Encode arrays at once."""
        sizes = packing_module.encode(packing, staging, [numpy_arrays.as_numpy(array) for array in arrays])
        self._lanes.run_some()
        return lambda: sizes

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, places: Sequence[Place], after: Sequence[Wait]
    ) -> Any:
        """Copy encodings to where they stay, once what it waits for is done."""
        self.wait(step, after)
        packing_module.gather(packing, staging, places, target)
        self._lanes.run_some()
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
        self._lanes.run_some()
        return Event(done=True)

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Run the lanes until the events are done."""
        self._lanes.wait(self._lanes.needed(after))

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
        self._lanes.run_some()
        yield
        self._lanes.run_some()

    def finish(self) -> None:
        """Run the lanes to their end."""
        self._lanes.finish()

    def close(self) -> None:
        """Nothing is held."""
