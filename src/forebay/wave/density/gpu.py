"""The loops of waves in variable density on a GPU: the kernels of ``sweep.cu``, whose CPU twins say what they compute.

A step is three launches: what layers remember, the sweep, and the points; a step back has one more for the layers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic.gpu import THREADS, GpuKernels
from forebay.wave.density.kernels import MEMORY
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.variant import Variant

SOURCE = Path(__file__).parent / "sweep.cu"
LINE = 128
"""Threads of a thread block in two dimensions, all along a row."""
WAVES, SHORTEST = 4, 24
"""Thread blocks that each place for one is to have, and the fewest planes that they march through."""


class DensityGpuKernels(GpuKernels):
    """The kernels for one grid and one order, in float32."""

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any = None, variant: Variant | None = None
    ) -> None:
        chosen = variant or Variant(block=(32, 8) if grid.ndim == 3 else (LINE, 1))
        super().__init__(grid, radius, dtype, None, device, chosen)
        self._prepared: dict[str, Launch] = {}

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        return self._run(propagator, state, senders, senders.factors, sent, steps, hears, "")

    def run_back(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], image: Imaging | None
    ) -> Any:
        """Take the adjoint's state back through steps, in place, and make an image of the last one."""
        state = self._run(propagator, state, senders, senders.back, sent, steps, None, "_back")
        if image is not None:
            self.correlate(image.image, image.illumination, image.record, self.crop(state["p"]), image.factor)
        return state

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the medium, of the pressure before that step."""
        launch = self._launch(propagator, "sense")
        launch.set(p=state["p_old"], old=sums["stiffness"], stiff=sums["density"], other=record, factor=factor)
        launch.set(pml=state.get("pml"))
        launch(self.device.stream())
        launch.set(p=None, old=None, stiff=None, other=None, pml=None)  # nothing is kept alive

    def _run(
        self, propagator: Any, state: Any, senders: Any, factors: Any, sent: Any, steps: Any, hears: Any, way: str
    ) -> Any:
        stream, address = self.device.stream(), self.device.address
        listeners, heard = hears if hears is not None else (None, None)
        layers, sweep = (self._launch(propagator, name) for name in (f"remember{way}", "retreat" if way else "advance"))
        points = self._sending(senders, factors, listeners)
        p, old, pml = (address(state[name]) if name in state else 0 for name in ("p", "p_old", "pml"))
        for step in steps:
            for whole in ((1, 0) if way else (0,)) if pml else ():
                layers.set(p=p, pml=pml, whole=whole)
                layers(stream)
            sweep.set(p=p, old=old, pml=pml)
            sweep(stream)
            points.set(field=old, values=address(sent[step]), heard=p)
            points.set(out=0 if heard is None else address(heard[step]))
            points(stream)
            p, old = old, p
        return state | {"p": state["p_old"], "p_old": state["p"]} if len(steps) % 2 else state

    def _sending(self, senders: Any, factors: Any, listeners: Any) -> Launch:
        """Return what sends and hears for a pair of antennas, prepared once."""
        key = id(factors), id(listeners)
        if key not in self._listening:
            launch = self._points_of(senders.points, factors, listeners and listeners.points)
            self._listening[key] = factors, listeners, launch  # kept, so that nothing else gets their number
        return self._listening[key][2]

    def _launch(self, propagator: Any, name: str) -> Launch:
        """Return a launch, prepared once."""
        if name not in self._prepared:
            arguments, most = self._grid_of(propagator)
            along, across = self.variant.block
            defines = {"AXES": self._axes, "RADIUS": self.radius, "BLOCK_X": along, "BLOCK_Y": across}
            kernel = self.device.kernel(SOURCE, name, defines)
            grid, block = (-(-most // THREADS), self._axes, 1), (THREADS, 1)
            if name.startswith("remember"):
                arguments["whole"] = 0
            else:
                (*_, rows, columns), planes = propagator.layers.ends, self._planes - 2 * self.radius
                tiles = [-(-(ends[3] - ends[0]) // side) for ends, side in ((columns, along), (rows, across))]
                tiles[1] = tiles[1] if self._axes == 3 else 1
                parts = max(1, min(-(-WAVES * self._slots // (tiles[0] * tiles[1])), planes // SHORTEST))
                grid, block = (tiles[0], tiles[1], parts), self.variant.block
                arguments |= {"old": None, "stiff": propagator.stiffness, "other": None, "factor": 0.0}
                arguments |= {"mirrored": self._mirrored, "chunk": -(-planes // parts)}
            self._prepared[name] = Launch(self.device, kernel, grid, block, arguments)
        return self._prepared[name]

    def _grid_of(self, propagator: Any) -> tuple[dict[str, Any], int]:
        """Describe fields and layers as the kernels read them; tell the most values that an axis has of a memory."""
        layers, order = propagator.layers, [0, 1] if self._axes == 2 else [0, 2, 1]
        offsets, table = layers.offsets(MEMORY), [self._planes, self._rows, layers.fields[-1]]
        coefficients, begin = [], 0
        for axis in order:
            start, stop = offsets[axis], offsets[axis + 1]
            table += [*layers.ends[axis], start, (start + stop) // MEMORY, begin, layers.fields[axis]]
            coefficients += [self.get(layers.a[axis]).ravel(), self.get(layers.b[axis]).ravel()]
            begin += 4 * layers.fields[axis]
        spacing = propagator.model.grid.spacing
        arguments = {
            "table": self.put(np.array(table, np.int64)),
            "ab": self.put(np.concatenate(coefficients)),
            "pml": None,
            **{f"w_{letter}": 2 / spacing[axis] for letter, axis in zip("zxy", [*order, 0][:3], strict=True)},
            "p": None,
            "rho": propagator.density,
        }
        return arguments, max(int(size) // MEMORY for size in np.diff(offsets))
