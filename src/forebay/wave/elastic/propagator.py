"""Elastic waves: velocities and stresses on a staggered grid, of any even order in space, step by step.

In each step, with D the derivatives, C the stiffness, f and q what forces and explosions send, w their weights, h^n the
volume of a cell and g as in `elastic_damping`::

    v_new = g (g v + dt / rho (D t + w f / h^n))
    t_new = g (g t + dt C (D v_new - w q / (n h^n)))

The state is v and t: two and three fields in two dimensions, three and six in three. Before step n, t belongs to the
time n dt and v to half a step earlier. D from velocities to strains is the negative transpose of D from stresses to
forces. So in the scale of rho / g for v and of the inverse of g C for t, whose sign changes, the transpose of a step is
the same step: velocity receivers send forces, pressure receivers explosions of the other sign.
"""

from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.acoustic.propagator import State
from forebay.wave.earth.model import ElasticModel
from forebay.wave.earth.stability import check_dt
from forebay.wave.elastic.damping import factors
from forebay.wave.elastic.medium import AXES, averaged, bulk
from forebay.wave.elastic.stencil import along_depth
from forebay.wave.kernels.rows import Rows
from forebay.wave.survey.points import Points, locate


@dataclass(frozen=True, eq=False)
class Part:
    """Points of an antenna that act on the same fields."""

    fields: tuple[str, ...]
    points: Points
    columns: Any
    """which of the antenna's points they are"""
    factors: Any
    """by which values enter the fields at the touched cells"""

    @property
    def still(self) -> bool:
        """Whether they act on stresses."""
        return len(self.fields) > 1


Antenna = tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Elastic:
    """Carries velocities and stresses through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> shape = (50, 60)
    >>> model = ElasticModel(np.full(shape, 3e3), np.full(shape, 1.7e3), np.full(shape, 2e3), Grid(shape, spacing=10.0))
    >>> propagator = Elastic(model, dt=0.001)
    >>> source = propagator.antenna([(100, 300)], ["explosion"])
    >>> state = propagator.step(propagator.zeros(), source, np.ones(1, np.float32))
    >>> list(state), state["vz"].shape
    (['vz', 'vx', 'tzz', 'txx', 'tzx'], (138, 148))
    """

    model: ElasticModel
    dt: float
    order: int = 8
    dtype: Any = np.float32
    kernels: Any = field(init=False, repr=False)
    layout: Rows = field(init=False, repr=False)
    """how the rows of fields lie in memory"""
    velocities: tuple[str, ...] = field(init=False, repr=False)
    """names of the velocities"""
    stresses: tuple[str, ...] = field(init=False, repr=False)
    """names of the stresses, normal ones first"""
    medium: dict[str, Any] = field(init=False, repr=False)
    """moduli, buoyancies and stiffnesses at their points, times dt, on the grid of the fields; or what kernels that
    average it themselves make of it"""
    damping: tuple[Any, ...] = field(init=False, repr=False)
    """g along each axis, at whole and at half points"""
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
        layout = getattr(kernels, "rows", Rows())
        *slower, along_rows, between = factors(grid, self.halo, self.dt, model.fastest)
        axes, surface = AXES[grid.ndim], self.halo if grid.free_surface else None
        depth = along_depth(self.order, grid.fields(self.halo)[0], surface)
        still = depth.backward.copy()
        if surface is not None:
            still[surface] = 0.0
        pairs = [one + other for one, other in combinations_with_replacement(axes, 2)]
        normal = [pair for pair in pairs if pair[0] == pair[1]]
        shear = [pair for pair in pairs if pair[0] != pair[1]]
        found = {
            "kernels": kernels,
            "layout": layout,
            "velocities": tuple("v" + axis for axis in axes),
            "stresses": tuple("t" + pair for pair in (*normal, *shear)),
            "medium": _medium(kernels, model, self.halo, self.dt),
            "damping": tuple(kernels.put(g) for g in (*slower, layout.pad(along_rows), layout.pad(between))),
            "rows": (depth.whole, depth.half),
            "table": tuple(kernels.put(one / grid.spacing[0]) for one in (depth.forward, depth.backward, still)),
            "weights": tuple(dtype.type(1 / step) for step in grid.spacing[1:]),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def halo(self) -> int:
        """Points around the fields that only stencils read."""
        return self.order // 2

    @property
    def inside(self) -> tuple[slice, ...]:
        """Where the model lies in the fields."""
        return self.layout.inside(self.model.grid.inside(self.halo))

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""
        shape = self.layout.shape(self.model.grid.fields(self.halo))
        return {name: self.kernels.zeros(shape) for name in (*self.velocities, *self.stresses)}

    def fields(self, state: State) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Give velocities and stresses in the kernels' order."""
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
            self._part(positions[kinds == kind], str(kind), np.flatnonzero(kinds == kind)) for kind in np.unique(kinds)
        )

    def _part(self, positions: Any, kind: str, columns: Any) -> Part:
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
            found = self.medium_at("b" + letter, points.touched)
        else:
            names = self.stresses[: grid.ndim]
            lam, mu = (self.medium_at(name, points.touched) for name in ("lam", "mu"))
            found = bulk(lam, mu, grid.ndim, grid.free_surface & (place[0] == self.halo))
        *slower, along_rows, between = (self.kernels.get(g) for g in self.damping)
        damping = *slower, self.layout.cut(along_rows), self.layout.cut(between)
        for axis, index in enumerate(place):
            found = found * damping[2 * axis + int(2 * offset[axis])][index]
        put = self.kernels.put
        found = found / self.rows[int(offset[0] > 0)][place[0]] / dt
        return Part(names, points.moved(put), put(columns), put(found))

    def medium_at(self, name: str, cells: Any) -> NDArray[np.float64]:
        """Give a property of the medium, times dt, at cells that are counted as in the fields."""
        if look := getattr(self.kernels, "medium_at", None):
            return np.asarray(look(self.medium, name, cells))
        return np.asarray(self.kernels.get(self.medium[name]).reshape(-1)[cells], np.float64)

    def planes_of(self, cells: Any) -> Any:
        """Give the planes in which cells are."""
        return cells // int(np.prod(self.layout.shape(self.model.grid.fields(self.halo))[1:]))

    def weight_at(self, cells: Any, *, half: bool) -> Any:
        """Give the weights of the rows in which cells are."""
        return self.kernels.put(self.rows[int(half)])[self.planes_of(cells)]

    def step(self, state: State, antenna: Antenna, values: Any) -> State:
        """Advance a state by one step, in place, while an antenna sends one value from each of its points.

        A value is an impulse of force over the volume of a cell, or a volume drawn out of it: `ElasticLoop` makes both
        from wavelets.
        """
        if run := getattr(self.kernels, "run", None):
            return dict(run(self, state, antenna, values.reshape(1, -1), [0], None, None))
        v, t = self.fields(state)
        self.kernels.move(v, t, self.buoyancies, self.damping, self.table, self.weights)
        self._send(state, antenna, values, still=False)
        self.kernels.strain(t, v, self.stiffnesses, self.damping, self.table, self.weights)
        self._send(state, antenna, values, still=True)
        if self.model.grid.free_surface:
            t[0][self.halo] = 0
        return state

    def _send(self, state: State, antenna: Antenna, values: Any, still: bool) -> None:
        for part in antenna:
            if part.still == still:
                for name in part.fields:
                    self.kernels.scatter(state[name], part.points, values[part.columns], part.factors)

    def step_back(self, state: State, antenna: Antenna, values: Any) -> State:
        """Take the adjoint's state one step further back in time, while the receivers send `values`."""
        return self.step(state, antenna, values)

    def record(self, state: State, antenna: Antenna, out: Any, *, still: bool) -> None:
        """Read the pressure at an antenna's points, or the velocities: before a step the one, after it the others."""
        if hear := getattr(self.kernels, "hear", None):
            hear(self, state, antenna, out, still)
            return
        for part in antenna:
            if part.still == still:
                heard = self.kernels.zeros((len(part.fields), len(part.columns)))
                for name, row in zip(part.fields, heard, strict=True):
                    self.kernels.gather(state[name], part.points, row)
                out[part.columns] = -heard.mean(axis=0) if still else heard[0]

    def pressure(self, state: State) -> Any:
        """Give the pressure inside the model."""
        normal = self.stresses[: self.model.grid.ndim]
        return sum(state[name][self.inside] for name in normal) / self.kernels.dtype.type(-len(normal))

    def add_sensitivity(self, totals: dict[str, Any], state: State, adjoint: State, factor: float) -> None:
        """Add what the step that led here owes to the medium; see `elastic_gradient`.

        `state` needs the velocities only, and of `adjoint` the stresses are taken.
        """
        if sense := getattr(self.kernels, "sense", None):
            sense(self, totals, state, adjoint, self.dt * factor)
            return
        v, t = tuple(state[name] for name in self.velocities), tuple(adjoint[name] for name in self.stresses)
        scale = self.kernels.dtype.type(self.dt * factor)
        table = tuple(one * scale for one in self.table)
        w = tuple(one * scale for one in self.weights)
        over_velocities = tuple(totals["b" + name[1:]] for name in self.velocities)
        self.kernels.sense_move(over_velocities, t, v, self.damping, table, w)
        shear = tuple(totals["m" + name[1:]] for name in self.stresses[self.model.grid.ndim :])
        self.kernels.sense_strain((totals["traces"], totals["inner"], *shear), v, t, self.damping, table, w)


def _medium(kernels: Any, model: ElasticModel, halo: int, dt: float) -> dict[str, Any]:
    """Bring a medium to the kernels, averaged unless they do that themselves."""
    if make := getattr(kernels, "medium", None):
        return dict(make(model, halo, dt))
    return {name: kernels.put(values * dt) for name, values in averaged(model, halo).items()}


def _kernels(model: ElasticModel, radius: int, dtype: np.dtype[Any]) -> Any:
    """Choose the kernels by where the arrays of a model are."""
    arrays = {name: getattr(model, name) for name in ("vp", "vs", "rho")}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) and type(array).__module__.partition(".")[0] != "cupy":
            raise WaveError(f"{name} of type {type(array).__name__}: give an array of NumPy, or of CuPy for a GPU")
    if len(there := {isinstance(array, np.ndarray) for array in arrays.values()}) > 1:
        raise WaveError("vp, vs and rho are not all in the same memory: give all of them as NumPy's or all as CuPy's")
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if there == {False}:
        from forebay.wave.elastic.gpu import ElasticGpuKernels  # it needs a GPU

        return ElasticGpuKernels(model.grid, radius, dtype)
    from forebay.wave.elastic.cpu import ElasticCpuKernels  # compiled when it is needed

    return ElasticCpuKernels(model.grid.ndim, radius, dtype)
