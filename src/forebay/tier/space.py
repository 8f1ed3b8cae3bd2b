"""Where snapshots lie in one file: ranges of bytes, taken, given back, and taken again before the file grows."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Extent(NamedTuple):
    """Bytes of a file or of a region of memory, one after the other."""

    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """Where the next byte lies."""
        return self.offset + self.nbytes


class FilePiece(NamedTuple):
    """Bytes of a snapshot, from `start` to `stop`, that lie at `offset` of the file."""

    offset: int
    start: int
    stop: int


class FileSpace:
    """The ranges of a file that are free; it never grows above the most bytes that were taken at once.

    A snapshot gets the smallest free range that holds it, or else the largest ones together, and what they lack at the
    end of the file. Snapshots of one size never lie in pieces.

    Examples
    --------
    >>> space = FileSpace()
    >>> [space.take(nbytes)[0] for nbytes in (30, 20, 10)]
    [[Extent(offset=0, nbytes=30)], [Extent(offset=30, nbytes=20)], [Extent(offset=50, nbytes=10)]]
    >>> space.give([Extent(0, 30), Extent(50, 10)])
    >>> space.take(45)
    ([Extent(offset=0, nbytes=30), Extent(offset=50, nbytes=15)], Extent(offset=60, nbytes=5))
    >>> space.end
    65
    """

    def __init__(self) -> None:
        self.end = 0
        self._free: list[Extent] = []

    def take(self, nbytes: int) -> tuple[list[Extent], Extent]:
        """Take bytes; return where they lie, and the last of them that the file has to grow by."""
        fitting = min(
            (hole for hole in self._free if hole.nbytes >= nbytes), key=lambda hole: hole.nbytes, default=None
        )
        holes = [fitting] if fitting else sorted(self._free, key=lambda hole: -hole.nbytes)
        taken: list[Extent] = []
        for hole in holes:
            if not nbytes:
                break
            part = Extent(hole.offset, min(hole.nbytes, nbytes))
            self._free.remove(hole)
            if hole.nbytes > part.nbytes:
                self._free.append(Extent(part.end, hole.nbytes - part.nbytes))
            taken.append(part)
            nbytes -= part.nbytes
        grown = Extent(self.end, nbytes)
        self.end = grown.end
        return _joined([*taken, grown]), grown

    def give(self, ranges: Iterable[Extent]) -> None:
        """Take ranges back."""
        self._free = _joined([*self._free, *ranges])


def pieces(ranges: Iterable[Extent], nbytes: int, most: int) -> Iterator[FilePiece]:
    """Yield where the bytes of a snapshot lie, in pieces of at most so many; ranges may be longer than it.

    Examples
    --------
    >>> list(pieces([Extent(64, 8), Extent(0, 8)], 12, 10))
    [FilePiece(offset=64, start=0, stop=8), FilePiece(offset=0, start=8, stop=12)]
    """
    start = 0
    for each in ranges:
        for offset in range(each.offset, each.end, most):
            stop = min(start + most, start + each.end - offset, nbytes)
            yield FilePiece(offset, start, stop)
            start = stop


def _joined(ranges: Iterable[Extent]) -> list[Extent]:
    """List ranges in the order of the file, neighbours as one and empty ones left out."""
    joined: list[Extent] = []
    for each in sorted(ranges):
        if joined and joined[-1].end == each.offset:
            joined[-1] = Extent(joined[-1].offset, joined[-1].nbytes + each.nbytes)
        elif each.nbytes:
            joined.append(each)
    return joined
