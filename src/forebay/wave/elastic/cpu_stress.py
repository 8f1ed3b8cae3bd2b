"""The second half of an elastic step on the CPU: velocities change stresses; see `cpu`."""

from functools import cache
from typing import Any

import numpy as np

from forebay.wave.elastic.cpu_velocity import ROWS, TILE_Y, TILE_Z, weights_of
from forebay.wave.kernels.jit import jit, prange
from forebay.wave.kernels.subnormal import flush, restore


@cache
def stresses(ndim: int, radius: int, dtype: np.dtype[Any], parallel: bool, sense: bool) -> Any:
    """Compile ``strain(t, v, m, table, w)``: t += what the strains of v ask for, with the moduli in `m`.

    Normal stresses come first in `t`, and lam and mu in `m`; then each shear stress with its own stiffness. Where it is
    to `sense`, `m` has the stresses of the other wave, and `t` totals: first of the product of its trace and that of
    the strains, then of the inner product of both, then of each shear stress with its strain.
    """
    c, both = weights_of(radius, dtype), 2 * radius
    nought = dtype.type(0)
    if ndim == 2:

        @jit(parallel=parallel, lone=True)
        def strain_plane(t: Any, v: Any, m: Any, table: Any, w: Any) -> None:
            (t_zz, t_xx, t_zx), (v_z, v_x), (lam, mu, m_zx) = t, v, m
            ahead, back = table[0], table[2]
            rows, width = v_z.shape[0] - 2 * radius, v_z.shape[1] - 2 * radius
            for tile in prange((rows + ROWS - 1) // ROWS):
                setting = flush()
                e_z, e_x = np.empty(width, v_z.dtype), np.empty(width, v_z.dtype)
                first = radius + tile * ROWS
                for z in range(first, min(first + ROWS, radius + rows)):
                    for x in range(width):
                        along_z = nought
                        for k in range(both):
                            along_z += back[z, k] * v_z[z + k - radius, x + radius]
                        e_z[x] = along_z
                    for x in range(width):
                        along_x = nought
                        for k in range(radius):
                            along_x += c[k] * (v_x[z, x + radius + k] - v_x[z, x + radius - 1 - k])
                        e_x[x] = w[0] * along_x
                    one, two = lam[z, radius : radius + width], mu[z, radius : radius + width]
                    new, other = t_zz[z, radius : radius + width], t_xx[z, radius : radius + width]
                    if sense:  # of lam and mu, then, are the normal stresses of the other wave
                        for x in range(width):
                            new[x] += (one[x] + two[x]) * (e_z[x] + e_x[x])
                            other[x] += one[x] * e_z[x] + two[x] * e_x[x]
                    else:
                        for x in range(width):
                            new[x] += one[x] * (e_z[x] + e_x[x]) + (two[x] + two[x]) * e_z[x]
                        for x in range(width):
                            other[x] += one[x] * (e_z[x] + e_x[x]) + (two[x] + two[x]) * e_x[x]
                    new, by = t_zx[z, radius : radius + width], m_zx[z, radius : radius + width]
                    for x in range(width):
                        along_z, along_x = nought, nought
                        for k in range(both):
                            along_z += ahead[z, k] * v_x[z + k - radius + 1, x + radius]
                        for k in range(radius):
                            along_x += c[k] * (v_z[z, x + radius + 1 + k] - v_z[z, x + radius - k])
                        push = along_z + w[0] * along_x
                        new[x] += by[x] * push
                restore(setting)

        return strain_plane

    @jit(parallel=parallel, lone=True)
    def strain_volume(t: Any, v: Any, m: Any, table: Any, w: Any) -> None:
        (v_z, v_y, v_x), (lam, mu, third, m_zy, m_zx, m_yx) = v, m
        t_zz, t_yy, t_xx, t_zy, t_zx, t_yx = t
        ahead, back = table[0], table[2]
        planes, rows, width = v_z.shape[0] - 2 * radius, v_z.shape[1] - 2 * radius, v_z.shape[2] - 2 * radius
        across = (rows + TILE_Y - 1) // TILE_Y
        for tile in prange((planes + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            e_z, e_y, e_x = np.empty(width, v_z.dtype), np.empty(width, v_z.dtype), np.empty(width, v_z.dtype)
            first_z, first_y = radius + tile // across * TILE_Z, radius + tile % across * TILE_Y
            for z in range(first_z, min(first_z + TILE_Z, radius + planes)):
                for y in range(first_y, min(first_y + TILE_Y, radius + rows)):
                    for x in range(width):
                        along_z = nought
                        for k in range(both):
                            along_z += back[z, k] * v_z[z + k - radius, y, x + radius]
                        e_z[x] = along_z
                    for x in range(width):
                        along_y = nought
                        for k in range(radius):
                            along_y += c[k] * (v_y[z, y + k, x + radius] - v_y[z, y - 1 - k, x + radius])
                        e_y[x] = w[0] * along_y
                    for x in range(width):
                        along_x = nought
                        for k in range(radius):
                            along_x += c[k] * (v_x[z, y, x + radius + k] - v_x[z, y, x + radius - 1 - k])
                        e_x[x] = w[1] * along_x
                    one, two = lam[z, y, radius : radius + width], mu[z, y, radius : radius + width]
                    last = third[z, y, radius : radius + width]
                    new = t_zz[z, y, radius : radius + width]
                    other = t_yy[z, y, radius : radius + width]
                    if sense:
                        for x in range(width):
                            new[x] += (one[x] + two[x] + last[x]) * (e_z[x] + e_y[x] + e_x[x])
                            other[x] += one[x] * e_z[x] + two[x] * e_y[x] + last[x] * e_x[x]
                    else:
                        for x in range(width):
                            trace = e_z[x] + e_y[x] + e_x[x]
                            new[x] += one[x] * trace + (two[x] + two[x]) * e_z[x]
                        for x in range(width):
                            trace = e_z[x] + e_y[x] + e_x[x]
                            other[x] += one[x] * trace + (two[x] + two[x]) * e_y[x]
                        new = t_xx[z, y, radius : radius + width]
                        for x in range(width):
                            trace = e_z[x] + e_y[x] + e_x[x]
                            new[x] += one[x] * trace + (two[x] + two[x]) * e_x[x]
                    new, by = t_zy[z, y, radius : radius + width], m_zy[z, y, radius : radius + width]
                    for x in range(width):
                        along_z, along_y = nought, nought
                        for k in range(both):
                            along_z += ahead[z, k] * v_y[z + k - radius + 1, y, x + radius]
                        for k in range(radius):
                            along_y += c[k] * (v_z[z, y + 1 + k, x + radius] - v_z[z, y - k, x + radius])
                        push = along_z + w[0] * along_y
                        new[x] += by[x] * push
                    new, by = t_zx[z, y, radius : radius + width], m_zx[z, y, radius : radius + width]
                    for x in range(width):
                        along_z, along_x = nought, nought
                        for k in range(both):
                            along_z += ahead[z, k] * v_x[z + k - radius + 1, y, x + radius]
                        for k in range(radius):
                            along_x += c[k] * (v_z[z, y, x + radius + 1 + k] - v_z[z, y, x + radius - k])
                        push = along_z + w[1] * along_x
                        new[x] += by[x] * push
                    new, by = t_yx[z, y, radius : radius + width], m_yx[z, y, radius : radius + width]
                    for x in range(width):
                        along_y, along_x = nought, nought
                        for k in range(radius):
                            along_y += c[k] * (v_x[z, y + 1 + k, x + radius] - v_x[z, y - k, x + radius])
                            along_x += c[k] * (v_y[z, y, x + radius + 1 + k] - v_y[z, y, x + radius - k])
                        push = w[0] * along_y + w[1] * along_x
                        new[x] += by[x] * push
            restore(setting)

    return strain_volume
