"""Perfectly matched layers of acoustic waves: what they change in a step, and in a step of the adjoint.

Along an axis, in units of its spacing, the second derivative is a difference of fluxes: with c the weights of the
stencil and f_j = c_j + c_{j+1} + ..., and half a point before point i,

    F_i = sum_j f_j (p_{i-1+j} - p_{i-j}),    lap(p)_i = F_{i+1} - F_i.

In a layer both derivatives are stretched (see `earth.cpml`), the fluxes between its points with a memory psi and their
difference with a memory zeta, after Pasalic and McGarry, "Convolutional perfectly matched layer for isotropic and
anisotropic acoustic wave equations", SEG 2010:

    psi_i = b psi_i + a F_i,    u_i = lap(p)_i + psi_{i+1} - psi_i,    zeta_i = b zeta_i + a u_i,

and the step has u + zeta in the place of lap(p): what a layer changes is psi_{i+1} - psi_i + zeta_i. Fluxes rather than
first derivatives of their own make the stretched operator that of the model wherever nothing is stretched, and the
change of a point depends on two memories of fluxes, which are updated in passing.

The adjoint runs the transpose of each line, last one first. With q the field that it carries, times (v dt)^2,

    zeta_i = q_i + b zeta_i,    m_i = a zeta_i,    h_i = (q + m)_{i-1} - (q + m)_i,    psi_i = h_i + b psi_i,

and with n_i = a psi_i the change is lap(m)_i + sum_j f_j (n_{i+1-j} - n_{i+j}), which reaches as far beyond the layer
as the stencil does. Layers change a step by adding, so those of several axes and sides know nothing of each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.cpml import Stretching, stretchings
from forebay.wave.earth.grid import Grid
from forebay.wave.kernels.rows import Rows


@dataclass(frozen=True, eq=False)
class Side:
    """One side of one axis, in whole words of rows."""

    axis: int
    start: int
    """of its first point along the axis, in the fields"""
    count: int
    """points along the axis"""
    lead: int
    """points before the first one that the adjoint changes"""
    trail: int
    """points after the last one that the adjoint changes"""
    shape: tuple[int, ...]
    """of psi and of zeta: that of the fields, with the points of the layer along the axis"""
    offset: int
    """of psi in the memory of all layers; zeta follows"""
    changed: int
    """where its changes begin in those of all layers"""
    coefficients: NDArray[np.floating]
    """a, b, and both for the half points before; a row each, in a batch for each shot"""

    @cached_property
    def size(self) -> int:
        """Values of psi, and as many of zeta."""
        return prod(self.shape)

    @property
    def reach(self) -> tuple[int, ...]:
        """The shape of what it changes."""
        axis = self.axis
        return (*self.shape[:axis], self.lead + self.count + self.trail, *self.shape[axis + 1 :])


@dataclass(frozen=True, eq=False)
class AcousticLayers:
    """All layers of a grid."""

    sides: tuple[Side, ...]
    changes: Any = None
    """where a step puts what the layers change in it, as the kernels hold it"""

    @property
    def size(self) -> int:
        """Values that all layers remember."""
        return sum(2 * side.size for side in self.sides)

    @property
    def reach(self) -> int:
        """Values of all changes."""
        return sum(prod(side.reach) for side in self.sides)

    def of_shot(self, number: int) -> "AcousticLayers":
        """Return the layers of one shot of a batch."""
        sides = (replace(side, coefficients=side.coefficients[number]) for side in self.sides)
        return replace(self, sides=tuple(sides))

    def of_type(self, dtype: np.dtype[Any]) -> "AcousticLayers":
        """Return the same layers with coefficients of the fields' type."""
        sides = (replace(side, coefficients=side.coefficients.astype(dtype)) for side in self.sides)
        return replace(self, sides=tuple(sides))


def together(layers: Sequence[AcousticLayers]) -> AcousticLayers:
    """Join layers that differ in what velocity they are made for, one for each shot."""
    sides = zip(*(own.sides for own in layers), strict=True)
    return AcousticLayers(tuple(replace(own[0], coefficients=np.stack([s.coefficients for s in own])) for own in sides))


def layers_of(grid: Grid, halo: int, rows: Rows, dt: float, velocity: float) -> AcousticLayers:
    """Cut the layers of a grid out of its fields; refuse some that a free surface would be mirrored in."""
    if grid.free_surface and grid.absorb and grid.shape[0] <= halo:  # the adjoint does not know of the mirror
        raise WaveError(
            f"{grid.shape[0]} rows between a free surface and an absorbing layer, with order {2 * halo}: give more "
            f"than {halo} rows, or a lower order"
        )
    shape, layers = rows.shape(grid.fields(halo)), AcousticLayers(())
    for axis, stretched in enumerate(stretchings(grid, dt, velocity)):
        for side in _sides(grid, axis, shape, stretched, halo, rows):
            layers = AcousticLayers((*layers.sides, replace(side, offset=layers.size, changed=layers.reach)))
    return layers


def coefficients_of(stretched: Stretching, before: int, after: int) -> NDArray[np.float64]:
    """Return a, b, and both for the half points before each, of an axis with so many points of layers on its sides."""
    count = len(stretched.a)
    half_a, half_b = stretched.half_a[:-1].copy(), stretched.half_b[:-1].copy()
    # Fluxes are stretched between the points of a layer, not where it begins and ends.
    for edge in (0, before, count - after if after else 0):
        half_a[edge % count] = half_b[edge % count] = 0
    return np.stack([stretched.a, stretched.b, half_a, half_b])


def _sides(grid: Grid, axis: int, shape: tuple[int, ...], stretched: Stretching, halo: int, rows: Rows) -> list[Side]:
    """Return the layers of an axis; where what they change would meet, one that has all points."""
    (before, after), count = grid.layers()[axis], len(stretched.a)
    origin, word = (halo + rows.before, rows.word) if axis == grid.ndim - 1 else (halo, 1)
    all_coefficients = coefficients_of(stretched, before, after)
    reach, end = -(-halo // word) * word, -(-(origin + count) // word) * word

    def layer(first: int, width: int) -> Side:
        start, stop = (origin + first) // word * word, -(-(origin + first + width) // word) * word
        coefficients, skip = np.zeros((4, stop - start)), origin + first - start
        coefficients[:, skip : skip + width] = all_coefficients[:, first : first + width]
        return Side(
            axis,
            start,
            stop - start,
            lead=min(reach, start - origin),
            trail=min(reach, end - stop),
            shape=(*shape[:axis], stop - start, *shape[axis + 1 :]),
            offset=0,
            changed=0,
            coefficients=coefficients,
        )

    sides = [layer(first, width) for first, width in ((0, before), (count - after, after)) if width]
    if len(sides) == 2 and sides[0].start + sides[0].count + 2 * reach > sides[1].start:
        return [layer(0, count)]
    return sides
