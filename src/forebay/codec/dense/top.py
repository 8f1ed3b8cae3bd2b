"""The uppermost grid on the CPU, whose points are quantised as they are.

A thread has a brick of 32 points, which is a row of its warp; or, in odd tiles, the differences along each axis are
kept, and a row has the same point of all bricks of a warp.
"""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import any_of, bits_of, fill, load, low_words, store, width_of
from forebay.codec.dense.format import MOST, THREADS
from forebay.codec.dense.model import EVERY, VALUES
from forebay.codec.dense.planes import coded_of
from forebay.codec.dense.reading import symbol_of
from forebay.codec.dense.tiles import side_of
from forebay.codec.dense.words import absolute, below, chosen, fused, jit, other_than, reals_of

TOP_HEAD = THREADS // 4
"""Words before the planes: the width of each row in a byte."""


@jit
def brick_of(rank: int) -> tuple[int, int, int]:
    """Return the extents of a brick."""
    if rank == 3:
        return 2, 4, 4
    return (1, 4, 8) if rank == 2 else (1, 1, 32)


@jit
def row_of(z: int, y: int, rank: int) -> int:
    """Return where a line of a tile begins among its bricks; its next points are in the next brick."""
    if rank == 3:
        return (z // 2 * 16 + y // 4 * 4) * LANES + (z % 2 * 4 + y % 4) * 4
    return y // 4 * 8 * LANES + y % 4 * 8 if rank == 2 else 0


@jit
def gather_bricks(array: Any, extents: Any, place: Any, rank: int, x: Any) -> None:
    """Copy the points of a tile, brick by brick; for what does not exist, the last along each axis."""
    fast = brick_of(rank)[2]
    for z in range(side_of(rank, 0)):
        for y in range(side_of(rank, 1)):
            slow, middle, row = min(z, place[3] - 1), min(y, place[4] - 1), row_of(z, y, rank)
            line = array[((place[0] + slow) * extents[1] + place[1] + middle) * extents[2] + place[2] :]
            for k in range(0, side_of(rank, 2), fast):
                brick = x[row + k // fast * LANES :]
                if k + fast <= place[5]:
                    for lane in range(fast):
                        brick[lane] = line[k + lane]
                else:
                    for lane in range(fast):
                        brick[lane] = line[min(k + lane, place[5] - 1)]


@jit
def scatter_bricks(x: Any, extents: Any, place: Any, rank: int, known: Any) -> None:
    """Copy the points of a tile to where they belong."""
    fast = brick_of(rank)[2]
    for z in range(place[3]):
        for y in range(place[4]):
            line = known[((place[0] + z) * extents[1] + place[1] + y) * extents[2] + place[2] :]
            row = row_of(z, y, rank)
            for k in range(0, place[5], fast):
                brick = x[row + k // fast * LANES :]
                if k + fast <= place[5]:
                    for lane in range(fast):
                        line[k + lane] = brick[lane]
                else:
                    for lane in range(place[5] - k):
                        line[k + lane] = brick[lane]


@jit
def quantise_top(x: Any, numbers: Any, codes: Any) -> bool:
    """Quantise the points of a tile, which become what is decoded; tell whether all of them fit."""
    step, inverse, test, magic, zero = numbers
    fits = EVERY
    for k in range(0, VALUES, LANES):
        values = load(x, k)
        total = fused(values, fill(inverse), fill(magic))
        off = total - fill(magic)
        near = off * fill(step)
        fits &= below(absolute(values - near), fill(test)) & below(absolute(off), fill(type(magic)(MOST)))
        store(low_words(bits_of(total)) - fill(zero), codes, k)
        store(near, x, k)
    return bool(fits == EVERY)


@jit
def transpose(codes: Any, first: int) -> None:
    """Make rows of a warp of what are columns."""
    square = codes[first : first + LANES * LANES]
    for row in range(LANES):
        for lane in range(row):
            here, there = square[row * LANES + lane], square[lane * LANES + row]
            square[row * LANES + lane], square[lane * LANES + row] = there, here


@jit
def subtract(codes: Any, first: int, pitch: int, count: int) -> None:
    """Keep what changes along an axis of the bricks of a warp."""
    for k in range(LANES - 1, 0, -1):
        if k // pitch % count:
            at = first + k * LANES
            store(load(codes, at) - load(codes, at - pitch * LANES), codes, at)


@jit
def sum_up(codes: Any, first: int, pitch: int, count: int) -> None:
    """Undo what `subtract` did."""
    for k in range(1, LANES):
        if k // pitch % count:
            at = first + k * LANES
            store(load(codes, at) + load(codes, at - pitch * LANES), codes, at)


@jit
def write_rows(codes: Any, words: Any) -> int:
    """Write the planes of rows from where they begin on, their widths before; return how many words they take."""
    packed, used = words[:TOP_HEAD].view(np.uint8), TOP_HEAD
    for row in range(THREADS):
        code = coded_of(load(codes, row * LANES))
        width = width_of(any_of(code))
        packed[row] = width
        for bit in range(width):
            words[used + bit] = other_than(code & fill(np.int32(1 << bit)), fill(np.int32(0)))
        used += width
    return used if used > TOP_HEAD else 0


@jit
def pack_top(codes: Any, rank: int, words: Any, others: Any) -> tuple[int, bool]:
    """Write the quanta of a tile; return how many words they take, 0 where all are 0, and whether it is odd."""
    _, middle, fast = brick_of(rank)
    used = write_rows(codes, words)
    for warp in range(0, VALUES, LANES * LANES):
        transpose(codes, warp)
        subtract(codes, warp, 1, fast)
        subtract(codes, warp, fast, middle)
        subtract(codes, warp, middle * fast, LANES)
    fewer = write_rows(codes, others)
    odd = fewer < used
    for k in range(fewer if odd else 0):
        words[k] = others[k]
    return fewer if odd else used, odd


@jit
def measure_top(words: Any) -> int:
    """Return how many words the quanta of a tile take, or -1 where they are damaged."""
    if words.size < TOP_HEAD:
        return -1
    packed = words[:TOP_HEAD].view(np.uint8)
    used: Any = TOP_HEAD
    for row in range(THREADS):
        used += np.int64(packed[row])
        if packed[row] > 32:
            return -1
    return used if TOP_HEAD < used <= words.size else -1


@jit
def unpack_top(words: Any, odd: bool, rank: int, step: Any, codes: Any, x: Any) -> int:
    """Read a tile, brick by brick; return how many words it took, or -1 where it is damaged."""
    end = measure_top(words)
    if end < 0:
        return -1
    _, middle, fast = brick_of(rank)
    packed, at, zeros = words[:TOP_HEAD].view(np.uint8), TOP_HEAD, fill(np.int32(0))
    for warp in range(0, VALUES, LANES * LANES):
        for k in range(LANES):
            code = zeros
            width: Any = np.int64(packed[warp // LANES + k])
            for bit in range(width):
                code = code | chosen(words[at + bit], fill(np.int32(1 << bit)), zeros)
            at += width
            store(symbol_of(code), codes, warp + k * LANES)
        if odd:
            sum_up(codes, warp, 1, fast)
            sum_up(codes, warp, fast, middle)
            sum_up(codes, warp, middle * fast, LANES)
            transpose(codes, warp)
        for k in range(warp, warp + LANES * LANES, LANES):
            store(reals_of(load(codes, k), x) * fill(step), x, k)
    return end
