"""Encoding tiles on the CPU: quantising, predicting, and packing what is left."""

from typing import Any

import numpy as np

from forebay.codec.bounded.extremes import largest_empty
from forebay.codec.bounded.format import (
    ESCAPE,
    EXACT,
    HALF,
    LANES,
    NOTHING,
    PLANE,
    RAW,
    ROWS,
    SIDE,
    VALUES,
    WIDTH_WORDS,
)
from forebay.codec.bounded.rows import (
    any_of,
    bits_of,
    fill,
    high_words,
    holding,
    largest,
    load,
    load_half,
    load_halves,
    low_words,
    magnitudes,
    prefetch,
    shift_down,
    store,
    width_of,
)
from forebay.codec.bounded.tiles import exists, gather, jit, locate

CACHED = 48
"""Tiles of float32 that a cache next to a processor keeps."""


@jit
def warm(array: Any, place: Any, extents: Any, columns: int) -> int:
    """Read tiles that lie side by side, line after line: memory gives them fastest so, and caches keep them."""
    touched = bits_of(load_half(array, 0))
    for z in range(place[0], place[0] + SIDE):
        for y in range(place[1], place[1] + 16):
            at = (z * extents[1] + y) * extents[2] + place[2]
            for k in range(0, columns, HALF):
                touched = touched | bits_of(load_half(array, at + k))
    return any_of(touched)  # type: ignore[no-any-return] # which nobody wants, but what nobody wants is not read


@jit
def model(
    array: Any, x: Any, direct: bool, place: Any, rank: int, extents: Any, numbers: Any, above: Any, d: Any, widths: Any
) -> tuple[int, int]:
    """Quantise and predict a tile: residuals go to `d`, and the values of rows that are kept as they are.

    Parameters
    ----------
    array, x, direct
        Values are taken out of the array, if `direct`, or else out of the tile `x`.
    above
        Room for the rows before, of a side.
    d, widths
        What the tile is coded as. Upper words of values follow after all rows.

    Returns
    -------
    The bits of a stream, and how many widths do not fit into four bits.
    """
    step, inverse, test, magic, zero = numbers
    steps, inverses, magics = fill(step), fill(inverse), fill(magic)
    pitch, plane = extents[2], extents[1] * extents[2]
    each = x.itemsize // 4
    total = escapes = 0
    before = fill(zero)
    for j in range(SIDE):
        store(fill(np.int32(0)), above, j * LANES)
    for i in range(SIDE):
        at = (place[0] + i) * plane + place[1] * pitch + place[2]
        if rank > 1:
            before = fill(zero)
        for j in range(SIDE):
            row = i * SIDE + j
            if direct:
                values = load_halves(array, at, at + SIDE * pitch)
                prefetch(array, at + HALF)
                prefetch(array, at + HALF + SIDE * pitch)
                at += pitch
            else:
                values = load(x, row * LANES)
            q = low_words(bits_of(values * inverses + magics))
            off = largest(magnitudes(values - (holding(q, x) - magics) * steps))
            along, predicted = q - before, load(above, j * LANES)
            residual = along - predicted
            width = width_of(any_of(residual ^ (residual + residual)))
            if width == EXACT or off >= test:
                width = EXACT
                # Read again, so that registers need not hold it until here.
                values = load_halves(array, at - pitch, at + (SIDE - 1) * pitch) if direct else load(x, row * LANES)
                store(low_words(bits_of(values)), d, row * LANES)
                store(high_words(bits_of(values)), d, VALUES + row * LANES)
                before = before + load(above, j * LANES)
                total += 32 * each
            else:
                store(residual, d, row * LANES)
                if rank > 1:
                    store(along, above, j * LANES)
                before = q
                total += width
            widths[row] = width
            escapes += width >= ESCAPE
    return total, escapes


@jit
def push_tail(stream: Any, filled: int, words: Any, at: int) -> int:
    """Write the bits that are left in each lane, as halves, bytes, ... of all lanes side by side."""
    done = 0
    for part in (16, 8, 4, 2, 1):
        if filled & part:
            for k in range(part):
                words[at + k] = 0
            for lane in range(LANES):
                piece = stream[lane] >> np.uint32(done) & np.uint32((1 << part) - 1)
                words[at + lane * part // 32] |= piece << np.uint32(lane * part % 32)
            done += part
            at += part
    return at


@jit
def pack(d: Any, each: int, widths: Any, spare: Any, words: Any, at: int) -> int:
    """Concatenate the fields of each lane, word by word for all lanes; return the word after the last."""
    stream = fill(np.int32(0))
    filled: Any = np.int64(0)
    for row in range(ROWS):
        width = widths[row]
        if width == 0:
            continue
        for part in range(each if width == EXACT else 1):
            value = load(d, part * VALUES + row * LANES) & fill(np.int32((1 << width) - 1))
            stream = stream | value << fill(np.int32(filled))
            filled += width
            if filled >= 32:
                filled -= 32
                store(stream, words, at)
                at += LANES
                # By less than 32 at a time: nothing is left over where the word ends with the field.
                stream = shift_down(shift_down(value, fill(np.int32(width - filled - 1))), fill(np.int32(1)))
    store(stream, spare, 0)
    return push_tail(spare, filled, words, at)


@jit
def write_widths(widths: Any, escapes: int, words: Any, at: int) -> int:
    """Write the widths of a tile's rows."""
    for k in range(WIDTH_WORDS):
        word = 0
        for row in range(8):
            word |= min(widths[8 * k + row], ESCAPE) << 4 * row
        words[at + k] = word
    at += WIDTH_WORDS
    count = 0
    for k in range((escapes + 3) // 4):
        words[at + k] = 0
    for row in range(ROWS):
        if widths[row] >= ESCAPE:
            words[at + count // 4] |= np.uint32(widths[row] << 8 * (count % 4))
            count += 1
    return at + (escapes + 3) // 4


@jit
def encode_tiles(
    array: Any, layout: Any, tiles: tuple[int, int], numbers: Any, weighted: Any, words: Any, places: Any, start: int
) -> int:
    """Encode tiles one after the other into `words` from `start` on; return the word after the last.

    Parameters
    ----------
    array
        All of it, flat.
    layout
        Rank, extents, tiles along each axis, the shift of the places, and the words of a tile's own step.
    tiles
        The first, and the one after the last.
    numbers
        Step, its inverse, the bits of the bound that errors stay below, the number that leaves integers in the lowest
        bits, and what 0 is quantised to.
    weighted
        The exponents of the tiles' weights, or none, and bound and step for each exponent.
    words, places
        The encoding, and the table in it, in which `tile_extremes` has left the largest magnitudes.
    """
    rank, extents, counts, shift, own = layout
    exponents, scales = weighted
    x = np.empty(VALUES, array.dtype)
    raw = x.view(np.uint32)
    each = raw.size // VALUES
    d, above = np.empty(2 * VALUES, np.int32), np.empty(PLANE, np.int32)
    widths, spare = np.empty(ROWS, np.int64), np.empty(LANES, np.uint32)
    test, near = np.empty(1, type(numbers[2])), np.empty(2, array.dtype)
    held, prefix = test.view(array.dtype), near.view(np.uint32)
    empty = -1 if own else largest_empty(numbers)
    at, warmed, touched = start, tiles[0], 0
    for tile in range(tiles[0], tiles[1]):
        if np.int64(places[tile]) <= empty:
            places[tile] = 0
            continue
        place = locate(tile, rank, extents, counts)
        direct = rank == 3 and place[3] == VALUES
        if direct and tile >= warmed:
            # As far as there is something to encode in this line of tiles.
            for after in range(tile, min(tile - tile % counts[2] + counts[2], tile + CACHED // each, tiles[1])):
                if np.int64(places[after]) > empty:
                    warmed = after + 1
            touched |= warm(array, place, extents, min((warmed - tile) * HALF, extents[2] - place[2]) // HALF * HALF)
        if not direct:
            gather(array, place, rank, extents, x)
        if own:
            exponent = np.int64(exponents[tile])
            held[0], near[0] = scales[0, exponent - NOTHING], scales[1, exponent - NOTHING]
            inverse = type(numbers[1])(1) / near[0]
            numbers = (near[0], inverse, max(test[0], type(numbers[2])(1)), numbers[3], numbers[4])
        total, escapes = model(array, x, direct, place, rank, extents, numbers, above, d, widths)
        if total == 0:
            places[tile] = 0
            continue
        here = at >> (shift - 2)
        if own + WIDTH_WORDS + (escapes + 3) // 4 + total >= place[3] * each:
            places[tile] = np.uint32(here | RAW)
            if direct:
                gather(array, place, rank, extents, x)
            for row in range(ROWS):
                for lane in range(LANES):
                    if place[3] == VALUES or exists(place, row, lane, rank, extents):
                        for part in range(each):
                            words[at] = raw[(row * LANES + lane) * each + part]
                            at += 1
        else:
            places[tile] = np.uint32(here)
            for part in range(own):
                words[at + part] = prefix[part]
            at += own
            at = pack(d, each, widths, spare, words, write_widths(widths, escapes, words, at))
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
    spare[0] = touched
    return at


@jit
def shift_left(words: Any, begin: int, end: int, to: int, places: Any, shift: int) -> None:
    """Move a run of tiles towards the front, and what their places say."""
    for k in range(end - begin):
        words[to + k] = words[begin + k]
    units = np.uint32((begin - to) >> (shift - 2))
    for tile in range(places.size):
        if places[tile]:
            places[tile] -= units
