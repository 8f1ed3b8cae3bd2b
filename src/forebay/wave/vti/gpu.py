"""The loops of VTI waves on a GPU: ``sweep.cu`` and ``volume.cu``, whose CPU twins say what they compute."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay.wave.kernels.device import Launch
from forebay.wave.sweeps.gpu import LANES, SweepGpuKernels
from forebay.wave.vti.fields import FIELDS, SUMS


class VTIGpuKernels(SweepGpuKernels):
    """The kernels for one grid and one order, in float32."""

    folder, outer = Path(__file__).parent, 1

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the model, of the fields before that step."""
        launch, (first, second, third) = self._launch(propagator, "sense"), (sums[name] for name in SUMS)
        launch.set(p=state["p_old"], r=state["r_old"], p_old=first, r_old=second, third=third)
        launch.set(other_p=record["p"], other_r=record["r"], factor=factor, pml=state.get("pml"))
        launch(self.device.stream())
        names = "p", "r", "p_old", "r_old", "third", "other_p", "other_r", "pml"
        launch.set(**dict.fromkeys(names))  # nothing is kept alive

    def _run(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any, *, back: bool
    ) -> Any:
        stream, address = self.device.stream(), self.device.address
        listeners, heard = hears if hears is not None else (None, None)
        layers, points = self._launch(propagator, "remember"), self._points(senders, listeners)
        sweep = self._launch(propagator, "retreat" if back else "advance")
        p, p_old, r, r_old, pml = (address(state[name]) if name in state else 0 for name in (*FIELDS, "pml"))
        values, row = address(sent), sent.itemsize * sent.shape[1]
        out, across = (0, 0) if heard is None else (address(heard), heard.itemsize * heard.shape[1])
        points.set(mirrored=0)  # nobody looks above a free surface
        for step in steps:
            for whole in range(int(back), -1, -1) if pml else ():
                layers.set(p=p, r=r, pml=pml, back=int(back), whole=whole)
                layers(stream)
            sweep.set(p=p, r=r, p_old=p_old, r_old=r_old, pml=pml)
            sweep(stream)
            points.set(field=p_old, values=values + step * row, heard=p, out=out + step * across)
            points(stream)
            p, p_old, r, r_old = p_old, p, r_old, r
        names = ("p", "p_old"), ("r", "r_old")
        swapped = {name: state[other] for pair in names for name, other in (pair, pair[::-1])}
        return state | swapped if len(steps) % 2 else state

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
        return LANES * ((stages + 1) * (rows + 2 * self.radius) + 9 * stages * rows)
