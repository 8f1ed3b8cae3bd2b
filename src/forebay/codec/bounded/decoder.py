"""Decoding tiles on the CPU, which refuses what is damaged, and putting those of a GPU into order."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import ESCAPE, EXACT, HALF, LANES, PLACE, PLANE, RAW, ROWS, SIDE, VALUES, WIDTH_WORDS
from forebay.codec.bounded.rows import (
    fill,
    holding,
    joined,
    load,
    numbers_of,
    prefetch_to_write,
    shift_down,
    spread_1,
    spread_2,
    spread_4,
    spread_8,
    spread_16,
    store,
    store_halves,
)
from forebay.codec.bounded.tiles import exists, jit, locate, scatter


@jit
def read_widths(words: Any, at: int, end: int, each: int, widths: Any) -> tuple[int, int]:
    """Read the widths of a tile; return the word after them and the bits of a stream, -1 where they are damaged."""
    if at + WIDTH_WORDS > end:
        return at, -1
    escapes = 0
    for row in range(ROWS):
        widths[row] = words[at + row // 8] >> np.uint32(4 * (row % 8)) & np.uint32(15)
        escapes += widths[row] == ESCAPE
    at += WIDTH_WORDS
    if at + (escapes + 3) // 4 > end:
        return at, -1
    count = total = 0
    for row in range(ROWS):
        if widths[row] == ESCAPE:
            widths[row] = words[at + count // 4] >> np.uint32(8 * (count % 4)) & np.uint32(255)
            count += 1
            if widths[row] > EXACT:
                return at, -1
        total += 32 * each if widths[row] == EXACT else widths[row]
    at += (escapes + 3) // 4
    if at + total > end:
        return at, -1
    return at, total


@jit
def pull_tail(words: Any, at: int, filled: int, tail: Any) -> None:
    """Read back what `push_tail` wrote."""
    stream, done = fill(np.uint32(0)), 0
    if filled & 16:
        stream, done = spread_16(words, at), 16
    if filled & 8:
        stream, done = stream | spread_8(words, at + done) << fill(np.uint32(done)), done + 8
    if filled & 4:
        stream, done = stream | spread_4(words, at + done) << fill(np.uint32(done)), done + 4
    if filled & 2:
        stream, done = stream | spread_2(words, at + done) << fill(np.uint32(done)), done + 2
    if filled & 1:
        stream = stream | spread_1(words, at + done) << fill(np.uint32(done))
    store(stream, tail, 0)


@jit
def unpack(words: Any, at: int, total: int, each: int, widths: Any, tail: Any, d: Any) -> None:
    """Read the fields that `pack` wrote."""
    end = at + total // 32 * LANES
    pull_tail(words, end, total % 32, tail)
    word = load(words, at) if at < end else load(tail, 0)
    used = 0
    for row in range(ROWS):
        width = widths[row]
        if width == 0:
            store(fill(np.int32(0)), d, row * LANES)
            continue
        for part in range(each if width == EXACT else 1):
            # A field is moved to the top of its word, and back with its sign.
            used += width
            if used < 32:
                field = word << fill(np.uint32(32 - used))
            else:
                used -= 32
                field = shift_down(word, fill(np.uint32(used)))
                at += LANES
                word = load(words, at) if at < end else load(tail, 0)
                if used:
                    field = field | word << fill(np.uint32(32 - used))
            store(field >> fill(np.uint32(32 - width)), d, part * VALUES + row * LANES)


@jit
def rebuild(
    d: Any, widths: Any, rank: int, numbers: Any, above: Any, array: Any, x: Any, direct: bool, place: Any, extents: Any
) -> None:
    """Undo what `model` did, into the array or the tile `x`."""
    step, magic, zero = numbers
    steps, magics = fill(step), fill(magic)
    pitch, plane = extents[2], extents[1] * extents[2]
    before = fill(zero)
    for j in range(SIDE):
        store(fill(np.int32(0)), above, j * LANES)
    for i in range(SIDE):
        at = (place[0] + i) * plane + place[1] * pitch + place[2]
        if rank > 1:
            before = fill(zero)
        for j in range(SIDE):
            row = i * SIDE + j
            if widths[row] == EXACT:
                before = before + load(above, j * LANES)
                upper = VALUES if x.itemsize == 8 else 0
                bits = joined(load(d, row * LANES), load(d, upper + row * LANES), x)
                values = numbers_of(bits, x)
            else:
                along = load(d, row * LANES) + load(above, j * LANES)
                if rank > 1:
                    store(along, above, j * LANES)
                before = before + along
                values = (holding(before, x) - magics) * steps
            if direct:
                store_halves(values, array, at, at + SIDE * pitch)
                prefetch_to_write(array, at + HALF)
                prefetch_to_write(array, at + HALF + SIDE * pitch)
                at += pitch
            else:
                store(values, x, row * LANES)


@jit
def clear(place: Any, extents: Any, length: int, array: Any) -> None:
    """Set whole tiles side by side in a volume to zero."""
    for z in range(place[0], place[0] + SIDE):
        for y in range(place[1], place[1] + 16):
            at = np.uintp((z * extents[1] + y) * extents[2] + place[2])
            for k in range(length):
                array[at + np.uintp(k)] = 0


@jit
def decode_tiles(
    words: Any, end: int, start: int, layout: Any, tiles: tuple[int, int], numbers: Any, places: Any, array: Any
) -> int:
    """Decode tiles; return how many are damaged, which are left zero."""
    rank, extents, counts, shift, own = layout
    x = np.empty(VALUES, array.dtype)
    raw = x.view(np.uint32)
    each = raw.size // VALUES
    d, above = np.empty(2 * VALUES, np.int32), np.empty(PLANE, np.int32)
    widths, tail = np.empty(ROWS, np.int64), np.empty(LANES, np.uint32)
    steps = np.empty(2, array.dtype)
    prefix = steps.view(np.uint32)
    damaged = 0
    tile = tiles[0] - 1
    while tile + 1 < tiles[1]:
        tile += 1
        place = locate(tile, rank, extents, counts)
        direct = rank == 3 and place[3] == VALUES
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        whole = code == 0 or at >= start
        if code == 0:
            if direct:
                first, line = tile, tile // counts[2]
                while tile + 1 < tiles[1] and places[tile + 1] == 0 and (tile + 1) // counts[2] == line:
                    if locate(tile + 1, rank, extents, counts)[3] < VALUES:
                        break
                    tile += 1
                clear(place, extents, (tile + 1 - first) * HALF, array)
                continue
            x[:] = 0
        elif whole and code & RAW:
            whole = at + place[3] * each <= end
            if whole:
                for row in range(ROWS):
                    for lane in range(LANES):
                        if place[3] == VALUES or exists(place, row, lane, rank, extents):
                            for part in range(each):
                                raw[(row * LANES + lane) * each + part] = words[at]
                                at += 1
        elif whole:
            for part in range(own):
                prefix[part] = words[min(at + part, end - 1)]
            if own:
                numbers = (steps[0], numbers[1], numbers[2])
            at, total = read_widths(words, at + own, end, each, widths)
            whole = total >= 0 and (own == 0 or (steps[0] >= 0 and steps[0] < np.inf))
            if whole:
                unpack(words, at, total, each, widths, tail, d)
                rebuild(d, widths, rank, numbers, above, array, x, direct, place, extents)
                if direct:
                    continue
        if not whole:
            damaged += 1
            x[:] = 0
        scatter(x, place, rank, extents, array)
    return damaged


@jit
def reorder(words: Any, end: int, start: int, layout: Any, tiles: int, each: int, places: Any, out: Any) -> int:
    """Copy an encoding with its tiles in order; return its words, or -1 where it is damaged."""
    rank, extents, counts, shift, own = layout
    widths = np.empty(ROWS, np.int64)
    unit = 1 << (shift - 2)
    to = start
    for tile in range(tiles):
        code = np.int64(places[tile])
        at = (code & PLACE) << (shift - 2)
        if code == 0:
            continue
        size = locate(tile, rank, extents, counts)[3] * each
        if not code & RAW:
            after, total = read_widths(words, at + own, end, each, widths)
            if total < 0:
                return -1
            size = after + total - at
        if at < start or at + size > end or to + size > out.size:
            return -1
        for k in range(size):  # to copy a slice takes Numba seconds to compile
            out[to + k] = words[at + k]
        places[tile] = np.uint32(to >> (shift - 2) | code & RAW)
        to += size
        while to % unit and to < out.size:
            out[to] = 0
            to += 1
    return to
