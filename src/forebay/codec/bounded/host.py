"""`bounded` on the CPU: tiles shared among threads, each of which runs what Numba has compiled."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded import decoder, encoder
from forebay.codec.bounded.extremes import finite_range, tile_extremes
from forebay.codec.bounded.format import HEADER, LANES, NOTHING, Tiling, quanta, read_header, scaled
from forebay.codec.bounded.numbers import Narrow
from forebay.codec.compiled import read_only
from forebay.errors import EncodingError
from forebay.processors import processors
from forebay.tasks import Workers

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


def layout(tiling: Tiling) -> tuple[Any, ...]:
    """Return rank, extents, tiles along each axis, the shift of the places, and the words of a tile's own step."""
    return tiling.rank, tiling.extents, tiling.counts, tiling.shift, tiling.weighted * tiling.itemsize // 4


@dataclass(frozen=True)
class Room:
    """Where an encoding is written: into the caller's memory, or beside it where that has no words."""

    out: NDArray[np.uint8]
    words: NDArray[np.uint32]
    tiling: Tiling

    @classmethod
    def within(cls, out: NDArray[np.uint8], tiling: Tiling) -> "Room":
        """Take room for an encoding, with zeros between the places of tiles and the first of them."""
        direct = out.ctypes.data % 4 == 0 and out.flags.c_contiguous
        room = out if direct else np.empty(tiling.max_bytes, np.uint8)
        words = room[: tiling.max_bytes].view(np.uint32)
        words[HEADER.size // 4 + tiling.tiles : tiling.start // 4] = 0
        return cls(out, words, tiling)

    @property
    def places(self) -> NDArray[np.uint32]:
        """The places of tiles."""
        return places_of(self.words, self.tiling)

    def close(self, end: int, bound: float, step: float) -> int:
        """Write the header of an encoding of so many words, and return its bytes."""
        self.words[: HEADER.size // 4] = np.frombuffer(self.tiling.header(4 * end, bound, step), np.uint32)
        if self.words.ctypes.data != self.out.ctypes.data:
            self.out[: 4 * end] = self.words[:end].view(np.uint8)
        return 4 * end


def places_of(words: NDArray[np.uint32], tiling: Tiling) -> NDArray[np.uint32]:
    """Return the places of tiles in an encoding."""
    return words[HEADER.size // 4 :][: tiling.tiles]


def encode(array: NDArray[Any], out: NDArray[np.uint8], tiling: Tiling, asked: Asked, threads: int) -> int:
    """Encode a contiguous array of reals, its tiles in order, and return the bytes written."""
    flat, room = read_only(array.reshape(-1)), Room.within(out, tiling)
    words, places = room.words, room.places
    bound, step = quanta_of(asked, array.dtype, extremes_of(flat, tiling, places, threads))
    numbers, weighted = _encoding_numbers(array.dtype, bound, step), scales_of(asked, bound, step, array.dtype)

    def encode_share(share: Share) -> tuple[int, int]:
        begin = _first_word(share[0], tiling)
        return begin, encoder.encode_tiles(flat, layout(tiling), share, numbers, weighted, words, places, begin)

    shares = shares_of(tiling.tiles, threads, tiling.tiles)
    end = join(words, tiling.start // 4, places, shares, each_share(encode_share, shares), tiling.shift)
    return room.close(end, bound, step)


def quanta_of(asked: Asked, dtype: np.dtype[Any], span: tuple[float, float]) -> tuple[float, float]:
    """Return bound and step for an array of some range."""
    return quanta(dtype, asked.bound, span if asked.relative else None, asked.narrow, asked.exponents is None)


def scales_of(asked: Asked, bound: float, step: float, dtype: np.dtype[Any]) -> tuple[NDArray[np.int8], NDArray[Any]]:
    """Return the exponents of tiles, and bound and step for each exponent; nothing where the bound is even."""
    return _even(dtype) if asked.exponents is None else (asked.exponents, scaled(bound, step, EXPONENTS, dtype))


def join(
    words: NDArray[np.uint32],
    end: int,
    places: NDArray[np.uint32],
    shares: list[Share],
    written: list[tuple[int, int]],
    shift: int,
) -> int:
    """Move what threads wrote next to each other, from a word on; return the word after the last."""
    for (first, last), (begin, after) in zip(shares, written, strict=True):
        if begin != end:
            encoder.shift_left(words, begin, after, end, places[first:last], shift)
        end += after - begin
    return end


def decode(payload: NDArray[np.uint8], out: NDArray[Any], tiling: Tiling, threads: int) -> None:
    """Decode into a contiguous array, refusing what is damaged."""
    words, end, step = opened(payload, tiling)
    places, numbers, flat = places_of(words, tiling), _decoding_numbers(out.dtype, step), out.reshape(-1)

    def decode_share(share: Share) -> int:
        start = tiling.start // 4
        return decoder.decode_tiles(words, end, start, layout(tiling), share, numbers, places, flat)

    if damaged := sum(each_share(decode_share, shares_of(tiling.tiles, threads, tiling.tiles))):
        raise EncodingError(f"{damaged} of {tiling.tiles} tiles are damaged")


def canonical(payload: NDArray[np.uint8], tiling: Tiling) -> NDArray[np.uint8]:
    """Put the tiles of an encoding in order."""
    words, end, _ = opened(payload, tiling)
    ordered = np.zeros(end, np.uint32)
    ordered[: tiling.start // 4] = words[: tiling.start // 4]
    about, each = (tiling.start // 4, layout(tiling), tiling.tiles), tiling.itemsize // 4
    if decoder.reorder(words, end, *about, each, places_of(ordered, tiling), ordered) != end:
        raise EncodingError("the tiles of the encoding are damaged")
    return ordered.view(np.uint8)


def extremes_of(flat: NDArray[Any], tiling: Tiling, places: NDArray[np.uint32], threads: int) -> tuple[float, float]:
    """Return the smallest and the largest finite value, and leave the largest magnitude of each tile in `places`."""
    bits = flat.view(f"i{tiling.itemsize}")
    if tiling.extents[2] < LANES // 2:
        places[:] = UNKNOWN
        return finite_range(flat, bits)
    bands = tiling.tiles // tiling.counts[2] if tiling.rank > 1 else tiling.tiles
    shares = shares_of(tiling.tiles, threads, bands)
    ends = np.array(each_share(lambda share: tile_extremes(bits, layout(tiling), share, places), shares), bits.dtype)
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
    shares = shares_of(tiling.tiles, threads, flat.size)
    ends = each_share(lambda share: finite_range(flat[slice(*share)], bits[slice(*share)]), shares)
    return min(low for low, _ in ends), max(high for _, high in ends)


def shares_of(tiles: int, threads: int, count: int) -> list[Share]:
    """Share so many tiles, or rows of them, among threads."""
    parts = max(1, min(threads, tiles // FEWEST_TILES, count))
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def each_share(call: Callable[[Share], T], shares: list[Share]) -> list[T]:
    """Call a function for each share, by threads of their own, and return what they return."""
    # The caller's thread does its share: of as many threads as processors, none waits for one to become free.
    others = [_pool().submit(call, share) for share in shares[:-1]]
    last = call(shares[-1])
    return [*(other.result() for other in others), last]


@cache
def _pool() -> Workers:
    return Workers(processors(), "forebay-bounded")


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


def opened(payload: NDArray[np.uint8], tiling: Tiling) -> tuple[NDArray[np.uint32], int, float]:
    """Return the words of an encoding, how many they are, and its step."""
    size, step = read_header(payload, tiling)
    if size % 4:
        raise EncodingError(f"an encoding cannot have {size} bytes")
    whole = payload[:size]
    words = (whole if whole.ctypes.data % 4 == 0 else whole.copy()).view(np.uint32)
    return read_only(words), size // 4, step
