"""Writing the symbols of a tile on the CPU: which are not zero, and planes of bits of those, and reading them again."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import any_of, fill, load, shift_down, store, sum_of, width_of
from forebay.codec.dense.format import GROUP, HEAD, THREADS, WARPS, WHOLE, WORTH
from forebay.codec.dense.model import EVERY
from forebay.codec.dense.words import (
    chosen,
    count_of,
    counts_of,
    gathered,
    jit,
    lowest_of,
    other_than,
    reals_of,
    sums_before,
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
def bits_at(words: Any, at: int, count: Any) -> Any:
    """Return so many bits from one on, and read no word but those that have them."""
    found = words[at >> 5] >> np.uint32(at & 31)
    if (at & 31) + count > 32:
        found |= words[(at >> 5) + 1] << np.uint32(32 - (at & 31))
    return found & (EVERY >> np.uint32(32 - count))


@jit
def window_at(words: Any, at: int) -> Any:
    """Return the 32 bits from one on; after the last word follow any."""
    last = words.size - 1
    low, high = np.uint64(words[min(at >> 5, last)]), np.uint64(words[min((at >> 5) + 1, last)])
    return np.uint32((low | high << np.uint64(32)) >> np.uint64(at & 31))


@jit
def spread_groups(groups: Any, nibbles: Any, count: int) -> Any:
    """Return words of which some groups of four bits are not zero, and those one after the other."""
    ones, four, mask = fill(np.int32(1)), fill(np.int32(15)), fill(np.int32(0))
    for group in range(count):
        some = shift_down(groups, fill(np.int32(group))) & ones
        mask = mask | (nibbles & four & (fill(np.int32(0)) - some)) << fill(np.int32(4 * group))
        nibbles = shift_down(nibbles, some << fill(np.int32(2)))
    return mask


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
def symbol_of(code: Any) -> Any:
    """Return symbols of numbers from zero on."""
    return shift_down(code, fill(np.int32(1))) ^ (fill(np.int32(0)) - (code & fill(np.int32(1))))


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
def among(left: Any, whole: int, count: int) -> Any:
    """Undo what `without` did."""
    at = 0
    groups: Any = 0
    for group in range(count):
        if not whole >> group & 1:
            groups |= (np.int64(left) >> at & 1) << group
            at += 1
    return np.uint32(groups)


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


@jit
def measure(words: Any, odd: bool, rows: int, masks: Any) -> tuple[int, int, int, int, int, int]:
    """Read which symbols are not zero; `masks` has room for a word for each thread, and for a row.

    Returns
    -------
    tuple
        Exact values, the groups that are listed whole, symbols that are listed, the word and the bit after it from
        which the widths are told, and the words that symbols take in all, or -1 where they are damaged.
    """
    none = (0, 0, 0, 0, 0, -1)
    at, nibbles, flagged = 0, 0, 0
    exact: Any = 0
    whole: Any = 0
    if words.size < 1:
        return none
    if odd:
        exact, whole, at = np.int64(words[0] & np.uint32(0xFFFF)), np.int64(words[0] >> np.uint32(WHOLE)), 1
    told_groups = rows // 4 - count_of(np.uint32(whole))
    if exact > THREADS * rows or whole >> rows // 4 or (told_groups and at + HEAD > words.size):
        return none
    begin, listed = at + (HEAD if told_groups else 0), GROUP * (rows // 4 - told_groups)
    for warp in range(WARPS if told_groups else 0):
        flagged += count_of(words[at + warp])
    nibbles, groups, kept = told_groups * flagged, 0, (ONE << np.uint32(told_groups)) - ONE
    if begin + (nibbles + 31) // 32 > words.size:
        return none
    here = words[begin:]
    for k in range((nibbles + 31) // 32):
        groups += count_of(here[k] & (EVERY >> np.uint32(32 - min(32, nibbles - 32 * k))))
    if begin + (nibbles + 4 * groups + 31) // 32 > words.size:
        return none
    told: Any = np.int64(0)
    for warp in range(WARPS if told_groups else 0):
        flags, thread = words[at + warp], warp * LANES
        store(fill(np.int32(0)), masks, thread)
        while flags:
            lane = lowest_of(flags)
            flags &= flags - ONE
            some = window_at(here, told) & kept
            told += told_groups
            if whole:
                some = among(some, whole, rows // 4)
            masks[thread + lane] = np.int32(some)
            masks[THREADS + lane] = np.int32(window_at(here, nibbles))
            nibbles += 4 * count_of(some)
        mask = spread_groups(load(masks, thread), load(masks, THREADS), rows // 4)
        store(mask, masks, thread)
        listed += np.int64(sum_of(counts_of(mask)))
    chunks = (listed + LANES - 1) // LANES
    end = begin + (nibbles + 4 * chunks + 31) // 32
    if end > words.size:
        return none
    for chunk in range(chunks):
        width = np.int64(bits_at(here, nibbles + 4 * chunk, np.int64(4))) + 1
        end += (width * min(LANES, listed - chunk * LANES) + 31) // 32
    return exact, whole, listed, begin, nibbles, end if end <= words.size else -1


@jit
def unpack(words: Any, odd: bool, begins: Any, masks: Any, list_: Any, steps: Any) -> tuple[int, int]:
    """Read the symbols of a tile as numbers; return its exact values, and the words taken or -1 where it is damaged."""
    exact, whole, listed, begin, nibbles, end = measure(words, odd, begins.shape[1], masks)
    if end < 0:
        return 0, -1
    zeros, ones = fill(np.int32(0)), fill(np.int32(1))
    here, rows, chunks = words[begin:], begins.shape[1], (listed + LANES - 1) // LANES
    at, first = begin + (nibbles + 4 * chunks + 31) // 32, GROUP * count_of(np.uint32(whole))
    for chunk in range(chunks):
        width: Any = np.int64(bits_at(here, nibbles + 4 * chunk, np.int64(4))) + 1
        lanes = min(LANES, listed - chunk * LANES)
        code = zeros
        if lanes == LANES:
            for four in range(0, width, 4):
                for bit in range(four, four + 4):
                    word = words[min(at + bit, end - 1)] if bit < width else np.uint32(0)
                    code = code | chosen(word, fill(np.int32(1 << bit)), zeros)
        else:
            for bit in range(width):
                code = code | chosen(bits_at(words[at:], bit * lanes, lanes), fill(np.int32(1 << bit)), zeros)
        at += (width * lanes + 31) // 32
        if chunk * LANES >= first:
            code = code + ones
        store(reals_of(symbol_of(code), steps), list_, chunk * LANES)
    count: Any = 0
    for warp in range(WARPS if whole else 0):
        for number in range(rows):
            if whole >> number // 4 & 1:
                store(load(list_, count), steps, begins[warp, number])
                count += LANES
    nothing = reals_of(zeros, steps)
    for warp in range(WARPS if first < THREADS * rows else 0):
        mask = load(masks, warp * LANES)
        places = fill(np.int32(count)) + sums_before(counts_of(mask))
        count += np.int64(sum_of(counts_of(mask)))
        for number in range(rows):
            if whole >> number // 4 & 1:
                continue
            some = shift_down(mask, fill(np.int32(number))) & ones
            which = other_than(some, zeros)
            symbols = nothing
            if which:
                symbols = chosen(which, gathered(list_, places), nothing)
                places = places + some
            store(symbols, steps, begins[warp, number])
    return exact, end
