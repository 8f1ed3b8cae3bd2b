"""How stencils are cut into thread blocks on a GPU: the choices that change speed and no bit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Variant:
    """How the stencils are compiled and launched; every variant gives the same bits."""

    block: tuple[int, int] = (32, 8)
    """threads of a thread block, along rows and across them"""
    blocks: int = 2
    """thread blocks that a multiprocessor shall have room for"""
    early: bool = True
    """whether planes are loaded one ahead into registers"""
    ahead: int = 0
    """planes by which the second-level cache is filled ahead"""
    fixed_extents: bool = True
    """whether the compiler knows the extents of the fields: shorter code, compiled for each shape"""
    chunks: int = 0
    """parts of the first axis; 0 leaves the choice to `chunk_of`"""

    def defines(self, axes: int, radius: int, rows: int, words: int) -> dict[str, int]:
        """Return the macros for the source."""
        extents = {"ROWS": rows, "WORDS": words} if self.fixed_extents else {}
        return {
            "AXES": axes,
            "RADIUS": radius,
            "BLOCK_X": self.block[0],
            "BLOCK_Y": self.block[1],
            "BLOCKS": self.blocks,
            "EARLY": int(self.early),
            "AHEAD": self.ahead,
            **extents,
        }


def chunk_of(axes: int, columns: tuple[int, int], planes: int, slots: int, variant: Variant) -> int:
    """Choose how many planes a thread marches through.

    Thread blocks come in waves of as many as there are slots, and a wave lasts as long as a march. Each march begins
    with loads that another one makes too, which cost about as much as a few planes.

    Examples
    --------
    >>> chunk_of(3, (4, 64), 512, 264, Variant())  # all thread blocks at once
    512
    >>> chunk_of(3, (6, 85), 310, 264, Variant())  # 510 columns for 264 slots
    310
    """
    together = variant.block[1] if axes == 2 else 1
    lost, shortest = 4, 4

    def seconds(parts: int) -> int:
        waves = -(-columns[0] * columns[1] * parts // (slots * together))
        return waves * (-(-planes // parts) + lost)

    if variant.chunks:
        return -(-planes // variant.chunks)
    return -(-planes // min(range(1, max(1, planes // shortest) + 1), key=seconds))


def tiles_of(spans: Sequence[tuple[int, int, int, int]], sizes: tuple[int, int, int]) -> NDArray[np.int32]:
    """List what thread blocks compute, in the order of the fields: neighbours share what caches hold.

    A span is of planes, rows or words: the first that is computed, where layers end and begin again, and one past the
    last. Planes are cut there too; across them, thread blocks have the same size everywhere. Each has its words, rows
    and planes in the list, from and to, its threads along rows, and a bit for each axis whose layers reach it.

    Examples
    --------
    >>> tiles_of([(4, 8, 20, 24), (4, 4, 12, 12), (2, 2, 10, 10)], (12, 8, 8))
    array([[ 2, 10,  4, 12,  4,  8,  8,  1],
           [ 2, 10,  4, 12,  8, 20,  8,  0],
           [ 2, 10,  4, 12, 20, 24,  8,  1]], dtype=int32)
    """
    begins, ends, reached = [], [], []
    for axis, ((first, low, high, last), size) in enumerate(zip(spans, sizes, strict=True)):
        low, high = (low, high) if low < high else (last, last)
        parts = [(first, low), (low, high), (high, last)] if axis == 0 else [(first, last)]
        begin = np.concatenate([np.arange(start, stop, _even(stop - start, size)) for start, stop in parts])
        end = np.append(begin[1:], last)
        begins.append(begin)
        ends.append(end)
        reached.append((begin < low) | (end > high))
    z, y, x = (place.ravel() for place in np.meshgrid(*(np.arange(len(each)) for each in begins), indexing="ij"))
    bits = [flags[place].astype(int) for flags, place in zip(reached, (z, y, x), strict=True)]
    axes = bits[0] + 2 * bits[1] + 4 * bits[2]
    tiles = (
        begins[2][x],
        ends[2][x],
        begins[1][y],
        ends[1][y],
        begins[0][z],
        ends[0][z],
        np.full_like(x, sizes[2]),
        axes,
    )
    return np.stack(tiles, axis=1).astype(np.int32)


def _even(length: int, size: int) -> int:
    """Return the size of as few parts of a length as there are of `size`, as long as each other."""
    return max(1, -(-length // max(1, -(-length // size))))
