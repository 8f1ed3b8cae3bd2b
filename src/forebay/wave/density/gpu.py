"""The loops of waves in variable density on a GPU: ``sweep.cu`` and ``volume.cu``, whose CPU twins say what they do."""

from pathlib import Path
from typing import Any

from forebay.wave.kernels.device import Launch
from forebay.wave.sweeps.gpu import LANES, SweepGpuKernels


class DensityGpuKernels(SweepGpuKernels):
    """The kernels for one grid and one order, in float32."""

    folder, outer = Path(__file__).parent, 2

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the medium, of the pressure before that step."""
        launch = self._launch(propagator, "sense")
        launch.set(p=state["p_old"], p_old=sums["stiffness"], stiff=sums["density"], other=record, factor=factor)
        launch.set(pml=state.get("pml"))
        launch(self.device.stream())
        launch.set(p=None, p_old=None, stiff=None, other=None, pml=None)  # nothing is kept alive

    def _launch(self, propagator: Any, name: str) -> Launch:
        """Return a launch, prepared once."""
        if name not in self._prepared:
            weights = [2 / step for step in propagator.model.grid.spacing]
            fields, of_step = {"p": None, "rho": propagator.density}, {"p_old": None, "stiff": propagator.stiffness}
            of_gradient = {"other": None, "factor": 0.0}
            self._prepared[name] = self._prepare(name, propagator.layers, weights, fields, of_step, of_gradient)
        return self._prepared[name]

    def _shared(self) -> int:
        stages, radius, rows = self.variant.ahead, self.radius, self.variant.block[1]
        fluxes, tile = 2 * (rows + 2 * radius - 1), 2 * rows + 10 * radius - 2
        return LANES * (fluxes + (stages + 1) * tile + 4 * stages * rows)
