"""The first half of an elastic step on the CPU: stresses move velocities; see `cpu`."""

from functools import cache
from typing import Any

import numpy as np

from forebay.wave.elastic.stencil import first_derivative
from forebay.wave.kernels.jit import jit, prange
from forebay.wave.kernels.subnormal import flush, restore

TILE_Z, TILE_Y = 16, 16
"""Points of a cache tile along the slower axes in three dimensions."""
ROWS = 8
"""Rows of a cache tile in two."""


@cache
def velocities(ndim: int, radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile ``move(v, t, b, table, w)``: v += b div(t).

    `table` has the derivatives along depth, `w` one over the spacing of the other axes.
    """
    c, both = weights_of(radius, dtype), 2 * radius
    nought = dtype.type(0)
    if ndim == 2:

        @jit(parallel=parallel, lone=True)
        def move_plane(v: Any, t: Any, b: Any, table: Any, w: Any) -> None:
            (v_z, v_x), (t_zz, t_xx, t_zx), (b_z, b_x) = v, t, b
            ahead, back = table[0], table[1]
            rows, width = v_z.shape[0] - 2 * radius, v_z.shape[1] - 2 * radius
            for tile in prange((rows + ROWS - 1) // ROWS):
                setting = flush()
                first = radius + tile * ROWS
                for z in range(first, min(first + ROWS, radius + rows)):
                    new, by = v_z[z, radius : radius + width], b_z[z, radius : radius + width]
                    for x in range(width):
                        along_z, along_x = nought, nought
                        for k in range(both):
                            along_z += ahead[z, k] * t_zz[z + k - radius + 1, x + radius]
                        for k in range(radius):
                            along_x += c[k] * (t_zx[z, x + radius + k] - t_zx[z, x + radius - 1 - k])
                        push = along_z + w[0] * along_x
                        new[x] += by[x] * push
                    new, by = v_x[z, radius : radius + width], b_x[z, radius : radius + width]
                    for x in range(width):
                        along_z, along_x = nought, nought
                        for k in range(both):
                            along_z += back[z, k] * t_zx[z + k - radius, x + radius]
                        for k in range(radius):
                            along_x += c[k] * (t_xx[z, x + radius + 1 + k] - t_xx[z, x + radius - k])
                        push = along_z + w[0] * along_x
                        new[x] += by[x] * push
                restore(setting)

        return move_plane

    @jit(parallel=parallel, lone=True)
    def move_volume(v: Any, t: Any, b: Any, table: Any, w: Any) -> None:
        (v_z, v_y, v_x), (t_zz, t_yy, t_xx, t_zy, t_zx, t_yx), (b_z, b_y, b_x) = v, t, b
        ahead, back = table[0], table[1]
        planes, rows, width = v_z.shape[0] - 2 * radius, v_z.shape[1] - 2 * radius, v_z.shape[2] - 2 * radius
        across = (rows + TILE_Y - 1) // TILE_Y
        for tile in prange((planes + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            first_z, first_y = radius + tile // across * TILE_Z, radius + tile % across * TILE_Y
            for z in range(first_z, min(first_z + TILE_Z, radius + planes)):
                for y in range(first_y, min(first_y + TILE_Y, radius + rows)):
                    new, by = v_z[z, y, radius : radius + width], b_z[z, y, radius : radius + width]
                    for x in range(width):
                        along_z, along_y, along_x = nought, nought, nought
                        for k in range(both):
                            along_z += ahead[z, k] * t_zz[z + k - radius + 1, y, x + radius]
                        for k in range(radius):
                            along_y += c[k] * (t_zy[z, y + k, x + radius] - t_zy[z, y - 1 - k, x + radius])
                            along_x += c[k] * (t_zx[z, y, x + radius + k] - t_zx[z, y, x + radius - 1 - k])
                        push = along_z + w[0] * along_y + w[1] * along_x
                        new[x] += by[x] * push
                    new, by = v_y[z, y, radius : radius + width], b_y[z, y, radius : radius + width]
                    for x in range(width):
                        along_z, along_y, along_x = nought, nought, nought
                        for k in range(both):
                            along_z += back[z, k] * t_zy[z + k - radius, y, x + radius]
                        for k in range(radius):
                            along_y += c[k] * (t_yy[z, y + 1 + k, x + radius] - t_yy[z, y - k, x + radius])
                            along_x += c[k] * (t_yx[z, y, x + radius + k] - t_yx[z, y, x + radius - 1 - k])
                        push = along_z + w[0] * along_y + w[1] * along_x
                        new[x] += by[x] * push
                    new, by = v_x[z, y, radius : radius + width], b_x[z, y, radius : radius + width]
                    for x in range(width):
                        along_z, along_y, along_x = nought, nought, nought
                        for k in range(both):
                            along_z += back[z, k] * t_zx[z + k - radius, y, x + radius]
                        for k in range(radius):
                            along_y += c[k] * (t_yx[z, y + k, x + radius] - t_yx[z, y - 1 - k, x + radius])
                            along_x += c[k] * (t_xx[z, y, x + radius + 1 + k] - t_xx[z, y, x + radius - k])
                        push = along_z + w[0] * along_y + w[1] * along_x
                        new[x] += by[x] * push
            restore(setting)

    return move_volume


def weights_of(radius: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the weights of a stencil as numbers of the fields' type."""
    return tuple(dtype.type(weight) for weight in first_derivative(2 * radius))
