"""The acoustic loops of fields that do not fit: states lie in host memory, and steps are passes through a window."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from forebay.wave.acoustic.cpu import CpuKernels
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.earth.grid import Grid
from forebay.wave.paged.cpu import CpuSteps
from forebay.wave.paged.lanes import PagingLanes
from forebay.wave.paged.pages import homes
from forebay.wave.paged.passes import Passes
from forebay.wave.paged.plan import PagingPlan
from forebay.wave.paged.points import pass_points


class PagedKernels(CpuKernels):
    """Loops whose arrays are in host memory, and whose steps are computed elsewhere, slab by slab."""

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], plan: PagingPlan, lanes: Callable[[int], PagingLanes]
    ) -> None:
        super().__init__(grid, radius, dtype)
        self.plan, self._lanes = plan, lanes

    def changes(self, layers: AcousticLayers) -> int:
        """Return 0: what layers change is known of a slab alone."""
        return 0

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, sending and hearing a row of values in each."""
        return self._run(propagator, state, (senders, sent), steps, hears, back=False)

    def _run(
        self, propagator: Any, state: Any, sends: tuple[Any, Any], steps: Sequence[int], hears: Any, back: bool
    ) -> Any:
        plan, (senders, sent) = self.plan, sends
        listeners, rows = hears if hears is not None else (None, None)
        plane = int(np.prod(state["p"].shape[1:]))
        points = pass_points(senders.points, senders.factors, listeners and listeners.points, plan.planes, plane)
        lanes = self._lanes(plan.window.nbytes)
        try:
            computing = CpuSteps(propagator, plan.window, lanes.memory, points, sent, rows, back)
            passes = Passes(lanes, plan.window, homes(state, propagator.squared, propagator.layers))
            for first in range(0, len(steps), plan.steps):
                numbers = steps[first : first + plan.steps]
                passes.run(plan.planes, len(numbers), plan.slab, partial(computing.compute, numbers))
                if len(numbers) % 2:
                    passes.swap("p", "p_old")
            passes.finish()
        finally:
            lanes.close()
        return state | {"p": state["p_old"], "p_old": state["p"]} if len(steps) % 2 else state
