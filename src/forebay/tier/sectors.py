"""Chunks of a buffer moved to and from a file in whole aligned sectors, with a checksum each."""

import mmap
import os
import threading

import numpy as np
import xxhash
from numpy.typing import NDArray

SECTOR = 4096
"""Bytes to whose multiples files and snapshots are rounded up."""
CHUNK = 4 << 20
"""Bytes moved and checked at a time."""

_thread = threading.local()


def whole_sectors(size: int) -> int:
    """Round bytes up to whole sectors.

    Examples
    --------
    >>> whole_sectors(0), whole_sectors(1), whole_sectors(8192)
    (0, 4096, 8192)
    """
    return -(-size // SECTOR) * SECTOR


def checksum(data: NDArray[np.uint8]) -> bytes:
    """Digest bytes to 8, at the speed of memory and with the GIL free: no help against malice.

    Examples
    --------
    >>> data = np.zeros(2 * SECTOR, np.uint8)
    >>> before = checksum(data)
    >>> data[5000] = 1
    >>> checksum(data) == before
    False
    """
    return xxhash.xxh3_64(data.data).digest()


def write_chunk(fd: int, part: NDArray[np.uint8], offset: int) -> bytes:
    """Write one chunk, padded with zeros to whole sectors; return its checksum."""
    data = part
    if not _aligned(part):
        data = stage(whole_sectors(part.size))
        data[: part.size] = part
        data[part.size :] = 0
    digest = checksum(data)
    done = 0
    while done < data.size:  # a write that is cut short says why only when asked again
        done += os.pwrite(fd, data[done:].data, offset + done)
    return digest


def read_chunk(fd: int, part: NDArray[np.uint8], offset: int, digest: bytes) -> bool:
    """Read one chunk; tell whether it is what was written."""
    data = part if _aligned(part) else stage(whole_sectors(part.size))
    done = 0
    while done < data.size:
        got = os.preadv(fd, [data[done:].data], offset + done)
        if not got:
            return False
        done += got
    if checksum(data) != digest:
        return False
    if data is not part:
        part[:] = data[: part.size]
    return True


def stage(size: int) -> NDArray[np.uint8]:
    """Return the first bytes of this thread's own chunk, which is aligned as O_DIRECT wants it."""
    if not hasattr(_thread, "chunk"):
        _thread.chunk = np.frombuffer(mmap.mmap(-1, CHUNK), np.uint8)
    chunk: NDArray[np.uint8] = _thread.chunk
    return chunk[:size]


def _aligned(part: NDArray[np.uint8]) -> bool:
    return part.ctypes.data % SECTOR == 0 and part.size % SECTOR == 0
