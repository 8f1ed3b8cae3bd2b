"""A checksum at memory speed, for blocks on their way to and from the disk."""

from hashlib import blake2b

import numpy as np
from numba import njit
from numpy.typing import NDArray

BLOCK = 4096
"""The checksum covers whole blocks of this many bytes."""

_WORDS = BLOCK // 8


def checksum(data: NDArray[np.uint8]) -> bytes:
    """Sum the 64-bit words of each block, and the words at each place of all blocks; digest the sums to 8 bytes.

    Of what a disk does to data, this notices (but for a chance of 2^-64 in the digest): any change of up to three
    words, any change inside one block (a flipped bit, a sector lost or stale), words or blocks exchanged, blocks
    missing at the end. It misses two blocks exchanged whose words add up to the same, and is no help against malice.

    `zlib.crc32` is the obvious choice, but the disk is faster: 2.1 GB/s on a core where a disk reads 5 GB/s. These sums
    run at 18 GB/s there, with the GIL free; the same in NumPy, in two passes, at 8. They are compiled once a process,
    in half a second, and not cached: Numba refuses to cache where it may not write.

    Parameters
    ----------
    data
        Bytes, aligned to 8, a whole number of blocks.

    Examples
    --------
    >>> data = np.zeros(2 * BLOCK, np.uint8)
    >>> before = checksum(data)
    >>> data[5000] = 1
    >>> checksum(data) == before
    False
    """
    words = data.view(np.uint64).reshape(-1, _WORDS)
    sums = np.zeros(len(words) + _WORDS, np.uint64)
    _add_up(words, sums[_WORDS:], sums[:_WORDS])
    return blake2b(sums.tobytes(), digest_size=8).digest()


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _add_up(words: NDArray[np.uint64], blocks: NDArray[np.uint64], places: NDArray[np.uint64]) -> None:
    for block in range(words.shape[0]):
        total = np.uint64(0)
        for place in range(_WORDS):
            word = words[block, place]
            total += word
            places[place] += word
        blocks[block] = total
