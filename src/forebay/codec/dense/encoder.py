"""Encoding tiles on the CPU."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES, NOTHING, RAW
from forebay.codec.bounded.rows import fill, load
from forebay.codec.dense.desk import Desk, clear, spot_of
from forebay.codec.dense.format import ODD, WARPS
from forebay.codec.dense.model import EVERY, PAD, VALUES, quantise
from forebay.codec.dense.planes import pack
from forebay.codec.dense.tiles import ahead_of, exists, fresh_of, full, gather, index_of, locate, scatter, surround
from forebay.codec.dense.top import gather_bricks, pack_top, quantise_top, scatter_bricks
from forebay.codec.dense.words import absolute, below, jit, lowest_of


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
def own_numbers(numbers: Any, scales: Any, exponent: Any) -> Any:
    """Return the numbers of a tile whose weight has an exponent."""
    at = np.int64(exponent) - NOTHING
    step = scales[1, at]
    return step, type(step)(1) / step, max(scales[0, at], numbers[5]), numbers[3], numbers[4], numbers[5]


@jit
def keep(raw: Any, spot: Any, each: int, words: Any, at: int) -> int:
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
                at = keep(desk.prefix, np.int64(0), own, words, at)
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
        ahead = ahead_of(tile, rank, grid, counts, place)
        blank = surround(above, grid, place, rank, desk.coarse)
        gather(array, grid, place, rank, x)
        if own:
            numbers = own_numbers(numbers, scales, exponents[first + tile])
        five = numbers[:5]
        outside, used, odd = 0, 0, False
        if blank and nothing(x, cells, five):
            clear(field, PAD + cells, VALUES - cells)
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
                at = keep(desk.prefix, np.int64(0), own, words, at)
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
            scatter(above, field, grid, place, rank, ahead, known)
            for k in range(0 if kept else outside):
                spot = spot_of(desk.exact[k], begins)
                known[index_of(spot, rank, place, grid)] = x[spot]
            if kept:
                clear(field, PAD + cells, VALUES - cells)  # it may hold what is no number
    return at
