"""The acoustic loops for arrays on a GPU, whose CPU twins say what they compute.

A step is at most three launches, however many points send and hear. The first is what layers change, where the stencil
does not do that itself; without layers there is none. The second is the stencil with the mirror of a free surface. Both
are those of `plane` or of `volume`. The third is the points, which send into the newer field and hear the older one. An
image of a step is part of the stencil's pass in two dimensions, and a launch after it in three. Nothing is added in an
order that could change, and nothing waits for the host.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec, Encoded
from forebay.errors import WaveError
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Imaging, Sensing
from forebay.wave.kernels.device import Device, Launch
from forebay.wave.kernels.encoded import EncodedCorrelation
from forebay.wave.kernels.rows import WORD, Rows
from forebay.wave.kernels.variant import Variant
from forebay.wave.survey.points import Points

SOURCE = Path(__file__).parent / "points.cu"
PITCH = 8
"""Points to whose multiples rows are filled up: 32 bytes, which a cache moves at once."""
THREADS = 128
"""Of a thread block of those kernels that are not stencils."""
LARGEST = 2**32
"""Cells of a field are counted in 32 bits."""


class GpuKernels:
    """What the kernels of all waves share, for one grid and order, in float32."""

    first = WORD
    """points of whose multiples one is the first that is computed in a row"""

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
        self.rows = Rows.of(fields[-1], radius, WORD, PITCH, self.first)
        self.window = self.rows.window(grid.inside(radius))
        shape = self.rows.shape(fields)
        self.lead: tuple[int, ...] = () if shots is None else (shots,)
        self._check_size((*self.lead, *shape))
        self._shots = shots or 1
        self._axes, self._mirrored = grid.ndim, 2 * radius if grid.free_surface else 0
        self._planes, self._rows = shape[0], shape[1] if grid.ndim == 3 else 1
        self._words, self._end = shape[-1] // WORD, self.rows.before + fields[-1] - radius
        self._listening: dict[tuple[int, int], tuple[Any, Any, Launch]] = {}
        self._launches: dict[tuple[str, bool], Launch] = {}
        self._scattering: dict[int, tuple[Points, Launch]] = {}
        self._correlations: dict[int, tuple[Any, EncodedCorrelation]] = {}
        self._correlating: dict[bool, Launch] = {}

    def _check_size(self, shape: tuple[int, ...]) -> None:
        """Refuse fields whose cells cannot be counted."""
        if np.prod(shape, dtype=float) >= LARGEST:
            raise WaveError(
                f"fields of {shape}: on a GPU they have less than 2^32 points, but for those that are paged"
            )

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
        if id(points) not in self._scattering:  # kept with them, so that nothing else gets their number
            self._scattering[id(points)] = points, self._points_of(points, factors, None)
        launch = self._scattering[id(points)][1]
        launch.set(field=p, values=values, factors=factors, mirrored=0)
        launch(self.device.stream())

    def correlate(self, image: Any, illumination: Any, p: Any, q: Any, factor: float) -> None:
        """Add p q to an image and p p to its illumination, where `run` has not done so; q may be a whole field."""
        record = self.device.arrays.ascontiguousarray(p)
        self._correlate(Imaging(image, illumination, record, factor), self.device.address(q), q.shape == image.shape)

    def _correlate(self, image: Imaging, field: int, part: bool = False) -> None:
        """Add products of a record with the field at an address, or with the part of one that images cover."""
        if part not in self._correlating:
            seen = {name[5:]: count for name, count in self._covered.items() if name.startswith("seen_")}
            place = self._covered | {name: 0 for name in self._covered if name.startswith("first_")}
            arguments = {"record": None, "p": None, "image": None, "light": None, "factor": 0.0}
            arguments |= seen | place if part else self._field | self._covered
            self._correlating[part] = self._listed("correlate", self._grid_of_window, arguments)
        launch, address = self._correlating[part], self.device.address
        launch.set(record=address(image.record), p=field, factor=float(image.factor))  # as numbers: nothing is kept
        launch.set(image=address(image.image), light=address(image.illumination))
        launch(self.device.stream())

    def crop(self, p: Any) -> Any:
        """Copy what records and images cover of a field into an array without gaps."""
        shape = *self.lead, *(side.stop - side.start for side in self.window)
        out = self.device.arrays.empty(shape, self.dtype)
        self._cropping.set(p=self.device.address(p), out=self.device.address(out))  # as numbers: nothing is kept alive
        self._cropping(self.device.stream())
        return out

    @cached_property
    def _cropping(self) -> Launch:
        arguments = {"p": None, "out": None, **self._field, **self._covered}
        return self._listed("crop", self._grid_of_window, arguments)

    @property
    def _grid_of_window(self) -> tuple[int, int, int]:
        words = self._covered["seen_rows"] * self._covered["seen_words"]
        return -(-words // THREADS), min(self._covered["seen_planes"], 65535), self._shots

    @property
    def _field(self) -> dict[str, int]:
        return {"planes": self._planes, "rows": self._rows, "words": self._words}

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
    def _slots(self) -> int:
        return self.device.multiprocessors * self.variant.blocks

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
            "places": None,
            "image": None,
            "factor": 0.0,
            **self._field,
            **self._covered,
        }
        return self._listed("points", (sending + -(-count * 32 // THREADS),), arguments)

    def _listed(self, name: str, grid: Sequence[int], arguments: dict[str, Any]) -> Launch:
        kernel = self.device.kernel(SOURCE, name, {"AXES": self._axes, "RADIUS": self.radius})
        return Launch(self.device, kernel, grid, (THREADS,), arguments)


class AcousticGpuKernels(GpuKernels, ABC):
    """The acoustic kernels of any number of axes."""

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, sending and hearing a row of values in each."""
        return self._run_steps(propagator, state, senders, sent, steps, hears, None, None, back=False)

    def run_back(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        image: Imaging | None,
        sensing: Sensing | None = None,
    ) -> Any:
        """Take the adjoint's state back through steps, sending a row of values in each, and look at the last one."""
        return self._run_steps(propagator, state, senders, sent, steps, None, image, sensing, back=True)

    def _run_steps(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        hears: Any,
        image: Imaging | None,
        sensing: Sensing | None,
        *,
        back: bool,
    ) -> Any:
        stream, address, row = self.device.stream(), self.device.address, sent.itemsize * sent.shape[1]
        listeners, heard = hears if hears is not None else (None, None)
        values, out, across = address(sent), 0, 0
        if heard is not None:
            out, across = address(heard), heard.itemsize * heard.shape[1]
        advance, points = self._stencil(propagator, back), self._points(senders, listeners)
        changes, ahead = self._changing(propagator, back), self._ahead(propagator, state)
        p, old, memory = address(state["p"]), address(state["p_old"]), 0
        if "pml" in state:
            memory = address(state["pml"])
        for step in steps:
            pictured = image if step == steps[-1] else None
            correlation = self._correlation(senders, pictured)
            stencil = advance
            if pictured is not None and correlation is None:
                stencil = self._pictured(propagator, pictured, back) or advance
            if sensing is not None and step == steps[-1]:
                stencil = self._sensing(propagator, sensing)
            if ahead is not None:
                ahead.set(p=p, old=old)
                ahead(stream)
            self._bind(changes, stencil, p, old, memory)
            for change in changes:
                change(stream)
            stencil(stream)
            if pictured is not None and correlation is not None:
                correlation.add(pictured, old)
            elif pictured is not None and stencil is advance:
                self._correlate(pictured, old)
            points.set(field=old, values=values + step * row, heard=p, out=out + step * across)
            if pictured is not None:
                points.set(**(record_of(pictured) if correlation is None else correlation.beside(pictured)))
            points(stream)
            p, old = old, p
        if image is not None:
            points.set(seen=None, places=None, image=None)
        if sensing is not None:
            self._after_sensing(propagator, sensing, old)
        return state | {"p": state["p_old"], "p_old": state["p"]} if len(steps) % 2 else state

    def _ahead(self, propagator: Any, state: Any) -> Launch | None:
        """Return what comes before each step and may change its older field; for acoustic waves there is nothing."""
        return None

    def correlates_encoded(self, codec: Codec) -> bool:
        """Tell whether images are made of records that a codec has encoded, as they are kept."""
        shape = tuple(side.stop - side.start for side in self.window)
        return self._axes == 3 and codec.multiplies(shape, self.dtype)

    def _correlation(self, senders: Any, image: Imaging | None) -> EncodedCorrelation | None:
        """Return what makes an image of an encoded record, prepared once; None for other records, and for none."""
        if image is None or not isinstance(image.record, Encoded):
            return None
        if id(senders) not in self._correlations:  # kept with them, so that nothing else gets their number
            extents = self._planes, self._rows, WORD * self._words
            cells = self.get(senders.points.touched)
            self._correlations[id(senders)] = senders, EncodedCorrelation(self, image.record, cells, extents)
        return self._correlations[id(senders)][1]

    def compile_ahead(self, layers: AcousticLayers) -> None:
        """Do nothing: kernels of planes know the shape of the fields, and compile with the first shot."""

    @abstractmethod
    def changes(self, layers: AcousticLayers) -> int:
        """Return how many values layers put somewhere for a stencil."""

    @abstractmethod
    def advance(
        self, p: Any, p_old: Any, squared: Any, weights: Any, layers: AcousticLayers, pml: Any, back: bool = False
    ) -> None:
        """Step once: `p_old` becomes the newer field, and `pml` what the layers know after the step."""

    @abstractmethod
    def _bind(self, changes: Sequence[Launch], stencil: Launch, p: int, old: int, memory: int) -> None:
        """Tell the launches of a step which fields it has."""

    @abstractmethod
    def _changing(self, propagator: Any, back: bool) -> Sequence[Launch]:
        """Return what layers do before a step, prepared once for either direction."""

    @abstractmethod
    def _stencil(self, propagator: Any, back: bool) -> Launch:
        """Return a step, prepared once for either direction."""

    @abstractmethod
    def _pictured(self, propagator: Any, image: Imaging, back: bool) -> Launch | None:
        """Prepare the step with its image, whose record is another array each time; None where that is made apart."""

    @abstractmethod
    def _sensing(self, propagator: Any, sensing: Sensing) -> Launch:
        """Prepare the step back that a gradient adds up, which the changes before it then know of."""

    @abstractmethod
    def _after_sensing(self, propagator: Any, sensing: Sensing, p: int) -> None:
        """Do what the step has left of it, whose field was `p`."""


def record_of(image: Imaging) -> dict[str, Any]:
    """Return the arguments that say what a step is imaged with."""
    return {"seen": image.record, "image": image.image, "factor": float(image.factor)}
