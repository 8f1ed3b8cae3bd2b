"""Codecs on a GPU: room, sizes that arrive later, and the flag that decoders raise when they meet damaged bytes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import LEGACY_DEFAULT_STREAM, Stream
from numpy.typing import NDArray

from forebay.cuda.arrays import View, view
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import checked, current_device, device_at, on_device
from forebay.cuda.mailbox import post
from forebay.cuda.slab import DeviceSlab
from forebay.cuda.stream import callers_streams
from forebay.errors import CodecError, EncodingError


def readable(array: Any, reads_windows: Callable[[tuple[int, ...], np.dtype[Any]], bool]) -> View:
    """Return where a GPU array lies that is contiguous, or a window that the codec reads."""
    source = view(array)
    if source.contiguous or (source.is_window and reads_windows(source.shape, source.dtype)):
        return source
    raise CodecError("a GPU array with such gaps cannot be encoded: make it contiguous first")


def beside(array: View) -> AbstractContextManager[None]:
    """Make the GPU current that an array lies on; an empty one may lie nowhere."""
    return on_device(device_at(array.pointer)) if array.pointer else nullcontext()


def room(nbytes: int, out: Any) -> tuple[View, Any]:
    """Return where an encoding goes, and what owns that memory: a GPU array, or a slab allocated here."""
    if out is not None:
        return view(out), out
    slab = DeviceSlab(max(1, nbytes))
    return View.at(slab.pointer, (nbytes,), np.uint8), slab


def posted(encoding: View, stream: Stream) -> Callable[[], int]:
    """Send the size that an encoding begins with to the host, and return what waits for it."""
    return post(encoding.pointer, stream).value


def target(shape: tuple[int, ...], dtype: np.dtype[Any], out: Any) -> tuple[Any, View]:
    """Return the GPU array that an encoding is decoded into, a new one of CuPy where none is given, and its place."""
    if out is None:
        import cupy

        out = cupy.empty(shape, dtype)
    place = view(out)
    if (place.shape, place.dtype) != (shape, dtype) or not place.contiguous:
        raise CodecError(f"the encoding is of a {dtype}{list(shape)}: give such a contiguous array")
    return out, place


def start(payload: View, nbytes: int) -> View:
    """Return the first bytes of an encoding's room: those that count."""
    return View.at(payload.pointer, (nbytes,), np.uint8)


def download(payload: View, nbytes: int) -> NDArray[np.uint8]:
    """Copy an encoding to the host, in the order of the caller's stream."""
    data = np.empty(nbytes, np.uint8)
    with beside(payload):
        stream = callers_stream()
        copy_async(data.ctypes.data, payload.pointer, nbytes, stream)
        stream.record().sync()
    return data


def callers_stream() -> Stream:
    """Return the stream that is current in the caller's GPU library, or the default one."""
    return next(iter(callers_streams()), LEGACY_DEFAULT_STREAM)


FLAG_BYTES = 256


@cache
def _damage_of(device: int) -> DeviceSlab:
    slab = DeviceSlab(FLAG_BYTES)
    stream = current_device().create_stream()
    zeros = np.zeros(FLAG_BYTES, np.uint8)
    copy_async(slab.pointer, zeros.ctypes.data, FLAG_BYTES, stream)
    stream.record().sync()
    return slab


DAMAGED, REFUSED = 1, 2
"""The bits of the flag: bytes that are no encoding; values, or encodings of another library, that cannot be taken."""


def damage_flag() -> int:
    """Return the address of the word in which kernels set DAMAGED or REFUSED.

    The bits stay set until `check_damage` has reported them.
    """
    return _damage_of(current_device().device_id).pointer


def clear_damage(stream: Stream) -> None:
    """Forget what codecs have noticed before, in the order of a stream."""
    checked(driver.cuMemsetD32Async(damage_flag(), 0, 2, stream.handle), "clearing the flag of damage")


def check_damage(stream: Stream) -> None:
    """Wait for a stream, and raise what its codecs have noticed."""
    pointer = damage_flag()
    flag = post(pointer, stream).value()
    if not flag:
        return
    clear_damage(stream)
    if flag & DAMAGED:
        raise EncodingError("an encoding was damaged before it was decoded on the GPU: its results are wrong")
    raise CodecError(
        "a codec met on the GPU what it cannot take there, and its results are wrong: NaN or infinities given to zfp "
        "(use another codec), or an encoding that another library made (decode it on the CPU)"
    )
