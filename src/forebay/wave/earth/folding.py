"""Folding: the transpose of continuing a model through its layers and halo, a few planes at a time.

On a GPU what is computed on the way lies beside the fields of the waves, so there must not be much of it at once.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from forebay.wave.earth.grid import Grid

POINTS = 2**23
"""of the planes that are computed at once, about"""


def folded(grid: Grid, halo: int, part: Callable[[slice], Sequence[Any]], dtype: Any) -> list[Any]:
    """Add values in layers and halo to those at the model's edges, in double precision, and return those of the model.

    ``part(planes)`` computes some planes of each array on the grid of the fields, which are overwritten. They are
    arrays of NumPy, or of a library that follows it, and so is what is returned.

    Examples
    --------
    >>> values = np.ones((4, 5))
    >>> folded(Grid((2, 3), 1.0, absorb=0), 1, lambda planes: [values[planes].copy()], np.float32)[0].tolist()
    [[4.0, 2.0, 4.0], [4.0, 2.0, 4.0]]
    """
    fields, inside = grid.fields(halo), grid.inside(halo)[0]
    thick = max(1, POINTS // math.prod(fields[1:]))
    whole: list[Any] = []
    edges: list[Any] = []  # the first and the last plane of each, in the making
    for start in range(0, fields[0], thick):
        planes = slice(start, min(start + thick, fields[0]))
        count, shift = planes.stop - start, start - inside.start
        first = min(max(1 - shift, 0), count)  # planes up to the model's first
        last = min(max(inside.stop - 1 - start, 0), count)  # planes before its last
        for number, values in enumerate(part(planes)):
            rows = _fold_rows(grid, halo, values)
            if number == len(whole):
                whole.append(np.empty_like(rows, dtype, shape=grid.shape))
                edges.append(np.zeros_like(rows, np.float64, shape=(2, *grid.shape[1:])))
            edges[number][0] += rows[:first].sum(axis=0)
            edges[number][1] += rows[last:].sum(axis=0)
            if first < last:
                whole[number][shift + first : shift + last] = rows[first:last]
    for array, edge in zip(whole, edges, strict=True):
        array[0], array[-1] = edge[0], edge[1]
    return whole


def _fold_rows(grid: Grid, halo: int, values: Any) -> Any:
    """Fold planes along all axes but the first, in place."""
    for axis, inside in enumerate(grid.inside(halo)[1:], 1):
        lines = np.moveaxis(values, axis, 0)
        lines[inside.start] += lines[: inside.start].sum(axis=0)
        lines[inside.stop - 1] += lines[inside.stop :].sum(axis=0)
        values = np.moveaxis(lines[inside], 0, axis)
    return values
