"""The layout of `dense` encodings: a pyramid of grids, each with every other point of the one below it.

`docs/dense-format.md` describes the same in words.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import LANES, RAW, Tiling, fold, smallest_shift

MAGIC = int.from_bytes(b"FBD\x03", "little")
TILES = {1: (1, 1, 4096), 2: (1, 64, 64), 3: (16, 16, 16)}
"""Points of a grid that are a tile, by the rank of the folded array."""
TOPS = {1: 64, 2: 8, 3: 4}
"""How far the points of the uppermost grid are apart, which are quantised as they are."""
WARPS = 4
THREADS = WARPS * LANES
"""Of a thread block, which encodes or decodes one tile: each has the symbols of a few cells, or a brick of points."""
LARGEST = 1 << 15
"""Symbols stay below it."""
MOST = 1 << 20
"""Quanta of the uppermost grid's points stay below it."""
HEAD = WARPS
"""Words that tell which threads have symbols other than 0."""
ODD = RAW >> 1
"""Marks the place of a tile that begins with a word about it: how many exact values it has, and groups listed whole."""
SPOT = ODD - 1
"""Masks the place itself."""
WHOLE = 16
"""The bit of that word that tells of the first group of four symbols of each thread."""
GROUP = 4 * THREADS
"""Symbols of one group in all threads."""
WORTH = 3 * GROUP - THREADS
"""Above it a group is listed whole: 3 for each symbol that is not 0, 4 for each thread that has some in the group."""
PAIRS = ((3, 2, 1), (5, 4, 1), (6, 4, 2), (7, 4, 2, 1))
"""Kinds of points that lie off along several axes, the slowest first; 4 is z, 2 is y, 1 is x."""


@dataclass(frozen=True)
class Floor:
    """One grid of the pyramid, and the tiles of its new points."""

    stride: int
    """how far its points are apart in the array"""
    extents: tuple[int, int, int]
    counts: tuple[int, int, int]
    """tiles along each axis"""
    first: int
    """the number of its first tile"""

    @property
    def tiles(self) -> int:
        """All of them."""
        return math.prod(self.counts)

    @property
    def fine(self) -> float:
        """What its step is of the array's: errors of points from which many are predicted cost most."""
        return (7 / 8) ** (self.stride.bit_length() - 1)

    def fresh_before(self, rank: int) -> NDArray[np.int64]:
        """Count the new points before each tile, and after the last."""
        parts = []
        for extent, count, side in zip(self.extents, self.counts, TILES[rank], strict=True):
            parts.append(np.minimum(side, extent - side * np.arange(count)))
        points = _products(parts)
        if self.stride < TOPS[rank]:
            points = points - _products([(part + 1) // 2 for part in parts])
        return np.concatenate(([0], np.cumsum(points.reshape(-1)))).astype(np.int64)


def _products(parts: list[NDArray[Any]]) -> NDArray[Any]:
    points: NDArray[Any] = parts[0][:, None, None] * parts[1][:, None] * parts[2]
    return points


class DenseTiling(Tiling):
    """How an array of some shape and type is encoded by `dense`."""

    @property
    def tile(self) -> tuple[int, int, int]:
        """The extents of a tile."""
        return TILES[self.rank]

    @cached_property
    def levels(self) -> tuple[Floor, ...]:
        """The grids from the top on."""
        levels: list[Floor] = []
        stride = TOPS[self.rank]
        while stride:
            extents = self.grid(stride)
            n2, n1, n0 = (-(-extent // side) for extent, side in zip(extents, self.tile, strict=True))
            first = levels[-1].first + levels[-1].tiles if levels else 0
            levels.append(Floor(stride, extents, (n2, n1, n0), first))
            stride //= 2
        return tuple(levels)

    def grid(self, stride: int) -> tuple[int, int, int]:
        """Return the points of a grid along each axis."""
        n2, n1, n0 = (-(-extent // stride) for extent in self.extents)
        return n2, n1, n0

    @property
    def strides(self) -> tuple[int, ...]:
        """How far the points of grids are apart whose tiles are numbered one after the other."""
        return tuple(level.stride for level in self.levels)

    @property
    def tiles(self) -> int:
        """Those of all grids."""
        return self.levels[-1].first + self.levels[-1].tiles

    @property
    def most_places(self) -> int:
        """Places stay below it."""
        return ODD

    @property
    def scratch_points(self) -> int:
        """Points of all grids but the last, which are kept while encoding and decoding."""
        return sum(math.prod(level.extents) for level in self.levels[:-1])


@cache
def tiling_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> DenseTiling:
    """Fold a shape as `bounded` does, and cut its grids into tiles.

    Examples
    --------
    >>> [level.counts for level in tiling_of((100, 200, 300), np.dtype("float32")).levels]
    [(2, 4, 5), (4, 7, 10), (7, 13, 19)]
    """
    rank, extents = fold(shape)
    n2, n1, n0 = (-(-extent // side) for extent, side in zip(extents, TILES[rank], strict=True))
    return smallest_shift(DenseTiling(rank, extents, (n2, n1, n0), dtype.itemsize, 2, magic=MAGIC), shape)


@dataclass(frozen=True)
class Geometry:
    """What new points in the middle of several others are predicted with."""

    down: NDArray[Any]
    """along y, for each cell of the axis: the weights of its four neighbours"""
    across: NDArray[Any]
    """likewise for the lanes of a row: of the lower and the upper ones along z, and along x"""
    shares: NDArray[Any]
    """what axes count, in the order of PAIRS: before the last cell along y and there, lower and upper rows"""
    rows: NDArray[np.int64]
    """for each warp, where its rows begin among symbols that are numbered kind by kind"""
    lists: NDArray[np.int32]
    """of each word of 7 bits, where the groups begin whose bits are set, counted from the first point; of each of 4,
    how far the rows of those bits are apart from the group's first"""


@cache
def geometry(rank: int, dtype: np.dtype[Any]) -> Geometry:
    """Work out the weights of neighbours."""
    side = TILES[rank][2] // 2
    taps = _taps(side)
    lanes = np.arange(LANES)
    z = [lanes // 8, lanes // 8 + 4] if rank == 3 else [lanes * 0] * 2
    x = lanes % 8 if rank == 3 else lanes
    across = np.array([taps[z[0]].T, taps[z[1]].T, taps[x].T])
    shares = np.zeros((2, 2, 9, LANES))
    for last in range(2):
        for half in range(2):
            inside = {4: z[half] < side - 1, 2: np.full(LANES, not last), 1: x < side - 1}
            at = 0
            for _, *axes in PAIRS:
                used = np.array([inside[axis] for axis in axes])
                used[:, ~used.any(0)] = True
                shares[last, half, at : at + len(axes)] = used * np.array([0, 1, 0.5, 1 / 3])[used.sum(0)]
                at += len(axes)
    flat = (across.astype(dtype).reshape(-1), shares.astype(dtype).reshape(-1))
    begins = rows_of_warps(rank)
    ahead = begins[0] - begins[0, 0]
    lists = [_set_bits(ahead[::4], 7, 8), _set_bits(ahead, 4, 4)]
    return Geometry(taps.astype(dtype), *flat, begins, np.concatenate(lists))


def _set_bits(values: NDArray[np.int64], bits: int, width: int) -> NDArray[np.int32]:
    """Return for each word of some bits the values whose bits are set, as so many numbers."""
    found = np.zeros((1 << bits, width), np.int32)
    for word in range(1 << bits):
        chosen = [value for k, value in enumerate(values[:bits]) if word >> k & 1]
        found[word, : len(chosen)] = chosen
    return found.reshape(-1)


def rows_of_warps(rank: int) -> NDArray[np.int64]:
    """Return where the rows of each warp begin among symbols that are numbered kind by kind."""
    turns, cells = {1: 16, 2: 8, 3: 4}[rank], 4096 >> rank
    warp, kind, turn = np.ogrid[:WARPS, : (1 << rank) - 1, :turns]
    row = (warp // 2 * 4 + turn) * 2 + warp % 2 if rank == 3 else warp * turns + turn
    begins: NDArray[np.int64] = ((kind + 1) * cells + row * LANES).reshape(WARPS, -1)
    return begins


def _taps(side: int) -> NDArray[np.float64]:
    """Return the weights of a cell's neighbours: the one before, itself, and two after."""
    taps = np.tile(np.array([-1, 9, 9, -1]) / 16, (side, 1))
    taps[0] = 0, 3 / 8, 6 / 8, -1 / 8
    taps[side - 2] = -1 / 8, 6 / 8, 3 / 8, 0
    taps[side - 1] = -1 / 2, 3 / 2, 0, 0
    return taps
