"""The header before streams of other libraries, which do not check what they read: sizes, a checksum, and what it is.

Eight words: bytes in all, bytes of the stream, checksum, format, bytes of the array, a number, the
stream's layout, and a zero.
The checksum adds up all words, each mixed with its place, so that a GPU can make it in any order. It notices damage,
but is no help against malice.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import EncodingError

if TYPE_CHECKING:
    from cuda.core import Stream

    from forebay.cuda.arrays import View

WORDS = 8
HEADER = 8 * WORDS
STREAM_BYTES, CHECKSUM = 1, 2
SOURCE = Path(__file__).with_name("seal.cu")
THREADS = 256
THREAD_BLOCKS = 1056


class Format(IntEnum):
    """Whose stream follows the header."""

    BLOSC2 = 1
    NVCOMP = 2


@dataclass(frozen=True)
class Seal:
    """What the header says of a sound encoding."""

    format: Format
    nbytes: int
    """of the array"""
    number: float = 0.0
    """what the codec has to say: a bound"""
    code: int = 0
    """how the stream is laid out, in its library's own numbers"""


def seal(payload: NDArray[np.uint8], stream_nbytes: int, about: Seal) -> int:
    """Write the header before a stream that is in its place, and return the bytes of both."""
    total = HEADER + stream_nbytes
    words = np.zeros(WORDS, np.uint64)
    number = struct.unpack("<Q", struct.pack("<d", about.number))[0]
    words[:] = total, stream_nbytes, 0, about.format, about.nbytes, number, about.code, 0
    words[CHECKSUM] = _checksum(words, payload[HEADER:total])
    payload[:HEADER] = words.view(np.uint8)
    return total


def unseal(payload: NDArray[np.uint8], nbytes: int) -> tuple[Seal, NDArray[np.uint8]]:
    """Read the header of an encoding of so many bytes of array; return it and the stream, which is aligned to 8."""
    if payload.nbytes < HEADER:
        raise EncodingError(f"{payload.nbytes} bytes are no encoding: its header has {HEADER}")
    if payload.ctypes.data % 8:
        payload = _aligned_copy(payload)
    words = payload[:HEADER].view(np.uint64)
    total, stream, checksum, kind, original = (int(word) for word in words[:5])
    if total != payload.nbytes or stream != total - HEADER:
        raise EncodingError(f"the encoding is damaged or cut short: {payload.nbytes} bytes where it says {total}")
    if _checksum(words, payload[HEADER:]) != checksum:
        raise EncodingError("the encoding is damaged: its checksum does not match")
    if original != nbytes:
        raise EncodingError(f"the encoding is of an array of {original} bytes, not of {nbytes}")
    if kind not in set(Format):
        raise EncodingError(f"the encoding has format {kind}: read it with a newer Forebay")
    number = float(words[5:6].view(np.float64)[0])
    return Seal(Format(kind), original, number, int(words[6])), payload[HEADER:]


def seal_device(payload: "View", about: Seal, stream: "Stream") -> None:
    """Enqueue the writing of the header; its word `STREAM_BYTES` is in place, and its checksum zero."""
    number = struct.unpack("<Q", struct.pack("<d", about.number))[0]
    args = [payload.pointer, about.format, about.nbytes, number, about.code]
    _module().launch("seal", THREAD_BLOCKS, THREADS, args, stream)


def check_device(
    payload: "View", about: Seal, scratch: int, spare: "View | None", damage: int, stream: "Stream"
) -> None:
    """Enqueue the checking of an encoding, and the replacing of a damaged stream by a spare one.

    Parameters
    ----------
    payload
        An encoding of at least `HEADER` bytes and those of `spare`.
    about
        What it should be; the number is not looked at.
    scratch
        Eight bytes on the device, zero, that no other stream uses.
    spare
        A sound stream of an array of that size.
    damage
        The word that is set where the encoding is not what it should be.
    stream
        The stream whose order is kept.
    """
    module = _module()
    module.launch("resum", THREAD_BLOCKS, THREADS, [payload.pointer, payload.nbytes, scratch], stream)
    where, nbytes = (spare.pointer, spare.nbytes) if spare else (0, 0)
    args = [payload.pointer, payload.nbytes, about.format, about.nbytes, about.code, scratch, where, nbytes, damage]
    module.launch("judge", THREAD_BLOCKS, THREADS, args, stream)


def _module() -> Any:
    from forebay.cuda.kernels import load  # it needs cuda.core

    return load(SOURCE)


def _checksum(header: NDArray[np.uint64], stream: NDArray[np.uint8]) -> int:
    from forebay.codec.nvcomp.cpu import mixed_sum  # it needs Numba

    words = header.copy()
    words[CHECKSUM] = 0
    whole = stream.nbytes // 8 * 8
    last = np.zeros(8, np.uint8)
    last[: stream.nbytes - whole] = stream[whole:]
    body = stream[:whole]
    if body.ctypes.data % 8:
        body = _aligned_copy(body)
    total = int(mixed_sum(words, 0)) + int(mixed_sum(body.view(np.uint64), WORDS))
    if stream.nbytes > whole:
        total += int(mixed_sum(last.view(np.uint64), WORDS + whole // 8))
    return total % 2**64


def _aligned_copy(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    room = np.empty(-(-data.nbytes // 8), np.uint64).view(np.uint8)[: data.nbytes]
    room[:] = data
    return room
