"""Writing the symbols of a tile on the CPU: which are not zero, and planes of bits of those."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import any_of, fill, load, shift_down, store, sum_of, width_of
from forebay.codec.dense.format import HEAD, THREADS, WARPS, WHOLE, WORTH
from forebay.codec.dense.words import (
    chosen,
    count_of,
    counts_of,
    jit,
    lowest_of,
    other_than,
)

ONE = np.uint32(1)
FOUR = np.uint32(15)


@jit
def put(words: Any, at: int, bits: Any, count: Any) -> None:
    """Write so many bits from one on, where there are zeros."""
    words[at >> 5] |= bits << np.uint32(at & 31)
    if (at & 31) + count > 32:
        words[(at >> 5) + 1] |= bits >> np.uint32(32 - (at & 31))


@jit
def groups_of(mask: Any) -> Any:
    """Return which groups of four bits are not all zero."""
    mask |= mask >> np.uint32(2)
    mask |= mask >> ONE
    mask &= np.uint32(0x11111111)
    mask = (mask | mask >> np.uint32(3)) & np.uint32(0x03030303)
    mask = (mask | mask >> np.uint32(6)) & np.uint32(0x000F000F)
    return (mask | mask >> np.uint32(12)) & np.uint32(255)


@jit
def coded_of(symbol: Any) -> Any:
    """Return symbols as numbers from zero on."""
    return (symbol + symbol) ^ (symbol >> fill(np.int32(31)))


@jit
def whole_groups(masks: Any, groups: int) -> int:
    """Return which groups are worth listing whole."""
    whole = 0
    for group in range(groups):
        worth: Any = 0
        for warp in range(WARPS):
            four = shift_down(load(masks, warp * LANES), fill(np.int32(4 * group))) & fill(np.int32(15))
            worth += 3 * np.int64(sum_of(counts_of(four))) + 4 * count_of(other_than(four, fill(np.int32(0))))
        whole |= (worth > WORTH) << group
    return whole


@jit
def rows_but(whole: int, rows: int) -> int:
    """Return a word whose bits are the rows that are of none of these groups."""
    kept = 0
    for number in range(rows):
        kept |= (1 - (whole >> number // 4 & 1)) << number
    return kept


@jit
def without(groups: Any, whole: int, count: int) -> Any:
    """Leave out the bits of groups that are listed whole."""
    at = 0
    left: Any = 0
    for group in range(count):
        if not whole >> group & 1:
            left |= (np.int64(groups) >> group & 1) << at
            at += 1
    return np.uint32(left)


@jit
def pack(symbols: Any, begins: Any, outside: int, words: Any, masks: Any, codes: Any) -> tuple[int, bool]:
    """Write the symbols of a tile from the first of `words` on; return how many words they take, and if it is odd.

    Parameters
    ----------
    begins
        Where the rows of each warp begin.
    outside
        How many exact values the tile has.
    masks
        Room for a word for each thread: which of its symbols are not zero.
    codes
        Room for all symbols.
    """
    rows, zeros, flagged, groups = begins.shape[1], fill(np.int32(0)), 0, 0
    listed: Any = 0
    for warp in range(WARPS):
        mask = fill(np.int32(0))
        for number in range(rows):
            some = other_than(load(symbols, begins[warp, number]), zeros)
            mask = mask | chosen(some, fill(np.int32(1 << number)), zeros)
        store(mask, masks, warp * LANES)
        listed += np.int64(sum_of(counts_of(mask)))
    if listed == 0 and outside == 0:
        return 0, False
    whole = whole_groups(masks, rows // 4) if 3 * listed > WORTH - 4 * THREADS else 0
    told_groups = rows // 4 - count_of(np.uint32(whole))
    count: Any = np.int64(0)
    told: Any = np.int64(0)
    if whole:
        for warp in range(WARPS):
            for number in range(rows):
                if whole >> number // 4 & 1:
                    store(coded_of(load(symbols, begins[warp, number])), codes, count)
                    count += LANES
    kept, at = rows_but(whole, rows), 1 if whole or outside else 0
    words[0] = np.uint32(outside | whole << WHOLE)
    for warp in range(WARPS if told_groups else 0):
        mask = load(masks, warp * LANES) & fill(np.int32(kept))
        store(mask, masks, warp * LANES)
        flags = other_than(mask, zeros)
        words[at + warp] = flags
        flagged += count_of(flags)
        while flags:
            groups += count_of(groups_of(np.uint32(masks[warp * LANES + lowest_of(flags)])))
            flags &= flags - ONE
    begin = at + (HEAD if told_groups else 0)
    nibbles = told_groups * flagged
    for k in range(begin, begin + (nibbles + 4 * groups + 31) // 32):
        words[k] = 0
    here = words[begin:]
    for warp in range(WARPS if told_groups else 0):
        flags = words[at + warp]
        while flags:
            lane = lowest_of(flags)
            flags &= flags - ONE
            own = np.uint32(masks[warp * LANES + lane])
            some = groups_of(own)
            put(here, told, np.uint32(without(some, whole, rows // 4) if whole else some), told_groups)
            told += told_groups
            while some:
                group = lowest_of(some)
                some &= some - ONE
                put(here, nibbles, np.uint32(own >> np.uint32(4 * group) & FOUR), np.int64(4))
                nibbles += 4
            while own:
                symbol = symbols[begins[warp, lowest_of(own)] + lane]
                codes[count] = ((symbol + symbol) ^ (symbol >> np.int32(31))) - np.int32(1)
                count += 1
                own &= own - ONE
    return write_chunks(codes, count, words, begin, nibbles), at == 1


@jit
def write_chunks(codes: Any, count: int, words: Any, begin: int, nibbles: int) -> int:
    """Write the codes of symbols 32 at a time, and their widths from some bit after a word on; return the end."""
    chunks = (count + LANES - 1) // LANES
    store(fill(np.int32(0)), codes, count)
    used = begin + (nibbles + 4 * chunks + 31) // 32
    for k in range(begin + (nibbles + 31) // 32, used):
        words[k] = 0
    here = words[begin:]
    for chunk in range(chunks):
        code = load(codes, chunk * LANES)
        width = max(1, width_of(any_of(code)))
        put(here, nibbles + 4 * chunk, np.uint32(width - 1), np.int64(4))
        lanes = min(LANES, count - chunk * LANES)
        if lanes == LANES:
            for bit in range(width):
                words[used + bit] = other_than(code & fill(np.int32(1 << bit)), fill(np.int32(0)))
        else:
            for k in range((width * lanes + 31) // 32):
                words[used + k] = 0
            for bit in range(width):
                put(words[used:], bit * lanes, other_than(code & fill(np.int32(1 << bit)), fill(np.int32(0))), lanes)
        used += (width * lanes + 31) // 32
    return used
