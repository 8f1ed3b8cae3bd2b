"""`bounded`: every value comes back within a bound that is given, on CPU and GPU alike, at the speed of memory."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded.format import MAGIC, Tiling, tiling_of
from forebay.codec.codec import Codec
from forebay.errors import CodecError
from forebay.processors import processors

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View
    from forebay.cuda.kernels import Module

SOURCE = Path(__file__).parent / "bounded.cu"
WARPS = {1: 2, 2: 2, 3: 4}
"""Tiles that a thread block encodes or decodes, by rank, as in the source."""
RANGE_THREAD_BLOCKS = 132 * 8
SECTOR = 32
"""Bytes of memory that a GPU writes at once."""


class Bounded(Codec):
    """Quantises to the bound, predicts, and packs what is left.

    Parameters
    ----------
    relative
        The bound relative to the range of the values, max - min of the finite ones: ``bounded:1e-4``.
    abs
        The bound itself: ``bounded:abs=1e-3``.
    threads
        How many encode and decode on the CPU; as many as there are processors where it is not given.

    Examples
    --------
    >>> codec = Bounded(1e-3)
    >>> wave = np.sin(np.linspace(0, 9, 30000, dtype=np.float32)).reshape(30, 20, 50)
    >>> encoded = codec.encode(wave)
    >>> bool(np.abs(codec.decode(encoded) - wave).max() <= 1e-3 * np.ptp(wave)), encoded.ratio > 3
    (True, True)
    """

    lossy = True

    def __init__(
        self,
        relative: str | float | None = None,
        *,
        abs: str | float | None = None,  # noqa: A002 - what users write
        threads: str | int | None = None,
        **unknown: str,
    ) -> None:
        if unknown or (relative is None) == (abs is None):
            what = f", not {', '.join(f'{key}={value}' for key, value in unknown.items())}" if unknown else ""
            raise CodecError(
                f"bounded takes one bound{what}: bounded:1e-4 of the range, or bounded:abs=1e-3, and threads="
            )
        self.bound = _bound(relative if abs is None else abs)
        self.threads = processors() if threads is None else _threads(threads)
        self.relative = abs is None
        self.name = f"bounded:{self.bound:g}" if self.relative else f"bounded:abs={self.bound:g}"
        if float(self.name.rpartition("=" if not self.relative else ":")[2]) != self.bound:
            self.name = self.name.replace(f"{self.bound:g}", repr(self.bound))

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the array, and a little more for the header and the places of its tiles."""
        return tiling_of(shape, dtype).max_bytes

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Encode with Numba, in tiles' order."""
        from forebay.codec.bounded import host  # it needs Numba

        tiling = tiling_of(array.shape, array.dtype)
        return host.encode(array, out, tiling, self.bound, self.relative, self.threads)

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Decode with Numba."""
        from forebay.codec.bounded import host

        host.decode(payload, out, tiling_of(out.shape, out.dtype), self.threads)

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the kernels: the range where the bound is relative, the header, and the tiles."""
        _check_alignment(out)
        parts = self.range_device(array, out, stream) if self.relative else 0
        self.tiles_device(array, out, parts, stream)

    def range_device(self, array: "View", out: "View", stream: "Stream") -> int:
        """Enqueue the search for the smallest and the largest value, and return in how many parts.

        They lie where the tiles will: those are written when the header has been.
        """
        tiling = tiling_of(array.shape, array.dtype)
        values = array.nbytes // tiling.itemsize
        thread_blocks = max(1, min(RANGE_THREAD_BLOCKS, values // 4096))
        args = (array, values, _parts_at(out, tiling))
        _module(array.dtype, tiling.rank).launch("range", thread_blocks, 256, args, stream)
        return thread_blocks

    def tiles_device(self, array: "View", out: "View", parts: int, stream: "Stream") -> None:
        """Enqueue all else."""
        tiling = tiling_of(array.shape, array.dtype)
        module = _module(array.dtype, tiling.rank)
        header = (MAGIC, tiling.kind, *tiling.extents, tiling.tiles, tiling.start)
        module.launch("begin", 1, 32, (out, _parts_at(out, tiling), parts, self.bound, *header), stream)
        if tiling.tiles:
            _, t1, t0 = tiling.counts
            args = (array, out, *tiling.extents, t1, t0, tiling.tiles, tiling.shift)
            module.launch("encode", *_grid(tiling), args, stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the kernel, which raises the flag of `forebay.codec.device` where bytes are damaged."""
        from forebay.codec.device import damage_flag

        tiling = tiling_of(out.shape, out.dtype)
        _check_alignment(payload)
        if not tiling.tiles:
            return
        _, t1, t0 = tiling.counts
        args = (
            payload,
            payload.nbytes,
            out,
            MAGIC,
            tiling.kind,
            *tiling.extents,
            t1,
            t0,
            tiling.tiles,
            tiling.shift,
            damage_flag(),
        )
        _module(out.dtype, tiling.rank).launch(*decoder(out.pointer, tiling), args, stream)

    def canonical(self, payload: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        """Put the tiles in order: on a GPU, they lie in that in which they were done."""
        from forebay.codec.bounded import host

        return host.canonical(payload, tiling_of(shape, dtype))


@cache
def _module(dtype: np.dtype[Any], rank: int) -> "Module":
    from forebay.cuda.kernels import load

    return load(SOURCE, fmad=False, defines=defines(dtype, rank))


def defines(dtype: np.dtype[Any], rank: int) -> dict[str, int]:
    """Return the macros that make the kernels those of a type and a rank."""
    return {"DOUBLE": int(dtype.itemsize == 8), "RANK": rank}


def _grid(tiling: Tiling) -> tuple[int, int]:
    """Return the thread blocks of a grid, and the threads of each."""
    return -(-tiling.tiles // WARPS[tiling.rank]), 32 * WARPS[tiling.rank]


def decoder(pointer: int, tiling: Tiling) -> tuple[str, int, int]:
    """Return the kernel that decodes to an address, the thread blocks of its grid and the threads of each.

    Memory is written in memory sectors of 32 bytes. Where lines of a volume do not all begin with one, the tiles of a
    thread block lie side by side and are written together; else by themselves.
    """
    beginnings = pointer | tiling.extents[2] * tiling.itemsize
    if tiling.rank < 3 or beginnings % SECTOR == 0:
        return "decode", *_grid(tiling)
    slow, middle, fast = tiling.counts
    thread_blocks = slow * middle * -(-fast // WARPS[tiling.rank])
    return "decode_shifted" if beginnings % 16 else "decode_straight", thread_blocks, 32 * WARPS[tiling.rank]


def _bound(text: str | float | None) -> float:
    try:
        bound = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        bound = 0.0
    if not 0 < bound < float("inf"):
        raise CodecError(f"bounded: {text!r} is no bound: give a number above zero, as in bounded:1e-4")
    return bound


def _threads(text: str | int) -> int:
    try:
        threads = int(text)
    except (TypeError, ValueError):
        threads = 0
    if threads < 1:
        raise CodecError(f"bounded:threads={text}: give a number of threads from 1 on, or leave it out")
    return threads


def _parts_at(out: "View", tiling: Tiling) -> int:
    return -(-(out.pointer + tiling.start) // 8) * 8


def _check_alignment(encoding: "View") -> None:
    if encoding.pointer % 8:
        raise CodecError(f"the encoding is at {encoding.pointer:#x}: on a GPU it must begin at a multiple of 8 bytes")
