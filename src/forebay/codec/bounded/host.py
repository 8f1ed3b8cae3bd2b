"""`bounded` on the CPU: tiles shared among threads, each of which runs what Numba has compiled."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded import decoder, encoder
from forebay.codec.bounded.extremes import finite_range, tile_extremes
from forebay.codec.bounded.format import HEADER, LANES, NOTHING, Tiling, quanta, read_header, scaled
from forebay.codec.bounded.numbers import Narrow
from forebay.errors import EncodingError
from forebay.processors import processors

FEWEST_TILES = 64
"""Tiles below which a thread costs more than it gains."""
EXPONENTS = np.arange(NOTHING, 128, dtype=np.int8)
UNKNOWN = 2**32 - 1
"""Stands for the largest magnitude of a tile that was not looked for."""

T = TypeVar("T")
Share = tuple[int, int]
"""The first of a thread's tiles, and the one after the last."""


@dataclass(frozen=True)
class Asked:
    """What a caller wants of an encoding."""

    bound: float
    relative: bool
    narrow: Narrow | None = None
    """what decoded values are rounded to"""
    exponents: NDArray[np.int8] | None = None
    """of the weight in each tile"""


def layout(tiling: Tiling, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return rank, extents, tiles along each axis, the shift of the places, and the words of a tile's own step."""
    return tiling.rank, tiling.extents, tiling.counts, tiling.shift, tiling.weighted * tiling.itemsize // 4


@dataclass(frozen=True)
class TileCoder:
    """What is done to tiles, compiled by Numba."""

    encode: Callable[..., int] = encoder.encode_tiles
    decode: Callable[..., int] = decoder.decode_tiles
    reorder: Callable[..., int] = decoder.reorder
    layout: Callable[[Tiling, np.dtype[Any]], tuple[Any, ...]] = layout
    skips: bool = True
    """whether the largest magnitude of a tile tells that nothing of it stays"""


BOUNDED = TileCoder()


def encode(
    array: NDArray[Any], out: NDArray[np.uint8], tiling: Tiling, asked: Asked, threads: int, coder: TileCoder = BOUNDED
) -> int:
    """Encode a contiguous array of reals, its tiles in order, and return the bytes written."""
    flat = array.reshape(-1)
    direct = out.ctypes.data % 4 == 0 and out.flags.c_contiguous
    room = out if direct else np.empty(tiling.max_bytes, np.uint8)
    words = room[: tiling.max_bytes].view(np.uint32)
    places = words[HEADER.size // 4 :][: tiling.tiles]
    words[HEADER.size // 4 + tiling.tiles : tiling.start // 4] = 0
    span = extremes_of(flat, tiling, places, threads) if coder.skips else range_of(flat, tiling, threads)
    even = asked.exponents is None
    bound, step = quanta(array.dtype, asked.bound, span if asked.relative else None, asked.narrow, even)
    numbers = _encoding_numbers(array.dtype, bound, step)
    weighted = (asked.exponents, scaled(bound, step, EXPONENTS, array.dtype)) if not even else _even(array.dtype)
    about = coder.layout(tiling, array.dtype)

    def encode_share(share: Share) -> tuple[int, int]:
        begin = _first_word(share[0], tiling)
        return begin, coder.encode(flat, about, share, numbers, weighted, words, places, begin)

    shares = _shares(tiling, threads, tiling.tiles)
    end = tiling.start // 4
    for (first, last), (begin, after) in zip(shares, _each(encode_share, shares), strict=True):
        if begin != end:
            encoder.shift_left(words, begin, after, end, places[first:last], tiling.shift)
        end += after - begin
    words[: HEADER.size // 4] = np.frombuffer(tiling.header(4 * end, bound, step), np.uint32)
    if not direct:
        out[: 4 * end] = room[: 4 * end]
    return 4 * end


def decode(
    payload: NDArray[np.uint8], out: NDArray[Any], tiling: Tiling, threads: int, coder: TileCoder = BOUNDED
) -> None:
    """Decode into a contiguous array, refusing what is damaged."""
    words, end, step = _opened(payload, tiling)
    places = words[HEADER.size // 4 :][: tiling.tiles]
    numbers = _decoding_numbers(out.dtype, step)
    flat, about = out.reshape(-1), coder.layout(tiling, out.dtype)

    def decode_share(share: Share) -> int:
        return coder.decode(words, end, tiling.start // 4, about, share, numbers, places, flat)

    if damaged := sum(_each(decode_share, _shares(tiling, threads, tiling.tiles))):
        raise EncodingError(f"{damaged} of {tiling.tiles} tiles are damaged")


def canonical(payload: NDArray[np.uint8], tiling: Tiling, coder: TileCoder = BOUNDED) -> NDArray[np.uint8]:
    """Put the tiles of an encoding in order."""
    words, end, _ = _opened(payload, tiling)
    ordered = np.zeros(end, np.uint32)
    ordered[: tiling.start // 4] = words[: tiling.start // 4]
    places = ordered[HEADER.size // 4 :][: tiling.tiles]
    each = tiling.itemsize // 4
    about = coder.layout(tiling, np.dtype(f"f{tiling.itemsize}"))
    after = coder.reorder(words, end, tiling.start // 4, about, tiling.tiles, each, places, ordered)
    if after != end:
        raise EncodingError("the tiles of the encoding are damaged")
    return ordered.view(np.uint8)


def extremes_of(flat: NDArray[Any], tiling: Tiling, places: NDArray[np.uint32], threads: int) -> tuple[float, float]:
    """Return the smallest and the largest finite value, and leave the largest magnitude of each tile in `places`."""
    bits = flat.view(f"i{tiling.itemsize}")
    if tiling.extents[2] < LANES // 2:
        places[:] = UNKNOWN
        return finite_range(flat, bits)
    bands = tiling.tiles // tiling.counts[2] if tiling.rank > 1 else tiling.tiles
    shares = _shares(tiling, threads, bands)
    ends = np.array(
        _each(lambda share: tile_extremes(bits, layout(tiling, flat.dtype), share, places), shares), bits.dtype
    )
    unsigned = ends.view(f"u{tiling.itemsize}")
    top, bottom, least = ends[:, 0].max(), unsigned[:, 1].max(), unsigned[:, 2].min()
    high, low, near = np.array([top, *np.array([bottom, least]).view(bits.dtype)]).view(flat.dtype)
    high, low = high if top >= 0 else near, low if bottom >> (8 * tiling.itemsize - 1) else near
    if np.isfinite(high) and np.isfinite(low):
        return float(low), float(high)
    return finite_range(flat, bits)


def range_of(flat: NDArray[Any], tiling: Tiling, threads: int) -> tuple[float, float]:
    """Return the smallest and the largest finite value."""
    bits = flat.view(f"i{tiling.itemsize}")
    shares = _shares(tiling, threads, flat.size)
    ends = _each(lambda share: finite_range(flat[slice(*share)], bits[slice(*share)]), shares)
    return min(low for low, _ in ends), max(high for _, high in ends)


def _shares(tiling: Tiling, threads: int, count: int) -> list[Share]:
    """Share so many tiles, or rows of them, among threads."""
    parts = max(1, min(threads, tiling.tiles // FEWEST_TILES, count))
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def _each(call: Callable[[Share], T], shares: list[Share]) -> list[T]:
    # The caller's thread does its share: of as many threads as processors, none waits for one to become free.
    others = [_pool().submit(call, share) for share in shares[:-1]]
    last = call(shares[-1])
    return [*(other.result() for other in others), last]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processors(), thread_name_prefix="forebay-bounded")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads are not there


def _first_word(tile: int, tiling: Tiling) -> int:
    """Return where a tile may begin, were those before it all kept as they are."""
    unit = (1 << tiling.shift) // 4
    row, tx = divmod(tile, max(1, tiling.counts[2]))
    tz, ty = divmod(row, tiling.counts[1])
    (sz, sy, sx), (n2, n1, n0) = tiling.tile, tiling.extents
    before = tz * sz * n1 * n0 + min(sz, n2 - tz * sz) * (ty * sy * n0 + min(sy, n1 - ty * sy) * tx * sx)
    word = tiling.start // 4 + before * tiling.itemsize // 4 + tile * (unit - 1)
    return -(-word // unit) * unit


@cache
def _even(dtype: np.dtype[Any]) -> tuple[NDArray[np.int8], NDArray[Any]]:
    return np.zeros(0, np.int8), np.zeros((2, 0), dtype)


def _decoding_numbers(dtype: np.dtype[Any], step: float) -> tuple[Any, ...]:
    real = dtype.type
    if dtype.itemsize == 4:
        return real(step), real(1.5 * 2**23), np.int32(0x4B400000)
    return real(step), real(1.5 * 2**52), np.int32(0)


def _encoding_numbers(dtype: np.dtype[Any], bound: float, step: float) -> tuple[Any, ...]:
    step, *rest = _decoding_numbers(dtype, step)
    with np.errstate(all="ignore"):
        inverse = dtype.type(1) / step
    test = max(dtype.type(bound), np.finfo(dtype).smallest_subnormal)
    return step, inverse, test.view(f"i{dtype.itemsize}"), *rest


def _opened(payload: NDArray[np.uint8], tiling: Tiling) -> tuple[NDArray[np.uint32], int, float]:
    """Return the words of an encoding, how many they are, and its step."""
    size, step = read_header(payload, tiling)
    if size % 4:
        raise EncodingError(f"an encoding cannot have {size} bytes")
    whole = payload[:size]
    return (whole if whole.ctypes.data % 4 == 0 else whole.copy()).view(np.uint32), size // 4, step
