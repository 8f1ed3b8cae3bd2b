"""The launches of a standard linear solid on a GPU: those of acoustic waves, and ``relax.cu`` before each step."""

from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic import gpu
from forebay.wave.acoustic.gpu import AcousticGpuKernels
from forebay.wave.acoustic.plane import PlaneKernels
from forebay.wave.acoustic.volume import VolumeKernels
from forebay.wave.earth.grid import Grid
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.physics import State
from forebay.wave.visco.solid import LAGGING

SOURCE = Path(__file__).parent / "relax.cu"


def visco_kernels(
    grid: Grid, radius: int, dtype: np.dtype[Any], shots: int | None = None, **options: Any
) -> "RelaxingKernels":
    """Choose the kernels by the number of axes; batches of shots have two."""
    return (ViscoVolumeKernels if grid.ndim == 3 else ViscoPlaneKernels)(grid, radius, dtype, shots, **options)


class RelaxingKernels(AcousticGpuKernels):
    """What the kernels of any number of axes have beside those of acoustic waves, in float32."""

    def relax(self, propagator: Any, state: State) -> None:
        """Take the lag of a state one step further, and what pressure owes to it from the older field."""
        launch = self._ahead(propagator, state)
        launch.set(p=state["p"], old=state["p_old"])
        launch(self.device.stream())
        launch.set(p=None, old=None, lag=None)  # nothing is kept alive

    def sense(self, sums: dict[str, Any], state: State, lag: Any, factor: float) -> None:
        """Add a factor times another wave's lag, times what the adjoint's step has led to, to the sums."""
        arguments = {"p": None, "old": None, "lag": None, "other": None, "of_loss": None, "of_fade": None}
        launch = self._relaxing("sense", lag.size // WORD, 1, arguments | {"factor": 0.0, "words": lag.size // WORD})
        launch.set(p=state["p"], old=state["p_old"], lag=state[LAGGING], other=lag, factor=factor)
        launch.set(of_loss=sums["loss"], of_fade=sums["fade"])
        launch(self.device.stream())
        launch.set(**arguments)  # nothing is kept alive

    def _ahead(self, propagator: Any, state: Any) -> Launch:
        """Return what takes the lag of a state further, prepared once but for where its fields are."""
        words, excess = state["p"].size // WORD // self._shots, propagator.excess
        arguments = {"p": None, "old": None, "lag": None, "excess": excess, "tangents": propagator.tangents}
        arguments |= {"words": words, "models": int(excess.size > words * WORD)}
        launch = self._relaxing("relax", words, self._shots, arguments)
        launch.set(lag=self.device.address(state[LAGGING]))
        return launch

    def _relaxing(self, name: str, words: int, shots: int, arguments: dict[str, Any]) -> Launch:
        """Return a launch with a thread for each word, prepared once."""
        if (name, False) not in self._launches:
            kernel, grid = self.device.kernel(SOURCE, name, {}), (-(-words // gpu.THREADS), shots)
            self._launches[name, False] = Launch(self.device, kernel, grid, (gpu.THREADS,), arguments)
        return self._launches[name, False]


class ViscoPlaneKernels(RelaxingKernels, PlaneKernels):
    """The kernels for one grid of two axes and one order."""


class ViscoVolumeKernels(RelaxingKernels, VolumeKernels):
    """The kernels for one grid of three axes and one order."""
