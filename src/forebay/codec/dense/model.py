"""Predicting tiles on the CPU: each value from those around it that are known already, level by level."""

from typing import Any

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import (
    any_of,
    bits_of,
    fill,
    holding,
    largest,
    load,
    low_words,
    magnitudes,
    store,
    width_of,
)
from forebay.codec.bounded.tiles import jit
from forebay.codec.dense.format import LARGEST, PAD, TAPS, VALUES

COARSE = VALUES + 2 * PAD
"""Where the known values of a level lie in a field, in the order of their grid."""
WIDEST = 23
"""Bits of a symbol that may be too large."""
FIELD = COARSE + VALUES // 2 + 2 * PAD


@jit
def spread(field: Any, coarse: Any, size: int, done: int) -> None:
    """Lay the values that are known before a level onto its grid."""
    for k in range(size):
        field[COARSE + coarse[done + k]] = field[PAD + k]


@jit
def along(field: Any, at: int, stride: int, weights: Any, to: int, size: int) -> Any:
    """Return what neighbours along an axis say of a row of points."""
    near = load(weights, to + size) * load(field, at - stride) + load(weights, to + 2 * size) * load(field, at)
    far = load(weights, to + 3 * size) * load(field, at + stride)
    far = far + load(weights, to + 4 * size) * load(field, at + 2 * stride)
    return (near + far) + load(weights, to) * load(field, at - 2 * stride)


@jit
def predicted(field: Any, rank: int, level: int, mask: int, row: int, orders: Any, weights: Any, base: int) -> Any:
    """Return what is predicted of a row of points, which lie between others along the axes in `mask`."""
    size = 1 << (rank * level)
    total = fill(weights.dtype.type(0))
    for axis in range(rank):
        bit = 1 << (rank - 1 - axis)
        if mask & bit:
            known = mask ^ bit
            at = COARSE if known == 0 else PAD + orders[8 + known] * size
            stride = 1 << (level * (rank - 1 - axis))
            share = load(weights, base + (rank * TAPS + mask * rank + axis) * size + row)
            total = total + share * along(field, at + row, stride, weights, base + axis * TAPS * size + row, size)
    return total


@jit
def settle(
    x: Any, at: int, lanes: int, guess: Any, numbers: Any, room: Any, symbols: Any, exact: Any, outside: int
) -> int:
    """Quantise what a prediction is off for a row of points; return how many values do not fit so far."""
    step, inverse, test, magic, zero = numbers
    field, rows, bits = room
    values, magics = load(x, at), fill(magic)
    q = low_words(bits_of((values - guess) * fill(inverse) + magics))
    near = guess + (holding(q, x) - magics) * fill(step)
    symbol, off = q - fill(zero), magnitudes(values - near)
    if lanes == LANES and largest(off) < test and width_of(any_of(symbol ^ (symbol + symbol))) < WIDEST:
        store(symbol, symbols, at)
        store(near, field, PAD + at)
        return outside
    store(guess, rows, 0)
    store(near, rows, LANES)
    store(off, bits, 0)
    store(symbol, symbols, VALUES)
    for lane in range(lanes):
        fits = bits[lane] < test and -LARGEST < symbols[VALUES + lane] < LARGEST
        symbols[at + lane] = symbols[VALUES + lane] if fits else 0
        field[PAD + at + lane] = rows[LANES + lane] if fits else finite(rows[lane])
        if not fits:
            exact[outside] = at + lane
            outside += 1
    return outside


@jit
def finite(value: Any) -> Any:
    """Return a number, or zero in the place of what is none."""
    return value if value - value == 0 else type(value)(0)


@jit
def quantise(
    x: Any, rank: int, orders: Any, coarse: Any, weights: Any, numbers: Any, room: Any, symbols: Any, exact: Any
) -> int:
    """Predict a tile, and leave what is to be added in `symbols`; return how many values do not fit.

    Parameters
    ----------
    x
        The values in the order of prediction.
    orders
        The kinds of points in that order, and from 8 on the places of the kinds in it.
    coarse, weights
        Of the `Geometry`.
    numbers
        As `encode_tiles` of `bounded` has them.
    room
        A field, two rows, and a row of bits.
    exact
        Where the values are that do not fit.
    """
    outside = settle(x, 0, 1, fill(x.dtype.type(0)), numbers, room, symbols, exact, 0)
    done = base = 0
    for level in range(12 // rank):
        size = 1 << (rank * level)
        spread(room[0], coarse, size, done)
        for kind in range(1, 1 << rank):
            for row in range(0, size, LANES):
                guess = predicted(room[0], rank, level, orders[kind], row, orders, weights, base)
                at, lanes = kind * size + row, min(size, LANES)
                outside = settle(x, at, lanes, guess, numbers, room, symbols, exact, outside)
        done += size
        base += size * (rank * TAPS + (rank << rank))
    return outside


@jit
def restore(symbols: Any, rank: int, orders: Any, coarse: Any, weights: Any, numbers: Any, room: Any) -> None:
    """Undo what `quantise` did, into the field."""
    field, rows = room
    step, magic, zero = numbers
    steps, magics, zeros = fill(step), fill(magic), fill(zero)
    store((holding(load(symbols, 0) + zeros, field) - magics) * steps, rows, 0)
    field[PAD] = finite(rows[0])
    done = base = 0
    for level in range(12 // rank):
        size = 1 << (rank * level)
        spread(field, coarse, size, done)
        for kind in range(1, 1 << rank):
            for row in range(0, size, LANES):
                guess = predicted(field, rank, level, orders[kind], row, orders, weights, base)
                at = kind * size + row
                near = guess + (holding(load(symbols, at) + zeros, field) - magics) * steps
                if size >= LANES and any_of(bits_of(near - near)) == 0:
                    store(near, field, PAD + at)
                else:
                    store(near, rows, 0)
                    for lane in range(min(size, LANES)):
                        field[PAD + at + lane] = finite(rows[lane])
        done += size
        base += size * (rank * TAPS + (rank << rank))
