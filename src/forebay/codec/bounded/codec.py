"""`bounded`: every value comes back within a bound that is given, on CPU and GPU alike, at the speed of memory."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded import multiplying, numbers
from forebay.codec.bounded.format import Tiling, tiling_of
from forebay.codec.bounded.multiplying import VECTOR, pitches
from forebay.codec.bounded.weight import Weight
from forebay.codec.codec import Codec, Correlation
from forebay.errors import CodecError
from forebay.processors import processors

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View
    from forebay.cuda.kernels import Module

SOURCE = Path(__file__).parent / "bounded.cu"
NUMBERS = Path(__file__).parent / "numbers.cu"
MOST_THREAD_BLOCKS = 4096
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
    weight
        How many times the bound each point is allowed: an array of numbers from zero on whose shape is that of the
        arrays, or broadcasts to it, or the path of one: ``bounded:1e-4,weight=illumination.npy``.
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
    word = "bounded"
    """what the name begins with"""
    source = SOURCE
    """the kernels"""
    most_ratio = 2**13  # four bytes a tile

    def __init__(
        self,
        relative: str | float | None = None,
        *,
        abs: str | float | None = None,  # noqa: A002 - what users write
        weight: Any = None,
        threads: str | int | None = None,
        **unknown: str,
    ) -> None:
        if unknown or (relative is None) == (abs is None):
            what = f", not {', '.join(f'{key}={value}' for key, value in unknown.items())}" if unknown else ""
            raise CodecError(
                f"{self.word} takes one bound{what}: {self.word}:1e-4 of the range, or {self.word}:abs=1e-3, "
                "weight= and threads="
            )
        self.bound = self._number(relative if abs is None else abs)
        self.threads = processors() if threads is None else self._workers(threads)
        self.relative = abs is None
        self.name = f"{self.word}:{self.bound:g}" if self.relative else f"{self.word}:abs={self.bound:g}"
        if float(self.name.rpartition("=" if not self.relative else ":")[2]) != self.bound:
            self.name = self.name.replace(f"{self.bound:g}", repr(self.bound))
        self.weight = None if weight is None else Weight(weight)
        if self.weight is not None:
            self.name += f",weight={self.weight.name}"

    def handles(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays of this type can be encoded: floating-point and complex numbers, bfloat16 included."""
        return numbers.known(dtype)

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the array's reals, and a little more for the header and the places of its tiles."""
        return self._tiling(shape, dtype).max_bytes

    def reads_windows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays are cut into tiles as they are: two or three axes of real numbers, none folded."""
        if dtype not in (np.float32, np.float64) or not 2 <= len(shape) <= 3:
            return False
        tiling = self._cut(shape, dtype)
        return tiling.rank == len(shape) and tiling.extents[-tiling.rank :] == shape

    def multiplies(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Tell whether arrays are volumes as they are, whose lines are whole vectors of 16 bytes."""
        return len(shape) == 3 and self.reads_windows(shape, dtype) and shape[2] * dtype.itemsize % VECTOR == 0

    def scratch_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Return the bytes of the array's reals, where those are not the array itself, and of a weight's exponents."""
        whole, real = numbers.as_reals(shape, dtype)
        tiles = self._tiling(shape, dtype).tiles if self.weight else 0
        return tiles + (math.prod(whole) * real.itemsize if real != dtype else 0)

    def check_weight(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Refuse a weight that cannot be read, or that does not fit such arrays."""
        if self.weight is not None:
            self.weight.exponents(shape, _planes(dtype), self._tiling(shape, dtype))

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Encode with Numba, in tiles' order."""
        from forebay.codec.bounded import host  # it needs Numba

        tiling = self._tiling(array.shape, array.dtype)
        exponents = self.weight.exponents(array.shape, _planes(array.dtype), tiling) if self.weight else None
        narrow = numbers.narrow(array.dtype)
        asked = host.Asked(self.bound, self.relative, narrow, exponents)
        encode = self._host().encode
        return int(encode(numbers.reals(array), out, tiling, asked, self.threads))

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Decode with Numba."""
        shape, real = numbers.as_reals(out.shape, out.dtype)
        values = out if real == out.dtype else np.empty(shape, real)
        self._host().decode(payload, values, self._tiling(out.shape, out.dtype), self.threads)
        if values is not out:
            numbers.put_reals(values, out)

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the kernels: the range where the bound is relative, the header, and the tiles."""
        check_alignment(out)
        with reals_device(array, stream, fill=True) as reals:
            parts = self.range_device(reals, out, stream) if self.relative else 0
            self.tiles_device(reals, out, parts, stream, array)

    def _tiling(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tiling:
        tiling = self._cut(*numbers.as_reals(shape, dtype))
        return replace(tiling, weighted=True) if self.weight else tiling

    def _cut(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tiling:
        """Return how an array of reals is cut into tiles."""
        return tiling_of(shape, dtype)

    def _host(self) -> Any:
        """Return the module that encodes and decodes on the CPU, which needs Numba."""
        from forebay.codec.bounded import host

        return host

    def _number(self, text: str | float | None) -> float:
        try:
            bound = float(text)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            bound = 0.0
        if not 0 < bound < float("inf"):
            raise CodecError(f"{self.word}: {text!r} is no bound: give a number above zero, as in {self.word}:1e-4")
        return bound

    def _workers(self, text: str | int) -> int:
        try:
            threads = int(text)
        except (TypeError, ValueError):
            threads = 0
        if threads < 1:
            raise CodecError(f"{self.word}:threads={text}: give a number of threads from 1 on, or leave it out")
        return threads

    def range_device(self, array: "View", out: "View", stream: "Stream") -> int:
        """Enqueue the search for the smallest and the largest value, and return in how many parts.

        They lie where the tiles will: those are written when the header has been.
        """
        tiling = self._cut(array.shape, array.dtype)
        values = array.nbytes // tiling.itemsize
        thread_blocks = max(1, min(RANGE_THREAD_BLOCKS, values // 4096))
        module, parts = module_of(self.source, array.dtype, tiling.rank), _parts_at(out, tiling)
        if array.contiguous:
            module.launch("range", thread_blocks, 256, (array, values, parts), stream)
        else:
            window = (array.pointer, *tiling.extents, *pitches(array, tiling), parts)
            module.launch("range_of_window", thread_blocks, 256, window, stream)
        return thread_blocks

    def tiles_device(
        self, array: "View", out: "View", parts: int, stream: "Stream", source: "View | None" = None
    ) -> None:
        """Enqueue all else; the array has the reals of the source, where that is another."""
        source = source or array
        tiling = self._tiling(source.shape, source.dtype)
        module = module_of(self.source, array.dtype, tiling.rank)
        kind = numbers.narrow(source.dtype)
        halved = kind is not None and (self.weight is not None or not self.relative)
        rounding = (math.inf if halved else kind.unit if kind else 0.0, kind.tiny if kind else 0.0)
        header = (tiling.magic, tiling.kind, *tiling.extents, tiling.tiles, tiling.start)
        module.launch("begin", 1, 32, (out, _parts_at(out, tiling), parts, self.bound, *rounding, *header), stream)
        if tiling.tiles:
            weights = self.weight.on_device(source.shape, _planes(source.dtype), tiling, stream) if self.weight else 0
            self._encode_device(array, out, tiling, weights, stream)

    def _encode_device(self, array: "View", out: "View", tiling: Any, weights: int, stream: "Stream") -> None:
        """Enqueue the kernel that encodes all tiles."""
        about = (*tiling.extents, *tiling.counts[1:], tiling.tiles, tiling.shift, weights)
        args = (array.pointer, out, *about, *pitches(array, tiling))
        module_of(self.source, array.dtype, tiling.rank).launch("encode", *_grid(tiling), args, stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the kernel, which raises the flag of `forebay.codec.device` where bytes are damaged."""
        from forebay.codec.device import damage_flag

        tiling = self._tiling(out.shape, out.dtype)
        check_alignment(payload)
        if not tiling.tiles:
            return
        _, t1, t0 = tiling.counts
        about = (tiling.magic, tiling.kind, *tiling.extents, t1, t0, tiling.tiles, tiling.shift, damage_flag())
        with reals_device(out, stream, fill=False) as reals:
            args = (payload, payload.nbytes, reals, *about)
            module_of(self.source, reals.dtype, tiling.rank).launch(*decoder(reals.pointer, tiling), args, stream)

    def kept_tiles(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.uint32], int]:
        """Return where tiles that hold places are kept, and each of their values."""
        return multiplying.kept_tiles(self._tiling(shape, dtype), places)

    def multiply_device(self, payload: "View", correlation: Correlation, stream: "Stream") -> None:
        """Enqueue the kernel that decodes and adds at once."""
        if not self.multiplies(correlation.other.shape, correlation.other.dtype):
            raise CodecError(f"{self.name} does not multiply arrays like these: decode the encoding")
        check_alignment(payload)
        tiling = self._tiling(correlation.other.shape, correlation.other.dtype)
        module = module_of(self.source, correlation.other.dtype, tiling.rank)
        module.launch("multiply", *side_by_side(tiling), multiplying.arguments(payload, correlation, tiling), stream)

    def canonical(self, payload: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        """Put the tiles in order: on a GPU, they lie in that in which they were done."""
        return self._host().canonical(payload, self._tiling(shape, dtype))  # type: ignore[no-any-return]


@contextmanager
def reals_device(array: "View", stream: "Stream", fill: bool) -> "Iterator[View]":
    """Lend an array's reals in the order of a stream: made before where `fill`, and put into the array after where not.

    Only arrays of other types need room for them, which is taken and given back in that order too.
    """
    from cuda.bindings import driver

    from forebay.cuda.arrays import View
    from forebay.cuda.driver import checked
    from forebay.cuda.kernels import load

    shape, real = numbers.as_reals(array.shape, array.dtype)
    count = math.prod(array.shape)
    if real == array.dtype or not count:
        yield array if real == array.dtype else View.at(array.pointer, shape, real)
        return
    room = View.at(0, shape, real)
    pointer = int(checked(driver.cuMemAllocAsync(room.nbytes, stream.handle), f"taking {room.nbytes} bytes"))
    kind = numbers.narrow(array.dtype)
    module = load(
        NUMBERS, fmad=False, defines={"MANTISSA": kind.mantissa if kind else 0, "DOUBLE": int(real.itemsize == 8)}
    )
    grid = min(MOST_THREAD_BLOCKS, -(-count // 256)), 256
    if fill:
        module.launch("widen", *grid, (array, count, pointer), stream)
    yield replace(room, pointer=pointer)
    if not fill:
        module.launch("narrow", *grid, (pointer, count, array), stream)
    checked(driver.cuMemFreeAsync(pointer, stream.handle), "giving memory back")


def _planes(dtype: np.dtype[Any]) -> int:
    return 2 if dtype.kind == "c" else 1


@cache
def module_of(source: Path, dtype: np.dtype[Any], rank: int) -> "Module":
    """Return the kernels of a source for a type and a rank."""
    from forebay.cuda.kernels import load

    return load(source, fmad=False, defines=defines(dtype, rank))


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
    return "decode_shifted" if beginnings % VECTOR else "decode_straight", *side_by_side(tiling)


def side_by_side(tiling: Tiling) -> tuple[int, int]:
    """Return the same of a grid in which the tiles of a thread block lie side by side."""
    slow, middle, fast = tiling.counts
    return slow * middle * -(-fast // WARPS[tiling.rank]), 32 * WARPS[tiling.rank]


def _parts_at(out: "View", tiling: Tiling) -> int:
    return -(-(out.pointer + tiling.start) // 8) * 8


def check_alignment(encoding: "View") -> None:
    """Raise where an encoding lies where kernels cannot write its header."""
    if encoding.pointer % 8:
        raise CodecError(f"the encoding is at {encoding.pointer:#x}: on a GPU it must begin at a multiple of 8 bytes")
