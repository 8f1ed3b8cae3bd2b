"""`dense` on the CPU: the grids of an array one after the other, their tiles shared among threads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import HEADER
from forebay.codec.bounded.host import (
    Asked,
    Room,
    Share,
    each_share,
    join,
    opened,
    places_of,
    quanta_of,
    range_of,
    scales_of,
    shares_of,
)
from forebay.codec.dense import coder
from forebay.codec.dense.format import TOPS, DenseTiling, Floor, Geometry, geometry
from forebay.errors import EncodingError


def encode(array: NDArray[Any], out: NDArray[np.uint8], tiling: DenseTiling, asked: Asked, threads: int) -> int:
    """Encode a contiguous array of reals, its tiles in order, and return the bytes written."""
    dtype, flat, room = array.dtype, array.reshape(-1), Room.within(out, tiling)
    words, places = room.words, room.places
    bound, step = quanta_of(asked, dtype, range_of(flat, tiling, threads))
    weighted = scales_of(asked, bound, step, dtype)
    made, end = _tables(geometry(tiling.rank, dtype)), tiling.start // 4
    above = flat.reshape(tiling.extents)[(slice(None, None, TOPS[tiling.rank]),) * 3].flatten()
    _anchors(words, tiling, dtype)[:] = above
    for level in tiling.levels:
        known = np.empty(np.prod(level.extents) if level.stride > 1 else 0, dtype)
        begins, numbers = _first_words(level, tiling, end, threads), _numbers(dtype, bound, step * level.fine)
        given = (flat, above, known, _layout(tiling), _level(level), made)
        finer = (weighted[0], (weighted[1] * np.array([[1.0], [level.fine]])).astype(dtype))

        def encode_share(share: Share, given: Any = given, begins: Any = begins, how: Any = (numbers, finer)) -> Share:
            begin = begins[share[0]]
            return begin, coder.encode_tiles(*given, share, *how, words, places, begin)  # type: ignore[call-arg]

        shares = shares_of(level.tiles, threads, level.tiles)
        end = join(words, end, places[level.first :], shares, each_share(encode_share, shares), tiling.shift)
        above = known
    return room.close(end, bound, step)


def decode(payload: NDArray[np.uint8], out: NDArray[Any], tiling: DenseTiling, threads: int) -> None:
    """Decode into a contiguous array, refusing what is damaged."""
    words, end, step = opened(payload, tiling)
    places, made, damaged = places_of(words, tiling), _tables(geometry(tiling.rank, out.dtype)), 0
    above = _anchors(words, tiling, out.dtype)
    for level in tiling.levels:
        known = np.empty(np.prod(level.extents), out.dtype) if level.stride > 1 else out.reshape(-1)

        given = (words, end, tiling.start // 4, above, known, _layout(tiling), _level(level), made)

        fine = out.dtype.type(step * level.fine)

        def decode_share(share: Share, given: Any = given, fine: Any = fine) -> int:
            return coder.decode_tiles(*given, share, fine, places)  # type: ignore[call-arg]

        damaged += sum(each_share(decode_share, shares_of(level.tiles, threads, level.tiles)))
        above = known
    if damaged:
        raise EncodingError(f"{damaged} of {tiling.tiles} tiles are damaged")


def canonical(payload: NDArray[np.uint8], tiling: DenseTiling) -> NDArray[np.uint8]:
    """Put the tiles of an encoding in order."""
    words, end, _ = opened(payload, tiling)
    ordered = np.zeros(end, np.uint32)
    told, kept = (HEADER.size + 4 * tiling.tiles) // 4, tiling.anchors[0] // 4
    ordered[:told], ordered[kept : tiling.start // 4] = words[:told], words[kept : tiling.start // 4]
    places, to, each = places_of(ordered, tiling), tiling.start // 4, tiling.itemsize // 4
    for level in tiling.levels:
        if to >= 0:
            to = coder.reorder(words, end, _layout(tiling), _level(level), each, places, ordered, to)
    if to != end:
        raise EncodingError("the tiles of the encoding are damaged")
    return ordered.view(np.uint8)


def _layout(tiling: DenseTiling) -> tuple[Any, ...]:
    return tiling.rank, tiling.extents, tiling.shift, tiling.weighted * tiling.itemsize // 4


def _level(level: Floor) -> tuple[Any, ...]:
    return level.stride, level.extents, level.counts, level.first


def _tables(made: Geometry) -> tuple[NDArray[Any], ...]:
    return made.down, made.across, made.shares


def _anchors(words: NDArray[np.uint32], tiling: DenseTiling, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the points that are kept as they are."""
    at, count = tiling.anchors
    return words.view(np.uint8)[at : at + count * dtype.itemsize].view(dtype)


def _first_words(level: Floor, tiling: DenseTiling, end: int, threads: int) -> dict[int, int]:
    """Return where the first tile of each share may begin, were those before it all kept as they are."""
    unit, shares = (1 << tiling.shift) // 4, shares_of(level.tiles, threads, level.tiles)
    if len(shares) == 1:
        return {0: end}
    fresh = level.fresh_before(tiling.rank)
    begins = {}
    for first, _ in shares:
        word = end + int(fresh[first]) * tiling.itemsize // 4 + first * (unit - 1)
        begins[first] = -(-word // unit) * unit
    return begins


def _numbers(dtype: np.dtype[Any], bound: float, step: float) -> tuple[Any, ...]:
    """Return step, its inverse, bound, the number that leaves integers, what 0 becomes, and the smallest number."""
    real = dtype.type
    with np.errstate(all="ignore"):
        inverse = real(1) / real(step)
    tiny = np.finfo(dtype).smallest_subnormal
    magic, zero = (1.5 * 2**23, 0x4B400000) if dtype.itemsize == 4 else (1.5 * 2**52, 0)
    return real(step), inverse, max(real(bound), tiny), real(magic), np.int32(zero), tiny
