"""The acoustic wave equation, second order in time and of any even order in space, step by step.

In each step, with s what the sources send, w their weights and h^n the volume of a cell (see `damping` for g)::

    p_new = g (2 p - g p_old + (v dt)^2 (lap(p) + w s / h^n))

The state is the two fields p and p_old. Divided by g (v dt)^2, every operator on the fields is symmetric: a step of the
adjoint is the same step, with what the receivers send back in the place of the sources.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.acoustic.damping import profiles
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.earth.stability import check_dt
from forebay.wave.kernels.rows import Rows
from forebay.wave.survey.points import Points, locate

State = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Antenna:
    """Points bound to a propagator: where values enter a field, and by which factors."""

    points: Points
    factors: Any
    """g (v dt)^2 at the touched cells"""


@dataclass(frozen=True, eq=False)
class Acoustic:
    """Carries pressure through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> model = AcousticModel(np.full((50, 60), 2000.0), Grid((50, 60), spacing=10.0))
    >>> propagator = Acoustic(model, dt=0.002)
    >>> source = propagator.antenna([(100, 300)])
    >>> state = propagator.step(propagator.zeros(), source, np.ones(1, np.float32))
    >>> sorted(state), state["p"].shape
    (['p', 'p_old'], (138, 148))
    """

    model: AcousticModel
    dt: float
    order: int = 8
    dtype: Any = np.float32
    kernels: Any = field(init=False, repr=False)
    rows: Rows = field(init=False, repr=False)
    """how the rows of fields lie in memory"""
    squared: Any = field(init=False, repr=False)
    """(velocity dt)^2 on the grid of the fields"""
    damping: tuple[Any, ...] = field(init=False, repr=False)
    """g along each axis"""
    weights: tuple[Any, ...] = field(init=False, repr=False)
    """one over the squared spacing, of each axis"""

    def __post_init__(self) -> None:
        check_dt(self.model, self.dt, self.order)
        model, grid, dtype = self.model, self.model.grid, np.dtype(self.dtype)
        velocity = _array(model.velocity)
        kernels = _kernels(velocity, grid, self.order // 2, dtype)
        rows = getattr(kernels, "rows", Rows())
        squared = (velocity.astype(np.float64) * self.dt) ** 2
        *slower, along_rows = profiles(grid, self.halo, self.dt, model.fastest)
        found = {
            "kernels": kernels,
            "rows": rows,
            "squared": kernels.put(rows.pad(grid.extend(squared.astype(dtype), self.halo))),
            "damping": tuple(kernels.put(g) for g in (*slower, rows.pad(along_rows))),
            "weights": tuple(dtype.type(step**-2) for step in grid.spacing),
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
        return self.rows.inside(self.model.grid.inside(self.halo))

    @property
    def window(self) -> tuple[slice, ...]:
        """Give the part of the fields that records and images cover: the model, in whole words of rows."""
        return self.rows.window(self.model.grid.inside(self.halo))

    def within(self, seen: Any) -> Any:
        """Give the model's part of a record or an image."""
        shift = self.inside[-1].start - self.window[-1].start
        return seen[..., shift : shift + self.model.grid.shape[-1]]

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""
        shape = self.rows.shape(self.model.grid.fields(self.halo))
        return {"p": self.kernels.zeros(shape), "p_old": self.kernels.zeros(shape)}

    def antenna(self, positions: Any) -> Antenna:
        """Bind positions, one row of coordinates each."""
        points = locate(positions, self.model.grid, self.halo)
        fields = self.model.grid.fields(self.halo)
        place = np.unravel_index(points.touched, fields)
        points = self.rows.moved(points, fields[-1])
        factors = self.kernels.get(self.squared.reshape(-1)[self.kernels.put(points.touched)]).astype(np.float64)
        *slower, along_rows = (self.kernels.get(g) for g in self.damping)
        for g, index in zip((*slower, self.rows.cut(along_rows)), place, strict=True):
            factors = factors * g[index]
        return Antenna(points.moved(self.kernels.put), self.kernels.put(factors))

    def step(self, state: State, antenna: Antenna, values: Any) -> State:
        """Advance a state by one step, in place, while an antenna sends one value from each of its points."""
        p, p_old = state["p"], state["p_old"]
        self.kernels.advance(p, p_old, self.squared, self.damping, self.weights)
        self.kernels.scatter(p_old, antenna.points, values, antenna.factors)
        if self.model.grid.free_surface:
            self.kernels.mirror(p_old)
        return {"p": p_old, "p_old": p}

    def step_back(self, state: State, antenna: Antenna, values: Any) -> State:
        """Take the adjoint's state one step further back in time, while the receivers send `values`."""
        return self.step(state, antenna, values)

    def record(self, state: State, antenna: Antenna, out: Any) -> None:
        """Read the pressure at an antenna's points."""
        self.kernels.gather(state["p"], antenna.points, out)

    def seen(self, state: State) -> State:
        """Give what an image needs of a state: the pressure inside the model, without layers and halo."""
        crop = getattr(self.kernels, "crop", None)
        return {"p": state["p"][self.window] if crop is None else crop(state["p"])}

    def images(self) -> Any:
        """Make an image in which nothing is seen yet, of what `seen` gives."""
        return self.kernels.zeros(tuple(one.stop - one.start for one in self.window))

    def add_sensitivity(self, total: Any, later: Any, p: Any, sources: Antenna, sent: Any, factor: float) -> None:
        """Add what a step owes to the logarithm of the squared velocity, seen by the adjoint's field after it."""
        self.kernels.curvature(total, later, p, self.weights, factor)
        self.kernels.scatter(total, sources.points, sent, factor * later.reshape(-1)[sources.points.touched])


def _array(velocity: Any) -> Any:
    """Give an array of NumPy, or of CuPy where another library's is on a GPU."""
    if isinstance(velocity, np.ndarray):
        return velocity
    if not hasattr(velocity, "__cuda_array_interface__"):
        raise WaveError(f"a velocity of type {type(velocity).__name__}: give an array of NumPy, or one on a GPU")
    import cupy

    return cupy.asarray(velocity)


def _kernels(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any]) -> Any:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(array, np.ndarray):
        from forebay.wave.acoustic.gpu import GpuKernels  # it needs a GPU

        return GpuKernels(grid, radius, dtype)
    from forebay.wave.acoustic.cpu import CpuKernels  # compiled when it is needed

    return CpuKernels(grid.ndim, radius, dtype)


def speed_of(propagator: Acoustic) -> NDArray[np.float64]:
    """Give the velocity on the grid of the fields."""
    squared = propagator.rows.cut(propagator.kernels.get(propagator.squared))
    return np.asarray(np.sqrt(squared.astype(np.float64)) / propagator.dt)
