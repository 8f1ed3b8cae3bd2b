"""Sealed streams of nvCOMP: on the CPU and the GPU alike, with nothing allocated after the first."""

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.nvcomp import library as nvcomp
from forebay.codec.nvcomp.library import Queue, StreamLayout
from forebay.codec.nvcomp.seal import HEADER, STREAM_BYTES, Format, Seal, check_device, seal, seal_device, unseal
from forebay.errors import CodecError, DeviceError, EncodingError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View
    from forebay.cuda.slab import DeviceSlab


def most_bytes(nbytes: int) -> int:
    """Return the bytes of the longest encoding of an array."""
    return HEADER + nvcomp.most_bytes(nbytes)


def encode_host(layout: StreamLayout, array: NDArray[Any], out: NDArray[np.uint8], delta: float = 0.0) -> int:
    """Encode a contiguous array of the host, and return the bytes."""
    about = Seal(Format.NVCOMP, layout.nbytes, delta / 2, layout.code)
    if not layout.nbytes:
        return seal(out, 0, about)
    if out.ctypes.data % 8:
        room = np.empty(out.nbytes // 8 + 1, np.uint64).view(np.uint8)
        nbytes = encode_host(layout, array, room, delta)
        out[:nbytes] = room[:nbytes]
        return nbytes
    return seal(out, nvcomp.compress_host(layout, array.ctypes.data, out.ctypes.data + HEADER, delta), about)


def decode_host(layout: StreamLayout, stream: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """Decode a stream that `unseal` has found sound."""
    if layout.nbytes:
        nvcomp.uncompress_host(layout, stream.ctypes.data, stream.nbytes, out.ctypes.data)


def open_host(payload: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    """Return the stream of an encoding, refusing one that is damaged or not of nvCOMP."""
    about, stream = unseal(payload, nbytes)
    if about.format != Format.NVCOMP:
        raise EncodingError(f"the encoding holds a stream of {about.format.name.lower()}, not of nvCOMP")
    return stream


def scratch_bytes(nbytes: int) -> int:
    """Return the bytes of the device that decoding takes: a stream of zeros, and the room in which it is made first."""
    return 16 + nvcomp.zeros_bytes(nbytes) + nvcomp.most_bytes(nbytes) if nbytes else 8


def encode_device(layout: StreamLayout, array: "View", out: "View", delta: float, stream: "Stream") -> None:
    """Enqueue the encoding of an array of the device."""
    if out.pointer % 8:
        raise CodecError("the room for an encoding must begin at a multiple of 8 bytes")
    _clear(out.pointer, HEADER, stream)
    if layout.nbytes:
        queue = _queue(stream)
        nvcomp.compress_device(layout, array.pointer, out.pointer + HEADER, delta, queue)
        nvcomp.size_device(out.pointer + HEADER, out.pointer + 8 * STREAM_BYTES, queue)
    seal_device(out, Seal(Format.NVCOMP, layout.nbytes, delta / 2, layout.code), stream)


def decode_device(layout: StreamLayout, payload: "View", out: "View", stream: "Stream") -> None:
    """Enqueue the decoding of an encoding of the device.

    The library trusts the bytes it reads. So the checksum is taken first, in the same stream, and where it is wrong
    a stream of zeros is put in the place of the damaged one before the library reads it, and the flag is raised.
    """
    from forebay.codec.device import damage_flag

    queue = _queue(stream)
    spare = _spare(layout, out, stream) if layout.nbytes else None
    if payload.pointer % 8:
        raise CodecError("an encoding must begin at a multiple of 8 bytes")
    if payload.nbytes < HEADER + (spare.nbytes if spare else 0):  # zeros have the shortest of all streams
        raise EncodingError(
            f"{payload.nbytes} bytes are too few for an encoding by nvCOMP: cut short, or made elsewhere"
        )
    scratch = _scratch(queue)
    _clear(scratch, 8, stream)
    about = Seal(Format.NVCOMP, layout.nbytes, code=layout.code)
    check_device(payload, about, scratch, spare, damage_flag(), stream)
    if layout.nbytes:
        nvcomp.uncompress_device(layout, payload.pointer + HEADER, out.pointer, queue)


class _Scratch(threading.local):
    """Words of a thread, one a stream: two threads may interleave what they enqueue on the same stream."""

    def __init__(self) -> None:
        self.of: dict[Queue, DeviceSlab] = {}


_words = _Scratch()
_spares: dict[tuple[int, StreamLayout], tuple["DeviceSlab", "View"]] = {}
_lock = threading.Lock()


def _scratch(queue: Queue) -> int:
    from forebay.cuda.slab import DeviceSlab

    if queue not in _words.of:
        _words.of[queue] = DeviceSlab(8)
    return _words.of[queue].pointer


def _spare(layout: StreamLayout, out: "View", stream: "Stream") -> "View":
    """Return a stream of zeros on the device; `out`, about to be overwritten, lends the zeros the first time."""
    from forebay.cuda.arrays import View
    from forebay.cuda.copy import copy_async
    from forebay.cuda.slab import DeviceSlab

    key = _queue(stream).device, layout
    with _lock:
        if key not in _spares:
            try:
                slab = _zeros_on_device(layout, out, stream)
            except DeviceError:  # no room for the longest stream; the host is slower, but has it
                data = _zeros_on_host(layout)
                slab = DeviceSlab(data.nbytes)
                copy_async(slab.pointer, data.ctypes.data, data.nbytes, stream)
                stream.record().sync()
            _spares[key] = slab, View.at(slab.pointer, (slab.nbytes,), np.uint8)
        return _spares[key][1]


def _zeros_on_device(layout: StreamLayout, out: "View", stream: "Stream") -> "DeviceSlab":
    from forebay.cuda.copy import copy_async
    from forebay.cuda.mailbox import post
    from forebay.cuda.slab import DeviceSlab

    queue = _queue(stream)
    with DeviceSlab(8 + nvcomp.most_bytes(layout.nbytes)) as room:
        _clear(out.pointer, layout.nbytes, stream)
        nvcomp.compress_device(layout, out.pointer, room.pointer + 8, 1.0, queue)
        nvcomp.size_device(room.pointer + 8, room.pointer, queue)
        slab = DeviceSlab(post(room.pointer, stream).value())
        copy_async(slab.pointer, room.pointer + 8, slab.nbytes, stream)
        stream.record().sync()
    return slab


def _zeros_on_host(layout: StreamLayout) -> NDArray[np.uint8]:
    zeros = np.zeros(layout.nbytes, np.uint8)  # pages that are only read take no memory
    room = np.empty(nvcomp.most_bytes(layout.nbytes), np.uint8)
    return room[: nvcomp.compress_host(layout, zeros.ctypes.data, room.ctypes.data, 1.0)].copy()


def _queue(stream: "Stream") -> Queue:
    from forebay.cuda.driver import current_device

    return Queue(current_device().device_id, int(stream.handle))


def _clear(pointer: int, nbytes: int, stream: "Stream") -> None:
    from cuda.bindings import driver

    from forebay.cuda.driver import checked

    checked(driver.cuMemsetD8Async(pointer, 0, nbytes, stream.handle), "clearing memory on the device")
