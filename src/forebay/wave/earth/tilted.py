"""Models of rock whose layers dip: transversely isotropic about an axis of any tilt."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.arrays import computable, extremes
from forebay.wave.earth.model import VTIModel

ANGLES = ("tilt", "azimuth")
"""Names of the arrays that tell where an axis points."""


@dataclass(frozen=True, eq=False)
class TTIModel(VTIModel):
    """Rock that carries pressure waves faster along its layers than across them, however those dip.

    Waves travel at v along the symmetry axis, at v sqrt(1 + 2 epsilon) across it, and between as delta tells, as those
    of a `VTIModel` do along depth and across it. The axis leans from depth by the tilt: towards the last axis of the
    grid where the azimuth is 0, towards the second one of three where it is pi / 2.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> grid = Grid((50, 60), 10.0)
    >>> velocity, epsilon, delta = (np.full(grid.shape, value) for value in (2000.0, 0.22, 0.1))
    >>> shale = TTIModel(velocity, epsilon, delta, grid, tilt=np.full(grid.shape, np.radians(30.0)))
    >>> shale.slowest, shale.fastest
    (2000.0, 2400.0)
    """

    _: KW_ONLY
    tilt: Any
    """in radians, likewise; from -pi to pi"""
    azimuth: Any = None
    """likewise, in three dimensions; from -2 pi to 2 pi"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.azimuth is None) != (self.grid.ndim == 2):
            raise WaveError(
                "azimuth is missing: an axis needs one in three dimensions"
                if self.azimuth is None
                else "azimuth: an axis has none in two dimensions: leave it out"
            )
        for name, values, most in zip(ANGLES, self.angles, (math.pi, 2 * math.pi), strict=False):
            if tuple(values.shape) != self.grid.shape:
                raise WaveError(f"{name} of shape {tuple(values.shape)} on a grid of shape {self.grid.shape}")
            if values.dtype.kind not in "fiu":
                raise WaveError(f"{name} of type {values.dtype}: give real numbers")
            low, high = extremes(values)
            if not math.isfinite(low + high):
                raise WaveError(f"{name} must be finite everywhere")
            if not -most * (1 + 1e-6) <= low <= high <= most * (1 + 1e-6):
                raise WaveError(
                    f"{name} from {low:.6g} to {high:.6g}, which is not all within {most:.4g} of 0: give radians, "
                    "numpy.radians(degrees)"
                )
            if isinstance(values, np.ndarray) != isinstance(self.arrays[0], np.ndarray):
                raise WaveError("the arrays are not all in the same memory: give all as NumPy's or all on the GPU")

    @cached_property
    def angles(self) -> tuple[Any, ...]:
        """Tilt and, in three dimensions, azimuth, in the same memory, as arrays of NumPy, or of CuPy on a GPU."""
        tilt = computable(self.tilt, "a tilt")
        return (tilt,) if self.azimuth is None else (tilt, computable(self.azimuth, "an azimuth"))

    @property
    def axis(self) -> list[Any]:
        """The parts of the symmetry axis along those of the grid, in double precision: a vector of length 1."""
        tilt, *azimuth = (values.astype(np.float64) for values in self.angles)
        if not azimuth:
            return [np.cos(tilt), np.sin(tilt)]
        return [np.cos(tilt), np.sin(tilt) * np.sin(azimuth[0]), np.sin(tilt) * np.cos(azimuth[0])]
