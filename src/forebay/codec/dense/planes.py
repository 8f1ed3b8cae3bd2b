"""Writing the symbols of a tile on the CPU as planes of bits, most of which are zero, and reading them again."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import any_of, fill, load, store, sum_of, width_of
from forebay.codec.bounded.tiles import jit
from forebay.codec.dense.format import DEEPEST, FLAGS, HEAD, LOWEST, ROWS, SECTIONS
from forebay.codec.dense.words import above, count_of


@jit
def put(words: Any, at: int, bits: Any, count: int) -> int:
    """Write up to 32 bits at a bit's place, into words that are zero there; return the place after them."""
    word, wide = at >> 5, np.uint64(bits) << np.uint64(at & 31)
    words[word] |= np.uint32(wide & np.uint64(0xFFFFFFFF))
    if (at & 31) + count > 32:
        words[word + 1] |= np.uint32(wide >> np.uint64(32))
    return at + count


@jit
def get(words: Any, at: int, count: int) -> Any:
    """Read up to 32 bits at a bit's place."""
    word = at >> 5
    wide = np.uint64(words[word])
    if (at & 31) + count > 32:
        wide |= np.uint64(words[word + 1]) << np.uint64(32)
    return np.uint32(wide >> np.uint64(at & 31) & ((np.uint64(1) << np.uint64(count)) - np.uint64(1)))


@jit
def gathered(bits: Any, among: Any) -> Any:
    """Move the bits at the places of `among` next to each other."""
    result, one, left = np.uint32(0), np.uint32(1), np.uint32(among)
    while left:
        rest = left & (left - np.uint32(1))
        if bits & (left ^ rest):
            result |= one
        one <<= np.uint32(1)
        left = rest
    return result


@jit
def scattered(bits: Any, among: Any) -> Any:
    """Undo `gathered`."""
    result, left = np.uint32(0), np.uint32(among)
    while left:
        rest = left & (left - np.uint32(1))
        if bits & np.uint32(1):
            result |= left ^ rest
        bits >>= np.uint32(1)
        left = rest
    return result


@jit
def groups(mask: Any) -> Any:
    """Flag the groups of four bits that are not zero."""
    some = mask | mask >> np.uint32(1)
    some = (some | some >> np.uint32(2)) & np.uint32(0x11111111)
    some = (some | some >> np.uint32(3)) & np.uint32(0x03030303)
    some = (some | some >> np.uint32(6)) & np.uint32(0x000F000F)
    return (some | some >> np.uint32(12)) & np.uint32(0xFF)


@jit
def members(flags: Any) -> Any:
    """Return the bits of the groups that are flagged."""
    some = (flags | flags << np.uint32(12)) & np.uint32(0x000F000F)
    some = (some | some << np.uint32(6)) & np.uint32(0x03030303)
    some = (some | some << np.uint32(3)) & np.uint32(0x11111111)
    return np.uint32(some * np.uint32(15))


@jit
def lowest_bits(symbols: Any, first: int, last: int) -> int:
    """Return how many of the lowest bits of the symbols in these rows are written as they are.

    The rest is counted, which takes least where it is about 1; but no more than up to the deepest plane.
    """
    total, every = np.int64(0), fill(np.int32(0))
    for row in range(first, last):
        symbol = load(symbols, row * LANES)
        sign = symbol >> fill(np.int32(31))
        magnitude = (symbol ^ sign) - sign
        total += np.int64(sum_of(magnitude))
        every = every | magnitude
    low: int = max(0, width_of(any_of(every)) - 4)
    while 4 * total > np.int64(5 * (last - first) * LANES) << low:
        low += 1
    return low


@jit
def pack(symbols: Any, words: Any, planes: Any, signs: Any, depths: Any) -> int:
    """Write the symbols of a tile from the first of `words` on, which are zero; return how many words they take."""
    at = 32 * HEAD
    planes[:] = 0
    for section in range(len(SECTIONS) - 1):
        low = lowest_bits(symbols, SECTIONS[section], SECTIONS[section + 1])
        half, depth = fill(np.int32((1 << low) >> 1)), 0
        for row in range(SECTIONS[section], SECTIONS[section + 1]):
            symbol = load(symbols, row * LANES) + half
            for bit in range(low):
                words[at >> 5] = above(symbol & fill(np.int32(1 << bit)), fill(np.int32(0)))
                at += 32
            rest = symbol >> fill(np.int32(low))
            sign = rest >> fill(np.int32(31))
            magnitude = (rest ^ sign) - sign
            signs[row] = above(fill(np.int32(0)), rest)
            plane, mask = 0, above(magnitude, fill(np.int32(0)))
            while mask:
                planes[plane, row] = mask
                plane += 1
                mask = above(magnitude, fill(np.int32(plane)))
            depth = max(depth, plane)
        words[1 + section // 3] |= np.uint32((low | depth << 5) << 10 * (section % 3))
        depths[SECTIONS[section] : SECTIONS[section + 1]] = depth
    for row in range(ROWS):
        if planes[0, row]:
            words[FLAGS + row // 32] |= np.uint32(1) << np.uint32(row % 32)
            at = put(words, at, groups(planes[0, row]), 8)
    for row in range(ROWS):
        if planes[0, row]:
            some = members(groups(planes[0, row]))
            at = put(words, at, gathered(planes[0, row], some), count_of(some))
    for row in range(ROWS):
        if planes[0, row]:
            at = put(words, at, gathered(signs[row], planes[0, row]), count_of(planes[0, row]))
    for plane in range(1, depths.max()):
        for row in range(ROWS):
            if plane < depths[row] and planes[0, row]:
                before = planes[plane - 1, row]
                at = put(words, at, gathered(planes[plane, row], before), count_of(before))
    return (at + 31) >> 5


@jit
def unpack(words: Any, symbols: Any, lanes: Any, planes: Any, signs: Any, depths: Any) -> int:
    """Read the symbols of a tile; return how many words they took, or -1 where they are damaged."""
    end: int = 32 * words.size
    at: Any = 32 * HEAD
    if at > end:
        return -1
    lows: Any = 0
    for section in range(len(SECTIONS) - 1):
        field = words[1 + section // 3] >> np.uint32(10 * (section % 3)) & np.uint32(1023)
        low, depth = np.int64(field & np.uint32(31)), np.int64(field >> np.uint32(5))
        if low > LOWEST or depth > DEEPEST:
            return -1
        lows += low * (SECTIONS[section + 1] - SECTIONS[section])
        depths[SECTIONS[section] : SECTIONS[section + 1]] = depth
    at += 32 * lows
    total: Any = 0
    for row in range(ROWS):
        total += 8 * np.int64(words[FLAGS + row // 32] >> np.uint32(row % 32) & np.uint32(1))
    if at + total > end:
        return -1
    total = 0
    for row in range(ROWS):
        planes[0, row] = 0
        if words[FLAGS + row // 32] >> np.uint32(row % 32) & np.uint32(1):
            planes[0, row] = members(get(words, at, 8))
            total += count_of(planes[0, row])
            at += 8
    if at + total > end:
        return -1
    total = 0
    for row in range(ROWS):
        some = planes[0, row]
        if some:
            planes[0, row] = scattered(get(words, at, count_of(some)), some)
            at += count_of(some)
            total += count_of(planes[0, row])
    if at + total > end:
        return -1
    deepest = 0
    for row in range(ROWS):
        signs[row] = scattered(get(words, at, count_of(planes[0, row])), planes[0, row]) if planes[0, row] else 0
        at += count_of(planes[0, row])
        deepest = max(deepest, depths[row])
    for plane in range(1, deepest):
        total = 0
        for row in range(ROWS):
            total += count_of(planes[plane - 1, row]) if plane < depths[row] else 0
        if at + total > end:
            return -1
        for row in range(ROWS):
            before, planes[plane, row] = planes[plane - 1, row], 0
            if plane < depths[row] and before:
                planes[plane, row] = scattered(get(words, at, count_of(before)), before)
                at += count_of(before)
    join(words, symbols, lanes, planes, signs, depths)
    return (at + 31) >> 5  # type: ignore[no-any-return]


@jit
def join(words: Any, symbols: Any, lanes: Any, planes: Any, signs: Any, depths: Any) -> None:
    """Put symbols together from their planes."""
    at, index, one = HEAD, load(lanes, 0), fill(np.int32(1))
    for section in range(len(SECTIONS) - 1):
        low = np.int64(words[1 + section // 3] >> np.uint32(10 * (section % 3)) & np.uint32(31))
        half = fill(np.int32((1 << low) >> 1))
        for row in range(SECTIONS[section], SECTIONS[section + 1]):
            rest = fill(np.int32(0))
            for plane in range(depths[row]):
                if planes[plane, row] == 0:
                    break
                rest = rest + (fill(np.int32(planes[plane, row])) >> index & one)
            sign = fill(np.int32(0)) - (fill(np.int32(signs[row])) >> index & one)
            rest = (rest ^ sign) - sign
            symbol = rest << fill(np.int32(low))
            for bit in range(low):
                symbol = symbol + ((fill(np.int32(words[at])) >> index & one) << fill(np.int32(bit)))
                at += 1
            store(symbol - half, symbols, row * LANES)
