"""Decoding tiles on the CPU, and putting them in order."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES, RAW
from forebay.codec.bounded.rows import fill, load, prefetch_to_write, store
from forebay.codec.dense.desk import Desk, clear, spot_of
from forebay.codec.dense.format import ODD, SPOT
from forebay.codec.dense.model import PAD, VALUES, finite_of, predicted
from forebay.codec.dense.reading import measure, unpack
from forebay.codec.dense.tiles import (
    ahead_of,
    begin_of,
    cell_of,
    exists,
    fresh_of,
    full,
    index_of,
    locate,
    scatter,
    surround,
    wipe,
)
from forebay.codec.dense.top import measure_top, scatter_bricks, unpack_top
from forebay.codec.dense.words import fused, jit, load_pieces, store_pairs


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
            clear(desk.x, np.int64(0), np.int64(VALUES))
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
        ahead = ahead_of(tile, rank, grid, counts, place)
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
                outside, used = unpack(words[at:end], code & ODD != 0, begins, tables[4], desk)
            after = at + used + (outside + 1) // 2
            whole = used > 0 and after + outside * each <= end and mine >= 0 and mine < np.inf
            for k in range(outside if whole else 0):
                whole = whole and told(words, at + used, k) < symbols
        coded = whole and not kept and code != 0
        if blank and code == 0 and wipe(grid, place, rank, ahead, known):
            continue
        if not whole:
            damaged += 1
            outside = 0
        if not coded and blank:
            clear(field, PAD + cells, VALUES - cells)
        else:
            if not coded:
                clear(desk.steps, np.int64(0), np.int64(VALUES))
            careful = outside > 0 or not coded or not full(place)
            restore(above, grid, place, rank, ahead, about, mine, careful, known, desk)
        if not full(place) or (not coded and blank):
            scatter(above, field, grid, place, rank, ahead, known)
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
def restore(
    above: Any,
    grid: Any,
    place: Any,
    rank: int,
    ahead: int,
    about: Any,
    step: Any,
    careful: bool,
    known: Any,
    desk: Desk,
) -> None:
    """Undo what `quantise` did, into the field, and of a whole tile into its grid too, beside the old points."""
    cells, field, whole = VALUES >> rank, desk.field, full(place)
    n1, n0 = (grid[1] + 1) // 2, (grid[2] + 1) // 2
    for number in range((1 << rank) - 1):
        kind = (1, 2, 4, 3, 5, 6, 7)[number] if rank == 3 else number + 1
        for row in range(cells // LANES):
            at = kind * cells + row * LANES
            guess = predicted(kind, row, rank, desk.coarse, field, about)
            near = fused(load(desk.steps, at), fill(step), guess)
            if careful:
                near = finite_of(near, step)
            store(near, field, PAD + at)
            if kind & 1 and whole:  # points beside each other are both known now
                to, apart = begin_of(kind - 1, row, rank, place, grid)
                for piece in range(4 if rank == 3 else 1):
                    prefetch_to_write(known, to + piece * apart + ahead)
                if kind > 1:
                    store_pairs(load(field, PAD + at - cells), near, known, to, apart)
                else:
                    z, y, x = cell_of(row * LANES, rank)
                    old = ((place[0] // 2 + z) * n1 + place[1] // 2 + y) * n0 + place[2] // 2 + x
                    store_pairs(load_pieces(above, old, n1 * n0 if rank == 3 else LANES // 4), near, known, to, apart)


@jit
def told(words: Any, at: int, k: int) -> int:
    """Return the symbol of an exact value."""
    return np.int64(words[at + k // 2] >> np.uint32(16 * (k % 2)) & np.uint32(0xFFFF))  # type: ignore[return-value]


@jit
def reorder(
    words: Any, end: int, layout: Any, level: Any, tables: Any, each: int, places: Any, out: Any, to: int, desk: Desk
) -> int:
    """Copy the tiles of a grid in order, from a word on; return that after the last, or -1 where one is damaged.

    The tables are those of the `Geometry`.
    """
    rank, shift, own = layout
    grid, counts, first = level
    for tile in range(counts[0] * counts[1] * counts[2]):
        code = np.int64(places[first + tile])
        at = (code & SPOT) << (shift - 2)
        if code == 0:
            continue
        place = locate(tile, rank, grid, counts)
        size = (fresh_of(place) if first else place[3] * place[4] * place[5]) * each
        if not code & RAW:
            if at + own >= end:
                return -1
            if first == 0:
                outside, used = 0, measure_top(words[at + own : end])
            else:
                found = measure(words[at + own : end], code & ODD != 0, tables[3], tables[4], desk)
                outside, used = found[0], found[5]
            size = own + used + (outside + 1) // 2 + outside * each if used > 0 else -1
        if size < 0 or at + size > end or to + size > out.size:
            return -1
        for k in range(size):
            out[to + k] = words[at + k]
        places[first + tile] = np.uint32(to >> (shift - 2) | code & (RAW | ODD))
        to += size
        while to % (1 << (shift - 2)) and to < out.size:
            out[to] = 0
            to += 1
    return to
