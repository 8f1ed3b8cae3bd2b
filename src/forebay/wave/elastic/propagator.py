"""Elastic waves: velocities and stresses on a staggered grid, of any even order in space, step by step.

In each step, with D the derivatives, C the stiffness, f and q what forces and explosions send, w their weights, h^n the
volume of a cell, and S and g as in `layers`::

    v_new = g (g v + dt / rho (S D t + w f / h^n))
    t_new = g (g t + dt C (S D v_new - w q / (n h^n)))

The state is v and t, two and three fields in two dimensions, three and six in three, and the memory of the layers.
Before step n, t belongs to the time n dt and v to half a step earlier. D from velocities to strains is the negative
transpose of D from stresses to forces. So in the scale of rho / g for v and of the inverse of g C for t, whose sign
changes, the transpose of a step is the same step with D S for S D, which differ in the layers only: velocity receivers
send forces, pressure receivers explosions of the other sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.model import ElasticModel
from forebay.wave.earth.stability import check_dt
from forebay.wave.elastic.kernels import ElasticKernels
from forebay.wave.elastic.layers import MEMORY, Layers, layers_of
from forebay.wave.elastic.medium import AXES, bulk
from forebay.wave.elastic.stencil import along_depth
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import Physics, State
from forebay.wave.survey.points import Points, locate

VELOCITIES = {2: ("vz", "vx"), 3: ("vz", "vy", "vx")}
"""Names of the velocities, by the number of axes."""
STRESSES = {2: ("tzz", "txx", "tzx"), 3: ("tzz", "tyy", "txx", "tzy", "tzx", "tyx")}
"""Names of the stresses, normal ones first."""


@dataclass(frozen=True, eq=False)
class PointGroup:
    """Points of an antenna that act on the same fields."""

    fields: tuple[str, ...]
    points: Points
    columns: Any
    """which of the antenna's points they are"""
    factors: Any
    """by which values enter the fields at the touched cells"""

    @property
    def acts_on_stress(self) -> bool:
        """Whether they act on stresses, and not on a velocity."""
        return len(self.fields) > 1


Antenna = tuple[PointGroup, ...]


@dataclass(frozen=True, eq=False)
class Propagator(Physics):
    """Carries velocities and stresses through a model in steps of `dt`; refuses an unstable one."""

    model: ElasticModel
    dt: float
    order: int = 8
    dtype: Any = np.float32
    kernels: ElasticKernels = field(init=False, repr=False)
    layout: Rows = field(init=False, repr=False)
    """how the rows of fields lie in memory"""
    medium: dict[str, Any] = field(init=False, repr=False)
    """moduli, buoyancies and stiffnesses at their points, times dt, on the grid of the fields; or what kernels that
    average it themselves make of it"""
    layers: Layers = field(init=False, repr=False)
    """where they are, and their coefficients"""
    rows: tuple[Any, Any] = field(init=False, repr=False)
    """the weights of whole and half rows in sums, which are not 1 below a free surface"""
    table: tuple[Any, ...] = field(init=False, repr=False)
    """derivatives along depth: forward, backward, and backward for velocities, with nothing at a free surface"""
    weights: tuple[Any, ...] = field(init=False, repr=False)
    """one over the spacing of each other axis"""

    def __post_init__(self) -> None:
        model, grid, dtype = self.model, self.model.grid, np.dtype(self.dtype)
        kernels = _kernels(model, self.halo, dtype)
        check_dt(model, self.dt, self.order)
        layout = kernels.rows
        surface = self.halo if grid.free_surface else None
        depth = along_depth(self.order, grid.fields(self.halo)[0], surface)
        still = depth.backward.copy()
        if surface is not None:
            still[surface] = 0.0
        derived = {
            "kernels": kernels,
            "layout": layout,
            "medium": kernels.medium(model, self.halo, self.dt),
            "layers": layers_of(grid, self.halo, self.dt, model.layer_velocity, layout).moved(kernels.put),
            "rows": (depth.whole, depth.half),
            "table": tuple(kernels.put(rows / grid.spacing[0]) for rows in (depth.forward, depth.backward, still)),
            "weights": tuple(dtype.type(1 / step) for step in grid.spacing[1:]),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def velocities(self) -> tuple[str, ...]:
        """Names of the velocities."""
        return VELOCITIES[self.model.grid.ndim]

    @property
    def stresses(self) -> tuple[str, ...]:
        """Names of the stresses, normal ones first."""
        return STRESSES[self.model.grid.ndim]

    @property
    def halo(self) -> int:
        """Points around the fields that only stencils read."""
        return self.order // 2

    @property
    def inside(self) -> tuple[slice, ...]:
        """Where the model lies in the fields."""
        return self.layout.inside(self.model.grid.inside(self.halo))

    @property
    def window(self) -> tuple[slice, ...]:
        """The part of the fields that records and images cover: the model, on a GPU in whole words of rows."""
        return self.layout.window(self.model.grid.inside(self.halo))

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""
        shape = self.layout.shape(self.model.grid.fields(self.halo))
        fields = {name: self.kernels.zeros(shape) for name in (*self.velocities, *self.stresses)}
        return fields | {MEMORY: self.kernels.zeros((self.layers.size,))}

    def fields(self, state: State) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return velocities and stresses in the kernels' order."""
        return tuple(state[name] for name in self.velocities), tuple(state[name] for name in self.stresses)

    @property
    def buoyancies(self) -> tuple[Any, ...]:
        """The medium at the velocities."""
        return tuple(self.medium["b" + name[1:]] for name in self.velocities)

    @property
    def stiffnesses(self) -> tuple[Any, ...]:
        """The medium at the stresses: lam and mu, then what belongs to each shear stress."""
        shear = self.stresses[self.model.grid.ndim :]
        return (self.medium["lam"], self.medium["mu"], *(self.medium["m" + name[1:]] for name in shear))

    def antenna(self, positions: Any, kinds: Any) -> Antenna:
        """Bind positions, one row of coordinates each, and what they send or hear, one word or two for each."""
        positions, kinds = np.atleast_2d(np.asarray(positions, float)), np.asarray(kinds)
        return tuple(
            self._group(positions[kinds == kind], str(kind), np.flatnonzero(kinds == kind)) for kind in np.unique(kinds)
        )

    def _group(self, positions: Any, kind: str, columns: Any) -> PointGroup:
        grid, dt = self.model.grid, self.dt
        _, _, letter = kind.partition(" ")
        axes = AXES[grid.ndim]
        if letter and letter not in axes:
            raise WaveError(f"{kind!r} in {grid.ndim} dimensions, whose axes are {', '.join(axes)}")
        offset = tuple(0.5 if letter == axis else 0.0 for axis in axes)
        points = locate(positions, grid, self.halo, offset=offset, mirrored=False)
        place = np.unravel_index(points.touched, grid.fields(self.halo))
        points = self.layout.moved(points, grid.fields(self.halo)[-1])
        if letter:
            names: tuple[str, ...] = ("v" + letter,)
            strength = self.medium_at("b" + letter, points.touched)
        else:
            names = self.stresses[: grid.ndim]
            lam, mu = (self.medium_at(name, points.touched) for name in ("lam", "mu"))
            strength = bulk(lam, mu, grid.ndim, grid.free_surface & (place[0] == self.halo))
        for axis, index in enumerate(place):
            g = self.kernels.get(self.layers.g[axis])[int(2 * offset[axis])]
            strength = strength * (self.layout.cut(g) if axis == grid.ndim - 1 else g)[index]
        put = self.kernels.put
        strength = strength / self.rows[int(offset[0] > 0)][place[0]] / dt
        return PointGroup(names, points.moved(put), put(columns), put(strength))

    def medium_at(self, name: str, cells: Any) -> NDArray[np.float64]:
        """Return a property of the medium, times dt, at cells that are counted as in the fields."""
        return np.asarray(self.kernels.medium_at(self.medium, name, cells))

    def remembering(self, name: str, cells: Any) -> list[tuple[Any, Any, Any]]:
        """Return what remembers cells of a field on the way back: which of them, where in the memory, and how much."""
        axes, found = AXES[self.model.grid.ndim], []
        for axis, letter in enumerate(axes):
            if name[0] == "t" and letter not in name[1:]:
                continue  # a stress is differentiated along its own axes
            if name[0] == "v":
                number, half = axes.index(name[1]), int(name[1] == letter)
            else:
                (other,) = {*name[1:]} - {letter} or {letter}
                number, half = len(axes) + axes.index(other), int(other != letter)
            within, places = self.layers.places(cells, number=number, axis=axis)
            at = np.unravel_index(cells, self.layers.fields)[axis][within]
            found.append((within, places, self.kernels.get(self.layers.a[axis])[half][at]))
        return found

    def planes_of(self, cells: Any) -> Any:
        """Return the planes in which cells are."""
        return cells // int(np.prod(self.layout.shape(self.model.grid.fields(self.halo))[1:]))

    def weight_at(self, cells: Any, *, half: bool) -> Any:
        """Return the weights of the rows in which cells are."""
        return self.kernels.put(self.rows[int(half)])[self.planes_of(cells)]

    def step(self, state: State, antenna: Antenna, values: Any) -> State:
        """Advance a state by one step, in place, while an antenna sends one value from each of its points.

        A value is an impulse of force over the volume of a cell, or a volume drawn out of it: `impulses` makes both
        from wavelets.
        """
        return self.advance(state, antenna, values.reshape(1, -1), [0])

    def step_back(self, state: State, antenna: Antenna, values: Any) -> State:
        """Take the adjoint's state one step back in time: apply the transpose of `step`, as scaled."""
        return self.retreat(state, antenna, values.reshape(1, -1), [0])

    def record(self, state: State, antenna: Antenna, out: Any, *, still: bool) -> None:
        """Read the pressure at an antenna's points, or the velocities: before a step the one, after it the others."""
        self.kernels.hear(self, state, antenna, out, still)

    def arrive(self, adjoint: Any, step: int, out: Any) -> None:
        """Read the adjoint's pressure at the sources at the end of a step, and its velocities at the beginning."""
        self.record(adjoint.back_to(step + 1), adjoint.loop.sources, out, still=True)
        self.record(adjoint.back_to(step), adjoint.loop.sources, out, still=False)

    def pressure(self, state: State) -> Any:
        """Return the pressure inside the model."""
        normal = self.stresses[: self.model.grid.ndim]
        return sum(state[name][self.inside] for name in normal) / self.kernels.dtype.type(-len(normal))

    def advance(
        self, state: State, senders: Antenna, sent: Any, steps: Sequence[int], hears: tuple[Any, Any] | None = None
    ) -> State:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        return dict(self.kernels.run_forward(self, state, senders, sent, steps, hears))

    def retreat(
        self, state: State, senders: Antenna, sent: Any, steps: Sequence[int], image: Imaging | None = None
    ) -> State:
        """Take the adjoint's state back through steps, in place; on a GPU, an image may be made of the last one."""
        return dict(self.kernels.run_back(self, state, senders, sent, steps, image))


def _kernels(model: ElasticModel, radius: int, dtype: np.dtype[Any]) -> ElasticKernels:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(model.arrays[0], np.ndarray):
        from forebay.wave.elastic.gpu import ElasticGpuKernels  # it needs a GPU

        return ElasticGpuKernels(model.grid, radius, dtype)
    from forebay.wave.elastic.cpu import ElasticCpuKernels  # compiled when it is needed

    return ElasticCpuKernels(model.grid, radius, dtype)
