"""Models: what waves travel through, as plain arrays on a grid."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid


@dataclass(frozen=True, eq=False)
class AcousticModel:
    """A medium of constant density; the kernels that serve it follow from the memory in which its array is."""

    velocity: Any
    """metres per second, an array of the grid's shape"""
    grid: Grid

    def __post_init__(self) -> None:
        if tuple(self.velocity.shape) != self.grid.shape:
            raise WaveError(f"velocities of shape {tuple(self.velocity.shape)} on a grid of shape {self.grid.shape}")
        # NaN fails the first comparison, an infinity the second.
        if not (self.slowest > 0 and self.fastest < float("inf")):
            raise WaveError("velocities must be finite and above 0 everywhere")

    @cached_property
    def slowest(self) -> float:
        """The smallest velocity."""
        return float(self.velocity.min())

    @cached_property
    def fastest(self) -> float:
        """The largest velocity."""
        return float(self.velocity.max())


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

    def __post_init__(self) -> None:
        for name, least in (("vp", "above 0"), ("vs", "not below 0"), ("rho", "above 0")):
            values = getattr(self, name)
            if tuple(values.shape) != self.grid.shape:
                raise WaveError(f"{name} of shape {tuple(values.shape)} on a grid of shape {self.grid.shape}")
            low, high = float(values.min()), float(values.max())
            if not ((low > 0 or (name == "vs" and low == 0)) and high < float("inf")):
                raise WaveError(f"{name} must be finite and {least} everywhere")
        # What is pressed together must push back: the bulk modulus of as many dimensions is above 0.
        ratio = float((self.vs / self.vp).max())
        if ratio >= (most := (2 - 2 / self.grid.ndim) ** -0.5):
            raise WaveError(f"vs reaches {ratio:.4g} of vp: in {self.grid.ndim}-D it must stay below {most:.4g} of it")

    @cached_property
    def slowest(self) -> float:
        """The smallest velocity: of shear waves, and of pressure waves where the medium is a fluid."""
        return float(np.where(self.vs > 0, self.vs, self.vp).min())

    @cached_property
    def fastest(self) -> float:
        """The largest velocity, that of pressure waves."""
        return float(self.vp.max())
