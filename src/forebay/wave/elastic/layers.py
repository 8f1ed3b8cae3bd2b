"""Absorbing layers of elastic waves: a convolutional perfectly matched layer, and its transpose.

In the layers of an axis every derivative along it is followed by a memory of itself (Komatitsch and Martin, "An unsplit
convolutional perfectly matched layer improved at grazing incidence for the seismic wave equation", Geophysics 72,
2007), with a and b of `earth.absorbing` at the derivative's points:

    m = b m + a D f,    D f + m takes the place of D f.

So with S the sum over time that a step of m stands for, a step applies S D where it applied D. Its transpose applies
D S, up to the sign, to the fields that `propagator` scales: their memory is that of the field instead of the derivative,

    m = b m + a f,    D f + D m takes the place of D f.

Both keep a memory field for each derivative, in the layers of its axis alone, at the points of the velocity or stress
that it changes on the way forward: eight in two dimensions, eighteen in three. A state holds them in one array, "pml".
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from forebay.wave.earth.grid import Grid
from forebay.wave.kernels.rows import Rows


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
        return replace(self, a=tuple(map(put, self.a)), b=tuple(map(put, self.b)))

    def offsets(self, count: int = 0) -> tuple[int, ...]:
        """Return where the memory fields of each axis begin, all or `count` for an axis, and where they end."""
        sizes = [(count or 2 * self.ndim) * prod(self.shape(axis)) for axis in range(self.ndim)]
        return tuple(int(offset) for offset in np.cumsum([0, *sizes]))

    def of(self, pml: Any, count: int = 0) -> list[Any]:
        """Return the memory fields of each axis: those at velocities, then those at stresses; or `count` of them."""
        offsets = self.offsets(count)
        return [
            pml[start:stop].reshape(count or 2 * self.ndim, *self.shape(axis))
            for axis, (start, stop) in enumerate(zip(offsets, offsets[1:], strict=False))
        ]


def memory_shape(fields: tuple[int, ...], ends: tuple[int, int, int, int], axis: int) -> tuple[int, ...]:
    """Return the shape of a memory field: that of the fields, and along its axis the points of both layers."""
    first, low, high, last = ends
    return (*fields[:axis], low - first + last - high, *fields[axis + 1 :])


def layers_of(grid: Grid, halo: int, dt: float, rows: Rows) -> Layers:
    """Find the layers around a model in fields whose rows lie as they are told."""
    ends, a, b = [], [], []
    fields = grid.fields(halo)
    for axis, (points, (before, after)) in enumerate(zip(fields, grid.layers(), strict=True)):
        # The last half point of the model is beyond its last whole one, and in the layer.
        first, low, last = halo, halo + before, points - halo
        high = last - after - (after > 0)
        coefficients = profile(grid, axis, halo, dt)
        if axis == grid.ndim - 1:
            first, low, high, last = (place + rows.before for place in (first, low, high, last))
            low, high, last = -(-low // rows.word) * rows.word, high // rows.word * rows.word, -(-last // rows.word) * rows.word
            coefficients = [rows.pad(values) for values in coefficients]
        ends.append((first, low, max(low, high), last))
        a.append(np.stack(coefficients[:2]))
        b.append(np.stack(coefficients[2:]))
    return Layers(rows.shape(fields), tuple(ends), tuple(a), tuple(b))


def held(a: Any, b: Any, steps: int) -> tuple[Any, Any]:
    """Return the coefficients of a memory that is asked once in several steps, of what stays as it is between."""
    power = b**steps
    return (a * np.where(b < 1, (1 - power) / np.where(b < 1, 1 - b, 1), steps)).astype(a.dtype), power


def profile(grid, axis, halo, dt):
    """temporary"""
    import os
    points, (before, after), h = grid.shape[axis], grid.layers()[axis], grid.spacing[axis]
    place = np.arange(points + before + after + 2 * halo) - float(halo + before)
    fast = float(os.environ.get("FAST", "0.5")) * min(grid.spacing) / dt
    R = float(os.environ.get("RET", "1e-4")); alpha0 = float(os.environ.get("ALPHA", "0.03")) / dt; power = float(os.environ.get("POWER", "2"))
    a, b = [], []
    for offset in (0.0, 0.5):
        sigma, alpha = np.zeros(len(place)), np.zeros(len(place))
        for width, beyond in ((before, -place - offset), (after, place + offset - (points - 1))):
            if width:
                d = np.clip(beyond / width, 0, 1)
                sigma += (power + 1) * np.log(1 / R) / 2 / (width * h) * fast * d**power
                alpha += alpha0 * (1 - d) * (d > 0)
        bb = np.where(sigma > 0, np.exp(-(sigma + alpha) * dt), 0)
        aa = np.where(sigma > 0, sigma / np.where(sigma > 0, sigma + alpha, 1) * (bb - 1), 0)
        aa[:halo] = aa[-halo:] = 0; bb[:halo] = bb[-halo:] = 0
        a.append(aa); b.append(bb)
    return [*a, *b]
