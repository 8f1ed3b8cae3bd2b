"""Tiles of a grid on the CPU: where they lie, and copying their points to and fro."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import (
    any_of,
    bits_of,
    fill,
    load,
    load_half,
    prefetch,
    prefetch_to_write,
    store,
    store_halves,
)
from forebay.codec.dense.model import PAD, finite
from forebay.codec.dense.words import jit, load_evens, load_odds, load_pieces, store_pairs


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
def ahead_of(tile: int, rank: int, extents: Any, counts: Any, place: Any) -> int:
    """Return how far behind the first point of a tile lies the end of the first line of the next one."""
    after = locate(tile + 1, rank, extents, counts)
    lines = (after[0] - place[0]) * extents[1] + after[1] - place[1]
    return int(lines * extents[2] + after[2] - place[2] + side_of(rank, 2) - 1)


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
def index_of(k: int, rank: int, place: Any, extents: Any) -> int:
    """Return the index of a point in its grid."""
    z, y, x = point_of(k, rank)
    return int(((place[0] + z) * extents[1] + place[1] + y) * extents[2] + place[2] + x)


@jit
def begin_of(kind: int, row: int, rank: int, place: Any, extents: Any) -> tuple[int, int]:
    """Return where the pairs begin in an array whose first are the points of a kind in a row, and how far apart."""
    z, y, x = cell_of(row * LANES, rank)
    line = (place[0] + 2 * z + (kind >> 2 & 1)) * extents[1] + place[1] + 2 * y + (kind >> 1 & 1)
    return line * extents[2] + place[2] + 2 * x, 2 * extents[1] * extents[2] if rank == 3 else LANES // 2


@jit
def first_of(z: int, y: int, rank: int) -> int:
    """Return the number of the first point of a line of a tile, among those that are numbered kind by kind."""
    kind, cell = 4 * (z % 2) + 2 * (y % 2), y // 2 * 64 + z // 2 * 8 if rank == 3 else y // 2 * 32
    return kind * (4096 >> rank) + cell


@jit
def gather(array: Any, extents: Any, place: Any, rank: int, x: Any) -> None:
    """Copy the points of a tile, kind by kind; what does not exist is infinite."""
    cells, ahead = 4096 >> rank, 2 * side_of(rank, 2) - 1  # the end of the next tile, which is needed next
    if full(place):
        for kind in range(0, 1 << rank, 2):
            for row in range(cells // LANES):
                at, apart = begin_of(kind, row, rank, place, extents)
                to = kind * cells + row * LANES
                for piece in range(4 if rank == 3 else 1):
                    prefetch(array, at + piece * apart + ahead)
                store(load_evens(array, at, apart), x, to)
                store(load_odds(array, at, apart), x, to + cells)
        return
    for k in range(0, 4096, LANES):
        store(fill(array.dtype.type(np.inf)), x, k)
    for z in range(place[3]):
        for y in range(place[4]):
            at = ((place[0] + z) * extents[1] + place[1] + y) * extents[2] + place[2]
            to = first_of(z, y, rank)
            for k in range(place[5]):
                x[to + k % 2 * cells + k // 2] = array[at + k]


@jit
def past(at: int, n: int) -> int:
    """Return how far a place is past the end of an axis: not, by one point, or by more."""
    return 0 if n < 2 or at < n else 1 if at == n else 2


@jit
def onward(last: Any, before: Any, by: int) -> Any:
    """Return what the last two points of an axis lead to."""
    last = finite(last)
    change = last - finite(before)
    return last + change if by == 1 else last + (change + change)


@jit
def surround(above: Any, extents: Any, place: Any, rank: int, coarse: Any) -> bool:
    """Copy the old points in a tile and around it, as numbers; tell whether all of them are 0.

    Before the beginning of an axis the first counts; past an end what the last two lead to, along one axis.
    """
    if rank == 3 and extents[2] > 2:
        numbers, zeros = surround_quickly(above, extents, place, coarse)
        if numbers:
            return zeros
    n2, n1, n0 = (extents[0] + 1) // 2, (extents[1] + 1) // 2, (extents[2] + 1) // 2
    z0, y0, x0 = place[0] // 2, place[1] // 2, place[2] // 2 - 1
    planes, lines = (11, 11) if rank == 3 else (35 if rank == 2 else 1, 1)
    wide, at = 11 if rank == 3 else 35 if rank == 2 else 2051, 0
    for plane in range(planes):
        y = y0 + plane - 1 if rank > 1 else 0
        for line in range(lines):
            z = z0 + line - 1 if rank == 3 else 0
            begin = (min(max(z, 0), n2 - 1) * n1 + min(max(y, 0), n1 - 1)) * n0
            by, apart = past(z, n2), n1 * n0
            if by == 0:
                by, apart = past(y, n1), n0
            for k in range(wide):
                old = begin + min(max(x0 + k, 0), n0 - 1)
                coarse[at + k] = onward(above[old], above[old - apart], by) if by else above[old]
            for k in range(max(0, n0 - x0), wide if n0 > 1 and by == 0 else 0):
                coarse[at + k] = onward(above[begin + n0 - 1], above[begin + n0 - 2], past(x0 + k, n0))
            at += 12 if rank == 3 else 36
    used = 1472 if rank == 3 else 1280 if rank == 2 else 2080
    seen = bits_of(load(coarse, 0))
    for k in range(used):
        coarse[k] = finite(coarse[k])
    for k in range(0, used, LANES):
        seen = seen | bits_of(load(coarse, k))
    return bool(any_of(seen) == 0)


@jit
def surround_quickly(above: Any, extents: Any, place: Any, coarse: Any) -> tuple[bool, bool]:
    """Do so for a volume, a line at a time, unless something is no number; tell that, and whether all points are 0."""
    n2, n1, n0 = (extents[0] + 1) // 2, (extents[1] + 1) // 2, (extents[2] + 1) // 2
    z0, y0, x0, apart = place[0] // 2 - 1, place[1] // 2 - 1, place[2] // 2 - 1, n1 * n0
    first, last, at = 1 if x0 < 0 else 0, above.size - LANES // 2, 0
    if last < 0:
        return False, False
    seen = bits_of(load_half(above, 0))
    seen = seen ^ seen
    strange = seen
    if min(z0, y0, x0) >= 0 and z0 + 11 <= n2 and y0 + 11 <= n1 and x0 + 11 <= n0:
        begin = (z0 * n1 + y0) * n0 + x0
        if begin + 10 * (apart + n0) > last:
            return False, False
        for old_y in range(begin, begin + 11 * n0, n0):
            for old in range(old_y, old_y + 11 * apart, apart):
                prefetch(above, old + 18)  # the end of the next tile's, which are needed next
                values = load_half(above, old)
                seen, strange = seen | bits_of(values), strange | bits_of(values - values)
                store(values, coarse, at)
                at += 12
        return any_of(strange) == 0, any_of(seen) == 0
    for y in range(y0, y0 + 11):
        begin, by_y = min(max(y, 0), n1 - 1) * n0 + x0 + first, past(y, n1)
        for z in range(z0, z0 + 11):
            old, by_z = begin + min(max(z, 0), n2 - 1) * apart, past(z, n2)
            if old > last:
                return False, False
            prefetch(above, old + 18)  # the end of the next tile's, which are needed next
            values = load_half(above, old)
            if by_z or by_y:
                change = values - load_half(above, old - (apart if by_z else n0))
                values = values + (change if (by_z or by_y) == 1 else change + change)
            seen, strange = seen | bits_of(values), strange | bits_of(values - values)
            store(values, coarse, at + first)
            if first:
                coarse[at] = coarse[at + 1]
            for k in range(n0 - x0, 11):
                past_end, end = coarse[at + n0 - x0 - 1], n0 - x0
                coarse[at + k] = (
                    past_end if by_z or by_y else finite(onward(past_end, coarse[at + end - 2], past(x0 + k, n0)))
                )
            at += 12
    return any_of(strange) == 0, any_of(seen) == 0


@jit
def scatter(above: Any, field: Any, extents: Any, place: Any, rank: int, ahead: int, known: Any) -> None:
    """Copy the points of a tile, old and new ones, to where they belong in their grid."""
    cells, n1, n0 = 4096 >> rank, (extents[1] + 1) // 2, (extents[2] + 1) // 2
    z0, y0, x0 = place[0] // 2, place[1] // 2, place[2] // 2
    if full(place):
        for row in range(cells // LANES):
            z, y, x = cell_of(row * LANES, rank)
            old = ((z0 + z) * n1 + y0 + y) * n0 + x0 + x
            evens = load_pieces(above, old, n1 * n0 if rank == 3 else LANES // 4)
            for kind in range(0, 1 << rank, 2):
                at, apart = begin_of(kind, row, rank, place, extents)
                for piece in range(4 if rank == 3 else 1):
                    prefetch_to_write(known, at + piece * apart + ahead)
                if kind:
                    evens = load(field, PAD + kind * cells + row * LANES)
                store_pairs(evens, load(field, PAD + (kind + 1) * cells + row * LANES), known, at, apart)
        return
    for z in range(place[3]):
        for y in range(place[4]):
            at = ((place[0] + z) * extents[1] + place[1] + y) * extents[2] + place[2]
            to = first_of(z, y, rank)
            for k in range(place[5]):
                known[at + k] = field[PAD + to + k % 2 * cells + k // 2]
            if to < cells:
                old = ((z0 + z // 2) * n1 + y0 + y // 2) * n0 + x0
                for k in range(0, place[5], 2):
                    known[at + k] = above[old + k // 2]


@jit
def wipe(extents: Any, place: Any, rank: int, ahead: int, known: Any) -> bool:
    """Make the points of a tile zero; tell whether it did, which is for whole tiles of volumes."""
    if rank < 3 or not full(place):
        return False
    zeros = fill(known.dtype.type(0))
    for z in range(16):
        for y in range(0, 16, 2):
            at = ((place[0] + z) * extents[1] + place[1] + y) * extents[2] + place[2]
            prefetch_to_write(known, at + ahead)
            prefetch_to_write(known, at + extents[2] + ahead)
            store_halves(zeros, known, at, at + extents[2])
    return True


@jit
def halve(array: Any, extents: Any, rank: int, out: Any) -> None:
    """Copy every other point along each axis of a grid."""
    to, steps = 0, (2 if rank == 3 else 1, 2 if rank > 1 else 1)
    for z in range(0, extents[0], steps[0]):
        for y in range(0, extents[1], steps[1]):
            at = (z * extents[1] + y) * extents[2]
            for k in range((extents[2] + 1) // 2):
                out[to + k] = array[at + 2 * k]
            to += (extents[2] + 1) // 2
