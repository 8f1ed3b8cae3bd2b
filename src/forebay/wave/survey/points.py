"""Sources and receivers at any position: band-limited interpolation, and its exact transpose.

A point between grid points is a sinc, cut off by a Kaiser window (Hicks, "Arbitrary source and receiver positioning in
finite-difference schemes using Kaiser windowed sinc functions", Geophysics 67, 2002). What a window reaches above a
free surface is mirrored with its sign changed, where the field does that; where it does not, the point becomes a
polynomial through the first rows. The weights are kept twice, by point and by grid cell, so that reading and adding can
both run in parallel with sums in a fixed order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid

REACH = 4
"""Grid points on each side of a position that take part."""
SHAPE = 6.3
"""Of the Kaiser window: for wavelengths of four points and more this one errs least, by 0.0014 of the amplitude."""
BELOW = 6
"""Rows below a free surface that take part where a field is not mirrored there."""
ON_GRID = 1e-6
"""Spacings from a grid point within which a position is taken to be on it."""
KEPT, LARGEST = 8, 2**22
"""How many points are kept, and the most bytes of each: to model a shot and to migrate it asks for the same."""


@dataclass(frozen=True, eq=False)
class Points:
    """Interpolation weights of positions, by point and by cell; cells are counted in the flattened field."""

    starts: Any
    """where the weights of each point begin, and one past the last"""
    cells: Any
    weights: Any
    touched: Any
    """the cells with a weight, ascending"""
    shares: Any
    """where the weights of each touched cell begin, and one past the last"""
    sharers: Any
    """the point of each of those weights"""
    share_weights: Any

    @property
    def count(self) -> int:
        """Number of points."""
        return len(self.starts) - 1

    def moved(self, put: Any) -> "Points":
        """Return the same points with their arrays where the kernels work."""
        return Points(*(put(getattr(self, field.name)) for field in fields(self)))


_LOCATED: dict[tuple[Any, ...], Points] = {}
_LOCK = Lock()


def locate(
    positions: Any, grid: Grid, halo: int, *, offset: tuple[float, ...] | None = None, mirrored: bool = True
) -> Points:
    """Find the weights of positions, given as one row of coordinates each, in metres.

    The field's points lie `offset` spacings beyond those of the grid. At a free surface it is `mirrored` with its sign
    changed, and is zero there; or it is not, and positions on the surface are as good as others. Those that were found
    last are kept, and nobody changes them.
    """
    positions = checked_positions(positions, grid, mirrored=mirrored)
    asked = positions.tobytes(), grid, halo, offset, mirrored
    with _LOCK:
        points = _LOCATED.get(asked)
    if points is None:
        points = _located(positions, grid, halo, offset, mirrored)
        with _LOCK:
            if sum(getattr(points, field.name).nbytes for field in fields(points)) <= LARGEST:
                _LOCATED[asked] = points
            while len(_LOCATED) > KEPT:
                del _LOCATED[next(iter(_LOCATED))]
    return points


def _located(
    positions: NDArray[np.float64], grid: Grid, halo: int, offset: tuple[float, ...] | None, mirrored: bool
) -> Points:
    shape = grid.fields(halo)
    cells, weights = np.zeros((len(positions), 1), np.int64), np.ones((len(positions), 1))
    for axis in range(grid.ndim):
        place = (positions[:, axis] - grid.origin[axis]) / grid.spacing[axis] - (offset[axis] if offset else 0.0)
        index, weight = _along(place, axis, grid, halo, mirrored)
        kept = (weight != 0).any(axis=0)  # where all positions are on the grid, one column
        index, weight = index[:, kept], weight[:, kept]
        cells = (cells[:, :, None] * shape[axis] + index[:, None, :]).reshape(len(positions), -1)
        weights = (weights[:, :, None] * weight[:, None, :]).reshape(len(positions), -1)
    point = np.repeat(np.arange(len(positions)), cells.shape[1])
    return _sorted(point, cells.ravel(), weights.ravel(), len(positions))


def follow(points: Sequence[Points], cells: int) -> Points:
    """Join points of fields that follow each other, with so many cells each."""
    counts, shares = ([getattr(own, name) for own in points] for name in ("starts", "shares"))
    first = np.cumsum([0, *(own.count for own in points)])

    def joined(name: str, apart: Any) -> NDArray[Any]:
        return np.concatenate([getattr(own, name) + shift for own, shift in zip(points, apart, strict=False)])

    def ends(each: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(own) for own in each]))])

    places = cells * np.arange(len(points))
    return Points(
        starts=ends(counts),
        cells=joined("cells", places),
        weights=joined("weights", np.zeros(len(points))),
        touched=joined("touched", places),
        shares=ends(shares),
        sharers=joined("sharers", first),
        share_weights=joined("share_weights", np.zeros(len(points))),
    )


def checked_positions(positions: Any, grid: Grid, *, mirrored: bool = True) -> NDArray[np.float64]:
    """Return positions as an array of one row each, refusing those at which nothing can be sent or heard."""
    positions = np.atleast_2d(np.asarray(positions, np.float64))
    if positions.ndim != 2 or positions.shape[1] != grid.ndim or not len(positions):
        raise WaveError(f"positions of shape {positions.shape}: give a row of {grid.ndim} coordinates for each")
    slack = ON_GRID * np.asarray(grid.spacing)
    outside = ~((positions >= grid.origin - slack) & (positions <= grid.end + slack)).all(axis=1)
    if outside.any():
        raise WaveError(
            f"{outside.sum()} of {len(positions)} positions are outside the model, first number {np.argmax(outside)} "
            f"at {tuple(positions[outside][0].tolist())}: the grid reaches from {grid.origin} to {grid.end}"
        )
    if mirrored and grid.free_surface and (positions[:, 0] <= grid.origin[0] + slack[0]).any():
        raise WaveError(
            "a position on the free surface, where the pressure is zero, so that nothing is sent or heard there: "
            f"put it deeper than {grid.origin[0]:.6g} m"
        )
    return np.asarray(positions)


def _along(
    place: NDArray[np.float64], axis: int, grid: Grid, halo: int, mirrored: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return indices and weights along one axis, a row for each place, which is counted in points of the field."""
    near = np.rint(place)
    place = np.where(np.abs(place - near) < ON_GRID, near, place)
    index = np.floor(place)[:, None].astype(np.int64) + np.arange(1 - REACH, REACH + 1)
    away = place[:, None] - index
    weight = np.where(away == np.rint(away), away == 0, np.sinc(away) * kaiser(away / REACH))
    before, after = grid.layers()[axis]
    if axis == 0 and grid.free_surface and mirrored:
        weight = np.sign(index) * weight
        index = np.abs(index)
    elif axis == 0 and grid.free_surface:
        above = ((index < 0) & (weight != 0)).any(axis=1)
        rows = np.arange(min(BELOW, grid.shape[0] + after))
        index[above] = np.minimum(np.arange(2 * REACH), len(rows) - 1)
        weight[above] = 0.0
        weight[above, : len(rows)] = _polynomial(place[above], rows)
    last = grid.shape[axis] - 1 + after
    weight = np.where((index >= -before) & (index <= last), weight, 0.0)  # in the halo nothing is computed
    return np.clip(index, -before, last) + before + halo, weight


def _polynomial(place: NDArray[np.float64], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights of rows in the polynomial through all of them, at each place."""
    others = [[other for other in rows if other != row] for row in rows]
    columns = [
        np.prod([(place - other) / (row - other) for other in rest], axis=0)
        for row, rest in zip(rows, others, strict=True)
    ]
    return np.stack(columns, axis=1)


def kaiser(away: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate the Kaiser window, which reaches from -1 to 1."""
    return np.where(np.abs(away) <= 1, np.i0(SHAPE * np.sqrt(np.maximum(1 - away**2, 0))) / np.i0(SHAPE), 0.0)


def _sorted(point: NDArray[Any], cell: NDArray[Any], weight: NDArray[Any], count: int) -> Points:
    """Order the weights by point and by cell, adding those of one point that fell on one cell."""
    heavy = weight != 0
    point, cell, weight = point[heavy], cell[heavy], weight[heavy]
    width = int(cell.max(initial=0)) + 1
    pairs = point * width + cell
    if (np.diff(pairs) <= 0).any():  # only at a free surface does a point meet a cell twice
        pairs, where = np.unique(pairs, return_inverse=True)
        sums = np.bincount(where, weight, len(pairs))
        (point, cell), weight = np.divmod(pairs[sums != 0], width), sums[sums != 0]
    order = np.argsort(cell, kind="stable")  # points are in order already
    ordered = cell[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    touched = ordered[first]
    return Points(
        starts=np.searchsorted(point, np.arange(count + 1)),
        cells=cell,
        weights=weight,
        touched=touched,
        shares=np.append(first, len(order)),
        sharers=point[order],
        share_weights=weight[order],
    )
