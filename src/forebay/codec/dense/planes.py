"""Writing the symbols of a tile on the CPU: which are not zero, and planes of bits of those, and reading them again."""

from typing import Any

import numpy as np

from forebay.codec.bounded.format import LANES
from forebay.codec.bounded.rows import any_of, fill, load, store, width_of
from forebay.codec.bounded.tiles import jit
from forebay.codec.dense.format import HEAD, WARPS
from forebay.codec.dense.words import chosen, count_of, load_some, other_than, reals_of, store_some

ONE = np.uint32(1)
EVERY = np.uint32(0xFFFFFFFF)
PLAIN = np.uint32(1 << 31)
"""In the last word of the head: zeros are symbols as others are."""


@jit
def row_of(warp: int, turn: int, rank: int) -> int:
    """Return the row of cells that a warp has at a turn."""
    if rank == 3:
        return (warp // 2 * 4 + turn) * 2 + warp % 2
    return warp * (8 if rank == 2 else 16) + turn


@jit
def pack(symbols: Any, rank: int, words: Any, packed: Any, codes: Any, few: Any) -> int:
    """Write the symbols of a tile from the first of `words` on; return how many words they take.

    Parameters
    ----------
    packed
        Room for bytes: the flags of rows, which come before their masks and the widths, and from 64 on the masks.
    codes, few
        Room for all symbols; and for those of rows that are mostly zero, which come last.
    """
    cells, kinds, turns = 4096 >> rank, (1 << rank) - 1, 4 if rank == 3 else 8 if rank == 2 else 16
    zeros, count, fewer, flagged, filled = fill(np.int32(0)), 0, 0, 0, 64
    packed[:64] = 0
    for warp in range(WARPS):
        rows = np.uint32(0)
        for number in range(kinds * turns):
            at = (number // turns + 1) * cells + row_of(warp, number % turns, rank) * LANES
            symbol = load(symbols, at)
            mask = other_than(symbol, zeros)
            if mask == 0:
                continue
            sign = symbol >> fill(np.int32(31))
            magnitude = (symbol ^ sign) - sign
            code = magnitude + magnitude + sign
            rows |= ONE << np.uint32(number)
            blanks = LANES - count_of(mask)
            if blanks <= 12 and blanks * width_of(any_of(code)) < LANES:  # zeros take less than telling of them
                store(code, codes, count)
                count += LANES
                flagged += 1
                continue
            store_some(code - fill(np.int32(1)), mask, few, fewer)
            fewer += count_of(mask)
            some = 0
            for byte in range(4):
                part = mask >> np.uint32(8 * byte) & np.uint32(255)
                packed[filled] = part
                filled += part != 0
                some |= (part != 0) << byte
            packed[flagged // 2] |= some << 4 * (flagged % 2)
            flagged += 1
        words[warp] = rows
    codes[count : count + fewer] = few[:fewer]
    count += fewer
    if 8 * count >= 7 * (4096 - cells):
        count, flagged, filled = 0, 0, 64
        for warp in range(WARPS):
            words[warp] = PLAIN if warp == WARPS - 1 else np.uint32(0)
            for number in range(kinds * turns):
                symbol = load(symbols, (number // turns + 1) * cells + row_of(warp, number % turns, rank) * LANES)
                sign = symbol >> fill(np.int32(31))
                magnitude = (symbol ^ sign) - sign
                store(magnitude + magnitude + sign, codes, count)
                count += LANES
    return write_chunks(codes, count, packed, (flagged + 1) // 2, filled, words)


@jit
def write_chunks(codes: Any, count: int, packed: Any, begin: int, filled: int, words: Any) -> int:
    """Write bytes, and the codes of symbols 32 at a time."""
    store(fill(np.int32(0)), codes, count)
    size = begin + filled - 64
    chunks = (count + LANES - 1) // LANES
    used = HEAD + (2 * size + chunks + 7) // 8
    for k in range(64, filled):
        packed[begin + k - 64] = packed[k]
    packed[size : 4 * (used - HEAD)] = 0
    words[HEAD:used] = packed.view(np.uint32)[: used - HEAD]
    for chunk in range(chunks):
        code = load(codes, chunk * LANES)
        width = max(1, width_of(any_of(code)))
        nibble = 2 * size + chunk
        words[HEAD + nibble // 8] |= np.uint32(width - 1) << np.uint32(4 * (nibble % 8))
        lanes = min(LANES, count - chunk * LANES)
        if lanes < LANES:
            for k in range((width * lanes + 31) // 32):
                words[used + k] = 0
        for bit in range(width):
            plane = other_than(code & fill(np.int32(1 << bit)), fill(np.int32(0)))
            if lanes == LANES:
                words[used + bit] = plane
                continue
            at = bit * lanes
            words[used + at // 32] |= plane << np.uint32(at % 32)
            if at % 32 + lanes > 32:
                words[used + at // 32 + 1] |= plane >> np.uint32(32 - at % 32)
        used += (width * lanes + 31) // 32
    return used


@jit
def exact_of(words: Any) -> int:
    """Return how many exact values a head tells of."""
    count: Any = 0
    for warp in range(WARPS):
        count |= np.int64(words[warp] >> np.uint32(28)) << 4 * warp
    return count & 0x7FFF  # type: ignore[no-any-return]


@jit
def byte_of(words: Any, k: int) -> int:
    """Return a byte after the head of a tile."""
    return np.int64(words[HEAD + k // 4] >> np.uint32(8 * (k % 4)) & np.uint32(255))  # type: ignore[return-value]


@jit
def measure(words: Any, rank: int, masks: Any) -> tuple[int, int, int, int]:
    """Read which symbols are not zero; return how many, their nibbles' place, where planes begin, and the end or -1."""
    rows_of_warp = ((1 << rank) - 1) * (4 if rank == 3 else 8 if rank == 2 else 16)
    flagged = 0
    if words.size < HEAD:
        return 0, 0, 0, -1
    plain = words[WARPS - 1] & PLAIN != 0
    for warp in range(0 if plain else WARPS):
        flagged += count_of(words[warp] & np.uint32((1 << rows_of_warp) - 1))
    begin = (flagged + 1) // 2
    if HEAD + (begin + 3) // 4 > words.size:
        return 0, 0, 0, -1
    size: Any = begin
    for row in range(flagged):
        some = byte_of(words, row // 2) >> 4 * (row % 2) & 15
        size += count_of(np.uint32(some))
    if HEAD + (size + 3) // 4 > words.size:
        return 0, 0, 0, -1
    count: Any = 0
    at, row = begin, 0
    for warp in range(WARPS):
        for number in range(rows_of_warp):
            mask = 0xFFFFFFFF if plain else 0
            if not plain and words[warp] >> np.uint32(number) & ONE:
                some = byte_of(words, row // 2) >> 4 * (row % 2) & 15
                row += 1
                mask = 0 if some else 0xFFFFFFFF
                for byte in range(4):
                    if some >> byte & 1:
                        mask |= byte_of(words, at) << 8 * byte
                        at += 1
            masks[warp, number] = mask
            count += count_of(np.uint32(mask))
    chunks = (count + LANES - 1) // LANES
    planes = HEAD + (2 * size + chunks + 7) // 8
    if planes > words.size:
        return 0, 0, 0, -1
    end = planes
    for chunk in range(chunks):
        nibble = 2 * size + chunk
        width = (byte_of(words, nibble // 2) >> 4 * (nibble % 2) & 15) + 1
        end += (width * min(LANES, count - chunk * LANES) + 31) // 32
    return count, 2 * size, planes, end if end <= words.size else -1


@jit
def unpack(words: Any, rank: int, masks: Any, codes: Any, steps: Any) -> int:
    """Read the symbols of a tile as numbers; return how many words they took, or -1 where they are damaged."""
    count, nibbles, at, end = measure(words, rank, masks)
    if end < 0:
        return -1
    zeros, ones = fill(np.int32(0)), fill(np.int32(1))
    for chunk in range((count + LANES - 1) // LANES):
        nibble, lanes, code = nibbles + chunk, min(LANES, count - chunk * LANES), zeros
        width = (byte_of(words, nibble // 2) >> 4 * (nibble % 2) & 15) + 1
        for bit in range(width):
            place = at + bit if lanes == LANES else at + bit * lanes // 32
            plane = words[place]
            if lanes < LANES:
                plane >>= np.uint32(bit * lanes % 32)
                if bit * lanes % 32 + lanes > 32:
                    plane |= words[place + 1] << np.uint32(32 - bit * lanes % 32)
            code = code | chosen(plane, fill(np.int32(1 << bit)), zeros)
        at += (width * lanes + 31) // 32
        store(code, codes, chunk * LANES)
    cells, turns = 4096 >> rank, 4 if rank == 3 else 8 if rank == 2 else 16
    whole, few = 0, 0
    for warp in range(WARPS):
        for number in range(((1 << rank) - 1) * turns):
            few += LANES if masks[warp, number] == EVERY else 0
    for warp in range(WARPS):
        for number in range(((1 << rank) - 1) * turns):
            to = (number // turns + 1) * cells + row_of(warp, number % turns, rank) * LANES
            mask = masks[warp, number]
            if mask == 0:
                store(reals_of(zeros, steps), steps, to)
                continue
            code = load_some(mask, codes, whole if mask == EVERY else few) + fill(np.int32(mask != EVERY))
            symbol = (((code + ones) >> ones) ^ (zeros - (code & ones))) + (code & ones)
            store(reals_of(chosen(mask, symbol, zeros), steps), steps, to)
            if mask == EVERY:
                whole += LANES
            else:
                few += count_of(mask)
    return end
