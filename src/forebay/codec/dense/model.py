"""Predicting tiles on the CPU: new points from old ones around them, and from new ones that are known already."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import bits_of, fill, load, low_words, store
from forebay.codec.dense.format import LARGEST
from forebay.codec.dense.words import absolute, below, chosen, fused, inlined, jit, load_pieces, lowest_of

VALUES = 4096
"""Points of a tile, the old ones included."""
PAD = 128
"""Values before and after the field that a prediction may read; what it reads there has no weight."""
FIELD = VALUES + 2 * PAD
COARSE = 2176
"""Room for the old points in a tile and around it."""
EVERY = np.uint32(0xFFFFFFFF)


@jit
def pitches(rank: int) -> tuple[int, int, int]:
    """Return how far old points lie apart in their room along y and z, and the pieces of a row."""
    if rank == 3:
        return 132, 12, 12
    return (36 if rank == 2 else 0), 0, LANES // 4


@jit
def origin(rank: int, row: int) -> int:
    """Return where the old points of a row of cells begin in their room."""
    if rank == 3:
        return (row // 2 + 1) * 132 + (row % 2 * 4 + 1) * 12 + 1
    return (row + 1) * 36 + 1 if rank == 2 else row * LANES + 1


@jit
def between(coarse: Any, at: int, pitch: int, apart: int) -> Any:
    """Return what old points along an axis say of a row of new ones."""
    near = load_pieces(coarse, at, apart) + load_pieces(coarse, at + pitch, apart)
    far = load_pieces(coarse, at - pitch, apart) + load_pieces(coarse, at + 2 * pitch, apart)
    return fused(fill(coarse.dtype.type(9 / 16)), near, fill(coarse.dtype.type(-1 / 16)) * far)


@jit
def along(field: Any, at: int, pitch: int, across: Any, to: int) -> Any:
    """Return what neighbours along z or x say of a row of points."""
    near = fused(load(across, to + LANES), load(field, at), load(across, to) * load(field, at - pitch))
    far = fused(load(across, to + 2 * LANES), load(field, at + pitch), near)
    return fused(load(across, to + 3 * LANES), load(field, at + 2 * pitch), far)


@jit
def along_y(field: Any, at: int, pitch: int, down: Any, y: int) -> Any:
    """Return what neighbours along y say."""
    near = fused(fill(down[y, 1]), load(field, at), fill(down[y, 0]) * load(field, at - pitch))
    far = fused(fill(down[y, 2]), load(field, at + pitch), near)
    return fused(fill(down[y, 3]), load(field, at + 2 * pitch), far)


@inlined
def predicted(kind: int, row: int, rank: int, coarse: Any, field: Any, about: Any) -> Any:
    """Return what is predicted of a row of points of a kind."""
    down, across, shares = about
    if kind == 1 or kind == 2 or kind == 4:
        plane, line, apart = pitches(rank)
        return between(coarse, origin(rank, row), 1 if kind == 1 else plane if kind == 2 else line, apart)
    cells = 512 if rank == 3 else 1024
    half, y, wide = (row % 2, row // 2, 64) if rank == 3 else (0, row, LANES)
    at, to_z, to_x = PAD + row * LANES, half * 4 * LANES, 8 * LANES
    share = ((2 if y == down.shape[0] - 1 else 0) + half) * 9 * LANES
    if kind == 3:
        first = load(shares, share) * along_y(field, at + cells, wide, down, y)
        return fused(load(shares, share + LANES), along(field, at + 2 * cells, 1, across, to_x), first)
    if kind == 5:
        first = load(shares, share + 2 * LANES) * along(field, at + cells, 8, across, to_z)
        return fused(load(shares, share + 3 * LANES), along(field, at + 4 * cells, 1, across, to_x), first)
    if kind == 6:
        first = load(shares, share + 4 * LANES) * along(field, at + 2 * cells, 8, across, to_z)
        return fused(load(shares, share + 5 * LANES), along_y(field, at + 4 * cells, wide, down, y), first)
    first = load(shares, share + 6 * LANES) * along(field, at + 3 * cells, 8, across, to_z)
    both = fused(load(shares, share + 7 * LANES), along_y(field, at + 5 * cells, wide, down, y), first)
    return fused(load(shares, share + 8 * LANES), along(field, at + 6 * cells, 1, across, to_x), both)


@jit
def finite(value: Any) -> Any:
    """Return a number, or zero in the place of what is none."""
    return value if value - value == 0 else type(value)(0)


@jit
def finite_of(row: Any, like: Any) -> Any:
    """Return a row with zeros in the place of what is no number."""
    infinite, zero = type(like)(np.inf), type(like)(0)
    return chosen(below(absolute(row), fill(infinite)), row, fill(zero))


@jit
def settle(x: Any, at: int, guess: Any, numbers: Any, field: Any, symbols: Any, spare: Any) -> Any:
    """Quantise what a prediction is off for a row of points; return a word that tells which of them fit."""
    step, inverse, test, magic, zero = numbers
    values, magics = load(x, at), fill(magic)
    total = fused(values - guess, fill(inverse), magics)
    off = total - magics
    near = fused(off, fill(step), guess)
    fits = below(absolute(values - near), fill(test)) & below(absolute(off), fill(type(magic)(LARGEST)))
    store(low_words(bits_of(total)) - fill(zero), symbols, at)
    store(near, field, PAD + at)
    left = fits ^ EVERY
    if left:
        store(guess, spare, 0)
        while left:
            lane = lowest_of(left)
            symbols[at + lane] = 0
            field[PAD + at + lane] = finite(spare[lane])
            left &= left - np.uint32(1)
    return fits


@jit
def below_of(extent: int, kind: int, bit: int, first: int, most: int) -> int:
    """Count the cells from one on, and at most so many, whose points of a kind exist along an axis of a tile."""
    return min(max((extent + 1 - (kind >> bit & 1)) // 2 - first, 0), most)


@jit
def existing(kind: int, row: int, rank: int, place: Any) -> Any:
    """Return a word whose bits tell which points of a kind exist in a row of cells."""
    one = np.uint64(1)
    if rank == 3:
        if below_of(place[4], kind, 1, row // 2, 1) == 0:
            return np.uint32(0)
        planes = (one << np.uint64(8 * below_of(place[3], kind, 2, row % 2 * 4, 4))) - one
        return np.uint32(planes & ((one << np.uint64(below_of(place[5], kind, 0, 0, 8))) - one) * np.uint64(0x01010101))
    if rank == 2 and below_of(place[4], kind, 1, row, 1) == 0:
        return np.uint32(0)
    return np.uint32((one << np.uint64(below_of(place[5], kind, 0, 0 if rank == 2 else row * LANES, LANES))) - one)


@jit
def quantise(x: Any, rank: int, about: Any, numbers: Any, place: Any, desk: Any) -> int:
    """Predict a tile, and leave what is to be added in the symbols; return how many rows have points that do not fit.

    Parameters
    ----------
    x
        The points of a tile, kind by kind; what does not exist is infinite.
    about
        Of the `Geometry`.
    numbers
        Step, its inverse, the bound, the number that leaves integers in the lowest bits, and what 0 becomes then.
    place
        Where the tile lies.
    desk
        Has the old points around, and takes field, symbols, and for each row of a kind a word of what does not fit.
    """
    cells, outside = 4096 >> rank, 0
    for number in range((1 << rank) - 1):
        kind = (1, 2, 4, 3, 5, 6, 7)[number] if rank == 3 else number + 1
        for row in range(cells // LANES):
            guess = predicted(kind, row, rank, desk.coarse, desk.field, about)
            at = kind * cells + row * LANES
            unfit = settle(x, at, guess, numbers, desk.field, desk.symbols, desk.spare) ^ EVERY
            if unfit:
                unfit &= existing(kind, row, rank, place)
            desk.unfit[kind, row] = unfit
            outside += unfit != 0
    return outside
