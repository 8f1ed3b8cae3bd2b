"""The acoustic stencils of two dimensions on a GPU: the kernels of ``plane.cu``."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from forebay.wave.acoustic import gpu
from forebay.wave.acoustic.gpu import AcousticGpuKernels
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.kernels.device import Launch
from forebay.wave.kernels.rows import WORD
from forebay.wave.kernels.variant import Variant, chunk_of

SOURCE = Path(__file__).parent / "plane.cu"


class PlaneKernels(AcousticGpuKernels):
    """The kernels for one grid of two axes and one order, in float32."""

    def __init__(
        self,
        grid: Grid,
        radius: int,
        dtype: np.dtype[Any],
        shots: int | None = None,
        device: Any = None,
        variant: Variant | None = None,
    ) -> None:
        super().__init__(grid, radius, dtype, shots, device, variant or Variant())
        self._described: tuple[Any, Any] | None = None

    def _bind(self, changes: Sequence[Launch], stencil: Launch, p: int, old: int, memory: int) -> None:
        for change in changes:
            change.set(p=p, memory=memory)
        stencil.set(p=p, old=old)

    def changes(self, layers: AcousticLayers) -> int:
        """Return how many values layers put somewhere for a stencil."""
        return layers.reach

    def advance(
        self, p: Any, p_old: Any, squared: Any, weights: Any, layers: AcousticLayers, pml: Any, back: bool = False
    ) -> None:
        """Step once: `p_old` becomes the newer field, and `pml` what the layers know after the step."""
        stream = self.device.stream()
        if layers.sides:
            launch = self._change(layers, weights, back)
            launch.set(p=p, memory=pml)
            launch(stream)
        arguments = self._stepping(squared, weights, layers, back) | {"p": p, "old": p_old}
        self._launch("advance", self._blocks, self.variant.block, arguments)(stream)

    @cached_property
    def _extents(self) -> dict[str, int]:
        chunk = chunk_of(2, self._columns, self._planes - 2 * self.radius, self._slots, self.variant)
        return {"planes": self._planes, "words": self._words, "end": self._end, "chunk": chunk}

    @property
    def _columns(self) -> tuple[int, int]:
        """Thread blocks of the stencils along rows, for each shot of a batch."""
        words = -(-(self._end - WORD) // WORD)
        return -(-words // self.variant.block[0]), self._shots

    @cached_property
    def _blocks(self) -> tuple[int, int, int]:
        parts = -(-(self._planes - 2 * self.radius) // self._extents["chunk"])
        return (*self._columns, -(-parts // self.variant.block[1]))

    def _stepping(self, squared: Any, weights: Any, layers: AcousticLayers, back: bool) -> dict[str, Any]:
        return {
            "p": None,
            "old": None,
            "squared": squared,
            **self._changes(layers, back),
            **self._extents,
            "mirrored": self._mirrored,
            "models": int(squared.ndim > 2),
            **_spacing(weights),
        }

    def _changes(self, layers: AcousticLayers, back: bool) -> dict[str, Any]:
        """Describe where a stencil finds what layers change; in a step back they reach beyond themselves."""
        table = self._tables(layers)[0] if layers.sides else None
        changes = layers.changes if layers.sides else None
        reach = layers.reach // WORD
        return {"changes": changes, "table": table, "sides": len(layers.sides), "beyond": int(back), "reach": reach}

    def _tables(self, layers: AcousticLayers) -> tuple[Any, Any]:
        """Return the numbers that describe each side, as the source has them, and all coefficients."""
        if self._described is None:
            table, coefficients = [], 0
            for side in layers.sides:
                unit = WORD if side.axis == 1 else 1
                places = [number // unit for number in (side.start, side.count, side.lead, side.trail)]
                offsets = [number // WORD for number in (side.offset, side.size, side.changed)]
                table.append([side.axis, *places, *offsets, coefficients])
                coefficients += side.coefficients.size // self._shots
            numbers = np.concatenate([side.coefficients.reshape(self._shots, -1) for side in layers.sides], axis=1)
            self._described = self.put(np.array(table, np.int64)), self.put(numbers)
        return self._described

    def _change(self, layers: AcousticLayers, weights: Any, back: bool) -> Launch:
        table, coefficients = self._tables(layers)
        lines = -(-(self._end - WORD) // WORD), self._planes - 2 * self.radius
        most = max(lines[side.axis] for side in layers.sides)
        extents = {name: value for name, value in self._extents.items() if name != "chunk"}
        arguments = {"p": None, "memory": None, "changes": layers.changes, "coefficients": coefficients, "table": table}
        arguments |= {"remembered": layers.size // WORD, "reach": layers.reach // WORD}
        arguments |= {"numbers": coefficients.size // self._shots}
        arguments |= extents | _spacing(weights)
        name = "change_back" if back else "change"
        return self._launch(name, (-(-most // gpu.THREADS), len(layers.sides), self._shots), (gpu.THREADS,), arguments)

    def _changing(self, propagator: Any, back: bool) -> Sequence[Launch]:
        if not propagator.layers.sides:
            return ()
        if ("change", back) not in self._launches:
            self._launches["change", back] = self._change(propagator.layers, propagator.weights, back)
        return (self._launches["change", back],)

    def _stencil(self, propagator: Any, back: bool) -> Launch:
        if ("advance", back) not in self._launches:
            arguments = self._stepping(propagator.squared, propagator.weights, propagator.layers, back)
            self._launches["advance", back] = self._launch("advance", self._blocks, self.variant.block, arguments)
        return self._launches["advance", back]

    def _pictured(self, propagator: Any, image: Imaging, back: bool) -> Launch:
        if ("image", back) not in self._launches:
            arguments = self._stepping(propagator.squared, propagator.weights, propagator.layers, back)
            arguments |= {"seen": None, "image": None, "light": None, "factor": 0.0, **self._covered}
            launch = self._launch("advance_and_image", self._blocks, self.variant.block, arguments)
            self._launches["image", back] = launch
        launch = self._launches["image", back]
        launch.set(**gpu.record_of(image), light=image.illumination)
        return launch

    def _sensing(self, propagator: Any, sensing: Sensing) -> Launch:
        return self._stencil(propagator, True)

    def _after_sensing(self, propagator: Any, sensing: Sensing, p: int) -> None:
        """Add a record times lap(p), with what layers have changed in it, to a total."""
        if ("curvature", True) not in self._launches:
            arguments = {"p": None, "total": None, "other": None, "factor": 0.0}
            arguments |= self._changes(propagator.layers, True) | self._extents | _spacing(propagator.weights)
            self._launches["curvature", True] = self._launch("curvature", self._blocks, self.variant.block, arguments)
        launch, address = self._launches["curvature", True], self.device.address
        total, other = address(sensing.total), address(sensing.record)  # as numbers: nothing is kept alive
        launch.set(p=p, total=total, other=other, factor=float(sensing.factor))
        launch(self.device.stream())

    def _launch(self, name: str, grid: Sequence[int], block: Sequence[int], arguments: dict[str, Any]) -> Launch:
        kernel = self.device.kernel(SOURCE, name, self.variant.defines(2, self.radius, 1, self._words))
        return Launch(self.device, kernel, grid, block, arguments)


def _spacing(weights: Any) -> dict[str, float]:
    return {"w_z": float(weights[0]), "w_x": float(weights[1])}
