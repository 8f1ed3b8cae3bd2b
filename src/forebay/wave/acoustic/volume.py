"""The acoustic stencils of three dimensions on a GPU: the kernels of ``volume.cu``."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic import gpu
from forebay.wave.acoustic.gpu import WORD, GpuKernels
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.acoustic.regions import Part, part_table, parts_of, region_table, regions_of
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.variant import Variant, chunk_of

SOURCE = Path(__file__).parent / "volume.cu"
FASTEST = Variant(block=(32, 16), blocks=1, ahead=3)
WORD_BYTES = 16


def gpu_kernels(grid: Grid, radius: int, dtype: np.dtype[Any], **options: Any) -> GpuKernels:
    """Choose the kernels by the number of axes."""
    return (VolumeKernels if grid.ndim == 3 else GpuKernels)(grid, radius, dtype, **options)


class VolumeKernels(GpuKernels):
    """The kernels for one grid of three axes and one order, in float32."""

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any = None, variant: Variant | None = None
    ) -> None:
        super().__init__(grid, radius, dtype, device=device, variant=variant or FASTEST)
        self._stepped: dict[tuple[str, bool], Launch] = {}
        self._tabled: dict[str, Any] = {}

    def changes(self, layers: AcousticLayers) -> int:
        """Return how many values layers must put somewhere for a stencil: none."""
        return 0

    def advance(
        self, p: Any, p_old: Any, squared: Any, weights: Any, layers: AcousticLayers, pml: Any, back: bool = False
    ) -> None:
        """Step once: `p_old` becomes the newer field, and `pml` what the layers know after the step."""
        stream = self.device.stream()
        if (change := self._change_of(squared, weights, layers, back)) is not None:
            change.set(p=p, old=p_old, memory=pml)
            change(stream)
        step = self._step_of("retreat" if back else "advance", squared, weights, layers, {})
        step.set(p=p, old=p_old, memory=pml)
        step(stream)

    def curvature(
        self, total: Any, other: Any, p: Any, weights: Any, layers: AcousticLayers, factor: float, pml: Any
    ) -> None:
        """Add other times lap(p), with what layers have just changed in it in a step back, to a total."""
        table, units = region_table(regions_of([], *self._inner), self.variant.block[1], self._chunk)
        arguments = {"p": p, "total": total, "other": other, "factor": float(factor), "table": self._put("all", table)}
        arguments |= {"regions": len(table)} | self._extents | self._spacing(weights)
        self._marching("curvature", units, arguments)(self.device.stream())
        if layers.sides:
            parts = parts_of(layers.sides, *self._inner, everything=True)
            told = self._parts_launch("changed_back", "told", parts, layers, weights, back=True)
            told.set(p=p, old=total, beside=other, factor=float(factor), memory=pml)
            told(self.device.stream())

    def _bind(self, change: Launch | None, stencil: Launch, p: int, old: int, memory: int) -> None:
        if change is not None:
            change.set(p=p, old=old, memory=memory)
        stencil.set(p=p, old=old, memory=memory)

    def _changing(self, propagator: Any, back: bool) -> Launch | None:
        if ("change", back) not in self._stepped:
            launch = self._change_of(propagator.squared, propagator.weights, propagator.layers, back)
            if launch is None:
                return None
            self._stepped["change", back] = launch
        return self._stepped["change", back]

    def _stencil(self, propagator: Any, back: bool) -> Launch:
        if ("step", back) not in self._stepped:
            name = "retreat" if back else "advance"
            launch = self._step_of(name, propagator.squared, propagator.weights, propagator.layers, {})
            self._stepped["step", back] = launch
        return self._stepped["step", back]

    def _pictured(self, propagator: Any, image: Imaging, back: bool) -> Launch:
        if ("image", back) not in self._stepped:
            arguments = {"seen": None, "image": None, "light": None, "factor": 0.0, **self._covered}
            how = (propagator.squared, propagator.weights, propagator.layers, arguments)
            self._stepped["image", back] = self._step_of("retreat_and_image", *how)
        launch = self._stepped["image", back]
        launch.set(**gpu.record_of(image), light=image.illumination)
        return launch

    @cached_property
    def _extents(self) -> dict[str, int]:
        return {"planes": self._planes, "rows": self._rows, "words": self._words, "end": self._end}

    @property
    def _inner(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The planes and the rows that are computed."""
        return (self.radius, self._planes - self.radius), (self.radius, self._rows - self.radius)

    def _chunk(self, blocks: int, length: int) -> int:
        """Choose how far threads march, `blocks` of whose thread blocks lie beside each other across rows."""
        return chunk_of(3, (self._columns[0], blocks), length, self._slots, self.variant)

    def _put(self, name: str, table: Any) -> Any:
        if name not in self._tabled:
            self._tabled[name] = self.device.arrays.asarray(table, np.int32)
        return self._tabled[name]

    def _layered(self, layers: AcousticLayers) -> dict[str, Any]:
        """Describe layers as the kernels read them, in words along rows."""
        if "coefficients" not in self._tabled:
            sides, coefficients = [], 0
            for side in layers.sides:
                unit = WORD if side.axis == 2 else 1
                places = [number // unit for number in (side.start, side.count, side.lead, side.trail)]
                sides.append([side.axis, *places, side.offset // WORD, side.size // WORD, coefficients])
                coefficients += side.coefficients.size
            numbers = [np.zeros(0, np.float32), *(side.coefficients.ravel() for side in layers.sides)]
            self._put("sides", np.array(sides, np.uint32).reshape(-1, 8).view(np.int32))
            self._tabled["coefficients"] = self.put(np.concatenate(numbers))
        return {"memory": None, "coefficients": self._tabled["coefficients"], "sides": self._tabled["sides"]}

    def _step_of(self, name: str, squared: Any, weights: Any, layers: AcousticLayers, more: dict[str, Any]) -> Launch:
        table, units = region_table(regions_of(layers.sides, *self._inner), self.variant.block[1], self._chunk)
        arguments = {"p": None, "old": None, "squared": squared, **self._layered(layers)}
        arguments |= {"table": self._put("regions", table), "regions": len(table), **self._extents}
        arguments |= {"mirrored": self._mirrored, **self._spacing(weights), **more}
        return self._marching(name, units, arguments)

    def _change_of(self, squared: Any, weights: Any, layers: AcousticLayers, back: bool) -> Launch | None:
        parts = parts_of(layers.sides, *self._inner)
        if not parts:
            return None
        name = "change_back" if back else "change"
        launch = self._parts_launch(name, name, parts, layers, weights, back=back)
        launch.set(beside=squared, factor=-1.0)
        return launch

    def _parts_launch(
        self, name: str, table_name: str, parts: list[Part], layers: AcousticLayers, weights: Any, *, back: bool
    ) -> Launch:
        columns = -(-(self._end - WORD) // WORD)
        extents = [side.count + back * (side.lead + side.trail) for side in layers.sides]
        widest = max((extent // WORD for side, extent in zip(layers.sides, extents, strict=True) if side.axis == 2))
        threads = max(gpu.THREADS, -(-widest // 32) * 32)

        def blocks(part: Part) -> int:
            lines = part.lines[1] - part.lines[0]
            if layers.sides[part.side].axis == 2:
                return -(-lines // (threads // (extents[part.side] // WORD)))
            return -(-lines * columns // threads)

        table, units = part_table(parts, blocks)
        arguments = {"p": None, "old": None, "beside": None, "factor": 0.0, **self._layered(layers)}
        arguments |= {"table": self._put(table_name, table), "parts": len(table), **self._extents}
        return self._compiled(name, (units,), (threads,), arguments | self._spacing(weights), 0)

    def _marching(self, name: str, units: int, arguments: dict[str, Any]) -> Launch:
        along, across = self.variant.block
        tile, own = (across + 2 * self.radius) * (along + 2), along * across
        depth, stages = self.radius + 1, self._stages
        words = max((depth + stages) * tile + (stages + 1) * 2 * own, (depth + stages - 1) * tile + stages * 4 * own)
        grid = (self._columns[0], units)
        return self._compiled(name, grid, self.variant.block, arguments, WORD_BYTES * words)

    @property
    def _stages(self) -> int:
        return max(2, self.variant.ahead)

    def _compiled(
        self, name: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: dict[str, Any], shared: int
    ) -> Launch:
        along, across = self.variant.block
        defines = {"RADIUS": self.radius, "BLOCK_X": along, "BLOCK_Y": across, "BLOCKS": self.variant.blocks}
        kernel = self.device.kernel(SOURCE, name, defines | {"STAGES": self._stages}, shared)
        return Launch(self.device, kernel, grid, block, arguments, shared)
