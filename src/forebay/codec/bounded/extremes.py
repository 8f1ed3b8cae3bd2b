"""Looking through an array before it is encoded: its range, and the largest magnitude of each tile."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import HALF, SIDE, VALUES
from forebay.codec.bounded.rows import (
    larger,
    larger_unsigned,
    largest,
    largest_unsigned,
    load_half,
    smaller_unsigned,
    smallest_unsigned,
    store,
)
from forebay.codec.bounded.tiles import jit


@jit
def finite_range(values: Any, bits: Any) -> tuple[float, float]:
    """Return the smallest and the largest finite value; zeros where there is none.

    The bits of floating-point numbers are in the order of the numbers, but for the sign: as integers they are compared
    many at a time, and what is not finite comes out as the smallest or the largest.
    """
    piece = 4096
    low, high = np.inf, -np.inf
    sign = bits.dtype.type(8 * bits.itemsize - 1)
    rest = np.iinfo(bits.dtype).max
    ends = np.empty(2, bits.dtype)
    for start in range(0, values.size, piece):
        part = bits[start : start + piece]
        ends[0] = ends[1] = part[0] ^ (part[0] >> sign & rest)
        below, above = ends[0], ends[1]
        for k in range(part.size):
            x = bits.dtype.type(part[k] ^ (part[k] >> sign & rest))
            below, above = min(below, x), max(above, x)
        ends[0], ends[1] = below ^ (below >> sign & rest), above ^ (above >> sign & rest)
        least, most = ends.view(values.dtype)
        if least - least == 0 and most - most == 0:
            low, high = min(low, float(least)), max(high, float(most))
        else:
            for x in values[start : start + piece]:
                if x - x == 0:
                    low, high = min(low, float(x)), max(high, float(x))
    return (low, high) if low <= high else (0.0, 0.0)


@jit
def tile_extremes(bits: Any, layout: Any, bands: tuple[int, int], places: Any) -> tuple[int, int, int]:
    """Look through bands of tiles, and leave the largest magnitude of each tile in `places`, which are found later.

    A band is what lies side by side along the fastest axis, of a line a single tile; along it there are 16 values or
    more. Of the bits of numbers, taken as integers, the largest is the largest number, unless all are negative; without
    signs it is the most negative one, unless none is; the smallest without signs is the one that is missing then.

    Returns
    -------
    Those three.
    """
    rank, extents, counts = layout[:3]
    tiles, each = (counts[2], 2 if rank == 2 else 1) if rank > 1 else (1, 1)
    extremes = np.empty((3, tiles * each * HALF), bits.dtype)
    flat = extremes.reshape(-1)
    rest = np.iinfo(bits.dtype).max
    highest, lowest, nearest = load_half(bits, 0), load_half(bits, 0), load_half(bits, 0)
    for band in range(bands[0], bands[1]):
        band_extremes(bits, rank, extents, counts, band, flat)
        for tile in range(tiles):
            peak = bits.dtype.type(0)
            for k in range(tile * each, (tile + 1) * each):
                high, low = load_half(flat, k * HALF), load_half(flat, (tiles * each + k) * HALF)
                highest, lowest = larger(highest, high), larger_unsigned(lowest, low)
                nearest = smaller_unsigned(nearest, load_half(flat, (2 * tiles * each + k) * HALF))
                up, down = largest(high), largest_unsigned(low)
                peak = max(peak, up, bits.dtype.type(down & rest) if down < 0 else up)
            places[band * tiles + tile] = np.uint32(peak >> (8 * bits.itemsize - 32))
    return largest(highest), largest_unsigned(lowest), smallest_unsigned(nearest)


@jit
def band_extremes(bits: Any, rank: int, extents: Any, counts: Any, band: int, extremes: Any) -> None:
    """Leave the largest, the largest without signs and the smallest without signs of each 16 columns in `extremes`."""
    columns, last = extremes.size // 3, extents[2] - HALF
    if rank == 1:
        high = low = near = load_half(bits, min(band * VALUES, last))
        for k in range(1, VALUES // HALF):
            x = load_half(bits, min(band * VALUES + k * HALF, last))
            high, low, near = larger(high, x), larger_unsigned(low, x), smaller_unsigned(near, x)
        store(high, extremes, 0)
        store(low, extremes, HALF)
        store(near, extremes, 2 * HALF)
        return
    slow, middle = (band // counts[1] * SIDE, band % counts[1] * 16) if rank == 3 else (0, band * 64)
    lines = min(16 if rank == 3 else 64, extents[1] - middle)
    fresh = True
    for z in range(slow, min(slow + SIDE, extents[0])):
        # Four lines at a time, or the last of them again: less is read and written of what was found before.
        for y in range(0, lines, 4):
            line_0 = (z * extents[1] + middle + y) * extents[2]
            line_1, line_2, line_3 = (
                line_0 + min(1, lines - 1 - y) * extents[2],
                line_0 + min(2, lines - 1 - y) * extents[2],
                line_0 + min(3, lines - 1 - y) * extents[2],
            )
            for k in range(0, columns, HALF):
                x = min(k, last)
                a, b, c, d = (
                    load_half(bits, line_0 + x),
                    load_half(bits, line_1 + x),
                    load_half(bits, line_2 + x),
                    load_half(bits, line_3 + x),
                )
                high = larger(larger(a, b), larger(c, d))
                low = larger_unsigned(larger_unsigned(a, b), larger_unsigned(c, d))
                near = smaller_unsigned(smaller_unsigned(a, b), smaller_unsigned(c, d))
                if not fresh:
                    high = larger(high, load_half(extremes, k))
                    low = larger_unsigned(low, load_half(extremes, columns + k))
                    near = smaller_unsigned(near, load_half(extremes, 2 * columns + k))
                store(high, extremes, k)
                store(low, extremes, columns + k)
                store(near, extremes, 2 * columns + k)
            fresh = False


@jit
def largest_empty(numbers: Any) -> int:
    """Return the largest magnitude, as `tile_extremes` leaves it, of a tile of which only zeros stay; -1 without any.

    Whether a value does depends on its magnitude alone, and no larger one does where a smaller one does not.
    """
    _, inverse, test, magic, _ = numbers
    bits = np.empty(1, type(test))
    number = bits.view(type(inverse))
    low, high = np.int64(-1), np.int64(test)
    while high - low > 1:
        middle = low + (high - low) // 2
        bits[0] = middle
        if number[0] * inverse + magic == magic:
            low = middle
        else:
            high = middle
    wide = 8 * bits.itemsize - 32
    return int(((low + 1) >> wide) - 1)
