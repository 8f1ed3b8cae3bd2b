"""The layout of `bounded` encodings: how an array is folded and cut into tiles, and the header before them.

`docs/bounded-format.md` describes the same in words.
"""

import math
import struct
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.numbers import Narrow
from forebay.errors import CodecError, EncodingError

MAGIC = int.from_bytes(b"FBB\x01", "little")
HEADER = struct.Struct("<QII3qddQ")
"""Bytes of the encoding, magic, kind, three extents, bound, step, tiles."""

LANES = 32
SIDE = 8
ROWS = SIDE * SIDE
"""A tile is 64 rows of 32 lanes: a lane owns a brick of 8 x 8 values, and a row is the same place of all bricks."""
VALUES = ROWS * LANES
ESCAPE = 15
"""A width that does not fit into four bits follows as a byte."""
EXACT = 32
"""The width of a row whose values are kept as they are."""
RAW = 1 << 31
"""Marks the place of a tile whose values are kept as they are."""
PLACE = RAW - 1
"""Masks the place itself."""
HALF = LANES // 2
PLANE = SIDE * LANES
WIDTH_WORDS = ROWS // 8

TILES = {1: (1, 1, VALUES), 2: (1, 64, 32), 3: (8, 16, 16)}
"""Extents of a tile by the rank of the folded array."""
LONGEST_ROW = 2**27
"""Kernels count the values from one row to the next in 32 bits."""
MOST_TILES = 2**32 - 2**16
NOTHING = -128
"""Stands for the exponent of a weight that is too small for any error."""
SPARE = 24
"""Bytes in which a GPU can keep a smallest and a largest value, wherever they begin."""


@dataclass(frozen=True)
class Tiling:
    """How an array of some shape and type is encoded."""

    rank: int
    extents: tuple[int, int, int]
    """of the folded array, the slowest first"""
    counts: tuple[int, int, int]
    """tiles along each of them"""
    itemsize: int
    shift: int
    """places are counted in units of this power of two"""
    weighted: bool = False
    """whether each coded tile begins with a step of its own"""
    magic: int = MAGIC

    @property
    def tile(self) -> tuple[int, int, int]:
        """The extents of a tile."""
        return TILES[self.rank]

    @property
    def strides(self) -> tuple[int, ...]:
        """How far the points of grids are apart whose tiles are numbered one after the other: it is one grid."""
        return (1,)

    @property
    def tiles(self) -> int:
        """All of them."""
        return math.prod(self.counts)

    @property
    def start(self) -> int:
        """Where the first tile may lie, after the header and the places of all tiles."""
        return round_up(HEADER.size + 4 * self.tiles, 1 << self.shift)

    @property
    def max_bytes(self) -> int:
        """Bytes of an encoding in which every tile is kept as it is, and what finding a range may take."""
        padding = self.tiles * ((1 << self.shift) - 4)
        return self.start + math.prod(self.extents) * self.itemsize + padding + SPARE

    @property
    def most_places(self) -> int:
        """Places stay below it."""
        return RAW

    @property
    def kind(self) -> int:
        """The word of the header that tells type, rank and unit."""
        return self.itemsize | self.rank << 8 | self.shift << 16 | self.weighted << 24

    def header(self, size: int, bound: float, step: float) -> bytes:
        """Write the header down."""
        return HEADER.pack(size, self.magic, self.kind, *self.extents, bound, step, self.tiles)


@cache
def tiling_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tiling:
    """Fold a shape into at most three axes worth predicting along, and cut it into tiles.

    Examples
    --------
    >>> tiling_of((2, 3, 100, 200, 300), np.dtype("float32")).extents
    (600, 200, 300)
    >>> tiling_of((500, 400, 3), np.dtype("float32")).extents
    (1, 500, 1200)
    """
    rank, extents = fold(shape)
    n2, n1, n0 = (-(-extent // side) for extent, side in zip(extents, TILES[rank], strict=True))
    return smallest_shift(Tiling(rank, extents, (n2, n1, n0), dtype.itemsize, 2), shape)


T = TypeVar("T", bound=Tiling)


def smallest_shift(tiling: T, shape: tuple[int, ...]) -> T:
    """Count places in the smallest unit in which all can be told."""
    if tiling.tiles > MOST_TILES:
        raise CodecError(f"bounded does not encode arrays of more than {MOST_TILES} tiles: cut {list(shape)} up")
    while tiling.max_bytes > tiling.most_places << tiling.shift:
        tiling = replace(tiling, shift=tiling.shift + 1)
    return tiling


def fold(shape: tuple[int, ...]) -> tuple[int, tuple[int, int, int]]:
    """Return how many axes are worth predicting along, and three extents."""
    axes = [extent for extent in shape if extent != 1] or [1]
    if 0 in axes:
        return 1, (1, 1, 0)
    # Tiles that stick out of the array by more than a half would waste what prediction along an axis gains.
    while len(axes) > 1 and axes[-1] < TILES[3][2]:
        axes[-2:] = [axes[-2] * axes[-1]]
    while len(axes) > 3:
        axes[:2] = [axes[0] * axes[1]]
    if len(axes) == 3 and (axes[0] < TILES[3][0] // 2 or axes[1] < TILES[3][1] // 2):
        axes[:2] = [axes[0] * axes[1]]
    if len(axes) == 2 and axes[0] < TILES[2][1] // 2:
        axes = [axes[0] * axes[1]]
    if axes[-1] >= LONGEST_ROW:
        axes = [math.prod(axes)]
    n2, n1, n0 = [1] * (3 - len(axes)) + axes
    return len(axes), (n2, n1, n0)


def quanta(
    dtype: np.dtype[Any],
    bound: float,
    span: tuple[float, float] | None,
    narrow: Narrow | None = None,
    even: bool = True,
) -> tuple[float, float]:
    """Return the absolute bound and the quantisation step, both exact in the type that is encoded.

    Parameters
    ----------
    dtype
        Of what is encoded.
    bound
        Absolute where `span` is not given, otherwise relative to it.
    span
        The smallest and the largest finite value.
    narrow
        What decoded values are rounded to: the bound that is returned leaves room for that.
    even
        Whether the bound is the same everywhere.
    """
    info = np.finfo(dtype)
    unit = float(info.eps) / 2
    if span is None:
        held = _within(_towards_zero(bound, dtype), dtype, narrow, None)
        margin = held * (2.0**-8 if dtype.itemsize == 4 else 2.0**-20)
    else:
        low, high = span
        peak = max(abs(low), abs(high))
        spread = min(high - low, float(np.finfo(np.float64).max))
        if spread == 0:
            return 0.0, peak or 1.0
        held = _within(_towards_zero(bound * spread, dtype), dtype, narrow, peak if even else None)
        # Quantising and restoring round three times, by half a unit each: with a step as much smaller, all values fit.
        margin = 4 * unit * peak
    step = 2 * (held - margin) if margin <= held / 2 else held
    return held, _towards_zero(step, dtype)


def _within(held: float, dtype: np.dtype[Any], narrow: Narrow | None, peak: float | None) -> float:
    """Return the bound that values have to keep so that, rounded to 16 bits, they keep another.

    Rounding changes a value by half a unit in the last place at most. Nor does it ever more than double an error: the
    exact value has 16 bits itself, and the nearest that has is no farther away.
    """
    if narrow is None:
        return held
    margin = held if peak is None else max(narrow.unit * (peak + held), narrow.tiny)
    return _towards_zero(held - margin if margin <= held / 2 else held / 2, dtype)


def scaled(bound: float, step: float, exponents: NDArray[np.int8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return bound and step, as rows, where both are to be powers of two as large; zero where no number is so small."""
    margin, normal = bound - step / 2, float(np.finfo(dtype).smallest_normal)
    rows = np.zeros((2, exponents.size), dtype)
    with np.errstate(over="ignore"):  # what is larger than all numbers is the largest
        bounds = np.minimum(np.ldexp(np.float64(bound), exponents), np.finfo(dtype).max)
    for at, exponent in enumerate(exponents.tolist()):
        held = 0.0 if exponent == NOTHING else float(bounds[at])
        if held >= normal or bound == 0:
            own = 2 * (held - margin) if margin <= held / 2 else held
            rows[:, at] = held, _towards_zero(own, dtype)
    return rows


def _towards_zero(value: float, dtype: np.dtype[Any]) -> float:
    largest = float(np.finfo(dtype).max)
    if value >= largest:
        return largest
    near = float(dtype.type(value))
    return near if near <= value else float(np.nextafter(dtype.type(value), dtype.type(0)))


def read_header(payload: NDArray[np.uint8], expected: Tiling) -> tuple[int, float]:
    """Check the header of an encoding; return its bytes and its step."""
    if payload.nbytes < expected.start:
        raise EncodingError(f"{payload.nbytes} bytes are too few for an encoding of {expected.tiles} tiles")
    size, magic, kind, *rest = HEADER.unpack(payload[: HEADER.size].tobytes())
    if magic != expected.magic:
        raise EncodingError("the bytes are no encoding of this codec, or of a version that is not known here")
    if (kind, rest[:3], rest[5]) != (expected.kind, list(expected.extents), expected.tiles):
        raise EncodingError(f"the encoding is of another array: {rest[:3]}, not {list(expected.extents)}")
    if not expected.start <= size <= payload.nbytes:
        raise EncodingError(f"the encoding says that it has {size} bytes, but there are {payload.nbytes}")
    largest = float(np.finfo(f"f{expected.itemsize}").max)
    if not (0 <= rest[3] <= largest and 0 <= rest[4] <= largest):
        raise EncodingError(f"the encoding is damaged: it has a bound of {rest[3]} and a step of {rest[4]}")
    return size, rest[4]


def round_up(value: int, unit: int) -> int:
    """Return the smallest multiple of a unit that a value is not above."""
    return -(-value // unit) * unit
