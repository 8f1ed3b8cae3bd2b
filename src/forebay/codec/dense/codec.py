"""`dense`: every value comes back within a bound that is given, in fewer bytes than `bounded` takes, and more time."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.codec.bounded import numbers
from forebay.codec.bounded.codec import Bounded, check_alignment, module_of, reals_device
from forebay.codec.bounded.format import Tiling
from forebay.codec.bounded.multiplying import pitches
from forebay.codec.dense.format import THREADS, DenseTiling, tiling_of

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View
    from forebay.cuda.pool import DevicePool


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

    most_ratio = 2**13  # four bytes a tile
    word = "dense"
    source = Path(__file__).parent / "dense.cu"
    _pool: "DevicePool | None" = None

    def multiplies(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Return False: grids are decoded one after the other."""
        return False

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
        """Enqueue a kernel for each grid."""
        module = module_of(self.source, array.dtype, tiling.rank)
        plane, line = pitches(array, tiling)
        above = 0
        with self._grids(tiling, stream) as places:
            for level, known in zip(tiling.levels, (*places, 0), strict=True):
                points = (array.pointer, plane * level.stride, line * level.stride, level.stride)
                about, how = (out, *level.extents, *level.counts[1:]), (tiling.shift, level.fine, weights)
                if level.first:
                    args = (*points, above, known, *about, level.first, *how)
                    module.launch("encode_above" if known else "encode", level.tiles, THREADS, args, stream)
                else:
                    module.launch("encode_top", level.tiles, THREADS, (*points, known, *about, *how), stream)
                above = known

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue a kernel for each grid, which raises the flag of `forebay.codec.device` where bytes are damaged."""
        from forebay.codec.device import damage_flag

        tiling: Any = self._tiling(out.shape, out.dtype)
        check_alignment(payload)
        if not tiling.tiles:
            return
        whole = (tiling.magic, tiling.kind, *tiling.extents)
        with reals_device(out, stream, fill=False) as reals, self._grids(tiling, stream) as places:
            module, above = module_of(self.source, reals.dtype, tiling.rank), 0
            for level, known in zip(tiling.levels, (*places, reals.pointer), strict=True):
                about = (*whole, *level.extents, *level.counts[1:])
                how = (tiling.tiles, tiling.start, tiling.shift, level.fine, damage_flag())
                if level.first:
                    args = (payload, payload.nbytes, above, known, *about, level.first, *how)
                    module.launch("decode", level.tiles, THREADS, args, stream)
                else:
                    args = (payload, payload.nbytes, known, *about, *how)
                    module.launch("decode_top", level.tiles, THREADS, args, stream)
                above = known

    @contextmanager
    def _grids(self, tiling: DenseTiling, stream: "Stream") -> "Iterator[list[int]]":
        """Lend room for the grids above the array in the order of a stream, one address each."""
        from forebay.cuda.pool import DevicePool

        if self._pool is None:
            self._pool = DevicePool()
        nbytes = tiling.scratch_points * tiling.itemsize
        with self._pool.lend(nbytes, stream) as pointer:
            places = [pointer]
            for level in tiling.levels[:-2]:
                places.append(places[-1] + math.prod(level.extents) * tiling.itemsize)
            yield places
