"""Pieces of a tier's memory: the one type that every machine hands out, and how they are aligned."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

ALIGNMENT = 256
"""Bytes to which arrays are aligned, which suits every copy, kernel and codec."""


def aligned(nbytes: int) -> int:
    """Round bytes up to a multiple of the alignment.

    Examples
    --------
    >>> aligned(0), aligned(1), aligned(512)
    (0, 256, 512)
    """
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Region(NamedTuple):
    """A piece of memory."""

    pointer: int
    nbytes: int
    array: NDArray[Any] | None = None
    """the same bytes for the host, where it can reach them; or an array, with gaps perhaps, that is only read"""

    def cut(self, start: int, nbytes: int) -> "Region":
        """Return a part of it."""
        array = None if self.array is None else self.array[start : start + nbytes]
        return Region(self.pointer + start, nbytes, array)

    @property
    def bytes(self) -> NDArray[Any]:
        """The bytes, of a region that the host reaches."""
        assert self.array is not None
        return self.array
