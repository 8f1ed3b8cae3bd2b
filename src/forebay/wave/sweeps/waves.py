"""What propagators share whose layers go ahead in a sweep of their own: their states, antennas and way back."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.elastic.layers import Layers
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import State
from forebay.wave.pressure import PressureKernels, PressureWaves
from forebay.wave.survey.points import Points, locate


class SweepKernels(PressureKernels, Protocol):
    """The loops for one grid, one order and one type."""

    def run_back(self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int]) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each."""

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the medium, of the fields before that step."""


class SweepWaves(PressureWaves):
    """Waves of one pressure, whose layers are described by `elastic.layers.Layers`."""

    kernels: SweepKernels
    layers: Layers
    stiffness: Any
    """what a source is multiplied by, on the grid of the fields"""
    fields: ClassVar[tuple[str, ...]] = ("p", "p_old")
    """names of a state's fields"""
    memories: ClassVar[int] = 2
    """values that layers remember of each point and axis"""
    medium: ClassVar[str]
    """what its model is of"""

    @staticmethod
    @abstractmethod
    def layers_of(grid: Grid, halo: int, dt: float, velocity: float, rows: Rows) -> Layers:
        """Find the layers around a model in fields whose rows lie as they are told."""

    def check_surface(self) -> None:
        """Refuse a free surface so near to an absorbing layer that stencils reach both: layers know of no mirror."""
        grid, halo = self.model.grid, self.halo
        if grid.free_surface and grid.absorb and grid.shape[0] <= halo:
            raise WaveError(
                f"{grid.shape[0]} rows between a free surface and an absorbing layer, with order {self.order}: give "
                f"more than {halo} rows, or a lower order"
            )

    @classmethod
    def state_shapes(cls, grid: Grid, order: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the fields, and of what layers remember."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(cls.fields, grid.fields(order // 2))
        remembered = cls.layers_of(grid, order // 2, 1.0, 1.0, Rows()).offsets(cls.memories)[-1]
        return shapes | {"pml": (remembered,)} if remembered else shapes

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""
        state = {name: self.kernels.zeros(self.stiffness.shape) for name in self.fields}
        remembered = self.layers.offsets(self.memories)[-1]
        return state | {"pml": self.kernels.zeros((remembered,))} if remembered else state

    def antenna(self, positions: Any, kinds: Sequence[str] = ()) -> Any:
        """Bind positions, one row of coordinates each; all of them send explosions or hear pressure."""
        for kind in {*kinds} - {"explosion", "pressure"}:
            raise WaveError(f"{kind!r} in {self.medium}, which knows explosions and pressure: take an ElasticModel")
        width = self.model.grid.fields(self.halo)[-1]
        points = self.rows.moved(locate(positions, self.model.grid, self.halo), width).moved(self.kernels.put)
        return self.bound(points, self.stiffness.reshape(-1)[points.touched])

    @abstractmethod
    def bound(self, points: Points, strength: Any) -> Any:
        """Return an antenna of points, at whose touched cells the stiffness is told."""

    def returning(self, senders: Any) -> Any:
        """Return the antenna by which the adjoint sends: the same one."""
        return senders

    def retreat(
        self, state: State, senders: Any, sent: Any, steps: Sequence[int], image: Imaging | None = None
    ) -> State:
        """Take the adjoint's state back through steps; make an image of the last one."""
        state = dict(self.kernels.run_back(self, state, self.returning(senders), sent, steps))
        if image is not None:
            self.kernels.correlate(image.image, image.illumination, image.record, state["p"], image.factor)
        return state
