"""The model of waves in a standard linear solid."""

from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.arrays import computable, extremes
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import FluidModel, check_max_vel
from forebay.wave.visco.solid import speeds

HIGHEST = 1e12
"""Hz, which no frequency of a wave in rock reaches"""


@dataclass(frozen=True, eq=False)
class ViscoModel(FluidModel):
    """Rock that takes energy from pressure waves: a standard linear solid of constant density, one relaxation a point.

    A wave of the reference frequency travels at the velocity and loses about 2 pi / Q of its energy in a period, where
    Q is large. Waves of other frequencies lose less; slower ones travel more slowly, and faster ones faster.

    Examples
    --------
    >>> grid = Grid((50, 60), 10.0)
    >>> velocity, q = np.full(grid.shape, 2000.0), np.full(grid.shape, 40.0)
    >>> clay = ViscoModel(velocity, 1 / q, grid, frequency=15.0)
    >>> round(clay.slowest), round(clay.fastest)
    (1975, 2025)
    """

    velocity: Any
    """metres per second at the reference frequency, an array of the grid's shape"""
    attenuation: Any
    """1 / Q there, likewise; 0 where waves lose nothing"""
    grid: Grid
    frequency: float
    """the reference frequency in Hz, near the middle of what sources send"""
    max_vel: float | None = None
    """what `fastest` is taken to be, so that models of one inversion share time step and layers"""

    def __post_init__(self) -> None:
        for name in ("velocity", "attenuation"):
            values = computable(getattr(self, name), f"an array of the {name}")
            if values.dtype.kind not in "fiub":
                raise WaveError(f"{name} of type {values.dtype}: give real numbers")
            if tuple(values.shape) != self.grid.shape:
                raise WaveError(f"{name} of shape {tuple(values.shape)} on a grid of shape {self.grid.shape}")
        if not (self.extremes[0] > 0 and self.extremes[1] < float("inf")):
            raise WaveError("velocity must be finite and above 0 everywhere")
        least, most = extremes(computable(self.attenuation))
        if not 0 <= least <= most < 1:
            raise WaveError(
                f"attenuation from {least:.4g} to {most:.4g}, where it is 1 / Q: give 1 / q of quality factors q above "
                "1, and 0 where waves lose nothing"
            )
        if isinstance(self.velocity, np.ndarray) != isinstance(self.attenuation, np.ndarray):
            raise WaveError(
                "velocity and attenuation are not in the same memory: give both as NumPy's or both on the GPU"
            )
        given: Any = self.frequency
        is_number = not isinstance(given, bool) and isinstance(given, Real)
        if not (is_number and 0 < given < HIGHEST):
            raise WaveError(
                f"frequency={self.frequency!r}: give that in Hz at which velocity and attenuation hold, such as the "
                "wavelet's"
            )
        check_max_vel(self.max_vel, self._extreme_speeds[1])

    @cached_property
    def _extreme_speeds(self) -> tuple[float, float]:
        velocity, attenuation = (computable(each).astype(np.float64) for each in (self.velocity, self.attenuation))
        slow, fast = speeds(attenuation)
        return float((velocity * slow).min()), float((velocity * fast).max())

    @property
    def slowest(self) -> float:
        """The smallest velocity of waves of any frequency."""
        return self._extreme_speeds[0]

    @property
    def fastest(self) -> float:
        """The largest velocity of waves of any frequency, or `max_vel`."""
        return self._extreme_speeds[1] if self.max_vel is None else float(self.max_vel)
