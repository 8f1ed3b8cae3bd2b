"""Codecs on a GPU: room, sizes that arrive later, and the flag that decoders raise when they meet damaged bytes."""

from functools import cache
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import LEGACY_DEFAULT_STREAM, Stream
from numpy.typing import NDArray

from forebay.codec.codec import ALIGNMENT, Codec, Encoded, check_room
from forebay.cuda.arrays import View, view
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import checked, current_device
from forebay.cuda.mailbox import post
from forebay.cuda.slab import DeviceSlab
from forebay.cuda.stream import callers_streams
from forebay.errors import CodecError, EncodingError


def encode(codec: Codec, array: Any, out: Any, stream: Stream | None) -> Encoded:
    """Enqueue the encoding of a GPU array."""
    stream = stream or _callers_stream()
    source = view(array)
    if not source.contiguous:
        raise CodecError("a GPU array with gaps cannot be encoded: make it contiguous first")
    codec.check(source.dtype)
    most = codec.max_bytes(source.shape, source.dtype)
    owner = DeviceSlab(max(1, most)) if out is None else out
    room = View.at(owner.pointer, (most,), np.uint8) if out is None else view(out)
    check_room(room.nbytes, most)
    codec.encode_device(source, room, stream)
    size = (lambda: most) if codec.fixed else post(room.pointer, stream).value
    return Encoded(codec, source.shape, source.dtype, room, size, owner)


def decode(codec: Codec, encoded: Encoded, out: Any, stream: Stream | None) -> Any:
    """Enqueue the decoding of an encoding on the device, into a GPU array or a new one of CuPy."""
    stream = stream or _callers_stream()
    if out is None:
        import cupy

        out = cupy.empty(encoded.shape, encoded.dtype)
    target = view(out)
    if (target.shape, target.dtype) != (encoded.shape, encoded.dtype) or not target.contiguous:
        raise CodecError(f"the encoding is of a {encoded.dtype}{list(encoded.shape)}: give such a contiguous array")
    codec.decode_device(View.at(encoded.payload.pointer, (encoded.nbytes,), np.uint8), target, stream)
    return out


def upload(payload: NDArray[np.uint8], room: View, stream: Stream) -> None:
    """Copy an encoding to the device and wait for it."""
    copy_async(room.pointer, payload.ctypes.data, payload.nbytes, stream)
    stream.record().sync()


def download(payload: View, nbytes: int) -> NDArray[np.uint8]:
    """Copy an encoding to the host, in the order of the caller's stream."""
    stream = _callers_stream()
    data = np.empty(nbytes, np.uint8)
    copy_async(data.ctypes.data, payload.pointer, nbytes, stream)
    stream.record().sync()
    return data


def _callers_stream() -> Stream:
    return next(iter(callers_streams()), LEGACY_DEFAULT_STREAM)


@cache
def _damage_of(device: int) -> DeviceSlab:
    slab = DeviceSlab(ALIGNMENT)
    stream = current_device().create_stream()
    zeros = np.zeros(ALIGNMENT, np.uint8)
    copy_async(slab.pointer, zeros.ctypes.data, ALIGNMENT, stream)
    stream.record().sync()
    return slab


DAMAGED, REFUSED = 1, 2
"""The bits of the flag: bytes that are no encoding; values, or encodings of another library, that cannot be taken."""


def damage_flag() -> int:
    """Give the address of the word in which kernels set DAMAGED or REFUSED.

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
