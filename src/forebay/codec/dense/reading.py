"""Reading the symbols of a tile on the CPU: which are not zero, and planes of bits of those.

Of symbols that are not zero, the points are listed: each is then written to where it belongs, and nothing else is.
"""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import fill, shift_down, store
from forebay.codec.dense.format import GROUP, HEAD, THREADS, WARPS, WHOLE
from forebay.codec.dense.model import EVERY
from forebay.codec.dense.planes import FOUR, ONE
from forebay.codec.dense.words import (
    chosen,
    count_of,
    inlined,
    jit,
    listed_4,
    listed_8,
    lowest_of,
    reals_of,
    widened,
)


@jit
def bits_at(words: Any, at: int, count: Any) -> Any:
    """Return so many bits from one on, and read no word but those that have them."""
    found = words[at >> 5] >> np.uint32(at & 31)
    if (at & 31) + count > 32:
        found |= words[(at >> 5) + 1] << np.uint32(32 - (at & 31))
    return found & (EVERY >> np.uint32(32 - count))


@jit
def window_at(words: Any, at: int) -> Any:
    """Return the 32 bits from one on."""
    low, high = np.uint64(words[at >> 5]), np.uint64(words[(at >> 5) + 1])
    return np.uint32((low | high << np.uint64(32)) >> np.uint64(at & 31))


@jit
def symbol_of(code: Any) -> Any:
    """Return symbols of numbers from zero on."""
    return shift_down(code, fill(np.int32(1))) ^ (fill(np.int32(0)) - (code & fill(np.int32(1))))


@jit
def measure(words: Any, odd: bool, begins: Any, lists: Any, desk: Any) -> tuple[int, int, int, int, int, int]:
    """Read which symbols are not zero, and leave their points in `desk.spots`, after as many as are listed whole.

    Returns
    -------
    tuple
        Exact values, the groups that are listed whole, symbols that are listed, the word and the bit after it from
        which the widths are told, and the words that symbols take in all, or -1 where they are damaged.
    """
    none = (0, 0, 0, 0, 0, -1)
    at, flagged, some, rows = 0, 0, 0, begins.shape[1]
    exact: Any = 0
    whole: Any = 0
    if words.size < 1:
        return none
    if odd:
        exact, whole, at = np.int64(words[0] & np.uint32(0xFFFF)), np.int64(words[0] >> np.uint32(WHOLE)), 1
    told_groups = rows // 4 - count_of(np.uint32(whole))
    if exact > THREADS * rows or whole >> rows // 4 or (told_groups and at + HEAD > words.size):
        return none
    begin = at + (HEAD if told_groups else 0)
    for warp in range(WARPS if told_groups else 0):
        flagged += count_of(words[at + warp])
    nibbles = told_groups * flagged
    if begin + (nibbles + 31) // 32 > words.size:
        return none
    here = words[begin:]
    for k in range((nibbles + 31) // 32):
        some += count_of(here[k] & (EVERY >> np.uint32(32 - min(32, nibbles - 32 * k))))
    told = (nibbles + 4 * some + 31) // 32
    if begin + told > words.size:
        return none
    for k in range(told):
        desk.words[k] = here[k]  # after which others may be read
    list_groups(words[at:], desk.words, begins, whole, told_groups, lists, desk.groups)
    listed: Any = GROUP * (rows // 4 - told_groups)
    listed = list_spots(desk.words, nibbles, some, lists, desk.groups, desk.spots, listed)
    nibbles += 4 * some
    chunks = (listed + LANES - 1) // LANES
    end = begin + (nibbles + 4 * chunks + 31) // 32
    if end > words.size:
        return none
    full = listed // LANES
    for chunk in range(0, full, 8):
        count = min(8, full - chunk)
        end += count + sum_of_fours(bits_at(here, nibbles + 4 * chunk, 4 * count))
    if chunks > full:
        width = np.int64(bits_at(here, nibbles + 4 * full, np.int64(4))) + 1
        end += (width * (listed - full * LANES) + 31) // 32
    return exact, whole, listed, begin, nibbles, end if end <= words.size else -1


@jit
def sum_of_fours(word: Any) -> int:
    """Sum up the eight numbers of four bits in a word."""
    pairs = (word & np.uint32(0x0F0F0F0F)) + (word >> np.uint32(4) & np.uint32(0x0F0F0F0F))
    pairs += pairs >> np.uint32(16)
    return np.int64(pairs + (pairs >> np.uint32(8)) & np.uint32(255))  # type: ignore[return-value]


@jit
def list_groups(flagged: Any, here: Any, begins: Any, whole: int, told: int, lists: Any, groups: Any) -> None:
    """List where the groups of threads begin that have symbols other than zero and are not listed whole."""
    count: Any = np.int64(0)
    bit: Any = np.int64(0)
    kept = (ONE << np.uint32(told)) - ONE
    for warp in range(WARPS if told else 0):
        flags, first = flagged[warp], begins[warp, 0]
        while flags:
            lane = lowest_of(flags)
            flags &= flags - ONE
            some = window_at(here, bit) & kept
            bit += told
            others = np.uint32(whole)
            while others:  # make room for the bit of a group that is listed whole
                above = EVERY << np.uint32(lowest_of(others))
                some += some & above
                others &= others - ONE
            store(listed_8(lists, np.int64(some) * 8, np.int32(first + lane)), groups, count)
            count += count_of(some)


@jit
def list_spots(here: Any, at: int, count: int, lists: Any, groups: Any, spots: Any, listed: int) -> int:
    """List the points of symbols after so many, from a bit on that tells of groups; return how many there are then."""
    last: Any = np.int64(listed)
    fours = lists.size - 64
    for group in range(0, count, 8):
        bits = window_at(here, at + 4 * group)
        if count - group < 8:
            bits &= (ONE << np.uint32(4 * (count - group))) - ONE
        for k in range(group, group + 8):
            four = bits & FOUR
            bits >>= np.uint32(4)
            store(listed_4(lists, fours + np.int64(four) * 4, np.int32(groups[k])), spots, last)
            last += count_of(four)
    return np.int64(last)  # type: ignore[return-value]


@jit
def planes_of(words: Any, at: int, count: int) -> Any:
    """Return numbers of at most 8 bits of which each word has one bit, the lowest first."""
    numbers = nothing = fill(np.uint8(0))
    for bit in range(count):
        numbers = numbers | chosen(words[at + bit], fill(np.uint8(1 << bit)), nothing)
    return numbers


@inlined
def symbols_at(words: Any, at: int, width: int, lanes: Any, more: Any) -> Any:
    """Return the symbols of a chunk that begins with a word, of which so many are listed, each some more than told."""
    if lanes == LANES:
        code = widened(planes_of(words, at, min(width, 8)))
        if width > 8:
            code = code | widened(planes_of(words, at + 8, width - 8)) << fill(np.int32(8))
    else:
        code = fill(np.int32(0))
        for bit in range(width):
            code = code | chosen(bits_at(words[at:], bit * lanes, lanes), fill(np.int32(1 << bit)), fill(np.int32(0)))
    return symbol_of(code + more)


@jit
def unpack(words: Any, odd: bool, begins: Any, lists: Any, desk: Any) -> tuple[int, int]:
    """Read the symbols of a tile as numbers; return its exact values, and the words taken or -1 where it is damaged."""
    exact, whole, listed, begin, nibbles, end = measure(words, odd, begins, lists, desk)
    if end < 0:
        return 0, -1
    steps, spots, list_ = desk.steps, desk.spots, desk.listed
    here, rows, chunks, chunk = words[begin:], begins.shape[1], (listed + LANES - 1) // LANES, 0
    at, zeros, nothing = begin + (nibbles + 4 * chunks + 31) // 32, fill(np.int32(0)), fill(steps.dtype.type(0))
    width: Any = np.int64(0)
    for warp in range(WARPS):
        for number in range(rows):
            if whole >> number // 4 & 1:
                width = np.int64(bits_at(here, nibbles + 4 * chunk, np.int64(4))) + 1
                symbols = symbols_at(words, at, width, np.int64(LANES), zeros)
                store(reals_of(symbols, steps), steps, begins[warp, number])
                at, chunk = at + width, chunk + 1
            else:
                store(nothing, steps, begins[warp, number])
    first = chunk * LANES
    for rest in range(chunk, chunks):
        width, lanes = np.int64(bits_at(here, nibbles + 4 * rest, np.int64(4))) + 1, min(LANES, listed - rest * LANES)
        symbols = symbols_at(words, at, width, lanes, fill(np.int32(1)))
        store(reals_of(symbols, steps), list_, rest * LANES)
        at += (width * lanes + 31) // 32
    for k in range(first, listed):
        steps[spots[k]] = list_[k]
    return exact, end
