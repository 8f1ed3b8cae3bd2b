"""What the loops of a CPU and of a GPU both compute of waves in variable density."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging
from forebay.wave.pressure import PressureKernels

MEMORY = 2
"""Memory fields of an axis: psi at its half points, zeta at its whole ones."""


class DensityKernels(PressureKernels, Protocol):
    """The loops for one grid, one order and one type."""

    def run_back(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], image: Imaging | None
    ) -> Any:
        """Take the adjoint's state back through steps, in place, and make an image of the last one."""

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the medium, of the pressure before that step."""


def kernels_of(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any]) -> DensityKernels:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(array, np.ndarray):
        from forebay.wave.density.gpu import DensityGpuKernels  # it needs a GPU

        return DensityGpuKernels(grid, radius, dtype)
    from forebay.wave.density.cpu import DensityCpuKernels  # compiled when it is needed

    return DensityCpuKernels(grid, radius, dtype)
