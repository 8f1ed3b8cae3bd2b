"""`dense` on the CPU: what is done to each tile, for the threads of `forebay.codec.bounded.host`."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES, PLACE, RAW
from forebay.codec.bounded.rows import any_of, bits_of, fill, largest, load, magnitudes
from forebay.codec.bounded.tiles import jit
from forebay.codec.dense.format import DEEPEST, PAD, ROWS, VALUES
from forebay.codec.dense.model import FIELD, quantise, restore
from forebay.codec.dense.planes import pack, unpack

MOST_WORDS = 16384
"""Words that the symbols of a tile may take before it is known that they take too many."""


@jit
def place_of(tile: int, sides: Any, extents: Any, counts: Any) -> tuple[int, int, int, int]:
    """Return where a tile begins along each axis, and how many values it has."""
    row, tx = divmod(tile, counts[2])
    tz, ty = divmod(row, counts[1])
    z, y, x = tz * sides[0], ty * sides[1], tx * sides[2]
    values = min(sides[0], extents[0] - z) * min(sides[1], extents[1] - y) * min(sides[2], extents[2] - x)
    return z, y, x, values


@jit
def offsets(place: Any, coordinates: Any, extents: Any, to: Any) -> None:
    """Find the index of each value of a tile, of the nearest one where it sticks out of the array."""
    for k in range(VALUES):
        z, y = min(place[0] + coordinates[k, 0], extents[0] - 1), min(place[1] + coordinates[k, 1], extents[1] - 1)
        to[k] = (z * extents[1] + y) * extents[2] + min(place[2] + coordinates[k, 2], extents[2] - 1)


@jit
def apart(coordinates: Any, extents: Any, to: Any) -> None:
    """Find how far each value of a tile lies after the first, where all of them exist."""
    for k in range(VALUES):
        to[k] = (coordinates[k, 0] * extents[1] + coordinates[k, 1]) * extents[2] + coordinates[k, 2]


@jit
def inside(place: Any, coordinates: Any, extents: Any, k: int) -> bool:
    """Tell whether a value of a tile exists."""
    z, y, x = place[0] + coordinates[k, 0], place[1] + coordinates[k, 1], place[2] + coordinates[k, 2]
    return bool(z < extents[0] and y < extents[1] and x < extents[2])


@jit
def nothing(x: Any, numbers: Any) -> bool:
    """Tell whether all values of a tile become 0."""
    _, inverse, test, magic, _ = numbers
    inverses, magics = fill(inverse), fill(magic)
    for k in range(0, VALUES, LANES):
        values = load(x, k)
        if any_of(bits_of(values * inverses + magics) ^ bits_of(magics)) or largest(magnitudes(values)) >= test:
            return False
    return True


@jit
def encode_tiles(
    array: Any, layout: Any, tiles: tuple[int, int], numbers: Any, weighted: Any, words: Any, places: Any, start: int
) -> int:
    """Encode tiles one after the other; as the function of this name of `bounded`, but for what a layout is.

    It has the extents of a tile and a `Geometry` besides.
    """
    rank, extents, counts, shift, own, sides, orders, coordinates, coarse, weights = layout
    exponents, scales = weighted
    each = array.itemsize // 4
    x, bits = np.empty(VALUES + LANES, array.dtype), np.empty(LANES, type(numbers[2]))
    raw = x.view(np.uint32)
    room = np.zeros(FIELD, array.dtype), np.empty(2 * LANES, array.dtype), bits
    symbols, exact = np.zeros(VALUES + LANES, np.int32), np.empty(VALUES, np.int64)
    planes, signs = np.zeros((DEEPEST + 2, ROWS), np.uint32), np.empty(ROWS, np.uint32)
    depths, coded = np.empty(ROWS, np.int64), np.zeros(MOST_WORDS, np.uint32)
    where, whole = np.empty(VALUES, np.int64), np.empty(VALUES, np.int64)
    test, near = np.empty(1, type(numbers[2])), np.empty(2, array.dtype)
    held, prefix = test.view(array.dtype), near.view(np.uint32)
    apart(coordinates, extents, whole)
    at = start
    for tile in range(tiles[0], tiles[1]):
        place = place_of(tile, sides, extents, counts)
        if place[3] == VALUES:
            begin = (place[0] * extents[1] + place[1]) * extents[2] + place[2]
            for k in range(VALUES):
                x[k] = array[begin + whole[k]]
        else:
            offsets(place, coordinates, extents, where)
            for k in range(VALUES):
                x[k] = array[where[k]]
        if own:
            held[0], near[0] = scales[0, exponents[tile] + 128], scales[1, exponents[tile] + 128]
            inverse = type(numbers[1])(1) / near[0]
            numbers = (near[0], inverse, max(test[0], type(numbers[2])(1)), numbers[3], numbers[4])
        if nothing(x, numbers):
            places[tile] = 0
            continue
        outside = quantise(x, rank, orders, coarse, weights, numbers, room, symbols, exact)
        used = pack(symbols, coded, planes, signs, depths)
        size = own + used + (outside + 1) // 2 + outside * each
        here = at >> (shift - 2)
        if size >= place[3] * each:
            places[tile] = np.uint32(here | RAW)
            for k in range(VALUES):
                if place[3] == VALUES or inside(place, coordinates, extents, k):
                    for part in range(each):
                        words[at] = raw[k * each + part]
                        at += 1
        else:
            places[tile] = np.uint32(here)
            coded[0] = outside
            for part in range(own):
                words[at + part] = prefix[part]
            at += own
            for k in range(used):
                words[at + k] = coded[k]
            at += used
            words[at : at + (outside + 1) // 2] = 0
            for k in range(outside):
                words[at + k // 2] |= np.uint32(exact[k] << 16 * (k % 2))
            at += (outside + 1) // 2
            for k in range(outside):
                for part in range(each):
                    words[at] = raw[exact[k] * each + part]
                    at += 1
        coded[:used] = 0
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
    return at


@jit
def decode_tiles(
    words: Any, end: int, start: int, layout: Any, tiles: tuple[int, int], numbers: Any, places: Any, array: Any
) -> int:
    """Decode tiles; return how many are damaged, which are left zero."""
    rank, extents, counts, shift, own, sides, orders, coordinates, coarse, weights = layout
    each = array.itemsize // 4
    x = np.empty(VALUES, array.dtype)
    raw = x.view(np.uint32)
    room = np.zeros(FIELD, array.dtype), np.empty(LANES, array.dtype)
    symbols, lanes = np.zeros(VALUES, np.int32), np.arange(LANES).astype(np.int32)
    planes, signs = np.zeros((DEEPEST + 2, ROWS), np.uint32), np.empty(ROWS, np.uint32)
    depths, steps = np.empty(ROWS, np.int64), np.empty(2, array.dtype)
    prefix, where, full = steps.view(np.uint32), np.empty(VALUES, np.int64), np.empty(VALUES, np.int64)
    apart(coordinates, extents, full)
    damaged = 0
    for tile in range(tiles[0], tiles[1]):
        place = place_of(tile, sides, extents, counts)
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        whole = code == 0 or at >= start
        if whole and code & RAW:
            whole = at + place[3] * each <= end
            for k in range(VALUES if whole else 0):
                if place[3] == VALUES or inside(place, coordinates, extents, k):
                    for part in range(each):
                        raw[k * each + part] = words[at]
                        at += 1
        elif whole and code:
            for part in range(own):
                prefix[part] = words[min(at + part, end - 1)]
            if own:
                numbers = (steps[0], numbers[1], numbers[2])
            at += own
            used = unpack(words[at:end], symbols, lanes, planes, signs, depths) if at < end else -1
            outside = np.int64(words[at]) if used > 0 else 0
            after = at + used + (outside + 1) // 2
            whole = used > 0 and outside <= VALUES and after + outside * each <= end
            whole = whole and (own == 0 or (steps[0] >= 0 and steps[0] < np.inf))
            if whole:
                restore(symbols, rank, orders, coarse, weights, numbers, room)
                for k in range(VALUES):
                    x[k] = room[0][PAD + k]
                for k in range(outside):
                    which = np.int64(words[at + used + k // 2] >> np.uint32(16 * (k % 2)) & np.uint32(0xFFFF))
                    whole = whole and which < VALUES
                    for part in range(each):
                        raw[(which % VALUES) * each + part] = words[after + k * each + part]
        if not whole:
            damaged += 1
        if not whole or code == 0:
            x[:] = 0
        if place[3] == VALUES:
            begin = (place[0] * extents[1] + place[1]) * extents[2] + place[2]
            for k in range(VALUES):
                array[begin + full[k]] = x[k]
            continue
        offsets(place, coordinates, extents, where)
        for k in range(VALUES):
            if inside(place, coordinates, extents, k):
                array[where[k]] = x[k]
    return damaged


@jit
def reorder(words: Any, end: int, start: int, layout: Any, tiles: int, each: int, places: Any, out: Any) -> int:
    """Copy an encoding with its tiles in order; return its words, or -1 where it is damaged."""
    extents, counts, shift, own, sides = layout[1], layout[2], layout[3], layout[4], layout[5]
    symbols, lanes = np.zeros(VALUES, np.int32), np.arange(LANES).astype(np.int32)
    planes, signs = np.zeros((DEEPEST + 2, ROWS), np.uint32), np.empty(ROWS, np.uint32)
    depths = np.empty(ROWS, np.int64)
    unit = 1 << (shift - 2)
    to = start
    for tile in range(tiles):
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        if code == 0:
            continue
        size = place_of(tile, sides, extents, counts)[3] * each
        if not code & RAW:
            used = unpack(words[at + own : end], symbols, lanes, planes, signs, depths) if at + own < end else -1
            if used < 0:
                return -1
            outside = np.int64(words[at + own])
            size = own + used + (outside + 1) // 2 + outside * each
        if at < start or at + size > end or to + size > out.size:
            return -1
        for k in range(size):  # to copy a slice takes Numba seconds to compile
            out[to + k] = words[at + k]
        places[tile] = np.uint32(to >> (shift - 2) | code & RAW)
        to += size
        while to % unit:
            out[to] = 0
            to += 1
    return to
