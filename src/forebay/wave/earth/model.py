"""Models: what waves travel through, as plain arrays on a grid."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.arrays import computable, extremes
from forebay.wave.earth.cpml import velocity_of_layers
from forebay.wave.earth.grid import Grid


class FluidModel:
    """What a medium that carries pressure alone tells of its velocities."""

    velocity: Any
    max_vel: float | None

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The smallest and the largest velocity."""
        return extremes(self.velocity)

    @property
    def slowest(self) -> float:
        """The smallest velocity."""
        return self.extremes[0]

    @property
    def fastest(self) -> float:
        """The largest velocity, or `max_vel`."""
        return self.extremes[1] if self.max_vel is None else float(self.max_vel)

    @cached_property
    def layer_velocity(self) -> float:
        """The velocity that absorbing layers are made for."""
        return velocity_of_layers(self.velocity) if self.max_vel is None else float(self.max_vel)


@dataclass(frozen=True, eq=False)
class AcousticModel(FluidModel):
    """A medium of constant density; the kernels that serve it follow from the memory in which its array is.

    Examples
    --------
    >>> model = AcousticModel(np.full((50, 60), 2000.0), Grid((50, 60), 10.0), max_vel=3000.0)
    >>> model.slowest, model.fastest, model.layer_velocity
    (2000.0, 3000.0, 3000.0)
    """

    velocity: Any
    """metres per second, an array of the grid's shape"""
    grid: Grid
    max_vel: float | None = None
    """what `fastest` is taken to be, so that models of one inversion share time step and layers"""

    def __post_init__(self) -> None:
        if tuple(self.velocity.shape) != self.grid.shape:
            raise WaveError(f"velocities of shape {tuple(self.velocity.shape)} on a grid of shape {self.grid.shape}")
        largest = self.extremes[1]
        # NaN fails the first comparison, an infinity the second.
        if not (self.slowest > 0 and largest < float("inf")):
            raise WaveError("velocities must be finite and above 0 everywhere")
        check_max_vel(self.max_vel, largest)


@dataclass(frozen=True, eq=False)
class DensityModel(FluidModel):
    """A fluid whose density varies; the kernels that serve it follow from the memory in which its arrays are.

    Examples
    --------
    >>> shape = (50, 60)
    >>> model = DensityModel(np.full(shape, 2000.0), np.full(shape, 1000.0), Grid(shape, 10.0), max_vel=3000.0)
    >>> model.slowest, model.fastest, model.layer_velocity
    (2000.0, 3000.0, 3000.0)
    """

    velocity: Any
    """metres per second, an array of the grid's shape"""
    density: Any
    """likewise, in any unit: data follow from its ratios alone"""
    grid: Grid
    max_vel: float | None = None
    """what `fastest` is taken to be, so that models of one inversion share time step and layers"""

    def __post_init__(self) -> None:
        for name in ("velocity", "density"):
            values = computable(getattr(self, name), f"a {name}")
            if tuple(values.shape) != self.grid.shape:
                raise WaveError(f"{name} of shape {tuple(values.shape)} on a grid of shape {self.grid.shape}")
            least, largest = extremes(values)
            if not (least > 0 and largest < float("inf")):
                raise WaveError(f"{name} must be finite and above 0 everywhere")
        if isinstance(self.velocity, np.ndarray) != isinstance(self.density, np.ndarray):
            raise WaveError("velocity and density are not in the same memory: give both as NumPy's or both on the GPU")
        check_max_vel(self.max_vel, self.extremes[1])


@dataclass(frozen=True, eq=False)
class VTIModel:
    """Rock that carries pressure waves faster along its layers than across them: transversely isotropic, axis vertical.

    Waves travel at v along depth, at v sqrt(1 + 2 epsilon) across it, and reflections from flat layers move out as at
    v sqrt(1 + 2 delta) (Thomsen, "Weak elastic anisotropy", Geophysics 51, 1986).

    Examples
    --------
    >>> grid = Grid((50, 60), 10.0)
    >>> velocity, epsilon, delta = (np.full(grid.shape, value) for value in (2000.0, 0.22, 0.1))
    >>> shale = VTIModel(velocity, epsilon, delta, grid)
    >>> shale.slowest, shale.fastest
    (2000.0, 2400.0)
    """

    velocity: Any
    """along depth, in metres per second, an array of the grid's shape"""
    epsilon: Any
    """likewise; nowhere below delta"""
    delta: Any
    grid: Grid
    max_vel: float | None = None
    """what `fastest` is taken to be, so that models of one inversion share time step and layers"""

    def __post_init__(self) -> None:
        for name, values in zip(("velocity", "epsilon", "delta"), self.arrays, strict=True):
            if tuple(values.shape) != self.grid.shape:
                raise WaveError(f"{name} of shape {tuple(values.shape)} on a grid of shape {self.grid.shape}")
            least = 0.0 if name == "velocity" else -0.5
            if not (float(values.min()) > least and float(values.max()) < float("inf")):
                raise WaveError(f"{name} must be finite and above {least:.3g} everywhere")
        if len({isinstance(values, np.ndarray) for values in self.arrays}) > 1:
            raise WaveError("the arrays are not all in the same memory: give all as NumPy's or all on the GPU")
        _, epsilon, delta = self.arrays
        if (lacking := float((delta - epsilon).max())) > 0:
            raise WaveError(
                f"epsilon is up to {lacking:.3g} below delta, where waves would grow without end: "
                "give numpy.maximum(epsilon, delta) in its place, or a smaller delta"
            )
        check_max_vel(self.max_vel, self._fastest)

    @cached_property
    def arrays(self) -> tuple[Any, Any, Any]:
        """The same three in the same memory, as arrays of NumPy, or of CuPy on a GPU."""
        epsilon, delta = computable(self.epsilon, "an epsilon"), computable(self.delta, "a delta")
        return computable(self.velocity), epsilon, delta

    @cached_property
    def slowest(self) -> float:
        """The smallest velocity of pressure waves at any angle; shear waves, which are none of rock, may be slower.

        With a = sin^2 of the angle, g = epsilon - delta and V the squared velocity over v^2, which is convex in a,

            V^2 - (1 + 2 epsilon a) V + 2 g a (1 - a) = 0,    dV/da = 0 where a = (1 - epsilon V / g) / 2.
        """
        velocity, epsilon, delta = (values.astype(np.float64) for values in self.arrays)
        apart = np.maximum(epsilon - delta, np.finfo(np.float64).tiny)
        between = (1 + epsilon + np.sqrt(1 + 2 * delta)) * apart / (2 * apart + epsilon**2)
        ends = 1 + 2 * np.minimum(epsilon, 0)
        squared = np.where(abs(epsilon) * between < apart, np.minimum(between, ends), ends)
        return float((velocity * np.sqrt(squared)).min())

    @cached_property
    def _fastest(self) -> float:
        return float(self._across.max())

    @property
    def _across(self) -> Any:
        """The larger one of the velocities along depth and across it, than which no other is larger."""
        velocity, epsilon, _ = (values.astype(np.float64) for values in self.arrays)
        return velocity * np.sqrt(1 + 2 * np.maximum(epsilon, 0))

    @cached_property
    def fastest(self) -> float:
        """The largest velocity at any angle, or `max_vel`."""
        return self._fastest if self.max_vel is None else float(self.max_vel)

    @cached_property
    def layer_velocity(self) -> float:
        """The velocity that absorbing layers are made for."""
        return velocity_of_layers(self._across) if self.max_vel is None else float(self.max_vel)


@dataclass(frozen=True, eq=False)
class ElasticModel:
    """An isotropic elastic medium; where the shear velocity is 0 it is a fluid.

    Examples
    --------
    >>> shape = (50, 60)
    >>> rock = ElasticModel(np.full(shape, 3000.0), np.full(shape, 1700.0), np.full(shape, 2300.0), Grid(shape, 10.0))
    >>> rock.slowest, rock.fastest
    (1700.0, 3000.0)
    """

    vp: Any
    """velocity of pressure waves in metres per second, an array of the grid's shape"""
    vs: Any
    """velocity of shear waves, likewise"""
    rho: Any
    """density in kilograms per cubic metre, likewise"""
    grid: Grid
    max_vel: float | None = None
    """what `fastest` is taken to be, so that models of one inversion share time step and layers"""

    def __post_init__(self) -> None:
        if len({isinstance(values, np.ndarray) for values in self.arrays}) > 1:
            raise WaveError("vp, vs and rho are not all in the same memory: give all as NumPy's or all on the GPU")
        leasts = ("above 0", "not below 0", "above 0")
        for name, values, least in zip(("vp", "vs", "rho"), self.arrays, leasts, strict=True):
            if tuple(values.shape) != self.grid.shape:
                raise WaveError(f"{name} of shape {tuple(values.shape)} on a grid of shape {self.grid.shape}")
            low, high = float(values.min()), float(values.max())
            if not ((low > 0 or (name == "vs" and low == 0)) and high < float("inf")):
                raise WaveError(f"{name} must be finite and {least} everywhere")
        vp, vs, _ = self.arrays
        check_max_vel(self.max_vel, float(vp.max()))
        # What is pressed together must push back: the bulk modulus of as many dimensions is above 0.
        ratio = float((vs / vp).max())
        if ratio >= (most := (2 - 2 / self.grid.ndim) ** -0.5):
            raise WaveError(f"vs reaches {ratio:.4g} of vp: in {self.grid.ndim}-D it must stay below {most:.4g} of it")

    @cached_property
    def arrays(self) -> tuple[Any, Any, Any]:
        """The same three in the same memory, as arrays of NumPy, or of CuPy on a GPU."""
        return computable(self.vp, "vp"), computable(self.vs, "vs"), computable(self.rho, "rho")

    @cached_property
    def slowest(self) -> float:
        """The smallest velocity: of shear waves, and of pressure waves where the medium is a fluid."""
        vp, vs, _ = self.arrays
        return float(np.where(vs > 0, vs, vp).min())

    @cached_property
    def fastest(self) -> float:
        """The largest velocity, that of pressure waves, or `max_vel`."""
        return float(self.arrays[0].max()) if self.max_vel is None else float(self.max_vel)

    @cached_property
    def layer_velocity(self) -> float:
        """The velocity that absorbing layers are made for."""
        return velocity_of_layers(self.vp) if self.max_vel is None else float(self.max_vel)


def check_max_vel(max_vel: float | None, largest: float) -> None:
    """Refuse a largest velocity that is exceeded."""
    if max_vel is not None and not largest <= max_vel < float("inf"):
        raise WaveError(
            f"max_vel={max_vel!r} in a model of up to {largest:.6g} m/s: give that or more, or leave it out"
        )
