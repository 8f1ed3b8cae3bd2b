"""The loops of TTI waves on a GPU: ``sweep.cu``, whose CPU twins say what it computes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic.gpu import THREADS
from forebay.wave.earth.grid import Grid
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.variant import Variant
from forebay.wave.sweeps.gpu import SweepGpuKernels
from forebay.wave.vti.fields import SUMS


class TTIGpuKernels(SweepGpuKernels):
    """The kernels for one grid and one order, in float32."""

    folder, outer = Path(__file__).parent, 0

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any = None, variant: Variant | None = None
    ) -> None:
        chosen = variant or Variant(block=(32, 8) if grid.ndim == 3 else (THREADS, 1))
        super().__init__(grid, radius, dtype, device, chosen)
        self._scratch: dict[str, Any] = {}

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the model, of the fields before that step."""
        fields = {"p": state["p_old"], "r": state["r_old"], "pml": state.get("pml")}
        changed = dict(zip(("p_old", "r_old", "third"), (sums[name] for name in SUMS), strict=True))
        others = {"newest": state["p"], "other_p": record["p"], "other_r": record["r"], "factor": factor}
        for name, more in (("stress", {}), ("slope_back", {}), ("sense", changed | others)):
            launch = self._launch(propagator, name)
            launch.set(**fields, **more, remembers=0)
            launch(self.device.stream())
            launch.set(**dict.fromkeys((*fields, *more.keys() - {"factor"})))  # nothing is kept alive

    def _run(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any, *, back: bool
    ) -> Any:
        stream, address = self.device.stream(), self.device.address
        listeners, heard = hears if hears is not None else (None, None)
        names = ("stress", "slope_back", "retreat") if back else ("stress", "slope", "advance")
        sweeps, points = [self._launch(propagator, name) for name in names], self._points(senders, listeners)
        other = {"p": "p_old", "p_old": "p", "r": "r_old", "r_old": "r"}
        fields, pml = {name: address(state[name]) for name in other}, address(state["pml"]) if "pml" in state else 0
        values, row = address(sent), sent.itemsize * sent.shape[1]
        out, across = (0, 0) if heard is None else (address(heard), heard.itemsize * heard.shape[1])
        points.set(mirrored=0)
        for step in steps:
            for sweep in sweeps:
                sweep.set(**fields, pml=pml, remembers=int(back))
                sweep(stream)
            points.set(field=fields["p_old"], values=values + step * row, heard=fields["p"], out=out + step * across)
            points(stream)
            fields = {name: fields[other[name]] for name in other}
        return state | {name: state[other[name]] for name in other} if len(steps) % 2 else state

    def _launch(self, propagator: Any, name: str) -> Launch:
        """Return a launch, prepared once; all take the same arguments."""
        if name not in self._prepared:
            if not self._scratch:  # it is 0 around what is computed
                self._scratch = {key: self.zeros(propagator.stiffness.shape) for key in ("q", "u_p", "u_q")}
            layers, (along, across) = propagator.layers, self.variant.block
            weights = [1 / step for step in propagator.model.grid.spacing]
            arguments, _ = self._grid_of(layers, weights, propagator.memories)
            medium = {"hard": propagator.stiffness, "share": propagator.share, "excess": propagator.excess}
            arguments |= {"p": None, "r": None, **medium, "normal": propagator.axis, **self._scratch}
            arguments |= dict.fromkeys(("p_old", "r_old", "third", "newest", "other_p", "other_r"))
            (first, _, _, last), rows = layers.ends[-1], max(self._rows - 2 * self.radius, 1)
            tiles = -(-(last - first) // along), -(-rows // across)
            parts = self._parts(tiles[0] * tiles[1])
            arguments |= {"factor": 0.0, "mirrored": self._mirrored}
            arguments |= {"chunk": -(-(self._planes - 2 * self.radius) // parts), "remembers": 0}
            defines = {"RADIUS": self.radius, "AXES": self._axes, "BLOCKS": self.variant.blocks}
            defines |= {"BLOCK_X": along, "BLOCK_Y": across}
            kernel = self.device.kernel(self.folder / "sweep.cu", name, defines)
            self._prepared[name] = Launch(self.device, kernel, (*tiles, parts), self.variant.block, arguments)
        return self._prepared[name]

    def _shared(self) -> int:
        return 0
