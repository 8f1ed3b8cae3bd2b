"""The launches on a GPU of physics whose layers go ahead in a sweep of their own.

A step is three launches: what layers remember, the sweep, and the points; a step back has one more for the layers. In
three dimensions the sweep is that of ``volume.cu``, by words of four points; a gradient is that of ``sweep.cu``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic.gpu import THREADS, GpuKernels
from forebay.wave.earth.grid import Grid
from forebay.wave.elastic.layers import Layers
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.kernels.variant import Variant

WAVES, SHORTEST = 12, 24
"""Thread blocks for each that there is room for, since those with layers take longer, and the fewest planes of one."""
LANES, WORD_BYTES = 32, 16
ROWS_OF_BLOCK = (16, 12, 8, 4)
"""Of a thread block in three dimensions: the first that shared memory has room for, since rows around are read too."""


class SweepGpuKernels(GpuKernels, ABC):
    """The kernels for one grid and one order, in float32."""

    folder: Path
    """where the sources are"""
    newest: tuple[str, ...] = ("p",)
    """the fields of a state, each of which has an older one"""
    reflected = True
    """whether anybody looks at the pressure above a free surface"""
    outer: int
    """words at each end of a warp's that it only reads, in three dimensions"""

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any = None, variant: Variant | None = None
    ) -> None:
        super().__init__(grid, radius, dtype, None, device, variant or Variant(block=(THREADS, 1)))
        self._prepared: dict[str, Launch] = {}
        for rows in ROWS_OF_BLOCK if variant is None and grid.ndim == 3 else ():
            self.variant = Variant(block=(LANES, rows), blocks=1, ahead=2)
            if WORD_BYTES * self._shared() <= self.device.shared:
                break

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        return self._run(propagator, state, senders, sent, steps, hears, back=False)

    def run_back(self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int]) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each."""
        return self._run(propagator, state, senders, sent, steps, None, back=True)

    def _run(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any, *, back: bool
    ) -> Any:
        stream, address = self.device.stream(), self.device.address
        listeners, heard = hears if hears is not None else (None, None)
        layers, points = self._launch(propagator, "remember"), self._points(senders, listeners)
        sweep = self._launch(propagator, "retreat" if back else "advance")
        other = {name: f"{name}_old" for name in self.newest}
        other |= {old: name for name, old in other.items()}
        fields, pml = {name: address(state[name]) for name in other}, address(state["pml"]) if "pml" in state else 0
        values, row = address(sent), sent.itemsize * sent.shape[1]
        out, across = (0, 0) if heard is None else (address(heard), heard.itemsize * heard.shape[1])
        if not self.reflected:
            points.set(mirrored=0)
        for step in steps:
            for whole in range(int(back), -1, -1) if pml else ():
                layers.set(**{name: fields[name] for name in self.newest}, pml=pml, back=int(back), whole=whole)
                layers(stream)
            sweep.set(**fields, pml=pml)
            sweep(stream)
            points.set(field=fields["p_old"], values=values + step * row, heard=fields["p"], out=out + step * across)
            points(stream)
            fields = {name: fields[other[name]] for name in other}
        return state | {name: state[other[name]] for name in other} if len(steps) % 2 else state

    @abstractmethod
    def _launch(self, propagator: Any, name: str) -> Launch:
        """Return a launch, prepared once."""

    @abstractmethod
    def _shared(self) -> int:
        """Return the words of shared memory of a thread block in three dimensions."""

    def _prepare(
        self,
        name: str,
        layers: Layers,
        weights: Sequence[float],
        fields: dict[str, Any],
        of_step: dict[str, Any],
        of_gradient: dict[str, Any],
    ) -> Launch:
        """Prepare a step, a gradient, or what layers remember before both, which all read fields."""
        arguments, most = self._grid_of(layers, weights)
        arguments |= fields
        along, across = self.variant.block
        marching = self._axes == 3 and name in ("advance", "retreat")
        defines, shared = {"RADIUS": self.radius, "BLOCK_Y": across}, 0
        if marching:
            defines |= {"STAGES": self.variant.ahead, "BLOCKS": self.variant.blocks}
            shared = WORD_BYTES * self._shared()
        else:
            defines |= {"AXES": self._axes, "BLOCK_X": along}
        kernel = self.device.kernel(self.folder / ("volume.cu" if marching else "sweep.cu"), name, defines, shared)
        if name == "remember":
            grid, block = (-(-most // THREADS), self._axes, 1), (THREADS, 1)
            return Launch(self.device, kernel, grid, block, arguments | {"back": 0, "whole": 0})
        columns, rows = layers.ends[-1], max(self._rows - 2 * self.radius, 1)
        own = WORD * (LANES - 2 * self.outer) if marching else along
        tiles = -(-(columns[3] - columns[0]) // own), -(-rows // across)
        parts = self._parts(tiles[0] * tiles[1])
        arguments |= of_step | ({} if marching else of_gradient)
        arguments |= {"mirrored": self._mirrored, "chunk": -(-(self._planes - 2 * self.radius) // parts)}
        return Launch(self.device, kernel, (*tiles, parts), self.variant.block, arguments, shared)

    def _parts(self, tiles: int) -> int:
        """Choose in how many parts thread blocks march through the planes."""
        planes = self._planes - 2 * self.radius
        return self.variant.chunks or max(1, min(-(-WAVES * self._slots // tiles), planes // SHORTEST))

    def _grid_of(self, layers: Layers, weights: Sequence[float], count: int = 2) -> tuple[dict[str, Any], int]:
        """Describe fields and layers, which have `count` memories of an axis; tell the most values of one of them."""
        order = [0, 1] if self._axes == 2 else [0, 2, 1]
        offsets, table = layers.offsets(count), [self._planes, self._rows, layers.fields[-1]]
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
        return arguments, max(int(size) // count for size in np.diff(offsets))
