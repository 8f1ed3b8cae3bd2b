"""The acoustic loops of fields that do not fit: states lie in host memory, and steps are passes through a window."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.machine.region import Region
from forebay.wave.acoustic.cpu import CpuKernels
from forebay.wave.acoustic.layers import AcousticLayers, layers_of
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.strips import in_strips
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.kernels.rows import Rows
from forebay.wave.paged.course import Visit
from forebay.wave.paged.lanes import PagingLanes
from forebay.wave.paged.pages import FieldPage, Look, homes, looking_pages, pages_of, planes_of
from forebay.wave.paged.passes import Passes
from forebay.wave.paged.plan import LinkRates, PagingPlan, plan_paging
from forebay.wave.paged.points import PassPoints, pass_points
from forebay.wave.survey.points import Points


class PassSteps(Protocol):
    """What passes compute in a window, with two antennas."""

    def begin(self, numbers: Sequence[int], sent: Any, heard: Any, look: Look | None) -> None:
        """Take what steps of some numbers send, where to put what they hear, and what is made of the last one."""

    def compute(self, numbers: Sequence[int], odd: bool, visit: Visit) -> None:
        """Take a visit's planes through steps of some numbers: each sends a row of values, and hears into another.

        After an odd number of steps in all, both fields are in each other's place.
        """

    def finish(self) -> None:
        """Bring home what was heard, once all is computed."""


class Place(Protocol):
    """Where a window is, and where the arrays are at home that pass through it."""

    rates: LinkRates

    def rows(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> Rows:
        """Return how rows lie in memory."""

    def zeros(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory of the arrays at home that holds zeros."""

    def lanes(self, nbytes: int) -> list[PagingLanes]:
        """Return the lanes of each device, with a window of a size."""

    def steps(
        self, propagator: Any, plan: PagingPlan, memory: Region, points: PassPoints, back: bool, device: int
    ) -> PassSteps:
        """Return what passes compute on one of the devices."""

    def reach(self, regions: Iterable[Region]) -> None:
        """Let copies reach arrays at home at full speed that are not in memory from here."""

    def scatter(self, field: NDArray[Any], points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field at home, with the bits of the place's own loops."""

    def close(self) -> None:
        """Let go of the memory of the arrays at home."""


class PagedKernels(CpuKernels):
    """Loops whose arrays are in host memory, and whose steps are computed elsewhere, slab by slab."""

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], budget: int, place: Place, every: int | None = None
    ) -> None:
        super().__init__(grid, radius, dtype)
        self._every = every
        self._place = place
        self.rows = place.rows(grid, radius, dtype)
        self.window = self.rows.window(grid.inside(radius))
        shape, layers = self.rows.shape(grid.fields(radius)), layers_of(grid, radius, self.rows, 1.0, 1.0)
        pages, planes = pages_of(shape, layers), planes_of(shape, radius, layers)
        looking = looking_pages(shape, self.window)
        self._pages: dict[type | None, tuple[FieldPage, ...]] = {None: pages}
        self._pages |= {kind: (*pages, *more) for kind, more in looking.items()}
        self._planes, self._budget = planes, budget
        self._plans: dict[tuple[type | None, int | None], PagingPlan] = {}
        self._lanes: list[PagingLanes] = []
        self._steps: dict[tuple[Any, ...], tuple[Any, list[PassSteps]]] = {}

    def plan(self, look: type[Look] | None = None, steps: int = 0) -> PagingPlan:
        """Return how fields are paged in so many steps, at whose end something may be made of them."""
        every = self._every if steps <= (self._every or 0) else None
        if (look, every) not in self._plans:
            about = self._pages[look], self.dtype.itemsize, self._planes, self._budget, self._place.rates
            self._plans[look, every] = plan_paging(*about, every)
        return self._plans[look, every]

    def zeros(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Make an array of zeros at home."""
        return self._place.zeros(prod(shape) * self.dtype.itemsize).view(self.dtype).reshape(shape)

    def filled(self, shape: tuple[int, ...], part: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
        """Make an array at home of what each part of its planes holds."""
        values = self.zeros(shape)

        def fill(planes: slice) -> None:
            values[planes] = part(planes)

        in_strips(fill, shape)
        return values

    def changes(self, layers: AcousticLayers) -> int:
        """Return 0: what layers change is known of a slab alone."""
        return 0

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, sending and hearing a row of values in each."""
        return self._run(propagator, state, (senders, sent), steps, hears, None, back=False)

    def run_back(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        image: Imaging | None,
        sensing: Sensing | None = None,
    ) -> Any:
        """Take the adjoint's state back through steps, sending a row of values in each, and look at the last one."""
        return self._run(propagator, state, (senders, sent), steps, None, image or sensing, back=True)

    def scatter(self, p: Any, points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field, each cell's share times its factor: the transpose of `gather`."""
        self._place.scatter(p, points, values, factors)

    def _run(
        self,
        propagator: Any,
        state: Any,
        sends: tuple[Any, Any],
        steps: Sequence[int],
        hears: Any,
        look: Look | None,
        back: bool,
    ) -> Any:
        if not len(steps):
            return state
        plan, (senders, sent), (listeners, heard) = (
            self.plan(type(look) if look else None, len(steps)),
            sends,
            hears or (None, None),
        )
        self._lanes = self._lanes or self._place.lanes(self._budget)
        at_home = homes(state, propagator.squared, propagator.layers, look)
        # Records are read once: to pin one takes longer than to copy it.
        self._place.reach(at_home[page.name] for page in plan.window.pages if page.written)
        computing = self._computing(propagator, plan, senders, listeners, back)
        for lanes, own in zip(self._lanes, computing, strict=True):
            lanes.compute(partial(own.begin, steps, sent, heard, look), [])
        passes = Passes(self._lanes, plan.window, at_home)
        for first in range(0, len(steps), plan.steps):
            numbers, last = steps[first : first + plan.steps], first + plan.steps >= len(steps)
            compute = partial(computing[passes.turn].compute, numbers, bool(first % 2))
            passes.run(plan.planes, len(numbers), plan.slab, compute, last=last)
        passes.finish()
        for lanes, own in zip(self._lanes, computing, strict=True):
            lanes.call(own.finish)
        return state | {"p": state["p_old"], "p_old": state["p"]} if len(steps) % 2 else state

    def _computing(
        self, propagator: Any, plan: PagingPlan, senders: Any, listeners: Any, back: bool
    ) -> list[PassSteps]:
        """Return what computes with a pair of antennas on each device, prepared once."""
        key = plan, id(senders), id(listeners), back
        if key not in self._steps:
            cells = prod(plan.window.pages[0].shape[1:])
            points = pass_points(senders.points, senders.factors, listeners and listeners.points, plan.planes, cells)
            computing = [
                self._place.steps(propagator, plan, lanes.memory, points, back, device)
                for device, lanes in enumerate(self._lanes)
            ]
            self._steps[key] = (senders, listeners), computing  # kept, so that nothing else gets their number
        return self._steps[key][1]

    def close(self) -> None:
        """Let go of the windows and of the memory at home, whatever happened."""
        with ExitStack() as held:
            held.callback(self._place.close)
            held.callback(self._steps.clear)
            while self._lanes:
                held.callback(self._lanes.pop().close)
