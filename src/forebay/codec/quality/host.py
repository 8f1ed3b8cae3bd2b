"""Comparing arrays on the CPU, in float64, with the GIL free; `quality.cu` does the same on a GPU.

Numba's `float` leaves a float32 what it is; only `np.float64` widens it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.compiled import jit, read_only

Window = tuple[int, int, int]


def compare(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, float, float, float]:
    """Return the largest error, the sum of squared errors, and the least and most finite value of the first array."""
    worst, squares, least, most = _compared(_real(a).reshape(-1), _real(b).reshape(-1))
    return float(worst), float(squares), float(least), float(most)


def similarity(a: NDArray[Any], b: NDArray[Any], window: Window, centre: float, c1: float, c2: float) -> float:
    """Add up the structural similarity of arrays with three axes over all windows inside."""
    return float(_added(_real(a), _real(b), window, centre, c1, c2))


def _real(array: NDArray[Any]) -> NDArray[Any]:
    wide = array.dtype in (np.float32, np.float64)
    return read_only(np.ascontiguousarray(array) if wide else array.astype(np.float64, order="C"))


@jit
def _compared(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, float, float, float]:
    worst, squares, least, most = 0.0, 0.0, np.inf, -np.inf
    for index in range(a.size):
        x, y = np.float64(a[index]), np.float64(b[index])
        if np.isfinite(x):
            least, most = min(least, x), max(most, x)
        if x == y or (x != x and y != y):
            continue
        error: float = abs(x - y)
        if error != error:
            error = np.inf
        worst = max(worst, error)
        squares += error * error
    return worst, squares, least, most


@jit
def _added(a: NDArray[Any], b: NDArray[Any], window: Window, centre: float, c1: float, c2: float) -> float:
    """Take a plane's share of the moments once, and keep it while windows reach it."""
    wz, wy, wx = window
    nz, ny, nx = a.shape
    rows, columns = ny - wy + 1, nx - wx + 1
    values = np.empty((5, nx))
    along = np.empty((5, ny, columns))
    ring = np.empty((wz, 5, rows, columns))
    n = wz * wy * wx
    unbiased = n / (n - 1)
    total = 0.0
    for z in range(nz):
        for y in range(ny):
            for x in range(nx):
                first: float = np.float64(a[z, y, x])
                second: float = np.float64(b[z, y, x])
                if np.isfinite(first) and np.isfinite(second):
                    first -= centre
                    second -= centre
                elif first == second or (first != first and second != second):
                    first = second = 0.0
                else:
                    first = second = np.nan
                values[0, x], values[1, x] = first, second
                values[2, x], values[3, x], values[4, x] = first * first, second * second, first * second
            for moment in range(5):
                for x in range(columns):
                    along[moment, y, x] = 0.0
                for i in range(wx):
                    for x in range(columns):
                        along[moment, y, x] += values[moment, x + i]
        plane = ring[z % wz]
        for moment in range(5):
            for y in range(rows):
                for x in range(columns):
                    plane[moment, y, x] = 0.0
                for j in range(wy):
                    for x in range(columns):
                        plane[moment, y, x] += along[moment, y + j, x]
        if z < wz - 1:
            continue
        for y in range(rows):
            for x in range(columns):
                s0 = s1 = s2 = s3 = s4 = 0.0
                for k in range(wz):
                    s0 += ring[k, 0, y, x]
                    s1 += ring[k, 1, y, x]
                    s2 += ring[k, 2, y, x]
                    s3 += ring[k, 3, y, x]
                    s4 += ring[k, 4, y, x]
                ma, mb = s0 / n, s1 / n
                va, vb = (s2 / n - ma * ma) * unbiased, (s3 / n - mb * mb) * unbiased
                vab = (s4 / n - ma * mb) * unbiased
                ua, ub = ma + centre, mb + centre
                total += (2 * ua * ub + c1) * (2 * vab + c2) / ((ua * ua + ub * ub + c1) * (va + vb + c2))
    return total
