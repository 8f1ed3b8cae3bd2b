"""The acoustic loops for arrays on a GPU: the kernels of ``acoustic.cu``, whose CPU twins say what they compute.

A step is three launches, however many points send and hear. The first is what layers remember, and tells what they
change; without layers there is none. The second is the stencil with those changes and the mirror of a free surface;
where an image is made of the step, its correlation is part of the same pass. The third is the points, which send into
the newer field and hear the older one. Nothing is added in an order that could change, and nothing waits for the host.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.device import SOURCES, Device, Launch
from forebay.wave.kernels.rows import Rows
from forebay.wave.kernels.variant import Variant, chunk_of
from forebay.wave.survey.points import Points

SOURCE = SOURCES / "acoustic.cu"
WORD = 4
"""Points of a word, as in the source, and the largest radius."""
PITCH = 8
"""Points to whose multiples rows are filled up: 32 bytes, which a cache moves at once."""
THREADS = 128
"""Of a thread block of those kernels that are not stencils."""
LARGEST = 2**32
"""Cells of a field are counted in 32 bits."""


class GpuKernels:
    """The kernels for one grid and order, in float32."""

    def __init__(
        self,
        grid: Grid,
        radius: int,
        dtype: np.dtype[Any],
        shots: int | None = None,
        device: Any = None,
        variant: Variant | None = None,
    ) -> None:
        if dtype != np.float32:
            raise WaveError(f"waves of {dtype} on a GPU: take float32, or a model on the CPU")
        if radius > WORD:
            raise WaveError(f"order {2 * radius} on a GPU: take at most {2 * WORD}, or a model on the CPU")
        fields = grid.fields(radius)
        self.device, self.variant = device or Device(), variant or Variant()
        self.radius, self.dtype = radius, dtype
        self.rows = Rows.of(fields[-1], radius, WORD, PITCH)
        self.window = self.rows.window(grid.inside(radius))
        shape = self.rows.shape(fields)
        self.lead: tuple[int, ...] = () if shots is None else (shots,)
        if np.prod((*self.lead, *shape), dtype=float) >= LARGEST:
            raise WaveError(f"fields of {(*self.lead, *shape)}: on a GPU they have less than 2^32 points")
        self._shots = shots or 1
        self._axes, self._mirrored = grid.ndim, 2 * radius if grid.free_surface else 0
        self._planes, self._rows = shape[0], shape[1] if grid.ndim == 3 else 1
        self._words, self._end = shape[-1] // WORD, self.rows.before + fields[-1] - radius
        self._listening: dict[tuple[int, int], tuple[Any, Any, Launch]] = {}
        self._launches: dict[tuple[str, bool], Launch] = {}
        self._described: tuple[Any, Any] | None = None

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """Make an array of zeros."""
        return self.device.arrays.zeros(shape, self.dtype)

    def put(self, values: Any) -> Any:
        """Bring values to where the kernels work: numbers in their type, indices in 32 bits."""
        kind = self.dtype if values.dtype.kind == "f" else np.uint32
        return self.device.arrays.ascontiguousarray(self.device.arrays.asarray(values, kind))

    def get(self, values: Any) -> NDArray[Any]:
        """Bring values back to NumPy."""
        return np.asarray(self.device.host(values))

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, sending and hearing a row of values in each."""
        return self._run_steps(propagator, state, senders, sent, steps, hears, None, back=False)

    def run_back(self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], image: Any) -> Any:
        """Take the adjoint's state back through steps, sending a row of values in each, and image the last one."""
        return self._run_steps(propagator, state, senders, sent, steps, None, image, back=True)

    def _run_steps(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        hears: Any,
        image: Any,
        *,
        back: bool,
    ) -> Any:
        stream, address, row = self.device.stream(), self.device.address, sent.itemsize * sent.shape[1]
        listeners, heard = hears if hears is not None else (None, None)
        values, out, across = address(sent), 0, 0
        if heard is not None:
            out, across = address(heard), heard.itemsize * heard.shape[1]
        advance, points = self._stencil(propagator, back), self._points(senders, listeners)
        change = self._changing(propagator, back)
        p, old, memory = address(state["p"]), address(state["p_old"]), 0
        if change is not None:
            memory = address(state["pml"])
        for step in steps:
            if change is not None:
                change.set(p=p, memory=memory)
                change(stream)
            pictured = image if step == steps[-1] else None
            stencil = advance if pictured is None else self._pictured(propagator, pictured, back)
            stencil.set(p=p, old=old)
            stencil(stream)
            points.set(field=old, values=values + step * row, heard=p, out=out + step * across)
            if pictured is not None:
                points.set(**_record(pictured))
            points(stream)
            p, old = old, p
        if image is not None:
            points.set(seen=None, image=None)
        return state | {"p": state["p_old"], "p_old": state["p"]} if len(steps) % 2 else state

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

    def mirror(self, p: Any) -> None:
        """Fill the halo above a free surface; `advance` and `run` have done so, but not for what was added since."""
        first = p.swapaxes(0, 1) if self.lead else p
        first[: self.radius] = -first[2 * self.radius : self.radius : -1]

    def gather(self, p: Any, points: Points, out: Any) -> None:
        """Read a field at points."""
        launch = self._points_of(None, None, points)
        launch.set(heard=p, out=out)
        launch(self.device.stream())

    def scatter(self, p: Any, points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field, each cell's share times its factor: the transpose of `gather`."""
        launch = self._points_of(points, factors, None)
        launch.set(field=p, values=values, mirrored=0)
        launch(self.device.stream())

    def curvature(self, total: Any, other: Any, p: Any, weights: Any, layers: AcousticLayers, factor: float) -> None:
        """Add other times lap(p), with what layers have just changed in it in a step back, to a total."""
        arguments = {"p": p, "total": total, "other": other, "factor": float(factor)}
        arguments |= self._changes(layers, True) | self._extents | self._spacing(weights)
        self._launch("curvature", self._blocks, self.variant.block, arguments)(self.device.stream())

    def correlate(self, image: Any, illumination: Any, p: Any, q: Any, factor: float) -> None:
        """Add p q to an image and p p to its illumination, where `run` has not done so."""
        scaled = self.dtype.type(factor) * p
        image += scaled * q
        illumination += scaled * p

    def crop(self, p: Any) -> Any:
        """Copy what records and images cover of a field into an array without gaps."""
        shape = *self.lead, *(side.stop - side.start for side in self.window)
        out = self.device.arrays.empty(shape, self.dtype)
        self._cropping.set(p=self.device.address(p), out=self.device.address(out))  # as numbers: nothing is kept alive
        self._cropping(self.device.stream())
        return out

    @cached_property
    def _cropping(self) -> Launch:
        words = self._covered["seen_rows"] * self._covered["seen_words"]
        grid = (-(-words // THREADS), min(self._covered["seen_planes"], 65535), self._shots)
        arguments = {"p": None, "out": None, **self._field, **self._covered}
        return self._launch("crop", grid, (THREADS,), arguments)

    @property
    def _field(self) -> dict[str, int]:
        return {"planes": self._planes, "rows": self._rows, "words": self._words}

    @cached_property
    def _extents(self) -> dict[str, int]:
        chunk = chunk_of(self._axes, self._columns, self._planes - 2 * self.radius, self._slots, self.variant)
        return {**self._field, "end": self._end, "chunk": chunk}

    @cached_property
    def _covered(self) -> dict[str, int]:
        """Describe the window in planes, rows and words."""
        first, last = self.window[0], self.window[-1]
        rows = self.window[1] if self._axes == 3 else slice(0, 1)
        return {
            "first_plane": first.start,
            "first_row": rows.start,
            "first_word": last.start // WORD,
            "seen_planes": first.stop - first.start,
            "seen_rows": rows.stop - rows.start,
            "seen_words": (last.stop - last.start) // WORD,
        }

    @property
    def _columns(self) -> tuple[int, int]:
        """Thread blocks of the stencils along rows and across them, or for each shot of a batch."""
        along, across = self.variant.block
        words = -(-(self._end - WORD) // WORD)
        return -(-words // along), -(-(self._rows - 2 * self.radius) // across) if self._axes == 3 else self._shots

    @property
    def _slots(self) -> int:
        return self.device.multiprocessors * self.variant.blocks

    @cached_property
    def _blocks(self) -> tuple[int, int, int]:
        parts = -(-(self._planes - 2 * self.radius) // self._extents["chunk"])
        return (*self._columns, parts if self._axes == 3 else -(-parts // self.variant.block[1]))

    def _spacing(self, weights: Any) -> dict[str, float]:
        numbers = [float(weight) for weight in weights]
        return {"w_z": numbers[0], "w_y": numbers[1] if self._axes == 3 else 0.0, "w_x": numbers[-1]}

    def _stepping(self, squared: Any, weights: Any, layers: AcousticLayers, back: bool) -> dict[str, Any]:
        return {
            "p": None,
            "old": None,
            "squared": squared,
            **self._changes(layers, back),
            **self._extents,
            "mirrored": self._mirrored,
            "models": int(squared.ndim > self._axes),
            **self._spacing(weights),
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
                last = side.axis == self._axes - 1
                unit, axis = (WORD, 2) if last else (1, side.axis)
                places = [number // unit for number in (side.start, side.count, side.lead, side.trail)]
                offsets = [number // WORD for number in (side.offset, side.size, side.changed)]
                table.append([axis, *places, *offsets, coefficients])
                coefficients += side.coefficients.size // self._shots
            numbers = np.concatenate([side.coefficients.reshape(self._shots, -1) for side in layers.sides], axis=1)
            self._described = self.put(np.array(table, np.int64)), self.put(numbers)
        return self._described

    def _change(self, layers: AcousticLayers, weights: Any, back: bool) -> Launch:
        table, coefficients = self._tables(layers)
        planes, rows = (count - 2 * self.radius for count in (self._planes, self._rows))
        columns, across = -(-(self._end - WORD) // WORD), rows if self._axes == 3 else 1
        lines = {0: across * columns, 1: planes * columns, self._axes - 1: planes * across}
        most = max(lines[side.axis] for side in layers.sides)
        extents = {name: value for name, value in self._extents.items() if name != "chunk"}
        arguments = {"p": None, "memory": None, "changes": layers.changes, "coefficients": coefficients, "table": table}
        arguments |= {"remembered": layers.size // WORD, "reach": layers.reach // WORD}
        arguments |= {"numbers": coefficients.size // self._shots}
        arguments |= extents | self._spacing(weights)
        name = "change_back" if back else "change"
        return self._launch(name, (-(-most // THREADS), len(layers.sides), self._shots), (THREADS,), arguments)

    def _changing(self, propagator: Any, back: bool) -> Launch | None:
        """Return what layers do before a step, prepared once for either direction."""
        if not propagator.layers.sides:
            return None
        if ("change", back) not in self._launches:
            self._launches["change", back] = self._change(propagator.layers, propagator.weights, back)
        return self._launches["change", back]

    def _stencil(self, propagator: Any, back: bool) -> Launch:
        if ("advance", back) not in self._launches:
            arguments = self._stepping(propagator.squared, propagator.weights, propagator.layers, back)
            self._launches["advance", back] = self._launch("advance", self._blocks, self.variant.block, arguments)
        return self._launches["advance", back]

    def _pictured(self, propagator: Any, image: Imaging, back: bool) -> Launch:
        """Prepare the step with its image, whose record is another array each time."""
        if ("image", back) not in self._launches:
            arguments = self._stepping(propagator.squared, propagator.weights, propagator.layers, back)
            arguments |= {"seen": None, "image": None, "light": None, "factor": 0.0, **self._covered}
            launch = self._launch("advance_and_image", self._blocks, self.variant.block, arguments)
            self._launches["image", back] = launch
        launch = self._launches["image", back]
        launch.set(**_record(image), light=image.illumination)
        return launch

    def _points(self, senders: Any, listeners: Any) -> Launch:
        """Return what sends and hears for a pair of antennas, prepared once."""
        key = id(senders), id(listeners)
        if key not in self._listening:
            launch = self._points_of(senders.points, senders.factors, listeners and listeners.points)
            self._listening[key] = senders, listeners, launch  # kept, so that nothing else gets their number
        return self._listening[key][2]

    def _points_of(self, senders: Points | None, factors: Any, listeners: Points | None) -> Launch:
        cells = len(senders.touched) if senders else 0
        sending, count = -(-cells // THREADS), listeners.count if listeners else 0
        arguments = {
            "field": None,
            "touched": senders and senders.touched,
            "shares": senders and senders.shares,
            "sharers": senders and senders.sharers,
            "share_weights": senders and senders.share_weights,
            "values": None,
            "factors": factors,
            "cells": cells,
            "sending": sending,
            "mirrored": self._mirrored,
            "heard": None,
            "starts": listeners and listeners.starts,
            "near": listeners and listeners.cells,
            "weights": listeners and listeners.weights,
            "out": None,
            "count": count,
            "seen": None,
            "image": None,
            "factor": 0.0,
            **self._field,
            **self._covered,
        }
        return self._launch("points", (sending + -(-count * 32 // THREADS),), (THREADS,), arguments)

    def _launch(self, name: str, grid: Sequence[int], block: Sequence[int], arguments: dict[str, Any]) -> Launch:
        defines = self.variant.defines(self._axes, self.radius, self._rows, self._words)
        kernel = self.device.kernel(SOURCE, name, defines)
        return Launch(self.device, kernel, grid, block, arguments)


def _record(image: Imaging) -> dict[str, Any]:
    return {"seen": image.record, "image": image.image, "factor": float(image.factor)}
