"""A door to nvCOMP's own calls of Bitcomp, on the GPU and on the CPU: its Python codec allocates on every call.

Nothing here waits for a GPU. The calls on the CPU need the library, but neither a GPU nor a driver.
"""

import ctypes
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from forebay.errors import CodecError, EncodingError

INSTALL = "pip install nvidia-nvcomp-cu13, or nvidia-nvcomp-cu12 for CUDA 12"
SONAME = "libnvcomp.so.6"
UNIT = 8192
"""Bytes of an array that Bitcomp encodes at a time."""

ALGORITHMS = {"default": 0, "sparse": 1}

_ERRORS = {
    -1: "it does not take these parameters",
    -2: "these bytes are not its encoding",
    -3: "an array is not aligned: it must begin at a multiple of 8 bytes",
    -4: "it does not take arrays of this size",
    -5: "a kernel could not be launched",
    -6: "a call of CUDA failed",
}


class Kind(IntEnum):
    """The types of elements, as the library numbers them."""

    U8 = 0
    U16 = 2
    U32 = 4
    U64 = 6
    F32 = 9
    F64 = 10


@dataclass(frozen=True)
class StreamLayout:
    """What a plan of the library is made for."""

    nbytes: int
    kind: Kind
    algorithm: int

    @property
    def code(self) -> int:
        """What a decoder must know beside the size, as a number."""
        return self.kind | self.algorithm << 8

    @property
    def lossy(self) -> bool:
        """Whether values are rounded to multiples of a delta."""
        return self.kind in (Kind.F32, Kind.F64)


@dataclass(frozen=True)
class Queue:
    """A stream, by its handle, and the device that it belongs to: default streams of all devices have one handle."""

    device: int
    stream: int


def most_bytes(nbytes: int) -> int:
    """Return the bytes of the longest stream of an array; known without the library, which is asked to agree.

    Examples
    --------
    >>> most_bytes(2**20)
    1049632
    """
    return -(-nbytes // UNIT) * (UNIT + 8) + 32


def zeros_bytes(nbytes: int) -> int:
    """Return the bytes of the stream of an array of zeros, the shortest there is.

    Examples
    --------
    >>> zeros_bytes(2**20)
    1568
    """
    return -(-nbytes // UNIT) * 12 + 32


@cache
def library() -> ctypes.CDLL:
    """Load the library: that of the package, or else the one that the system finds."""
    places = [SONAME]
    with suppress(ModuleNotFoundError):
        spec = find_spec("nvidia.libnvcomp")
        folders = (spec.submodule_search_locations or []) if spec else []
        places = [*(str(Path(folder) / "lib64" / SONAME) for folder in folders), SONAME]
    for place in places:
        with suppress(OSError):
            return _declared(ctypes.CDLL(place))
    raise CodecError(f"nvCOMP ({SONAME}) cannot be loaded: {INSTALL}")


def available() -> bool:
    """Tell whether the library is there."""
    try:
        library()
    except CodecError:
        return False
    return True


def compress_host(layout: StreamLayout, source: int, out: int, delta: float = 0.0) -> int:
    """Encode an array of the host into room for `most_bytes`, and return the bytes of the stream."""
    _compress("bitcompHostCompress", layout, None, source, out, delta)
    size = ctypes.c_size_t()
    _checked(library().bitcompGetCompressedSize(out, ctypes.byref(size)))
    return size.value


def uncompress_host(layout: StreamLayout, stream: int, stream_nbytes: int, out: int) -> None:
    """Decode a stream of the host, refusing one of another layout; a damaged one must be refused before."""
    length, original = ctypes.c_size_t(stream_nbytes), ctypes.c_size_t()
    kind, mode, algorithm = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    answers = [ctypes.byref(value) for value in (length, original, kind, mode, algorithm)]
    if library().bitcompGetCompressedInfo(stream, *answers) or length.value != stream_nbytes:
        raise EncodingError("the encoding is damaged: its stream is not one of nvCOMP")
    if (original.value, kind.value, mode.value) != (layout.nbytes, layout.kind, layout.lossy):
        raise EncodingError("the encoding is of an array of another size or type")
    exact = StreamLayout(layout.nbytes, layout.kind, algorithm.value)
    _checked(library().bitcompHostUncompress(_plan(exact, None).handle, stream, out))


def compress_device(layout: StreamLayout, source: int, out: int, delta: float, queue: Queue) -> None:
    """Enqueue the encoding of an array of the device."""
    _compress("bitcompCompress", layout, queue, source, out, delta)


def size_device(source: int, where: int, queue: Queue) -> None:
    """Enqueue the writing of a stream's size to a word on the device."""
    _checked(library().bitcompGetCompressedSizeAsync(source, where, queue.stream))


def uncompress_device(layout: StreamLayout, source: int, out: int, queue: Queue) -> None:
    """Enqueue the decoding of a stream on the device; a damaged one must be replaced before."""
    _checked(library().bitcompUncompress(_plan(layout, queue).handle, source, out))


class _Plan:
    """A handle of the library, freed with the object."""

    def __init__(self, layout: StreamLayout, queue: Queue | None) -> None:
        lib = library()
        if lib.bitcompMaxBuflen(layout.nbytes) > most_bytes(layout.nbytes):
            raise CodecError("this nvCOMP needs more room than Forebay gives it: take version 6")
        self.handle = ctypes.c_void_p()
        mode = int(layout.lossy)
        made = lib.bitcompCreatePlan(ctypes.byref(self.handle), layout.nbytes, layout.kind, mode, layout.algorithm)
        _checked(made)
        weakref.finalize(self, lib.bitcompDestroyPlan, self.handle).atexit = False
        if queue is not None:
            _checked(lib.bitcompSetStream(self.handle, queue.stream))


class _Plans(threading.local):
    """Plans of a thread: a plan has one stream, and may not be used twice at a time. There are few sizes."""

    def __init__(self) -> None:
        self.of: dict[tuple[StreamLayout, Queue | None], _Plan] = {}


_plans = _Plans()


def _plan(layout: StreamLayout, queue: Queue | None) -> _Plan:
    key = layout, queue
    if key not in _plans.of:
        _plans.of[key] = _Plan(layout, queue)
    return _plans.of[key]


def _compress(call: str, layout: StreamLayout, queue: Queue | None, source: int, out: int, delta: float) -> None:
    handle = _plan(layout, queue).handle
    if layout.lossy:
        bits = 32 if layout.kind == Kind.F32 else 64
        _checked(getattr(library(), f"{call}Lossy_fp{bits}")(handle, source, out, delta))
    else:
        _checked(getattr(library(), f"{call}Lossless")(handle, source, out))


def _checked(result: int) -> None:
    if result:
        raise CodecError(f"nvCOMP refused: {_ERRORS.get(result, 'for a reason of its own')} (error {result})")


def _declared(lib: ctypes.CDLL) -> ctypes.CDLL:
    word, address, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    arguments = {
        "bitcompCreatePlan": [address, word, number, number, number],
        "bitcompDestroyPlan": [address],
        "bitcompSetStream": [address, address],
        "bitcompMaxBuflen": [word],
        "bitcompGetCompressedSize": [address, address],
        "bitcompGetCompressedSizeAsync": [address, address, address],
        "bitcompGetCompressedInfo": [address] * 6,
    }
    for where in ("", "Host"):
        arguments[f"bitcomp{where}CompressLossy_fp32"] = [address, address, address, ctypes.c_float]
        arguments[f"bitcomp{where}CompressLossy_fp64"] = [address, address, address, ctypes.c_double]
        arguments[f"bitcomp{where}CompressLossless"] = [address] * 3
        arguments[f"bitcomp{where}Uncompress"] = [address] * 3
    for name, types in arguments.items():
        function = getattr(lib, name)
        function.argtypes = types
        function.restype = word if name == "bitcompMaxBuflen" else number
    return lib
