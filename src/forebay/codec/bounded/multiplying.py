"""Encodings that are multiplied on a GPU without being decoded to memory: what the kernel gets, and keeps."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import LANES, SIDE, TILES, VALUES, Tiling
from forebay.codec.codec import Correlation
from forebay.errors import CodecError

if TYPE_CHECKING:
    from forebay.cuda.arrays import View

VECTOR = 16
"""Bytes that a thread reads or writes at once."""


def arguments(payload: "View", correlation: Correlation, tiling: Tiling) -> tuple[Any, ...]:
    """Return the arguments of the kernel, refusing arrays whose lines it cannot read in whole vectors."""
    from forebay.codec.device import damage_flag

    other, sums = correlation.other, (correlation.products, correlation.squares)
    plane, line = pitches(other, tiling)
    places = (other.pointer, plane * tiling.itemsize, line * tiling.itemsize, *(each.pointer for each in sums))
    if any(place % VECTOR for place in places):
        raise CodecError("arrays whose lines do not all begin at multiples of 16 bytes: decode the encoding")
    if any((each.shape, each.dtype, each.contiguous) != (other.shape, other.dtype, True) for each in sums):
        raise CodecError(f"the encoding is of a {other.dtype}{list(other.shape)}: give sums like it, without gaps")
    _, t1, t0 = tiling.counts
    factor = other.dtype.type(correlation.factor)
    where = (other.pointer, plane, line, *sums, factor, correlation.slots, correlation.kept)
    about = (tiling.magic, tiling.kind, *tiling.extents, t1, t0, tiling.tiles, tiling.shift, damage_flag())
    return payload, payload.nbytes, *where, *about


def pitches(array: "View", tiling: Tiling) -> tuple[int, int]:
    """Return the values from one plane to the next, and from one line to the next."""
    _, n1, n0 = tiling.extents
    if array.strides is None:
        return n1 * n0, n0
    plane, line = (0, *array.strides)[-3:-1]
    return plane // tiling.itemsize, line // tiling.itemsize


def kept_tiles(tiling: Tiling, places: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.uint32], int]:
    """Return the slots of a volume's tiles that hold places, where each is among their values, and how many these are.

    Examples
    --------
    >>> from forebay.codec.bounded.format import tiling_of
    >>> slots, where, values = kept_tiles(tiling_of((16, 32, 48), np.dtype("float32")), np.array([[9], [17], [20]]))
    >>> slots.tolist(), where.tolist(), values
    ([-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, -1], [292], 2048)
    """
    sides = TILES[3]
    inside = np.all((places >= 0) & (places < np.reshape(tiling.extents, (3, 1))), axis=0)
    z, y, x = np.where(inside, places, 0)
    numbers = np.ravel_multi_index([each // side for each, side in zip((z, y, x), sides, strict=True)], tiling.counts)
    held = np.unique(numbers[inside])
    slots = np.full(tiling.tiles, -1, np.int32)
    slots[held] = np.arange(held.size)
    row, lane = z % SIDE * SIDE + y % SIDE, y % sides[1] // SIDE * sides[2] + x % sides[2]
    where = np.maximum(slots[numbers], 0).astype(np.int64) * VALUES + row * LANES + lane
    return slots, where.astype(np.uint32), held.size * VALUES
