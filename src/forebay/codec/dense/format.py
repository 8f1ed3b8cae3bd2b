"""The layout of `dense` encodings: tiles of 4096 values in the order in which they are predicted.

`docs/dense-format.md` describes the same in words.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import LANES, Tiling, fold, smallest_shift

MAGIC = int.from_bytes(b"FBD\x01", "little")
TILES = {1: (1, 1, 4096), 2: (1, 64, 64), 3: (16, 16, 16)}
"""Extents of a tile by the rank of the folded array."""
VALUES = 4096
ROWS = VALUES // LANES
SECTIONS = (0, 2, 16, 32, 48, 64, 80, 96, 112, 128)
"""Rows at which a section begins, and the end of the last."""
DEEPEST = 16
"""The largest number that is counted plane by plane."""
LOWEST = 22
"""The most bits of a symbol that are written as they are."""
LARGEST = 1 << 22
"""Symbols stay below it."""
HEAD = 8
"""Words before the bits of a tile: exact values, sections, flags of rows."""
FLAGS = 4
"""The word at which those of the rows begin."""
PAD = 128
"""Values before and after those of a tile that a prediction may read; what it reads there has no weight."""

ORDERS = {1: (0, 1), 2: (0, 2, 1, 3), 3: (0, 4, 2, 1, 6, 5, 3, 7)}
"""The order of the points between: those between two others first, then those in the middle of four, then of eight."""
TAPS = 5


class DenseTiling(Tiling):
    """How an array of some shape and type is encoded by `dense`."""

    @property
    def tile(self) -> tuple[int, int, int]:
        """The extents of a tile."""
        return TILES[self.rank]


@cache
def tiling_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> DenseTiling:
    """Fold a shape as `bounded` does, and cut it into tiles.

    Examples
    --------
    >>> tiling_of((100, 200, 300), np.dtype("float32")).counts
    (7, 13, 19)
    """
    rank, extents = fold(shape)
    n2, n1, n0 = (-(-extent // side) for extent, side in zip(extents, TILES[rank], strict=True))
    return smallest_shift(DenseTiling(rank, extents, (n2, n1, n0), dtype.itemsize, 2, magic=MAGIC), shape)


@dataclass(frozen=True)
class Geometry:
    """What prediction in tiles of a rank is made of; one array each, for all levels one after the other."""

    coordinates: NDArray[np.int64]
    """z, y and x of each value of a tile, in the order of prediction"""
    coarse: NDArray[np.int64]
    """for each level, where its known values lie on their grid"""
    weights: NDArray[Any]
    """for each level: of the taps along each axis, then of the axes for each kind of point, for each point"""


@cache
def geometry(rank: int, dtype: np.dtype[Any]) -> Geometry:
    """Work out where the values of a tile lie, and from which others each is predicted."""
    side, levels = TILES[rank][2], 12 // rank
    coordinates, coarse, weights = [np.zeros((1, rank), np.int64)], [], []
    for level in range(levels):
        count, stride = 1 << level, side >> (level + 1)
        grid = np.indices((count,) * rank).reshape(rank, -1).T
        known = np.concatenate(coordinates) // (2 * stride)
        coarse.append(known @ (count ** np.arange(rank - 1, -1, -1)))
        bits = [np.array([mask >> (rank - 1 - axis) & 1 for axis in range(rank)]) for mask in ORDERS[rank]]
        coordinates += [2 * stride * grid + stride * odd for odd in bits[1:]]
        weights += [_taps(grid[:, axis], count).T.reshape(-1) for axis in range(rank)]
        for mask in range(1 << rank):
            odd = np.array([mask >> (rank - 1 - axis) & 1 for axis in range(rank)], bool)
            inside = odd & (grid < count - 1)
            used = np.where(inside.any(1, keepdims=True), inside, odd)
            share = np.array([0, 1, 0.5, 1 / 3])[used.sum(1)]
            weights.append((used * share[:, None]).T.reshape(-1))
    places = np.zeros((VALUES, 3), np.int64)
    places[:, 3 - rank :] = np.concatenate(coordinates)
    return Geometry(places, np.concatenate(coarse), np.concatenate(weights).astype(dtype))


def _taps(at: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return the weights of five neighbours, two before and three after, of which the third is at the same index."""
    taps = np.zeros((at.size, TAPS))
    if count == 1:
        taps[:, 2] = 1
    elif count == 2:
        taps[at == 0] = 0, 0, 0.5, 0.5, 0
        taps[at == 1] = 0, -0.5, 1.5, 0, 0
    else:
        taps[:] = 0, -1 / 16, 9 / 16, 9 / 16, -1 / 16
        taps[at == 0] = 0, 0, 3 / 8, 6 / 8, -1 / 8
        taps[at == count - 2] = 0, -1 / 8, 6 / 8, 3 / 8, 0
        taps[at == count - 1] = 3 / 8, -10 / 8, 15 / 8, 0, 0
    return taps
