"""Absorbing layers of elastic waves: a convolutional perfectly matched layer, and its transpose.

In the layers of an axis every derivative along it is followed by a memory of itself (Komatitsch and Martin, "An unsplit
convolutional perfectly matched layer improved at grazing incidence for the seismic wave equation", Geophysics 72,
2007), with a and b of `earth.cpml` at the derivative's points:

    m = b m + a D f,    D f + m takes the place of D f.

So with S the sum over time that this stands for, a step applies S D where it would apply D. Its transpose applies D S,
up to the sign, to the fields that `propagator` scales: theirs is the memory of a field instead of its derivative,

    m = b m + a f,    D f + D m takes the place of D f.

In the outer part of a layer all fields fade besides, twice in a step, by g: v = g (g v + ...). A matched layer
lets waves grow whose phase runs against their energy, as guided ones do in rough media that meet the edge; where it has
left little of others, fading takes those too. It leaves the transpose what it was, for fields in the scale of 1 / g.

Both keep a memory field for each derivative, in the layers of its axis alone, at the points of the velocity or stress
that it changes on the way forward: eight in two dimensions, eighteen in three. A state holds them in one array, "pml".
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from forebay.wave.earth.cpml import stretchings
from forebay.wave.earth.grid import Grid
from forebay.wave.kernels.rows import Rows

MEMORY = "pml"
"""Name of the memory fields of a state, which are one array."""

FADING, FADING_FROM = 7.0, 0.75
"""How fast fields fade at the end of a layer, times its width over the velocity it is made for, and from which part of
the width on. A force two points from the edge of layered ground, of 3 Hz, was heard for a second: layers of 20 points
that fade from 0.65 or 0.75 on changed pressures by 2.8e-3 and 4.6e-4. With these, waves in random rock with pores of
fluid faded for 10,000 steps; where fields fade from 0.8 on, or at less than half the rate, they grew."""


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a grid: where they are in the fields, their coefficients, and the memory fields of a state."""

    fields: tuple[int, ...]
    """the shape of the fields"""
    ends: tuple[tuple[int, int, int, int], ...]
    """of each axis: the first point that is computed, the first after the layer before the model, the first of the
    layer after it, and one past the last point"""
    a: tuple[Any, ...]
    """of each axis, at whole points and at half ones"""
    b: tuple[Any, ...]
    g: tuple[Any, ...]
    """by what fields fade, twice in a step"""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.fields)

    def shape(self, axis: int) -> tuple[int, ...]:
        """Return the shape of a memory field of an axis."""
        return memory_shape(self.fields, self.ends[axis], axis)

    @property
    def size(self) -> int:
        """How many values a state holds for all memory fields."""
        return self.offsets()[-1]

    def moved(self, put: Any) -> "Layers":
        """Return the same layers with their coefficients where the kernels work."""
        coefficients = {name: tuple(map(put, getattr(self, name))) for name in ("a", "b", "g")}
        return replace(self, **coefficients)

    def offsets(self, count: int = 0) -> tuple[int, ...]:
        """Return where the memory fields of each axis begin, all or `count` for an axis, and where they end."""
        sizes = [(count or 2 * self.ndim) * prod(self.shape(axis)) for axis in range(self.ndim)]
        return tuple(int(offset) for offset in np.cumsum([0, *sizes]))

    def of(self, pml: Any, count: int = 0) -> list[Any]:
        """Return the memory fields of each axis: those at velocities, then those at stresses; or `count` of them."""
        offsets = self.offsets(count)
        return [
            pml[start:stop].reshape(count or 2 * self.ndim, *self.shape(axis))
            for axis, (start, stop) in enumerate(pairwise(offsets))
        ]

    def places(self, cells: Any, *, number: int, axis: int) -> tuple[Any, Any]:
        """Return which cells of a field are in the layers of an axis, and where their memory is in a state's array."""
        first, low, high, _ = self.ends[axis]
        index = list(np.unravel_index(cells, self.fields))
        at = index[axis]
        within = (at < low) | (at >= high)
        index[axis] = np.where(at < low, at - first, at - high + low - first)
        shape = (2 * self.ndim, *self.shape(axis))
        place = np.ravel_multi_index([np.full(within.sum(), number), *(each[within] for each in index)], shape)
        return within, self.offsets()[axis] + place


def memory_shape(fields: tuple[int, ...], ends: tuple[int, int, int, int], axis: int) -> tuple[int, ...]:
    """Return the shape of a memory field: that of the fields, and along its axis the points of both layers."""
    first, low, high, last = ends
    return (*fields[:axis], low - first + last - high, *fields[axis + 1 :])


def layers_of(grid: Grid, halo: int, dt: float, velocity: float, rows: Rows) -> Layers:
    """Find the layers around a model in fields whose rows lie as they are told."""
    a, b, g = list[Any](), list[Any](), list[Any]()
    for axis, along in enumerate(stretchings(grid, dt, velocity)):
        for values, whole, half in ((a, along.a, along.half_a), (b, along.b, along.half_b)):
            values.append(np.pad(np.stack([whole, half[1:]]), [(0, 0), (halo, halo)]))
        g.append(np.pad(_fading(grid, axis, dt, velocity), [(0, 0), (halo, halo)], constant_values=1.0))
    for values in (a, b, g):
        values[-1] = rows.pad(values[-1])
    return Layers(rows.shape(grid.fields(halo)), _ends(grid, halo, rows), tuple(a), tuple(b), tuple(g))


def _fading(grid: Grid, axis: int, dt: float, velocity: float) -> Any:
    """Return g along an axis, at whole points and at half ones."""
    points, (before, after) = grid.shape[axis], grid.layers()[axis]
    place = np.arange(before + points + after) - float(before)
    fading = np.zeros((2, len(place)))
    for row, offset in zip(fading, (0.0, 0.5), strict=True):
        for width, beyond in ((before, -place - offset), (after, place + offset - (points - 1))):
            if width:
                deep = np.clip((beyond / width - FADING_FROM) / (1 - FADING_FROM), 0, 1)
                row += FADING * velocity / (width * grid.spacing[axis]) * deep**2
    return np.exp(-fading * dt / 2)


def memory_of(grid: Grid, halo: int, rows: Rows) -> int:
    """Return how many values a state holds for the layers of a grid."""
    return Layers(rows.shape(grid.fields(halo)), _ends(grid, halo, rows), (), (), ()).size


def _ends(grid: Grid, halo: int, rows: Rows) -> tuple[tuple[int, int, int, int], ...]:
    ends = []
    for points, (before, after) in zip(grid.fields(halo), grid.layers(), strict=True):
        # The half point after the model's last one is in the layer already.
        ends.append((halo, halo + before, points - halo - after - (after > 0), points - halo))
    ends[-1] = _in_words(ends[-1], rows)
    return tuple((first, low, max(low, high), last) for first, low, high, last in ends)


def _in_words(ends: tuple[int, int, int, int], rows: Rows) -> tuple[int, int, int, int]:
    """Let the layers along rows be of whole words."""
    first, low, high, last = (place + rows.before for place in ends)
    return first, -(-low // rows.word) * rows.word, high // rows.word * rows.word, -(-last // rows.word) * rows.word


def held(a: Any, b: Any, steps: int) -> tuple[Any, Any]:
    """Return the coefficients of a memory that is asked once in several steps, of what stays as it is between."""
    times = sum(b**step for step in range(steps))
    return a * times, b**steps
