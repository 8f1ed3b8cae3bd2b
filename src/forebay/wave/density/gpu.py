"""The loops of waves in variable density on a GPU: the kernels of ``sweep.cu``, whose CPU twins say what they compute.

A step is three launches: what layers remember, the sweep, and the points; a step back has one more for the layers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic.gpu import THREADS, GpuKernels
from forebay.wave.earth.grid import Grid
from forebay.wave.elastic.layers import Layers
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.variant import Variant

SOURCE = Path(__file__).parent / "sweep.cu"
WAVES, SHORTEST = 4, 24
"""Thread blocks that each place for one is to have, and the fewest planes that they march through."""


class DensityGpuKernels(GpuKernels):
    """The kernels for one grid and one order, in float32."""

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any = None, variant: Variant | None = None
    ) -> None:
        chosen = variant or Variant(block=(32, 8) if grid.ndim == 3 else (THREADS, 1))
        super().__init__(grid, radius, dtype, None, device, chosen)
        self._prepared: dict[str, Launch] = {}

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        return self._run(propagator, state, senders, sent, steps, hears, back=False)

    def run_back(self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int]) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each."""
        return self._run(propagator, state, senders, sent, steps, None, back=True)

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the medium, of the pressure before that step."""
        launch = self._launch(propagator, "sense")
        launch.set(p=state["p_old"], old=sums["stiffness"], stiff=sums["density"], other=record, factor=factor)
        launch.set(pml=state.get("pml"))
        launch(self.device.stream())
        launch.set(p=None, old=None, stiff=None, other=None, pml=None)  # nothing is kept alive

    def _run(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any, *, back: bool
    ) -> Any:
        stream, address = self.device.stream(), self.device.address
        listeners, heard = hears if hears is not None else (None, None)
        layers, points = self._launch(propagator, "remember"), self._points(senders, listeners)
        sweep = self._launch(propagator, "retreat" if back else "advance")
        p, old, pml = (address(state[name]) if name in state else 0 for name in ("p", "p_old", "pml"))
        values, row = address(sent), sent.itemsize * sent.shape[1]
        out, across = (0, 0) if heard is None else (address(heard), heard.itemsize * heard.shape[1])
        for step in steps:
            for whole in range(int(back), -1, -1) if pml else ():
                layers.set(p=p, pml=pml, back=int(back), whole=whole)
                layers(stream)
            sweep.set(p=p, old=old, pml=pml)
            sweep(stream)
            points.set(field=old, values=values + step * row, heard=p, out=out + step * across)
            points(stream)
            p, old = old, p
        return state | {"p": state["p_old"], "p_old": state["p"]} if len(steps) % 2 else state

    def _launch(self, propagator: Any, name: str) -> Launch:
        """Return a launch, prepared once."""
        if name not in self._prepared:
            medium = {"p": None, "rho": propagator.density}
            weights = [2 / step for step in propagator.model.grid.spacing]
            other = {"other": None, "factor": 0.0, "mirrored": self._mirrored}
            of_sweep = {"old": None, "stiff": propagator.stiffness, **other}
            self._prepared[name] = self._prepare(SOURCE, name, propagator.layers, weights, medium, of_sweep)
        return self._prepared[name]

    def _prepare(
        self,
        source: Path,
        name: str,
        layers: Layers,
        weights: Sequence[float],
        fields: dict[str, Any],
        of_sweep: dict[str, Any],
    ) -> Launch:
        """Prepare a sweep, or what layers remember before it, which both read fields; a sweep is told more."""
        arguments, most = self._grid_of(layers, weights)
        arguments |= fields
        along, across = self.variant.block
        defines = {"AXES": self._axes, "RADIUS": self.radius, "BLOCK_X": along, "BLOCK_Y": across}
        kernel = self.device.kernel(source, name, defines)
        if name == "remember":
            grid, block = (-(-most // THREADS), self._axes, 1), (THREADS, 1)
            return Launch(self.device, kernel, grid, block, arguments | {"back": 0, "whole": 0})
        columns, planes = layers.ends[-1], self._planes - 2 * self.radius
        tiles = -(-(columns[3] - columns[0]) // along), max(-(-(self._rows - 2 * self.radius) // across), 1)
        parts = max(1, min(-(-WAVES * self._slots // (tiles[0] * tiles[1])), planes // SHORTEST))
        arguments |= of_sweep | {"chunk": -(-planes // parts)}
        return Launch(self.device, kernel, (*tiles, parts), self.variant.block, arguments)

    def _grid_of(self, layers: Layers, weights: Sequence[float]) -> tuple[dict[str, Any], int]:
        """Describe fields and layers as the kernels read them; tell the most values that an axis has of a memory."""
        order = [0, 1] if self._axes == 2 else [0, 2, 1]
        offsets, table = layers.offsets(2), [self._planes, self._rows, layers.fields[-1]]
        coefficients, begin = [], 0
        for axis in order:
            start, stop = offsets[axis], offsets[axis + 1]
            table += [*layers.ends[axis], start, (start + stop) // 2, begin, layers.fields[axis]]
            coefficients += [self.get(layers.a[axis]).ravel(), self.get(layers.b[axis]).ravel()]
            begin += 4 * layers.fields[axis]
        arguments = {
            "table": self.put(np.array(table, np.int64)),
            "ab": self.put(np.concatenate(coefficients)),
            "pml": None,
            **{f"w_{letter}": weights[axis] for letter, axis in zip("zxy", [*order, 0][:3], strict=True)},
        }
        return arguments, max(int(size) // 2 for size in np.diff(offsets))
