"""`dense` on the CPU: the grids of an array one after the other, their tiles shared among threads."""

import math
from functools import partial
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
from forebay.codec.compiled import read_only
from forebay.codec.dense import decoder, encoder
from forebay.codec.dense.desk import desk_for
from forebay.codec.dense.format import DenseTiling, Floor, Geometry, geometry
from forebay.codec.dense.tiles import halve
from forebay.errors import EncodingError


def encode(array: NDArray[Any], out: NDArray[np.uint8], tiling: DenseTiling, asked: Asked, threads: int) -> int:
    """Encode a contiguous array of reals, its tiles in order, and return the bytes written."""
    dtype, flat, room = array.dtype, read_only(array.reshape(-1)), Room.within(out, tiling)
    words, places = room.words, room.places
    bound, step = quanta_of(asked, dtype, range_of(flat, tiling, threads))
    weighted = scales_of(asked, bound, step, dtype)
    made, end = _tables(geometry(tiling.rank, dtype)), tiling.start // 4
    above, layout = np.empty(0, dtype), _layout(tiling)
    for level, grid in zip(tiling.levels, _grids(flat, tiling), strict=True):
        known = np.empty(grid.size if level.stride > 1 else 0, dtype)
        finer = (weighted[0], (weighted[1] * np.array([[1.0], [level.fine]])).astype(dtype))
        how = (_numbers(dtype, bound, step * level.fine), finer, words, places)
        if level.first:
            call = partial(encoder.encode_tiles, grid, above, known, layout, _level(level), made)
        else:
            call = partial(encoder.encode_top, grid, known, layout, _level(level))
        shares, begins = shares_of(level.tiles, threads, level.tiles), _first_words(level, tiling, end, threads)
        written = each_share(partial(_encode_share, call, how, begins, dtype), shares)
        end = join(words, end, places[level.first :], shares, written, tiling.shift)
        above = known
    return room.close(end, bound, step)


def decode(payload: NDArray[np.uint8], out: NDArray[Any], tiling: DenseTiling, threads: int) -> None:
    """Decode into a contiguous array, refusing what is damaged."""
    words, end, step = opened(payload, tiling)
    places, made, damaged = places_of(words, tiling), _tables(geometry(tiling.rank, out.dtype)), 0
    above, encoding = np.empty(0, out.dtype), (words, end, tiling.start // 4)
    for level in tiling.levels:
        known = np.empty(math.prod(level.extents), out.dtype) if level.stride > 1 else out.reshape(-1)
        about, fine = (_layout(tiling), _level(level)), out.dtype.type(step * level.fine)
        if level.first:
            call = partial(decoder.decode_tiles, *encoding, above, known, *about, made)
        else:
            call = partial(decoder.decode_top, *encoding, known, *about)
        shares = shares_of(level.tiles, threads, level.tiles)
        damaged += sum(each_share(partial(_decode_share, call, fine, places), shares))
        above = known
    if damaged:
        raise EncodingError(f"{damaged} of {tiling.tiles} tiles are damaged")


def _encode_share(call: Any, how: Any, begins: dict[int, int], dtype: np.dtype[Any], share: Share) -> Share:
    begin = begins[share[0]]
    return begin, call(share, *how, begin, desk_for(dtype))


def _decode_share(call: Any, step: Any, places: NDArray[np.uint32], share: Share) -> int:
    return int(call(share, step, places, desk_for(step.dtype)))


def canonical(payload: NDArray[np.uint8], tiling: DenseTiling) -> NDArray[np.uint8]:
    """Put the tiles of an encoding in order."""
    words, end, _ = opened(payload, tiling)
    ordered = np.zeros(end, np.uint32)
    told = (HEADER.size + 4 * tiling.tiles) // 4
    ordered[:told] = words[:told]
    places, to, each = places_of(ordered, tiling), tiling.start // 4, tiling.itemsize // 4
    dtype = np.dtype(f"f{tiling.itemsize}")
    desk, made = desk_for(dtype), _tables(geometry(tiling.rank, dtype))
    for level in tiling.levels:
        if to >= 0:
            about = (_layout(tiling), _level(level), made, each)
            to = decoder.reorder(words, end, *about, places, ordered, to, desk)
    if to != end:
        raise EncodingError("the tiles of the encoding are damaged")
    return ordered.view(np.uint8)


def _layout(tiling: DenseTiling) -> tuple[Any, ...]:
    return tiling.rank, tiling.shift, tiling.weighted * tiling.itemsize // 4


def _level(level: Floor) -> tuple[Any, ...]:
    return level.extents, level.counts, level.first


def _tables(made: Geometry) -> tuple[NDArray[Any], ...]:
    return made.down, made.across, made.shares, made.rows, made.lists


def _grids(flat: NDArray[Any], tiling: DenseTiling) -> list[NDArray[Any]]:
    """Copy every other point along each axis, again and again; return the grids from the uppermost on."""
    grids = [flat]
    for level in tiling.levels[:0:-1]:
        upper = np.empty(math.prod(tiling.grid(2 * level.stride)), flat.dtype)
        halve(grids[-1], level.extents, tiling.rank, upper)
        grids.append(read_only(upper))
    return grids[::-1]


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
