"""`bounded`: every value comes back within a bound that is given, on CPU and GPU alike, at the speed of memory."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.bounded import cpu
from forebay.codec.bounded.format import HEADER, LANES, MAGIC, Tiling, quanta, read_header, tiling
from forebay.codec.codec import Codec
from forebay.errors import CodecError, EncodingError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View
    from forebay.cuda.kernels import Module

SOURCE = Path(__file__).parent / "bounded.cu"
WARPS = {1: 2, 2: 2, 3: 4}
"""Tiles that a thread block encodes or decodes, by rank, as in the source."""
RANGE_BLOCKS = 132 * 8
SECTOR = 32
"""Bytes of memory that a GPU writes at once."""
FEWEST_TILES = 64
"""Tiles below which a thread costs more than it gains."""
UNKNOWN = 2**32 - 1
"""Stands for the largest magnitude of a tile that was not looked for."""


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
        self.bound = _bound_given(relative if abs is None else abs)
        self.threads = len(os.sched_getaffinity(0)) if threads is None else _threads_given(threads)
        self.relative = abs is None
        self.name = f"bounded:{self.bound:g}" if self.relative else f"bounded:abs={self.bound:g}"
        if float(self.name.rpartition("=" if not self.relative else ":")[2]) != self.bound:
            self.name = self.name.replace(f"{self.bound:g}", repr(self.bound))

    def max_bytes(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Give the bytes of the array, and a little more for the header and the places of its tiles."""
        return tiling(shape, dtype).max_bytes

    def encode_host(self, array: NDArray[Any], out: NDArray[np.uint8]) -> int:
        """Encode with Numba, in tiles' order."""
        how = tiling(array.shape, array.dtype)
        flat = array.reshape(-1)
        room = out if out.ctypes.data % 4 == 0 and out.flags.c_contiguous else np.empty(how.max_bytes, np.uint8)
        words = room[: how.max_bytes].view(np.uint32)
        places = words[HEADER.size // 4 :][: how.tiles]
        words[HEADER.size // 4 + how.tiles : how.start // 4] = 0
        span = self._surveyed(flat, how, places)
        bound, step = quanta(array.dtype, self.bound, span if self.relative else None)
        numbers = _encoding_numbers(array.dtype, bound, step)

        def encode(part: tuple[int, int]) -> tuple[int, int]:
            begin = how.start // 4 + _values_before(part[0], how) * how.itemsize // 4
            begin += part[0] * ((1 << how.shift) // 4 - 1)
            begin = -(-begin // (1 << how.shift >> 2)) * (1 << how.shift >> 2)
            return begin, cpu.encode_tiles(flat, _plain(how), part, numbers, words, places, begin)

        parts = self._parts(how)
        end = how.start // 4
        for (first, last), (begin, after) in zip(parts, self._each(encode, parts), strict=True):
            if begin != end:
                cpu.shift_left(words, begin, after, end, places[first:last], how.shift)
            end += after - begin
        words[: HEADER.size // 4] = np.frombuffer(how.header(4 * end, bound, step), np.uint32)
        if room is not out:
            out[: 4 * end] = room[: 4 * end]
        return 4 * end

    def decode_host(self, payload: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Decode with Numba."""
        how = tiling(out.shape, out.dtype)
        words, end, step = _opened(payload, how)
        places = words[HEADER.size // 4 :][: how.tiles]
        numbers = _decoding_numbers(out.dtype, step)
        flat = out.reshape(-1)

        def decode(part: tuple[int, int]) -> int:
            damaged: int = cpu.decode_tiles(words, end, how.start // 4, _plain(how), part, numbers, places, flat)
            return damaged

        if damaged := sum(self._each(decode, self._parts(how))):
            raise EncodingError(f"{damaged} of {how.tiles} tiles are damaged")

    def encode_device(self, array: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the kernels: the range where the bound is relative, the header, and the tiles."""
        _check_alignment(out)
        parts = self.range_device(array, out, stream) if self.relative else 0
        self.tiles_device(array, out, parts, stream)

    def range_device(self, array: "View", out: "View", stream: "Stream") -> int:
        """Enqueue the search for the smallest and the largest value, and give the number of parts it is done in.

        They lie where the tiles will: those are written when the header has been.
        """
        how = tiling(array.shape, array.dtype)
        values = array.nbytes // how.itemsize
        blocks = max(1, min(RANGE_BLOCKS, values // 4096))
        args = (array, values, _parts_at(out, how))
        _module(array.dtype, how.rank).launch("range", blocks, 256, args, stream)
        return blocks

    def tiles_device(self, array: "View", out: "View", parts: int, stream: "Stream") -> None:
        """Enqueue all else."""
        how = tiling(array.shape, array.dtype)
        module = _module(array.dtype, how.rank)
        header = (MAGIC, how.kind, *how.extents, how.tiles, how.start)
        module.launch("begin", 1, 32, (out, _parts_at(out, how), parts, self.bound, *header), stream)
        if how.tiles:
            _, t1, t0 = how.counts
            args = (array, out, *how.extents, t1, t0, how.tiles, how.shift)
            module.launch("encode", *_grid(how), args, stream)

    def decode_device(self, payload: "View", out: "View", stream: "Stream") -> None:
        """Enqueue the kernel, which raises the flag of `forebay.codec.device` where bytes are damaged."""
        from forebay.codec.device import damage_flag

        how = tiling(out.shape, out.dtype)
        _check_alignment(payload)
        if not how.tiles:
            return
        _, t1, t0 = how.counts
        args = (
            payload,
            payload.nbytes,
            out,
            MAGIC,
            how.kind,
            *how.extents,
            t1,
            t0,
            how.tiles,
            how.shift,
            damage_flag(),
        )
        _module(out.dtype, how.rank).launch(*decoder(out.pointer, how), args, stream)

    def canonical(self, payload: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        """Put the tiles in order: on a GPU, they lie in that in which they were done."""
        how = tiling(shape, dtype)
        words, end, _ = _opened(payload, how)
        ordered = np.zeros(end, np.uint32)
        ordered[: how.start // 4] = words[: how.start // 4]
        places = ordered[HEADER.size // 4 :][: how.tiles]
        after = cpu.reorder(words, end, how.start // 4, _plain(how), how.tiles, how.itemsize // 4, places, ordered)
        if after != end:
            raise EncodingError("the tiles of the encoding are damaged")
        return ordered.view(np.uint8)

    def _surveyed(self, flat: NDArray[Any], how: Tiling, places: NDArray[np.uint32]) -> tuple[float, float]:
        """Give the smallest and the largest finite value, and leave the largest magnitude of each tile in `places`."""
        bits = flat.view(f"i{how.itemsize}")
        if how.extents[2] < LANES // 2:
            places[:] = UNKNOWN
            return cpu.finite_range(flat, bits)
        parts = self._parts(how, how.tiles // how.counts[2] if how.rank > 1 else how.tiles)
        ends = np.array(self._each(lambda part: cpu.survey(bits, _plain(how), part, places), parts), bits.dtype)
        unsigned = ends.view(f"u{how.itemsize}")
        top, bottom, least = ends[:, 0].max(), unsigned[:, 1].max(), unsigned[:, 2].min()
        high, low, near = np.array([top, *np.array([bottom, least]).view(bits.dtype)]).view(flat.dtype)
        high, low = high if top >= 0 else near, low if bottom >> (8 * how.itemsize - 1) else near
        if np.isfinite(high) and np.isfinite(low):
            return float(low), float(high)
        return cpu.finite_range(flat, bits)

    def _parts(self, how: Tiling, count: int | None = None) -> list[tuple[int, int]]:
        """Share tiles, or `count` rows of them, among threads."""
        things = how.tiles if count is None else count
        parts = max(1, min(self.threads, how.tiles // FEWEST_TILES, things))
        return [(things * k // parts, things * (k + 1) // parts) for k in range(parts)]

    def _each(self, call: Any, parts: list[tuple[int, int]]) -> list[Any]:
        # The caller's thread does its share: of as many threads as processors, none waits for one to become free.
        others = [_pool().submit(call, part) for part in parts[:-1]]
        last = call(parts[-1])
        return [*(other.result() for other in others), last]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="forebay-bounded")


os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads are not there


@cache
def _module(dtype: np.dtype[Any], rank: int) -> "Module":
    from forebay.cuda.kernels import load

    return load(SOURCE, fmad=False, defines=defines(dtype, rank))


def defines(dtype: np.dtype[Any], rank: int) -> dict[str, int]:
    """Give the macros that make the kernels those of a type and a rank."""
    return {"DOUBLE": int(dtype.itemsize == 8), "RANK": rank}


def _grid(how: Tiling) -> tuple[int, int]:
    """Give the blocks of a grid and the threads of a block."""
    return -(-how.tiles // WARPS[how.rank]), 32 * WARPS[how.rank]


def decoder(pointer: int, how: Tiling) -> tuple[str, int, int]:
    """Give the kernel that decodes to an address, the blocks of its grid and the threads of a block.

    Memory is written in sectors of 32 bytes. Where lines of a volume do not all begin with one, the tiles of a thread
    block lie side by side and are written together; else by themselves.
    """
    beginnings = pointer | how.extents[2] * how.itemsize
    if how.rank < 3 or beginnings % SECTOR == 0:
        return "decode", *_grid(how)
    slow, middle, fast = how.counts
    blocks = slow * middle * -(-fast // WARPS[how.rank])
    return "decode_shifted" if beginnings % 16 else "decode_straight", blocks, 32 * WARPS[how.rank]


def _bound_given(given: str | float | None) -> float:
    try:
        bound = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        bound = 0.0
    if not 0 < bound < float("inf"):
        raise CodecError(f"bounded: {given!r} is no bound: give a number above zero, as in bounded:1e-4")
    return bound


def _threads_given(given: str | int) -> int:
    try:
        threads = int(given)
    except (TypeError, ValueError):
        threads = 0
    if threads < 1:
        raise CodecError(f"bounded:threads={given}: give a number of threads from 1 on, or leave it out")
    return threads


def _parts_at(out: "View", how: Tiling) -> int:
    return -(-(out.pointer + how.start) // 8) * 8


def _check_alignment(encoding: "View") -> None:
    if encoding.pointer % 8:
        raise CodecError(f"the encoding is at {encoding.pointer:#x}: on a GPU it must begin at a multiple of 8 bytes")


def _plain(how: Tiling) -> tuple[int, tuple[int, int, int], tuple[int, int, int], int]:
    return how.rank, how.extents, how.counts, how.shift


def _values_before(tile: int, how: Tiling) -> int:
    """Count the values of the tiles before one: where its part may begin, were they all kept as they are."""
    return int(cpu.values_before(tile, how.rank, how.extents, how.counts))


def _decoding_numbers(dtype: np.dtype[Any], step: float) -> tuple[Any, ...]:
    real = dtype.type
    if dtype.itemsize == 4:
        return real(step), real(1.5 * 2**23), np.int32(0x4B400000)
    return real(step), real(1.5 * 2**52), np.int32(0)


def _encoding_numbers(dtype: np.dtype[Any], bound: float, step: float) -> tuple[Any, ...]:
    step, *rest = _decoding_numbers(dtype, step)
    with np.errstate(all="ignore"):
        inverse = dtype.type(1) / step
    test = max(dtype.type(bound), np.finfo(dtype).smallest_subnormal)
    return step, inverse, test.view(f"i{dtype.itemsize}"), *rest


def _opened(payload: NDArray[np.uint8], how: Tiling) -> tuple[NDArray[np.uint32], int, float]:
    """Give the words of an encoding, how many they are, and its step."""
    size, step = read_header(payload, how)
    if size % 4:
        raise EncodingError(f"an encoding cannot have {size} bytes")
    whole = payload[:size]
    return (whole if whole.ctypes.data % 4 == 0 else whole.copy()).view(np.uint32), size // 4, step
