"""Chunks of a buffer moved to and from a file in whole aligned blocks, with a checksum each."""

import mmap
import os
import threading

import numpy as np
from numpy.typing import NDArray

from forebay.tier.checksum import BLOCK, checksum

CHUNK = 4 << 20
"""Bytes moved and checked at a time."""

_thread = threading.local()


def whole_blocks(size: int) -> int:
    """Round bytes up to whole blocks.

    Examples
    --------
    >>> whole_blocks(0), whole_blocks(1), whole_blocks(8192)
    (0, 4096, 8192)
    """
    return -(-size // BLOCK) * BLOCK


def write_chunk(fd: int, part: NDArray[np.uint8], offset: int) -> bytes:
    """Write one chunk, padded with zeros to whole blocks; give its checksum."""
    block = part
    if not _aligned(part):
        block = stage(whole_blocks(part.size))
        block[: part.size] = part
        block[part.size :] = 0
    digest = checksum(block)
    done = 0
    while done < block.size:  # a write that is cut short says why only when asked again
        done += os.pwrite(fd, block[done:].data, offset + done)
    return digest


def read_chunk(fd: int, part: NDArray[np.uint8], offset: int, digest: bytes) -> bool:
    """Read one chunk; tell whether it is what was written."""
    block = part if _aligned(part) else stage(whole_blocks(part.size))
    done = 0
    while done < block.size:
        got = os.preadv(fd, [block[done:].data], offset + done)
        if not got:
            return False
        done += got
    if checksum(block) != digest:
        return False
    if block is not part:
        part[:] = block[: part.size]
    return True


def stage(size: int) -> NDArray[np.uint8]:
    """Give the first bytes of this thread's own chunk, which is aligned as O_DIRECT wants it."""
    if not hasattr(_thread, "chunk"):
        _thread.chunk = np.frombuffer(mmap.mmap(-1, CHUNK), np.uint8)
    chunk: NDArray[np.uint8] = _thread.chunk
    return chunk[:size]


def _aligned(part: NDArray[np.uint8]) -> bool:
    return part.ctypes.data % BLOCK == 0 and part.size % BLOCK == 0
