"""What the loops of a standard linear solid compute beside those of acoustic waves, on a CPU and on a GPU."""

from typing import Any, Protocol

import numpy as np

from forebay.errors import WaveError
from forebay.wave.acoustic.kernels import AcousticKernels
from forebay.wave.earth.grid import Grid
from forebay.wave.physics import State


class ViscoKernels(AcousticKernels, Protocol):
    """The loops for one grid, one order and one type."""

    def relax(self, propagator: Any, state: State) -> None:
        """Take the lag of a state one step further, and what pressure owes to it from the older field."""

    def sense(self, sums: dict[str, Any], state: State, lag: Any, factor: float) -> None:
        """Add a factor times another wave's lag, times what the adjoint's step has led to, to the sums."""


def kernels_of(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any], shots: int | None) -> ViscoKernels:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(array, np.ndarray):
        from forebay.wave.visco.gpu import visco_kernels  # it needs a GPU

        return visco_kernels(grid, radius, dtype, shots)
    from forebay.wave.visco.cpu import ViscoCpuKernels  # compiled when it is needed

    return ViscoCpuKernels(grid, radius, dtype, shots)
