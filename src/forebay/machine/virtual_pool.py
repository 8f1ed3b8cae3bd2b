"""A pool without a GPU: an arena in host memory, and lanes that a seeded scheduler runs, honouring only events.

Uses compute later than Python runs them, as on a GPU. So a use is handed copies of what will be in its arrays once
everything it waits for has happened; that is found out by letting it happen, and taking it back. When the use is left,
its results wait in the computation's lane, which makes sure that what the use was handed is there when its turn comes.
So a wait that is missing from the pool shows as a wrong result, or as an error, for some seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.errors import EngineError, StateError
from forebay.machine.arrays.dispatch import array_in
from forebay.machine.arrays.numpy_arrays import NumpyArrays
from forebay.machine.lanes import Event, Task
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec
from forebay.machine.virtual import VirtualMachine
from forebay.machine.waits import Wait


@dataclass(frozen=True, eq=False)
class _OpenUse:
    """A use that has been entered."""

    after: list[Event]
    reads: Sequence[Region]
    writes: Sequence[Region]
    results: Sequence[Region]
    """what it writes"""
    handed: dict[int, NDArray[np.uint8]]
    """what its code reads and writes, by address"""
    before: dict[int, NDArray[np.uint8]]
    """what was in those that come with values"""


class VirtualPool(VirtualMachine):
    """Memory for both tiers, lanes without a clock; the computation is a lane, too."""

    def __init__(self, seed: int = 0, without: str | None = None) -> None:
        super().__init__(seed, without)
        self.metrics.title = "pool"
        self._uses: dict[int, _OpenUse] = {}  # by index, the latest last

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
        return NumpyArrays().spec_of(shape, dtype)

    def handles(self, codec: Codec, spec: ArraySpec) -> bool:
        """Ask the codec."""
        return codec.handles(spec.dtype)

    def on_host(self, array: Any) -> bool:
        """Return True."""
        return True

    def array(self, region: Region, spec: ArraySpec, writable: bool) -> Any:
        """Return what the use that was entered last was handed."""
        latest = next(reversed(self._uses.values()))
        view = array_in(latest.handed[region.pointer], spec)
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

    def enter(
        self,
        index: int,
        after: Sequence[Wait],
        reads: Sequence[Region],
        writes: Sequence[Region],
        overwrites: Sequence[Region],
    ) -> None:
        """Hand out what will be in the regions once the events are done, and all that was computed before."""
        needed = self.lanes.needed(after)
        before = [task.event for task in self.lanes.waiting("compute")]
        handed = self._foresee([*needed, *before], [*reads, *writes])
        values = {pointer: array.copy() for pointer, array in handed.items()}
        handed |= {region.pointer: np.full(region.nbytes, 0xFF, np.uint8) for region in overwrites}
        self._uses[index] = _OpenUse(needed, reads, writes, [*writes, *overwrites], handed, values)

    def leave(self, index: int) -> Event:
        """Let the results wait for their turn."""
        use = self._uses.pop(index)

        def check(regions: Sequence[Region]) -> None:
            if any(not np.array_equal(region.bytes, use.before[region.pointer]) for region in regions):
                raise EngineError("what a use was handed is not there when it is computed")

        def act() -> None:
            check(use.reads)
            for region in use.results:
                region.bytes[:] = use.handed[region.pointer]

        task = Task(
            [region.bytes for region in use.results],
            [region.bytes for region in use.reads],
            act,
            use.after,
            Event(),
            lambda: check([*use.reads, *use.writes]),
        )
        event = self.lanes.put("compute", task)
        self.lanes.run_some()
        return event

    def stalled(self) -> float | None:
        """Return None: there is no clock."""
        return None

    def settle(self) -> None:
        """Let the lanes run."""
        self.lanes.run_some()

    def _foresee(self, events: Sequence[Event], regions: Sequence[Region]) -> dict[int, NDArray[np.uint8]]:
        """Tell what regions will hold when events are done, and leave everything as it is."""
        with self.lanes.rehearsal():
            self.lanes.wait(events)
            return {region.pointer: region.bytes.copy() for region in regions}
