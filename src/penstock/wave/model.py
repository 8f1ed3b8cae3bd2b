"""Models: what waves travel through, as plain arrays on a grid."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.errors import WaveError
from penstock.wave.grid import Grid


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
