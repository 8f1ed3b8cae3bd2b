"""The acoustic stencils of three dimensions on a GPU: the kernels of ``volume.cu``."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic import gpu
from forebay.wave.acoustic.gpu import AcousticGpuKernels
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.acoustic.plane import PlaneKernels
from forebay.wave.acoustic.zones import (
    LANES,
    Box,
    Part,
    Tiles,
    Zone,
    all_parts,
    extent,
    part_table,
    parts_of,
    wide,
    zone_table,
    zones_of,
)
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.kernels.variant import Variant

SOURCE = Path(__file__).parent / "volume.cu"
FASTEST = Variant(block=(32, 16), blocks=1, ahead=4)
WORD_BYTES = 16
WAVES = 16
"""Thread blocks of the plain zone for each that a multiprocessor has room for, so that all of them end together."""
SHORTEST = 28
"""Planes that are worth a march of their own."""
NARROW_MARCHES = 2
"""Parts in which threads march through layers along rows, whose marches begin first."""


def gpu_kernels(grid: Grid, radius: int, dtype: np.dtype[Any], shots: int | None, **options: Any) -> AcousticGpuKernels:
    """Choose the kernels by the number of axes; batches of shots have two."""
    return (VolumeKernels if grid.ndim == 3 else PlaneKernels)(grid, radius, dtype, shots, **options)


class VolumeKernels(AcousticGpuKernels):
    """The kernels for one grid of three axes and one order, in float32."""

    def __init__(
        self,
        grid: Grid,
        radius: int,
        dtype: np.dtype[Any],
        shots: int | None = None,
        device: Any = None,
        variant: Variant | None = None,
    ) -> None:
        super().__init__(grid, radius, dtype, shots, device, variant or FASTEST)
        self._stepped: dict[tuple[str, bool], Launch] = {}
        self._tabled: dict[str, Any] = {}
        self._changers: dict[bool, list[Launch]] = {}

    def changes(self, layers: AcousticLayers) -> int:
        """Return how many values layers must put somewhere for a stencil: none."""
        return 0

    def advance(
        self, p: Any, p_old: Any, squared: Any, weights: Any, layers: AcousticLayers, pml: Any, back: bool = False
    ) -> None:
        """Step once: `p_old` becomes the newer field, and `pml` what the layers know after the step."""
        stream = self.device.stream()
        for change in self._changes_of(squared, weights, layers, back):
            change.set(p=p, old=p_old, memory=pml)
            change(stream)
        step = self._step_of("retreat" if back else "advance", squared, weights, layers, {})
        step.set(p=p, old=p_old, memory=pml)
        step(stream)

    def curvature(
        self, total: Any, other: Any, p: Any, weights: Any, layers: AcousticLayers, factor: float, pml: Any
    ) -> None:
        """Add other times lap(p), with what layers have just changed in it in a step back, to a total."""
        arguments = {"p": p, "total": total, "other": other, "factor": float(factor)}
        self._marching("curvature", "all", zones_of([], self._whole), layers, arguments, weights)(self.device.stream())
        for told in self._parted("changed_back", all_parts(layers.sides, self._whole), layers, weights, back=True):
            told.set(p=p, old=total, beside=other, factor=float(factor), memory=pml)
            told(self.device.stream())

    def _bind(self, changes: Sequence[Launch], stencil: Launch, p: int, old: int, memory: int) -> None:
        for launch in (*changes, stencil):
            launch.set(p=p, old=old, memory=memory)

    def _changing(self, propagator: Any, back: bool) -> Sequence[Launch]:
        if back not in self._changers:
            how = propagator.squared, propagator.weights, propagator.layers, back
            self._changers[back] = self._changes_of(*how)
        return self._changers[back]

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
    def _whole(self) -> Box:
        """All computed points."""
        planes, rows = ((self.radius, count - self.radius) for count in (self._planes, self._rows))
        return Box(planes, rows, (self._first_word, -(-self._end // WORD)))

    @property
    def _first_word(self) -> int:
        return (self.rows.before + self.radius) // WORD

    def _tiles(self, layers: AcousticLayers, zone: Zone) -> Tiles:
        """Cut a zone; threads march through a layer in one go, and else so far that all multiprocessors are busy."""
        words, lines = self.variant.block
        if zone.along is not None:
            words, lines = self._narrow(layers), words * lines // self._narrow(layers)
        length = zone.march[1] - zone.march[0]
        marches = 1 if zone.side is not None else self._marches(length) if zone.along is None else NARROW_MARCHES
        return Tiles(words, lines, -(-length // marches))

    def _marches(self, length: int) -> int:
        """Choose in how many parts threads march: each begins with loads that another one makes too."""
        if self.variant.chunks:
            return self.variant.chunks
        words, lines = self.variant.block
        whole = self._whole
        tiles = -(-(whole.words[1] - whole.words[0]) // words) * -(-(whole.rows[1] - whole.rows[0]) // lines)
        return max(1, min(-(-WAVES * self._slots // tiles), length // SHORTEST))

    def _narrow(self, layers: AcousticLayers) -> int:
        """Return the threads of a tile along rows in layers along them."""
        widest = max((extent(side) for side in layers.sides if side.axis == 2 and not wide(side)), default=1)
        return next(words for words in (8, 16, LANES) if words >= widest)

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
        arguments = {"p": None, "old": None, "squared": squared, **self._layered(layers)}
        zones = zones_of(layers.sides, self._whole)
        return self._marching(name, "zones", zones, layers, arguments, weights, {"mirrored": self._mirrored}, more)

    def _changes_of(self, squared: Any, weights: Any, layers: AcousticLayers, back: bool) -> list[Launch]:
        parts = parts_of(layers.sides, self._whole)
        launches = self._parted("change_back" if back else "change", parts, layers, weights, back=back)
        for launch in launches:
            launch.set(beside=squared, factor=-1.0)
        return launches

    def _parted(
        self, name: str, parts: list[Part], layers: AcousticLayers, weights: Any, *, back: bool
    ) -> list[Launch]:
        """Return a launch for the parts of each axis: layers of several axes may change the same points."""
        own = [[part for part in parts if layers.sides[part.side].axis == axis] for axis in range(3)]
        return [self._parts_launch(name, some, layers, weights, back=back) for some in own if some]

    def _parts_launch(
        self, name: str, parts: list[Part], layers: AcousticLayers, weights: Any, *, back: bool
    ) -> Launch:
        columns = self._whole.words[1] - self._whole.words[0]
        along = [side.axis == 2 for side in layers.sides]
        extents = [extent(side) if back else side.count // WORD for side in layers.sides]
        widest = max((size for size, is_along in zip(extents, along, strict=True) if is_along), default=1)
        threads = max(gpu.THREADS, -(-widest // LANES) * LANES)

        def blocks(part: Part) -> int:
            planes, rows = (span[1] - span[0] for span in (part.planes, part.rows))
            if along[part.side]:
                return -(-planes * rows // (threads // extents[part.side]))
            return -(-(planes if layers.sides[part.side].axis else rows) * columns // threads)

        table, units = part_table(parts, blocks)
        extra = {"rows": self._rows, "words": self._words, "first_word": self._first_word, "end": self._end}
        arguments = {"p": None, "old": None, "beside": None, "factor": 0.0, **self._layered(layers)}
        arguments |= {
            "table": self._put(f"{name}, {layers.sides[parts[0].side].axis}", table),
            "parts": len(table),
            **extra,
            **_spacing(weights),
        }
        return self._compiled(name, (units,), (threads,), arguments, layers, 0)

    def _marching(
        self,
        name: str,
        table_name: str,
        zones: list[Zone],
        layers: AcousticLayers,
        arguments: dict[str, Any],
        weights: Any,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> Launch:
        table, units = zone_table(zones, lambda zone: self._tiles(layers, zone))
        arguments |= {"table": self._put(table_name, table), "zones": len(table), **self._extents}
        arguments |= {**(before or {}), **_spacing(weights), **(after or {})}
        return self._compiled(name, (units,), self.variant.block, arguments, layers, self._shared(layers))

    def _shared(self, layers: AcousticLayers) -> int:
        """Return the bytes of shared memory of a tile: its planes, and what its threads load for themselves."""
        threads, depth, narrow = self.variant.block[0] * self.variant.block[1], self.radius + 1, self._narrow(layers)
        wide_tile, narrow_tile = (
            (threads // words + 2 * self.radius) * (words + 2) for words in (self.variant.block[0], narrow)
        )
        stages = self._stages
        plain = (depth + stages) * wide_tile + (stages + 1) * 2 * threads
        layered = (depth + 2) * max(wide_tile, narrow_tile) + 3 * 4 * threads
        return WORD_BYTES * max(plain, layered)

    @property
    def _stages(self) -> int:
        return max(2, self.variant.ahead)

    def _compiled(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: dict[str, Any],
        layers: AcousticLayers,
        shared: int,
    ) -> Launch:
        along, across = self.variant.block
        defines = {"RADIUS": self.radius, "BLOCK_X": along, "BLOCK_Y": across, "BLOCKS": self.variant.blocks}
        defines |= {"STAGES": self._stages, "NARROW": self._narrow(layers)}
        kernel = self.device.kernel(SOURCE, name, defines, shared)
        return Launch(self.device, kernel, grid, block, arguments, shared)


def _spacing(weights: Any) -> dict[str, float]:
    return {"w_z": float(weights[0]), "w_y": float(weights[1]), "w_x": float(weights[2])}
