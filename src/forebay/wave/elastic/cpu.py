"""The elastic loops for NumPy arrays, compiled for each order and number of axes: the twins of the GPU's kernels.

Arrays are those of `Grid.fields`: the outer `radius` points of every axis are read and never written. Each of the two
halves of a step, velocities and stresses, is one sweep; its innermost loops run over single rows and fill one field
each, so that the compiler can tell that nothing else changes. In three dimensions a step moves 140 bytes a point in
float32, as long as the rows around a block stay in the second-level cache: 15 fields are read or written for the
velocities, 20 for the stresses.

The same sweeps serve the gradient: instead of stepping, they then add the product of what would have been added with a
field of the other wave to a total.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import prange

from forebay.wave.acoustic.cpu import MANY, CpuKernels
from forebay.wave.elastic.cpu_stress import stresses
from forebay.wave.elastic.cpu_velocity import velocities, weights_of
from forebay.wave.kernels.jit import jit, jits

Fields = tuple[Any, ...]


@cache
def divergence(ndim: int, radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile ``spread(out, v, corner, back, w)``: the divergence of velocities, from the point `corner` on."""
    c, both = weights_of(radius, dtype), 2 * radius
    nought = dtype.type(0)
    if ndim == 2:

        @jit(parallel=parallel)
        def spread_plane(out: Any, v: Any, corner: Any, back: Any, w: Any) -> None:
            v_z, v_x = v
            for row in prange(out.shape[0]):
                z, new = row + corner[0], out[row]
                for x in range(len(new)):
                    along_z, along_x, here = nought, nought, x + corner[1]
                    for k in range(both):
                        along_z += back[z, k] * v_z[z + k - radius, here]
                    for k in range(radius):
                        along_x += c[k] * (v_x[z, here + k] - v_x[z, here - 1 - k])
                    new[x] = along_z + w[0] * along_x

        return spread_plane

    @jit(parallel=parallel)
    def spread_volume(out: Any, v: Any, corner: Any, back: Any, w: Any) -> None:
        v_z, v_y, v_x = v
        for plane in prange(out.shape[0]):
            for row in range(out.shape[1]):
                z, y, new = plane + corner[0], row + corner[1], out[plane, row]
                for x in range(len(new)):
                    along_z, along_y, along_x, here = nought, nought, nought, x + corner[2]
                    for k in range(both):
                        along_z += back[z, k] * v_z[z + k - radius, y, here]
                    for k in range(radius):
                        along_y += c[k] * (v_y[z, y + k, here] - v_y[z, y - 1 - k, here])
                        along_x += c[k] * (v_x[z, y, here + k] - v_x[z, y, here - 1 - k])
                    new[x] = along_z + w[0] * along_y + w[1] * along_x

    return spread_volume


@jits
def correlate_between(image: Any, illumination: Any, p: Any, q: Any, step: Any, factor: Any) -> None:
    """Add p q and p p to image and illumination, as means of the points before and after; `p` starts one earlier."""
    for z in prange(image.shape[0]):
        for y in range(image.shape[1]):
            bright, light = image[z, y], illumination[z, y]
            one, other = p[z, y], q[z, y]
            one_after, other_after = p[z + step[0], y + step[1]], q[z + step[0], y + step[1]]
            for x in range(len(bright)):
                after = x + step[2]
                bright[x] += factor * (one[x] * other[x] + one_after[after] * other_after[after])
                light[x] += factor * (one[x] * one[x] + one_after[after] * one_after[after])


class ElasticCpuKernels(CpuKernels):
    """The loops for one grid's number of axes, one order and one type; arrays are NumPy's."""

    def move(self, v: Fields, t: Fields, b: Fields, g: Fields, table: Fields, w: Fields) -> None:
        """Advance the velocities."""
        velocities(*self._kind, v[0].size >= MANY, False)(v, t, b, g, table, w)

    def strain(self, t: Fields, v: Fields, m: Fields, g: Fields, table: Fields, w: Fields) -> None:
        """Advance the stresses."""
        # In three dimensions a sweep that senses has one field more to read.
        m = m if len(v) == 2 else (m[0], m[1], m[1], *m[2:])
        stresses(*self._kind, v[0].size >= MANY, False)(t, v, m, g, table, w)

    def sense_move(self, totals: Fields, t: Fields, v: Fields, g: Fields, table: Fields, w: Fields) -> None:
        """Add the products of velocities with what stresses do to them to totals."""
        velocities(*self._kind, v[0].size >= MANY, True)(totals, t, v, g, table, w)

    def sense_strain(self, totals: Fields, v: Fields, t: Fields, g: Fields, table: Fields, w: Fields) -> None:
        """Add the products of stresses with the strains of velocities to totals."""
        totals = totals if len(v) == 2 else (*totals[:2], totals[1], *totals[2:])
        stresses(*self._kind, v[0].size >= MANY, True)(totals, v, t, g, table, w)

    def divergence(self, out: Any, v: Fields, corner: tuple[int, ...], back: Any, w: Fields) -> None:
        """Fill `out` with the divergence of velocities inside the model."""
        divergence(*self._kind, v[0].size >= MANY)(out, v, corner, back, w)

    def correlate_between(self, image: Any, illumination: Any, p: Any, q: Any, axis: int, factor: float) -> None:
        """Correlate fields that lie between the points of the image along an axis."""
        deep = [array if array.ndim == 3 else array[:, None] for array in (image, illumination, p, q)]
        axis = axis if image.ndim == 3 else 2 * axis
        step = tuple(int(one == axis) for one in range(3))
        correlate_between[image.size >= MANY](*deep, step, self.dtype.type(factor / 2))
