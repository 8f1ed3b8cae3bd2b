"""The elastic loops for arrays on a GPU: the kernels of ``elastic_*.cu``, whose CPU twins say what they compute.

A step is a launch for the velocities and one for the stresses. After each there is one for the points that send or
hear, where there are such: forces are sent and pressure is heard between the two, explosions and velocities after them.
An image of pressure waves is made while the stresses are advanced, which computes the divergence anyway. In three
dimensions a step moves 120 bytes a point: the medium is averaged in registers, from its density, lam and one over mu.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import ElasticModel
from forebay.wave.elastic.gpu_images import POINTS, ElasticImages
from forebay.wave.elastic.layers import MEMORY, held
from forebay.wave.elastic.medium import AXES, at_whole_points
from forebay.wave.imaging import Imaging
from forebay.wave.kernels.device import SOURCES, Launch
from forebay.wave.kernels.lists import listeners as listeners_of
from forebay.wave.kernels.lists import senders as senders_of
from forebay.wave.kernels.rows import WORD
from forebay.wave.kernels.variant import Variant, chunk_of, tiles_of

LONGEST = 12
"""Planes that a thread marches through at most: thread blocks that have parted read what the caches no longer hold."""
VELOCITY, STRESS = (SOURCES / f"elastic_{name}.cu" for name in ("velocity", "stress"))
THREADS = 128
"""Of a thread block of the kernel of points."""


@dataclass(frozen=True)
class ElasticVariant(Variant):
    """How the elastic stencils are compiled and launched; every variant gives the same bits."""

    width: int = 2
    """points of a word: more of them take more registers"""
    staged: bool = False
    """whether what is used in one plane only is loaded into shared memory, one plane ahead"""
    stress: "ElasticVariant | None" = None
    """for the second half of a step, where that differs from the first"""
    stress_back: "ElasticVariant | None" = None
    """for the second half of all but a step forward"""

    def defines(self, axes: int, radius: int, rows: int, words: int) -> dict[str, int]:
        """Return the macros for the sources; `words` have four points."""
        more = {"WIDE": self.width, "STAGED": int(self.staged)}
        return super().defines(axes, radius, rows, words * WORD // self.width) | more


FASTEST = ElasticVariant(
    early=False,
    staged=True,
    stress=ElasticVariant(early=False, staged=True),
    stress_back=ElasticVariant(block=(16, 16), width=4, blocks=1, early=False, staged=True),
)
"""Of the variants of each launch, the fastest on an H200."""
PARTS = {"move": 1, "strain": 1, "move_back": 2, "strain_back": 2, "strain_and_image": 4}
"""Bits of kernels that are compiled when they are needed; those of gradients have another."""


class ElasticGpuKernels(ElasticImages):
    """The kernels for one grid and order, in float32."""

    variant: ElasticVariant

    def __init__(
        self, grid: Grid, radius: int, dtype: np.dtype[Any], device: Any = None, variant: ElasticVariant | None = None
    ) -> None:
        super().__init__(grid, radius, dtype, device, variant or FASTEST)
        self._surface = radius if grid.free_surface else 0  # 0 for none
        self._prepared: dict[bool, tuple[Launch, Launch]] = {}  # forward and back
        self._bound: dict[tuple[int, int, bool, bool], tuple[Any, Any, Launch | None]] = {}

    def medium(self, model: ElasticModel, halo: int, dt: float) -> dict[str, Any]:
        """Return density, lam and softness at whole points, in the units that the kernels average them in."""
        rho, lam, mu = at_whole_points(model, halo)

        def put(values: Any) -> Any:
            return self.put(self.rows.pad(values.astype(self.dtype)))

        with np.errstate(divide="ignore"):
            return {"rho": put(rho / (2 * dt)), "lam": put(lam * dt), "softness": put(1 / (4 * dt * mu))}

    def medium_at(self, medium: dict[str, Any], name: str, cells: NDArray[Any]) -> NDArray[np.float64]:
        """Return what the kernels make of a medium at cells: lam, mu, or a buoyancy, all times dt."""

        def values(of: str, places: NDArray[Any]) -> NDArray[np.float64]:
            return self.get(medium[of].reshape(-1)[self.put(places)]).astype(np.float64)

        if name == "mu":
            return 1 / (4 * values("softness", cells))
        if name == "lam":
            return values(name, cells)
        axis = AXES[self._axes].index(name[1:])
        return 1 / (values("rho", cells) + values("rho", cells + int(np.prod(self._shape[axis + 1 :]))))

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        return self._run(propagator, state, senders, sent, steps, hears, None, back=False)

    def run_back(self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], image: Any) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each.

        `image`, an `Imaging` or None, is made of the divergence in the last step; the rest is as for acoustic waves.
        """
        return self._run(propagator, state, senders, sent, steps, None, image, back=True)

    def _run(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        hears: Any,
        image: Imaging | None,
        *,
        back: bool,
    ) -> Any:
        stream, address, row = self.device.stream(), self.device.address, sent.itemsize * sent.shape[1]
        listeners, heard = hears if hears is not None else (None, None)
        values, out, across = address(sent), 0, 0
        if heard is not None:
            out, across = address(heard), heard.itemsize * heard.shape[1]
        pml = address(state[MEMORY])
        fields = self._fields({name: address(field) for name, field in state.items()})
        between, after = (self._bound_points(propagator, senders, listeners, still, back) for still in (False, True))
        move, strain = self._halves(propagator, back)
        for half in (move, strain):
            half.set(**fields, pml=pml)
        for launch, sends, hearing in ((between, "v", "t"), (after, "t", "v")):
            if launch is not None:
                launch.set(**self._three("", sends, fields), **self._three("heard_", hearing, fields), fourth=pml)
        for step in steps:
            move(stream)
            if between is not None:
                between.set(values=values + step * row, out=out + step * across)
                between(stream)
            if image is not None and step == steps[-1]:
                self._imaged(propagator, image, fields | {MEMORY: pml})(stream)
            else:
                strain(stream)
            if after is not None:
                after.set(values=values + step * row, out=out + step * across)
                after(stream)
        return state

    def hear(self, propagator: Any, state: Any, antenna: Any, out: Any, still: bool) -> None:
        """Read the pressure at an antenna's points, or the velocities."""
        launch = self._bound_points(propagator, (), antenna, not still, False)
        if launch is not None:
            fields = self._fields({name: self.device.address(field) for name, field in state.items()})
            launch.set(**self._three("heard_", "t" if still else "v", fields), out=out)
            launch(self.device.stream())

    def sense(self, propagator: Any, totals: dict[str, Any], state: Any, adjoint: Any, every: int) -> None:
        """Add what velocities and the stresses of the adjoint owe to the medium to totals, `every` times."""
        names = self._fields(dict(state) | {name: adjoint[name] for name in propagator.stresses})
        slopes, layers = self._slopes(propagator), self._layers(propagator) | {"pml": adjoint[MEMORY]}
        over_v = {f"total_{axis}": totals.get(f"b{axis}") for axis in "zyx"}
        over_t = {f"total_{pair}": totals.get(f"m{pair}") for pair in ("zy", "zx", "yx")}
        v, t = ({key: names[key] for key in names if key[0] == letter} for letter in "vt")
        tables = {"ahead": propagator.table[0], "back": propagator.table[1], "closed": self._closed}
        factor = {"factor": float(propagator.dt * every)}
        arguments = over_v | v | t | factor | layers | tables | slopes
        self._stencil_launch(VELOCITY, "sense_move", arguments, propagator.layers.ends)(self.device.stream())
        tables["back"] = propagator.table[2]
        arguments = {"traces": totals["traces"], "inner": totals["inner"]} | over_t | t | v | factor | layers
        arguments |= {"traced": totals[MEMORY]} | self._held(propagator, every) | tables | slopes
        self._stencil_launch(STRESS, "sense_strain", arguments, propagator.layers.ends)(self.device.stream())

    def _held(self, propagator: Any, every: int) -> dict[str, Any]:
        """Return the coefficients of a memory that is asked once in several steps."""
        layers = propagator.layers
        pairs = [held(a, b, every) for a, b in zip(layers.a, layers.b, strict=True)]
        a, b = ([pair[place] for pair in pairs] for place in (0, 1))
        return {f"held_{name}": values for name, values in _by_axis(a=a, b=b).items()}

    def _tiles(self, variant: ElasticVariant, ends: Any, back: bool) -> NDArray[np.int32]:
        """List what thread blocks compute; on the way back, layers reach further."""
        first = self.radius, self.radius if self._axes == 3 else 0, WORD // variant.width
        last = self._planes - self.radius, max(self._rows - self.radius, 1), -(-self._end // variant.width)
        spans = [(start, start, stop, stop) for start, stop in zip(first, last, strict=True)]
        for axis, (start, low, high, stop) in zip((0, 2) if self._axes == 2 else range(3), ends, strict=True):
            reach, scale = (WORD, variant.width) if axis == 2 else (self.radius, 1)
            before = (low + back * reach) // scale if low > start else first[axis]
            after = (high - back * reach) // scale if high < stop else last[axis]
            spans[axis] = first[axis], before, after, last[axis]
        planes, rows, words = (stop - start for start, stop in zip(first, last, strict=True))
        along = min(variant.block[0], 1 << (words - 1).bit_length())
        across = variant.block[0] * variant.block[1] // along
        columns = -(-words // along), -(-rows // across) if self._axes == 3 else 1
        chunk = chunk_of(self._axes, columns, planes, self.device.multiprocessors * variant.blocks, variant)
        chunk = chunk * across if self._axes == 2 else min(chunk, LONGEST)
        return tiles_of(spans, (chunk, across, along))

    def _three(self, prefix: str, letter: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Hand velocities or normal stresses to the kernel of points, in the order of the axes."""
        chosen = [fields[f"{letter}_{axis if letter == 'v' else 2 * axis}"] for axis in AXES[self._axes]]
        return {prefix + name: field for name, field in zip(("first", "second", "third"), chosen, strict=False)}

    def _halves(self, propagator: Any, back: bool) -> tuple[Launch, Launch]:
        """Prepare the launches of a step."""
        if back not in self._prepared:
            arguments = self._fields({}) | {"rho": propagator.medium["rho"]}
            arguments |= self._layers_and_slopes(propagator, propagator.table[1])
            way = "_back" if back else ""
            move = self._stencil_launch(VELOCITY, f"move{way}", arguments, propagator.layers.ends)
            strain = self._stencil_launch(STRESS, f"strain{way}", self._straining(propagator), propagator.layers.ends)
            self._prepared[back] = move, strain
        return self._prepared[back]

    def _imaged(self, propagator: Any, image: Imaging, fields: dict[str, Any]) -> Launch:
        """Prepare the second half of a step with its image, whose record is another array each time."""
        if "_imaging" not in self.__dict__:
            times = WORD // self._variant_of(STRESS, "strain_and_image").width
            words = {key: times * self._covered[key] for key in ("first_word", "seen_words")}
            more = {"seen": None, "image": None, "light": None, "factor": 0.0, **self._covered, **words}
            arguments, ends = self._straining(propagator), propagator.layers.ends
            self._imaging = self._stencil_launch(STRESS, "strain_and_image", arguments, ends, more)
        self._imaging.set(**fields, seen=image.record, image=image.image, light=image.illumination)
        self._imaging.set(factor=float(image.factor))
        return self._imaging

    def _straining(self, propagator: Any) -> dict[str, Any]:
        fields = self._fields({})
        t, v = ({key: fields[key] for key in fields if key[0] == letter} for letter in "tv")
        medium = {name: propagator.medium[name] for name in ("lam", "softness")}
        return t | v | medium | {"surface": self._surface} | self._layers_and_slopes(propagator, propagator.table[2])

    def _layers_and_slopes(self, propagator: Any, back: Any) -> dict[str, Any]:
        """Return the layers and what derivatives need."""
        tables = {"ahead": propagator.table[0], "back": back, "closed": self._closed}
        return self._layers(propagator) | tables | self._slopes(propagator)

    def _layers(self, propagator: Any) -> dict[str, Any]:
        layers = propagator.layers
        ends = [layers.ends[0], layers.ends[1] if self._axes == 3 else (0, 0, 0, 0), layers.ends[-1]]
        low_and_high = {
            f"{axis}_{side}": places[1 + number]
            for axis, places in zip("zyx", ends, strict=True)
            for number, side in enumerate(("low", "high"))
        }
        return {"pml": None, **_by_axis(a=layers.a, b=layers.b, g=layers.g), **low_and_high}

    def _bound_points(self, propagator: Any, senders: Any, listeners: Any, still: bool, back: bool) -> Launch | None:
        """Return what sends to stresses and hears velocities (still), or the other way round, prepared once."""
        key = id(senders), id(listeners), still, back
        if key not in self._bound:
            sends = [part for part in senders if part.acts_on_stress == still]
            hears = [part for part in listeners or () if part.acts_on_stress != still]
            launch = self._points_launch(propagator, sends, hears, still, back) if sends or hears else None
            self._bound[key] = senders, listeners, launch  # kept, so that nothing else gets their number
        return self._bound[key][2]

    def _points_launch(self, propagator: Any, sends: Any, hears: Any, still: bool, back: bool) -> Launch:
        v, t, plane = propagator.velocities, propagator.stresses[: self._axes], int(np.prod(self._shape[1:]))

        def silent(name: str, cells: NDArray[Any]) -> NDArray[np.bool_]:
            return np.asarray((cells // plane == self._surface) & (name == "tzz"))  # where it stays zero

        # What is sent back is remembered too; the stencils have done so for the rest.
        recalled = propagator.remembering if back else None
        sent_to = senders_of(sends, t if still else v, self.get, silent, recalled)
        lists = sent_to, listeners_of(hears, v if still else t, self.get)
        cells, count = len(lists[0]["touched"]), len(lists[1]["hearing"])
        sending = -(-cells // THREADS)
        sent, heard = (
            {key: self.put(values) if len(values) else None for key, values in each.items()} for each in lists
        )
        factors = sent.pop("factors")
        arguments = {
            **dict.fromkeys(("first", "second", "third", "fourth")),
            **sent,
            "values": None,
            "factors": factors,
            "cells": cells,
            "sending": sending,
            **dict.fromkeys(("heard_first", "heard_second", "heard_third")),
            **heard,
            "out": None,
            "count": count,
            "apart": int(still),
            "scale": 1.0 if still else -1.0 / self._axes,
        }
        kernel = self.device.kernel(POINTS, "points", {"AXES": self._axes, "RADIUS": self.radius})
        return Launch(self.device, kernel, (sending + -(-count * 32 // THREADS),), (THREADS,), arguments)

    def _stencil_launch(
        self, source: Path, name: str, arguments: dict[str, Any], ends: Any, more: dict[str, Any] | None = None
    ) -> Launch:
        """Prepare a stencil; `more` are the arguments that come after the extents."""
        variant = self._variant_of(source, name)
        defines = variant.defines(self._axes, self.radius, self._rows, self._words) | {"PARTS": PARTS.get(name, 8)}
        tiles = self._tiles(variant, ends, back=name not in ("move", "strain"))
        extents = {"planes": self._planes, "rows": self._rows, "words": self._words * WORD // variant.width}
        table = self.device.arrays.asarray(tiles)
        arguments = arguments | extents | {"end": self._end, "tiles": table} | (more or {})
        kernel = self.device.kernel(source, name, defines)
        return Launch(self.device, kernel, (len(tiles),), variant.block, arguments)

    def _variant_of(self, source: Path, name: str) -> ElasticVariant:
        if source != STRESS:
            return self.variant
        forward = self.variant.stress or self.variant
        return forward if name == "strain" else self.variant.stress_back or forward


def _by_axis(**coefficients: Sequence[Any]) -> dict[str, Any]:
    """Name coefficients of each axis as the sources do; of the axis that two dimensions have not they are None."""
    axes = [
        {f"{name}_{axis}": values[place] if len(values) == 3 or axis != "y" else None for name, values in pairs}
        for pairs in (coefficients.items(),)
        for place, axis in ((0, "z"), (1, "y"), (-1, "x"))
    ]
    return {name: values for one in axes for name, values in one.items()}
