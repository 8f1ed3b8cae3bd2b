"""Encoding and decoding tiles on the CPU."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import LANES, RAW
from forebay.codec.bounded.rows import fill, load
from forebay.codec.dense.format import ODD, SPOT, WARPS
from forebay.codec.dense.model import COARSE, EVERY, FIELD, PAD, VALUES, quantise, restore
from forebay.codec.dense.planes import measure, pack, unpack
from forebay.codec.dense.tiles import exists, fresh_of, full, gather, index_of, locate, scatter, surround
from forebay.codec.dense.top import gather_bricks, measure_top, pack_top, quantise_top, scatter_bricks, unpack_top
from forebay.codec.dense.words import absolute, below, jit, lowest_of

MOST_ROWS = 64
"""Rows of cells of a tile, at most."""
MOST_WORDS = 4608
"""Words that the symbols of a tile may take, or the quanta of the uppermost grid's."""


class Desk(NamedTuple):
    """Room for one tile, which a thread uses again and again."""

    x: NDArray[Any]
    """its points, kind by kind, or brick by brick"""
    coarse: NDArray[Any]
    """the old points in it and around it"""
    field: NDArray[Any]
    """what is decoded"""
    steps: NDArray[Any]
    """symbols as numbers"""
    listed: NDArray[Any]
    spare: NDArray[Any]
    symbols: NDArray[np.int32]
    codes: NDArray[np.int32]
    masks: NDArray[np.int32]
    unfit: NDArray[np.uint32]
    exact: NDArray[np.int64]
    words: NDArray[np.uint32]
    others: NDArray[np.uint32]
    near: NDArray[Any]
    prefix: NDArray[np.uint32]
    """the words of `near`"""


def desk_for(dtype: np.dtype[Any]) -> Desk:
    """Take room for a tile of some type."""
    near = np.zeros(1, dtype)
    return Desk(
        *(np.zeros(size, dtype) for size in (VALUES, COARSE, FIELD, VALUES, VALUES + LANES, LANES)),
        *(np.zeros(size, np.int32) for size in (VALUES, VALUES + LANES, WARPS * LANES)),
        np.zeros((8, MOST_ROWS), np.uint32),
        np.zeros(VALUES, np.int64),
        np.zeros(MOST_WORDS, np.uint32),
        np.zeros(MOST_WORDS, np.uint32),
        near,
        near.view(np.uint32),
    )


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
def spot_of(symbol: int, begins: Any) -> int:
    """Return the point of a tile that a symbol is of, among those that are numbered kind by kind."""
    row = symbol // LANES
    return int(begins[row // begins.shape[1], row % begins.shape[1]] + symbol % LANES)


@jit
def find_exact(unfit: Any, begins: Any, cells: int, exact: Any) -> int:
    """List the symbols of points that do not fit, thread by thread; return how many."""
    count, rows = 0, begins.shape[1]
    for warp in range(WARPS):
        lanes = np.uint32(0)
        for number in range(rows):
            at = begins[warp, number]
            lanes |= unfit[at // cells, at % cells // LANES]
        while lanes:
            lane = lowest_of(lanes)
            lanes &= lanes - np.uint32(1)
            for number in range(rows):
                at = begins[warp, number]
                if unfit[at // cells, at % cells // LANES] >> np.uint32(lane) & np.uint32(1):
                    exact[count] = (warp * rows + number) * LANES + lane
                    count += 1
    return count


@jit
def own_numbers(numbers: Any, scales: Any, exponent: int) -> Any:
    """Return the numbers of a tile whose weight has an exponent."""
    step = scales[1, exponent + 128]
    return step, type(step)(1) / step, max(scales[0, exponent + 128], numbers[5]), numbers[3], numbers[4], numbers[5]


@jit
def keep(raw: Any, spot: int, each: int, words: Any, at: int) -> int:
    """Write a value as it is; return the word after it."""
    for part in range(each):
        words[at + part] = raw[spot * each + part]
    return at + each


@jit
def encode_top(
    array: Any,
    known: Any,
    layout: Any,
    level: Any,
    tiles: tuple[int, int],
    numbers: Any,
    weighted: Any,
    words: Any,
    places: Any,
    start: int,
    desk: Desk,
) -> int:
    """Encode tiles of the uppermost grid as `encode_tiles` does those of others."""
    rank, shift, own = layout
    grid, counts, _ = level
    exponents, scales = weighted
    each, flat, at = array.itemsize // 4, array.view(np.uint32), start
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, grid, counts)
        gather_bricks(array, grid, place, rank, desk.x)
        if own:
            numbers = own_numbers(numbers, scales, exponents[tile])
        fits = quantise_top(desk.x, numbers[:5], desk.codes)
        used, odd = pack_top(desk.codes, rank, desk.words, desk.others)
        points, here = place[3] * place[4] * place[5], at >> (shift - 2)
        kept = not fits or (used > 0 and own + used >= points * each)
        if kept:
            places[tile] = np.uint32(here | RAW)
            for z in range(place[3]):
                for y in range(place[4]):
                    line = ((place[0] + z) * grid[1] + place[1] + y) * grid[2] + place[2]
                    for k in range(place[5]):
                        at = keep(flat, line + k, each, words, at)
                        known[line + k] = array[line + k]
        else:
            scatter_bricks(desk.x, grid, place, rank, known)
            places[tile] = np.uint32((here | (ODD if odd else 0)) if used else 0)
            if used and own:
                desk.near[0] = numbers[0]
                at = keep(desk.prefix, 0, own, words, at)
            for k in range(used):
                words[at + k] = desk.words[k]
            at += used
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
    return at


@jit
def encode_tiles(
    array: Any,
    above: Any,
    known: Any,
    layout: Any,
    level: Any,
    tables: Any,
    tiles: tuple[int, int],
    numbers: Any,
    weighted: Any,
    words: Any,
    places: Any,
    start: int,
    desk: Desk,
) -> int:
    """Encode tiles of a grid one after the other into `words` from `start` on; return the word after the last.

    Parameters
    ----------
    array, above, known
        The grid, flat; the decoded points of the grid above; and room for those of this one, or none.
    layout
        Rank, the shift of the places, and the words of a tile's own step.
    level
        The grid's extents, tiles along each axis, and the number of the first.
    tables
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
    rank, shift, own = layout
    grid, counts, first = level
    exponents, scales = weighted
    each, cells, begins, about = array.itemsize // 4, VALUES >> rank, tables[3], tables[:3]
    x, field, raw, at = desk.x, desk.field, desk.x.view(np.uint32), start
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, grid, counts)
        blank = surround(above, grid, place, rank, desk.coarse)
        gather(array, grid, place, rank, x)
        if own:
            numbers = own_numbers(numbers, scales, exponents[first + tile])
        five = numbers[:5]
        outside, used, odd = 0, 0, False
        if blank and nothing(x, cells, five):
            clear(field, cells)
        else:
            if quantise(x, rank, about, five, place, desk):
                outside = find_exact(desk.unfit, begins, cells, desk.exact)
            used, odd = pack(desk.symbols, begins, outside, desk.words, desk.masks, desk.codes)
        size = own + used + (outside + 1) // 2 + outside * each
        here, kept = at >> (shift - 2), used > 0 and size >= fresh_of(place) * each
        if kept:
            places[first + tile] = np.uint32(here | RAW)
            for k in range(VALUES - cells):
                spot = spot_of(k, begins)
                if full(place) or exists(spot, rank, place):
                    at = keep(raw, spot, each, words, at)
                field[PAD + spot] = x[spot]
        else:
            places[first + tile] = np.uint32((here | (ODD if odd else 0)) if used else 0)
            if used and own:
                desk.near[0] = numbers[0]
                at = keep(desk.prefix, 0, own, words, at)
            for k in range(used):
                words[at + k] = desk.words[k]
            at += used
            for k in range((outside + 1) // 2):
                pair = desk.exact[2 * k] | (desk.exact[2 * k + 1] << 16 if 2 * k + 1 < outside else 0)
                words[at + k] = np.uint32(pair)
            at += (outside + 1) // 2
            for k in range(outside):
                at = keep(raw, spot_of(desk.exact[k], begins), each, words, at)
        while at % (1 << (shift - 2)):
            words[at] = 0
            at += 1
        if known.size:
            scatter(above, field, grid, place, rank, known)
            for k in range(0 if kept else outside):
                spot = spot_of(desk.exact[k], begins)
                known[index_of(spot, rank, place, grid)] = x[spot]
            if kept:
                clear(field, cells)  # it may hold what is no number
    return at


@jit
def clear(field: Any, cells: int) -> None:
    """Make all new points zero."""
    for k in range(PAD + cells, PAD + VALUES):
        field[k] = 0


@jit
def decode_top(
    words: Any,
    end: int,
    start: int,
    known: Any,
    layout: Any,
    level: Any,
    tiles: tuple[int, int],
    step: Any,
    places: Any,
    desk: Desk,
) -> int:
    """Decode tiles of the uppermost grid; return how many are damaged, which become 0."""
    rank, shift, own = layout
    grid, counts, _ = level
    each, flat, damaged = known.itemsize // 4, known.view(np.uint32), 0
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, grid, counts)
        code = np.int64(places[tile])
        at = (code & SPOT) << (shift - 2)
        if code & RAW and at >= start and at + place[3] * place[4] * place[5] * each <= end:
            for z in range(place[3]):
                for y in range(place[4]):
                    line = ((place[0] + z) * grid[1] + place[1] + y) * grid[2] + place[2]
                    for k in range(place[5] * each):
                        flat[line * each + k] = words[at]
                        at += 1
            continue
        whole = code == 0 or (code & RAW == 0 and at >= start and at + own < end)
        if whole and code:
            mine = step
            for part in range(own):
                desk.prefix[part] = words[at + part]
            if own:
                mine = desk.near[0]
            whole = unpack_top(words[at + own : end], code & ODD != 0, rank, mine, desk.codes, desk.x) > 0
            whole = whole and mine >= 0 and mine < np.inf
        if not whole or code == 0:
            damaged += not whole
            for k in range(VALUES):
                desk.x[k] = 0
        scatter_bricks(desk.x, grid, place, rank, known)
    return damaged


@jit
def decode_tiles(
    words: Any,
    end: int,
    start: int,
    above: Any,
    known: Any,
    layout: Any,
    level: Any,
    tables: Any,
    tiles: tuple[int, int],
    step: Any,
    places: Any,
    desk: Desk,
) -> int:
    """Decode tiles of a grid; return how many are damaged, of which nothing is added to what is predicted."""
    rank, shift, own = layout
    grid, counts, first = level
    each, cells, symbols = known.itemsize // 4, VALUES >> rank, VALUES - (VALUES >> rank)
    flat, field, damaged, begins, about = known.view(np.uint32), desk.field, 0, tables[3], tables[:3]
    for tile in range(tiles[0], tiles[1]):
        place = locate(tile, rank, grid, counts)
        blank = surround(above, grid, place, rank, desk.coarse)
        code = np.int64(places[first + tile])
        at = (code & SPOT) << (shift - 2)
        whole, outside, used = code == 0 or at >= start, 0, 0
        kept, after, mine = whole and code & RAW != 0, at, step
        if kept:
            whole = at + fresh_of(place) * each <= end
        elif whole and code:
            for part in range(own):
                desk.prefix[part] = words[min(at + part, end - 1)]
            if own:
                mine = desk.near[0]
            at += own
            if at < end:
                outside, used = unpack(words[at:end], code & ODD != 0, begins, desk.masks, desk.listed, desk.steps)
            after = at + used + (outside + 1) // 2
            whole = used > 0 and after + outside * each <= end and mine >= 0 and mine < np.inf
            for k in range(outside if whole else 0):
                whole = whole and told(words, at + used, k) < symbols
        coded = whole and not kept and code != 0
        if not whole:
            damaged += 1
            outside = 0
        if not coded and blank:
            clear(field, cells)
        else:
            if not coded:
                for k in range(VALUES):
                    desk.steps[k] = 0
            careful = outside > 0 or not coded or not full(place)
            restore(desk.steps, rank, desk.coarse, about, mine, careful, field)
        scatter(above, field, grid, place, rank, known)
        if kept and whole:
            for k in range(symbols):
                spot = spot_of(k, begins)
                if full(place) or exists(spot, rank, place):
                    here = index_of(spot, rank, place, grid) * each
                    for part in range(each):
                        flat[here + part] = words[at]
                        at += 1
        for k in range(outside):
            spot = spot_of(told(words, at + used, k), begins)
            if exists(spot, rank, place):
                here = index_of(spot, rank, place, grid) * each
                for part in range(each):
                    flat[here + part] = words[after + k * each + part]
    return damaged


@jit
def told(words: Any, at: int, k: int) -> int:
    """Return the symbol of an exact value."""
    return np.int64(words[at + k // 2] >> np.uint32(16 * (k % 2)) & np.uint32(0xFFFF))  # type: ignore[return-value]


@jit
def reorder(
    words: Any, end: int, layout: Any, level: Any, rows: int, each: int, places: Any, out: Any, to: int, masks: Any
) -> int:
    """Copy the tiles of a grid in order, from a word on; return that after the last, or -1 where one is damaged.

    A warp has so many rows of symbols, none in the uppermost grid.
    """
    rank, shift, own = layout
    grid, counts, first = level
    for tile in range(counts[0] * counts[1] * counts[2]):
        code = np.int64(places[first + tile])
        at = (code & SPOT) << (shift - 2)
        if code == 0:
            continue
        place = locate(tile, rank, grid, counts)
        size = (fresh_of(place) if rows else place[3] * place[4] * place[5]) * each
        if not code & RAW:
            if at + own >= end:
                return -1
            if not rows:
                outside, used = 0, measure_top(words[at + own : end])
            else:
                found = measure(words[at + own : end], code & ODD != 0, rows, masks)
                outside, used = found[0], found[5]
            size = own + used + (outside + 1) // 2 + outside * each if used > 0 else -1
        if size < 0 or at + size > end or to + size > out.size:
            return -1
        for k in range(size):
            out[to + k] = words[at + k]
        places[first + tile] = np.uint32(to >> (shift - 2) | code & (RAW | ODD))
        to += size
        while to % (1 << (shift - 2)):
            out[to] = 0
            to += 1
    return to
