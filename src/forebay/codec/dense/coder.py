"""Encoding and decoding tiles on the CPU."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES, PLACE, RAW
from forebay.codec.bounded.rows import fill, load
from forebay.codec.bounded.tiles import jit
from forebay.codec.dense.format import HEAD, WARPS
from forebay.codec.dense.model import COARSE, EVERY, FIELD, PAD, VALUES, quantise, restore
from forebay.codec.dense.planes import ONE, exact_of, measure, pack, row_of, unpack
from forebay.codec.dense.tiles import exists, fresh_of, full, gather, index_of, locate, scatter, surround
from forebay.codec.dense.words import absolute, below

MOST_ROWS = 64
"""Rows of cells of a tile, at most."""
MOST_WORDS = 2560
"""Words that the symbols of a tile may take."""


@jit
def nothing(x: Any, cells: int, numbers: Any) -> bool:
    """Tell whether all new points of a tile become 0 where all around them is."""
    _, inverse, test, _, _ = numbers
    halves, tests = fill(type(test)(0.5)), fill(test)
    for k in range(cells, VALUES, LANES):
        values = absolute(load(x, k))
        if below(values, tests) & below(values * fill(inverse), halves) != EVERY:
            return False
    return True


@jit
def number_of(order: int, rank: int) -> int:
    """Return the number of the symbol that comes at some place where exact ones are told: thread by thread."""
    turns = 4 if rank == 3 else 8 if rank == 2 else 16
    rows = ((1 << rank) - 1) * turns
    thread, number = divmod(order, rows)
    return (thread // LANES * rows + number) * LANES + thread % LANES


@jit
def spot_of(symbol: int, rank: int) -> int:
    """Return the point of a tile that a symbol is of."""
    turns = 4 if rank == 3 else 8 if rank == 2 else 16
    row, lane = divmod(symbol, LANES)
    warp, number = divmod(row, ((1 << rank) - 1) * turns)
    return (number // turns + 1) * (VALUES >> rank) + row_of(warp, number % turns, rank) * LANES + lane


@jit
def find_exact(unfit: Any, rank: int, place: Any, exact: Any) -> int:
    """List the symbols of points that exist and do not fit; return how many."""
    cells, count = VALUES >> rank, 0
    for order in range(VALUES - cells):
        symbol = number_of(order, rank)
        k = spot_of(symbol, rank)
        if unfit[k // cells, k % cells // LANES] >> np.uint32(k % LANES) & ONE and exists(k, rank, place):
            exact[count] = symbol
            count += 1
    return count


@jit
def encode_tiles(
    array: Any,
    above: Any,
    known: Any,
    layout: Any,
    level: Any,
    about: Any,
    tiles: tuple[int, int],
    numbers: Any,
    weighted: Any,
    words: Any,
    places: Any,
    start: int,
) -> int:
    """Encode tiles of a grid one after the other into `words` from `start` on; return the word after the last.

    Parameters
    ----------
    array, above, known
        All of it, flat; the decoded points of the grid above; and room for those of this one, or none.
    layout
        Rank, extents of the array, the shift of the places, and the words of a tile's own step.
    level
        How far the grid's points are apart, its extents, tiles along each axis, and the number of the first.
    about
        Of the `Geometry`.
    tiles
        The first of the grid's, and the one after the last.
    numbers
        Step, its inverse, the bound, the number that leaves integers in the lowest bits, and what 0 becomes then.
    weighted
        The exponents of the tiles' weights, or none, and bound and step for each exponent.
    words, places
        The encoding, and the table in it.
    """
    rank, extents, shift, own = layout
    stride, grid, counts, first = level
    exponents, scales = weighted
    each, cells = array.itemsize // 4, VALUES >> rank
    x, coarse, field = np.empty(VALUES, array.dtype), np.zeros(COARSE, array.dtype), np.zeros(FIELD, array.dtype)
    raw, spare, symbols = x.view(np.uint32), np.empty(LANES, array.dtype), np.zeros(VALUES, np.int32)
    unfit, exact = np.zeros((8, MOST_ROWS), np.uint32), np.empty(VALUES, np.int64)
    coded, packed, codes = np.zeros(MOST_WORDS, np.uint32), np.zeros(1024, np.uint8), np.zeros(VALUES + 32, np.int32)
    near, old, few = np.empty(2, array.dtype), np.empty(cells, array.dtype), np.zeros(VALUES + 32, np.int32)
    prefix = near.view(np.uint32)
    at = start
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, grid, counts)
        blank = surround(above, grid, place, rank, coarse, old)
        gather(array, extents, stride, place, rank, x)
        if own:
            exponent = exponents[first + tile] + 128
            near[0] = scales[1, exponent]
            test = max(scales[0, exponent], numbers[5])
            numbers = (near[0], type(numbers[1])(1) / near[0], test, numbers[3], numbers[4], numbers[5])
        five = numbers[:5]
        if blank and nothing(x, cells, five):
            places[first + tile] = 0
            if known.size:
                field[PAD + cells : PAD + VALUES] = 0
                scatter(old, field, grid, place, rank, known)
            continue
        outside = 0
        if quantise(x, rank, coarse, about, five, field, symbols, unfit, spare):
            outside = find_exact(unfit, rank, place, exact)
        used = pack(symbols, rank, coded, packed, codes, few)
        size = own + used + (outside + 1) // 2 + outside * each
        fresh, here = fresh_of(place), at >> (shift - 2)
        kept = size >= fresh * each and (used > HEAD or outside)
        if kept:
            places[first + tile] = np.uint32(here | RAW)
            for k in range(VALUES - cells):
                to = spot_of(k, rank)
                if full(place) or exists(to, rank, place):
                    for part in range(each):
                        words[at] = raw[to * each + part]
                        at += 1
        elif used > HEAD or outside:
            places[first + tile] = np.uint32(here)
            for part in range(own):
                words[at + part] = prefix[part]
            at += own
            for warp in range(WARPS):
                coded[warp] |= np.uint32((outside >> 4 * warp & 15) << 28)
            words[at : at + used] = coded[:used]
            at += used
            words[at : at + (outside + 1) // 2] = 0
            for k in range(outside):
                words[at + k // 2] |= np.uint32(exact[k] << 16 * (k % 2))
            at += (outside + 1) // 2
            for k in range(outside):
                for part in range(each):
                    words[at] = raw[spot_of(exact[k], rank) * each + part]
                    at += 1
        else:
            places[first + tile] = 0
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
        if known.size:
            if kept:
                field[PAD + cells : PAD + VALUES] = x[cells:]
            scatter(old, field, grid, place, rank, known)
            for k in range(0 if kept else outside):
                to = spot_of(exact[k], rank)
                known[index_of(to, rank, place, grid, 1)] = x[to]
            if kept:
                field[PAD + cells : PAD + VALUES] = 0
    return at


@jit
def decode_tiles(
    words: Any,
    end: int,
    start: int,
    above: Any,
    known: Any,
    layout: Any,
    level: Any,
    about: Any,
    tiles: tuple[int, int],
    step: Any,
    places: Any,
) -> int:
    """Decode tiles of a grid; return how many are damaged, of which nothing is added to what is predicted."""
    rank, _, shift, own = layout
    _, grid, counts, first = level
    each, cells = known.itemsize // 4, VALUES >> rank
    coarse, field, steps = np.zeros(COARSE, known.dtype), np.zeros(FIELD, known.dtype), np.zeros(VALUES, known.dtype)
    spare, codes = np.empty(LANES, known.dtype), np.zeros(VALUES + 32, np.int32)
    masks, near, value = np.zeros((WARPS, 32), np.uint32), np.empty(2, known.dtype), np.empty(2, known.dtype)
    prefix, parts, old = near.view(np.uint32), value.view(np.uint32), np.empty(cells, known.dtype)
    damaged = 0
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, grid, counts)
        blank = surround(above, grid, place, rank, coarse, old)
        code = np.int64(places[first + tile])
        at = (code & PLACE) << (shift - 2)
        whole, outside, used = code == 0 or at >= start, 0, 0
        kept, after, mine = whole and code & RAW != 0, at, step
        if kept:
            whole = at + fresh_of(place) * each <= end
        elif whole and code:
            for part in range(own):
                prefix[part] = words[min(at + part, end - 1)]
            if own:
                mine = near[0]
            at += own
            used = unpack(words[at:end], rank, masks, codes, steps) if at < end else -1
            whole = used > 0 and (own == 0 or (mine >= 0 and mine < np.inf))
            if whole:
                outside = exact_of(words[at:end])
                after = at + used + (outside + 1) // 2
                whole = outside <= VALUES - cells and after + outside * each <= end
            if whole:
                for k in range(outside):
                    whole = whole and told(words, at + used, k) < VALUES - cells
        coded = whole and not kept and code != 0
        if not whole:
            damaged += 1
            outside = 0
        if not coded and blank:
            field[PAD + cells : PAD + VALUES] = 0
        else:
            if not coded:
                steps[:] = 0
            restore(steps, rank, coarse, about, mine, outside > 0 or not coded, field, spare)
        scatter(old, field, grid, place, rank, known)
        if kept and whole:
            for k in range(VALUES - cells):
                to = spot_of(k, rank)
                if full(place) or exists(to, rank, place):
                    for part in range(each):
                        parts[part] = words[at]
                        at += 1
                    known[index_of(to, rank, place, grid, 1)] = value[0]
        for k in range(outside):
            to = spot_of(told(words, at + used, k), rank)
            for part in range(each):
                parts[part] = words[after + k * each + part]
            if exists(to, rank, place):
                known[index_of(to, rank, place, grid, 1)] = value[0]
    return damaged


@jit
def told(words: Any, at: int, k: int) -> int:
    """Return the number of the symbol of an exact value."""
    return np.int64(words[at + k // 2] >> np.uint32(16 * (k % 2)) & np.uint32(0xFFFF))  # type: ignore[return-value]


@jit
def reorder(words: Any, end: int, layout: Any, level: Any, each: int, places: Any, out: Any, to: int) -> int:
    """Copy the tiles of a grid in order, from a word on; return that after the last, or -1 where one is damaged."""
    rank, _, shift, own = layout
    _, grid, counts, first = level
    masks = np.zeros((WARPS, 32), np.uint32)
    for tile in range(counts[0] * counts[1] * counts[2]):
        code = np.int64(places[first + tile])
        at = (code & PLACE) << (shift - 2)
        if code == 0:
            continue
        size = fresh_of(locate(tile, rank, grid, counts)) * each
        if not code & RAW:
            if at + own >= end:
                return -1
            used = measure(words[at + own : end], rank, masks)[3]
            outside = exact_of(words[at + own : end]) if used > 0 else 0
            size = own + used + (outside + 1) // 2 + outside * each if used > 0 else -1
        if size < 0 or at + size > end or to + size > out.size:
            return -1
        out[to : to + size] = words[at : at + size]
        places[first + tile] = np.uint32(to >> (shift - 2) | code & RAW)
        to += size
        while to % (1 << (shift - 2)):
            out[to] = 0
            to += 1
    return to
