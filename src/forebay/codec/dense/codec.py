"""`dense`: every value comes back within a bound that is given, in fewer bytes than `bounded` takes, and more time."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.codec.bounded import numbers
from forebay.codec.bounded.codec import MOST_THREAD_BLOCKS, Bounded, check_alignment, module_of, reals_device
from forebay.codec.bounded.format import Tiling
from forebay.codec.dense.format import TOPS, DenseTiling, tiling_of

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View

THREADS = 128
"""Of a thread block, which encodes or decodes one tile."""


class Dense(Bounded):
    """Predicts each value from decoded ones on both sides of it, grid by grid, and writes what is left.

    It takes what `Bounded` takes.

    Examples
    --------
    >>> codec = Dense(1e-3)
    >>> wave = np.sin(np.linspace(0, 9, 32768, dtype=np.float32)).reshape(32, 32, 32)
    >>> encoded = codec.encode(wave)
    >>> bool(np.abs(codec.decode(encoded) - wave).max() <= 1e-3 * np.ptp(wave)), encoded.ratio > 8
    (True, True)
    """

    most_ratio = 2**13  # a point is kept and a place told for each tile
    word = "dense"
    source = Path(__file__).parent / "dense.cu"

    def scratch_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return what `Bounded` takes, and the bytes of the grids above the array."""
        tiling = tiling_of(*numbers.as_reals(shape, dtype))
        return super().scratch_bytes(shape, dtype) + tiling.scratch_points * tiling.itemsize

    def _cut(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tiling:
        return tiling_of(shape, dtype)

    def _host(self) -> Any:
        from forebay.codec.dense import host

        return host

    def _encode_device(self, array: "View", out: "View", tiling: Any, weights: int, stream: "Stream") -> None:
        """Enqueue the points that are kept, and the tiles of each grid."""
        module = module_of(self.source, array.dtype, tiling.rank)
        at, count = tiling.anchors
        _, n1, n0 = tiling.extents
        top, above = TOPS[tiling.rank], out.pointer + at
        grid = tiling.grid(top)
        thread_blocks = min(MOST_THREAD_BLOCKS, -(-count // 256))
        module.launch("anchors", thread_blocks, 256, (array, n1 * n0 * top, n0 * top, top, *grid, above), stream)
        with _grids(tiling, stream) as places:
            for level, known in zip(tiling.levels, (*places, 0), strict=True):
                strides = (n1 * n0 * level.stride, n0 * level.stride, level.stride)
                where = (*level.extents, *level.counts[1:], level.first, tiling.shift, level.fine, weights)
                args = (array, *strides, above, known, out, *where)
                module.launch("encode_above" if known else "encode", level.tiles, THREADS, args, stream)
                above = known

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue a kernel for each grid, which raises the flag of `forebay.codec.device` where bytes are damaged."""
        from forebay.codec.device import damage_flag

        tiling: Any = self._tiling(out.shape, out.dtype)
        check_alignment(payload)
        if not tiling.tiles:
            return
        about, flag = (tiling.magic, tiling.kind, *tiling.extents), damage_flag()
        with reals_device(out, stream, fill=False) as reals, _grids(tiling, stream) as places:
            module, above = module_of(self.source, reals.dtype, tiling.rank), payload.pointer + tiling.anchors[0]
            for level, known in zip(tiling.levels, (*places, reals.pointer), strict=True):
                where = (*level.extents, *level.counts[1:], level.first, tiling.tiles, tiling.start, tiling.shift)
                args = (payload, payload.nbytes, above, known, *about, *where, level.fine, flag)
                module.launch("decode", level.tiles, THREADS, args, stream)
                above = known


@contextmanager
def _grids(tiling: DenseTiling, stream: "Stream") -> Iterator[list[int]]:
    """Lend room for the grids above the array in the order of a stream, one address each."""
    from cuda.bindings import driver

    from forebay.cuda.driver import checked

    nbytes = tiling.scratch_points * tiling.itemsize
    pointer = int(checked(driver.cuMemAllocAsync(nbytes, stream.handle), f"taking {nbytes} bytes"))
    places = [pointer]
    for level in tiling.levels[:-2]:
        places.append(places[-1] + math.prod(level.extents) * tiling.itemsize)
    yield places
    checked(driver.cuMemFreeAsync(pointer, stream.handle), "giving memory back")
