"""The loops of VTI waves on a GPU: ``sweep.cu`` and ``volume.cu``, whose CPU twins say what they compute."""

from pathlib import Path
from typing import Any

from forebay.wave.kernels.device import Launch
from forebay.wave.sweeps.gpu import LANES, SweepGpuKernels
from forebay.wave.vti.fields import SUMS


class VTIGpuKernels(SweepGpuKernels):
    """The kernels for one grid and one order, in float32."""

    folder, newest, reflected, outer = Path(__file__).parent, ("p", "r"), False, 1

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the model, of the fields before that step."""
        launch, (first, second, third) = self._launch(propagator, "sense"), (sums[name] for name in SUMS)
        launch.set(p=state["p_old"], r=state["r_old"], p_old=first, r_old=second, third=third)
        launch.set(other_p=record["p"], other_r=record["r"], factor=factor, pml=state.get("pml"))
        launch(self.device.stream())
        names = "p", "r", "p_old", "r_old", "third", "other_p", "other_r", "pml"
        launch.set(**dict.fromkeys(names))  # nothing is kept alive

    def _launch(self, propagator: Any, name: str) -> Launch:
        """Return a launch, prepared once."""
        if name not in self._prepared:
            weights = [step**-2 for step in propagator.model.grid.spacing]
            medium = {"hard": propagator.stiffness, "share": propagator.share, "excess": propagator.excess}
            fields, of_step = {"p": None, "r": None, **medium}, {"p_old": None, "r_old": None}
            of_gradient = {"third": None, "other_p": None, "other_r": None, "factor": 0.0}
            self._prepared[name] = self._prepare(name, propagator.layers, weights, fields, of_step, of_gradient)
        return self._prepared[name]

    def _shared(self) -> int:
        stages, rows = self.variant.ahead, self.variant.block[1]
        return LANES * ((stages + self.radius + 1) * (3 * rows + 2 * self.radius) + 4 * stages * rows)
