"""What the elastic loops of a CPU and of a GPU both compute."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.model import ElasticModel
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import Kernels
from forebay.wave.survey.points import Points


class ElasticKernels(Kernels, Protocol):
    """The loops for one grid, one order and one type."""

    rows: Rows
    """how the rows of fields lie in memory"""

    def medium(self, model: ElasticModel, halo: int, dt: float) -> dict[str, Any]:
        """Return what the loops read of a medium, on the grid of the fields."""

    def medium_at(self, medium: dict[str, Any], name: str, cells: NDArray[Any]) -> NDArray[np.float64]:
        """Return a modulus or a buoyancy at cells, times dt."""

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""

    def run_back(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], image: Imaging | None
    ) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each."""

    def hear(self, propagator: Any, state: Any, antenna: Any, out: Any, still: bool) -> None:
        """Read the pressure at an antenna's points, or the velocities."""

    def scatter(self, p: Any, points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field, each cell's share times its factor."""

    def see(self, propagator: Any, state: Any, images: Sequence[str]) -> dict[str, Any]:
        """Return what images need of a state."""

    def picture(
        self, adjoint: Any, step: int, sums: dict[str, Any], seen: Any, factor: float, watched: bool
    ) -> dict[str, Any]:
        """Step an adjoint back, add to images what is to be seen there; where watched, return what they need of it."""

    def within(self, name: str, seen: Any, shape: tuple[int, ...], start: int) -> Any:
        """Return the model's part of what `see` returned."""

    def sense(self, propagator: Any, totals: dict[str, Any], state: Any, adjoint: Any, every: int) -> None:
        """Add what velocities and the stresses of the adjoint owe to the medium to totals, `every` times."""
