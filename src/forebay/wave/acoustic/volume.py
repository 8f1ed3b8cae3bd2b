"""The acoustic stencils of three dimensions on a GPU: the kernels of ``volume.cu``."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import WaveError
from forebay.wave.acoustic import gpu
from forebay.wave.acoustic.gpu import AcousticGpuKernels
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.acoustic.plane import PlaneKernels
from forebay.wave.acoustic.zones import Box, Span, Tiles, Zone, extent, part_table, parts_of, zone_table, zones_of
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.kernels.variant import Variant

SOURCE = Path(__file__).parent / "volume.cu"
MIGRATING = ("retreat", "advance", "change_back", "change")
"""The kernels of a migration, those first that take longest to compile."""
FASTEST = Variant(block=(32, 16), blocks=1, ahead=4)
WORD_BYTES = 16
SHARED_OF_BLOCK = 1024
"""Bytes of shared memory that each thread block of a multiprocessor takes beside its own."""
WAVES = 16
"""Thread blocks of the plain zone for each that a multiprocessor has room for, so that all of them end together."""
SHORTEST = 28
"""Planes that are worth a march of their own."""
EDGE_MARCHES = 2
"""Parts in which threads march through the ends of rows between all other layers."""
LANES = 32
"""Threads that can tell each other what they know: the most words that a layer along rows has."""


def gpu_kernels(grid: Grid, radius: int, dtype: np.dtype[Any], shots: int | None, **options: Any) -> AcousticGpuKernels:
    """Choose the kernels by the number of axes; batches of shots have two."""
    return (VolumeKernels if grid.ndim == 3 else PlaneKernels)(grid, radius, dtype, shots, **options)


class VolumeKernels(AcousticGpuKernels):
    """The kernels for one grid of three axes and one order, in float32."""

    first = gpu.PITCH  # layers along rows then have whole pieces of what a cache moves at once

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
        """Return how many values layers must put somewhere for a stencil: none. Refuse too wide ones."""
        if self._widest(layers) > LANES:
            most = WORD * (LANES - 2)
            raise WaveError(
                f"layers wider than {most} points along rows on a GPU, both together where they meet: give "
                f"absorb={most} or less, or a wider model"
            )
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

    def _pictured(self, propagator: Any, image: Imaging, back: bool) -> None:
        """Leave the image to a kernel of its own: a stencil whose tiles the image's do not meet reads more of both."""

    def _sensing(self, propagator: Any, sensing: Sensing) -> Launch:
        if ("sense", True) not in self._stepped:
            arguments = {"record": None, "total": None, "factor": 0.0}
            how = (propagator.squared, propagator.weights, propagator.layers, arguments)
            self._stepped["sense", True] = self._step_of("retreat_and_sense", *how)
        launches = [*self._changing(propagator, True), self._stepped["sense", True]]
        for launch in launches:
            launch.set(record=sensing.record, total=sensing.total, factor=sensing.factor)
        return launches[-1]

    def _after_sensing(self, propagator: Any, sensing: Sensing, p: int) -> None:
        for launch in (*self._changing(propagator, True), self._stepped["sense", True]):
            launch.set(record=None, total=None)

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
            words, lines = self._edge(layers), words * lines // self._edge(layers)
        length = zone.march[1] - zone.march[0]
        marches = 1 if zone.side is not None else self._marches(length) if zone.along is None else EDGE_MARCHES
        return Tiles(words, lines, -(-length // marches))

    def _marches(self, length: int) -> int:
        """Choose in how many parts threads march: each begins with loads that another one makes too."""
        if self.variant.chunks:
            return self.variant.chunks
        words, lines = self.variant.block
        whole = self._whole
        tiles = -(-(whole.words[1] - whole.words[0]) // words) * -(-(whole.rows[1] - whole.rows[0]) // lines)
        return max(1, min(-(-WAVES * self._slots // tiles), length // SHORTEST))

    @staticmethod
    def _widest(layers: AcousticLayers) -> int:
        return max((extent(side) for side in layers.sides if side.axis == 2), default=1)

    def _edge(self, layers: AcousticLayers) -> int:
        """Return the threads of a tile along rows where it has a layer along them, all of whose words it has."""
        return next(words for words in (8, 16, LANES) if words >= self._widest(layers))

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

    def _step_of(
        self,
        name: str,
        squared: Any,
        weights: Any,
        layers: AcousticLayers,
        more: dict[str, Any],
        planes: Span | None = None,
    ) -> Launch:
        """Return a step of all computed planes, or of some."""
        zones = zones_of(layers.sides, self._some(planes))
        table, units = zone_table(zones, lambda zone: self._tiles(layers, zone))
        arguments = {"p": None, "old": None, "squared": squared, **self._layered(layers)}
        arguments |= {"table": self._put(f"zones {planes}", table), "zones": len(table), **self._extents}
        arguments |= {"mirrored": self._mirrored, **_spacing(weights), **more}
        return self._compiled(name, (units,), self.variant.block, arguments, layers, self._room)

    def _some(self, planes: Span | None) -> Box:
        return self._whole if planes is None else replace(self._whole, planes=planes)

    def _changes_of(
        self, squared: Any, weights: Any, layers: AcousticLayers, back: bool, planes: Span | None = None
    ) -> list[Launch]:
        """Return the launch of the parts, if there are any."""
        columns = self._whole.words[1] - self._whole.words[0]
        parts = parts_of(layers.sides, self._some(planes))
        if not parts:
            return []
        table, units = part_table(parts, lambda part: -(-(part.planes[1] - part.planes[0]) * columns // gpu.THREADS))
        arguments = {"p": None, "old": None, "squared": squared, **self._layered(layers)}
        arguments |= {
            "table": self._put(f"parts {planes}", table),
            "parts": len(table),
            "rows": self._rows,
            "words": self._words,
        }
        arguments |= {"first_word": self._first_word, "end": self._end, **_spacing(weights)}
        arguments |= {"record": None, "total": None, "factor": 0.0} if back else {}
        name = "change_back" if back else "change"
        return [self._compiled(name, (units,), (gpu.THREADS,), arguments, layers, 0)]

    @property
    def _room(self) -> int:
        """The bytes of shared memory that a thread block may have."""
        most, blocks = self.device.shared, self.variant.blocks
        return most if blocks == 1 else (most + SHARED_OF_BLOCK) // blocks - SHARED_OF_BLOCK

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
        kernel = self.device.kernel(SOURCE, name, self._defines(name, layers), shared)
        return Launch(self.device, kernel, grid, block, arguments, shared)

    def compile_ahead(self, layers: AcousticLayers) -> None:
        """Compile the kernels of a migration, each by itself, all at once."""
        self.device.compile(SOURCE, {name: self._defines(name, layers) for name in MIGRATING})

    def _defines(self, name: str, layers: AcousticLayers) -> dict[str, int]:
        """Return the macros with which a kernel is compiled alone."""
        along, across = self.variant.block
        defines = {"RADIUS": self.radius, "BLOCK_X": along, "BLOCK_Y": across, "BLOCKS": self.variant.blocks}
        defines |= {"STAGES": self._stages, "ROOM": self._room // WORD_BYTES, "EDGE": self._edge(layers)}
        return defines | {"ONE_KERNEL": 1, name.upper(): 1}


def _spacing(weights: Any) -> dict[str, float]:
    return {"w_z": float(weights[0]), "w_y": float(weights[1]), "w_x": float(weights[2])}
