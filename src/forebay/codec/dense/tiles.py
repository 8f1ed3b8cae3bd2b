"""Tiles of a grid on the CPU: where they lie, and copying their points to and fro."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import any_of, bits_of, load, load_half, store
from forebay.codec.bounded.tiles import jit
from forebay.codec.dense.model import PAD, finite
from forebay.codec.dense.words import load_evens, load_odds, load_pieces, store_pairs


@jit
def side_of(rank: int, axis: int) -> int:
    """Return the points of a tile along an axis, the slowest first."""
    if axis < 3 - rank:
        return 1
    return 16 if rank == 3 else 64 if rank == 2 else 4096


@jit
def locate(tile: int, rank: int, extents: Any, counts: Any) -> tuple[int, int, int, int, int, int]:
    """Return where a tile begins along each axis, and how many of its points exist along each."""
    row, tx = divmod(tile, counts[2])
    tz, ty = divmod(row, counts[1])
    sz, sy, sx = side_of(rank, 0), side_of(rank, 1), side_of(rank, 2)
    z, y, x = tz * sz, ty * sy, tx * sx
    return z, y, x, min(sz, extents[0] - z), min(sy, extents[1] - y), min(sx, extents[2] - x)


@jit
def fresh_of(place: Any) -> int:
    """Count the points of a tile that are not of the grid above."""
    points = place[3] * place[4] * place[5]
    return int(points - (place[3] + 1) // 2 * ((place[4] + 1) // 2) * ((place[5] + 1) // 2))


@jit
def full(place: Any) -> bool:
    """Tell whether all points of a tile exist."""
    return bool(place[3] * place[4] * place[5] == 4096)


@jit
def cell_of(cell: int, rank: int) -> tuple[int, int, int]:
    """Return where a cell lies in its tile."""
    if rank == 3:
        return cell // 8 % 8, cell // 64, cell % 8
    return (0, cell // 32, cell % 32) if rank == 2 else (0, 0, cell)


@jit
def point_of(k: int, rank: int) -> tuple[int, int, int]:
    """Return where a point lies in its tile; points are numbered kind by kind."""
    kind, cell = divmod(k, 4096 >> rank)
    z, y, x = cell_of(cell, rank)
    return 2 * z + (kind >> 2 & 1), 2 * y + (kind >> 1 & 1), 2 * x + (kind & 1)


@jit
def exists(k: int, rank: int, place: Any) -> bool:
    """Tell whether a point of a tile exists."""
    z, y, x = point_of(k, rank)
    return bool(z < place[3] and y < place[4] and x < place[5])


@jit
def index_of(k: int, rank: int, place: Any, extents: Any, stride: int) -> int:
    """Return the index of a point in an array of these extents, in which the points of the grid are so far apart."""
    z, y, x = point_of(k, rank)
    line = (place[0] + z) * stride * extents[1] + (place[1] + y) * stride
    return int(line * extents[2] + (place[2] + x) * stride)


@jit
def begin_of(kind: int, row: int, rank: int, place: Any, extents: Any) -> tuple[int, int]:
    """Return where the pairs begin in an array whose first are the points of a kind in a row, and how far apart."""
    z, y, x = cell_of(row * LANES, rank)
    line = (place[0] + 2 * z + (kind >> 2 & 1)) * extents[1] + place[1] + 2 * y + (kind >> 1 & 1)
    return line * extents[2] + place[2] + 2 * x, 2 * extents[1] * extents[2] if rank == 3 else LANES // 2


@jit
def gather(array: Any, extents: Any, stride: int, place: Any, rank: int, x: Any) -> None:
    """Copy the new points of a tile, kind by kind; what does not exist is infinite."""
    cells = 4096 >> rank
    if full(place) and stride == 1:
        for kind in range(0, 1 << rank, 2):
            for row in range(cells // LANES):
                at, apart = begin_of(kind, row, rank, place, extents)
                to = kind * cells + row * LANES
                store(load_evens(array, at, apart), x, to)
                store(load_odds(array, at, apart), x, to + cells)
        return
    for k in range(cells, 4096):
        x[k] = array[index_of(k, rank, place, extents, stride)] if exists(k, rank, place) else np.inf


@jit
def past(at: int, n: int) -> int:
    """Return how far a place is past the end of an axis: not, by one point, or by more."""
    return 0 if n < 2 or at < n else 1 if at == n else 2


@jit
def beyond(above: Any, z: int, y: int, x: int, n2: int, n1: int, n0: int) -> Any:
    """Return an old point: before the beginning the first, past an end what the last two lead to, along one axis."""
    nz, ny, nx = min(max(z, 0), n2 - 1), min(max(y, 0), n1 - 1), min(max(x, 0), n0 - 1)
    at = (nz * n1 + ny) * n0 + nx
    by, apart = past(z, n2), n1 * n0
    if by == 0:
        by, apart = past(y, n1), n0
    if by == 0:
        by, apart = past(x, n0), 1
    last = finite(above[at])
    if by == 0:
        return last
    change = last - finite(above[at - apart])
    return last + change if by == 1 else last + (change + change)


@jit
def surround(above: Any, extents: Any, place: Any, rank: int, coarse: Any, old: Any) -> bool:
    """Copy the old points in a tile and around it, as `beyond` has it; tell whether all of them are 0.

    Those in the tile go to `old` as they are; others become numbers.
    """
    n2, n1, n0 = (extents[0] + 1) // 2, (extents[1] + 1) // 2, (extents[2] + 1) // 2
    z0, y0, x0 = place[0] // 2, place[1] // 2, place[2] // 2
    planes, lines = (11, 11) if rank == 3 else (35 if rank == 2 else 1, 1)
    wide = 11 if rank == 3 else 35 if rank == 2 else 2051
    inner, at = x0 > 0 and x0 + wide - 1 <= n0, 0
    for plane in range(planes):
        y = y0 + plane - 1 if rank > 1 else 0
        for line in range(lines):
            z = z0 + line - 1 if rank == 3 else 0
            begin = (z * n1 + y) * n0
            if not inner or z < 0 or z >= n2 or y < 0 or y >= n1:
                for k in range(wide):
                    coarse[at + k] = beyond(above, z, y, x0 + k - 1, n2, n1, n0)
            elif rank == 3 and begin + x0 + 15 <= above.size:
                store(load_half(above, begin + x0 - 1), coarse, at)  # what is more than a line is written over
            else:
                for k in range(wide):
                    coarse[at + k] = above[begin + x0 + k - 1]
            at += 12 if rank == 3 else 36
    some = any_of(bits_of(load(coarse, 0)))
    odd = some & type(some)(0)
    for k in range(0, coarse.size, LANES):
        values = load(coarse, k)
        some |= any_of(bits_of(values))
        odd |= any_of(bits_of(values - values))
    nothing = some == 0
    if odd:
        for k in range(coarse.size):
            coarse[k] = finite(coarse[k])
    if full(place):
        for row in range((4096 >> rank) // LANES):
            z, y, x = cell_of(row * LANES, rank)
            begin = ((z0 + z) * n1 + y0 + y) * n0 + x0 + x
            store(load_pieces(above, begin, n1 * n0 if rank == 3 else LANES // 4), old, row * LANES)
        return bool(nothing)
    for cell in range(4096 >> rank):
        z, y, x = cell_of(cell, rank)
        z, y, x = min(z0 + z, n2 - 1), min(y0 + y, n1 - 1), min(x0 + x, n0 - 1)
        old[cell] = above[(z * n1 + y) * n0 + x]
    return bool(nothing)


@jit
def scatter(old: Any, field: Any, extents: Any, place: Any, rank: int, known: Any) -> None:
    """Copy the points of a tile, old and new ones, to where they belong in their grid."""
    cells = 4096 >> rank
    if full(place):
        for kind in range(0, 1 << rank, 2):
            for row in range(cells // LANES):
                at, apart = begin_of(kind, row, rank, place, extents)
                evens = load(field, PAD + kind * cells + row * LANES) if kind else load(old, row * LANES)
                odds = load(field, PAD + (kind + 1) * cells + row * LANES)
                store_pairs(evens, odds, known, at, apart)
        return
    for k in range(4096):
        if exists(k, rank, place):
            known[index_of(k, rank, place, extents, 1)] = field[PAD + k] if k >= cells else old[k]
