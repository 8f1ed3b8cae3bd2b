"""Where snapshots lie in one file: ranges of bytes, taken, given back, and taken again before the file grows."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class FileRange(NamedTuple):
    """Bytes of a file, one after the other."""

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
    [[FileRange(offset=0, nbytes=30)], [FileRange(offset=30, nbytes=20)], [FileRange(offset=50, nbytes=10)]]
    >>> space.give([FileRange(0, 30), FileRange(50, 10)])
    >>> space.take(45)
    ([FileRange(offset=0, nbytes=30), FileRange(offset=50, nbytes=15)], FileRange(offset=60, nbytes=5))
    >>> space.end
    65
    """

    def __init__(self) -> None:
        self.end = 0
        self._free: list[FileRange] = []

    def take(self, nbytes: int) -> tuple[list[FileRange], FileRange]:
        """Take bytes; return where they lie, and the last of them that the file has to grow by."""
        fitting = min(
            (hole for hole in self._free if hole.nbytes >= nbytes), key=lambda hole: hole.nbytes, default=None
        )
        holes = [fitting] if fitting else sorted(self._free, key=lambda hole: -hole.nbytes)
        taken: list[FileRange] = []
        for hole in holes:
            if not nbytes:
                break
            part = FileRange(hole.offset, min(hole.nbytes, nbytes))
            self._free.remove(hole)
            if hole.nbytes > part.nbytes:
                self._free.append(FileRange(part.end, hole.nbytes - part.nbytes))
            taken.append(part)
            nbytes -= part.nbytes
        grown = FileRange(self.end, nbytes)
        self.end = grown.end
        return _joined([*taken, grown]), grown

    def give(self, ranges: Iterable[FileRange]) -> None:
        """Take ranges back."""
        self._free = _joined([*self._free, *ranges])


def pieces(ranges: Iterable[FileRange], nbytes: int, most: int) -> Iterator[FilePiece]:
    """Yield where the bytes of a snapshot lie, in pieces of at most so many; ranges may be longer than it.

    Examples
    --------
    >>> list(pieces([FileRange(64, 8), FileRange(0, 8)], 12, 10))
    [FilePiece(offset=64, start=0, stop=8), FilePiece(offset=0, start=8, stop=12)]
    """
    start = 0
    for each in ranges:
        for offset in range(each.offset, each.end, most):
            stop = min(start + most, start + each.end - offset, nbytes)
            yield FilePiece(offset, start, stop)
            start = stop


def _joined(ranges: Iterable[FileRange]) -> list[FileRange]:
    """List ranges in the order of the file, neighbours as one and empty ones left out."""
    joined: list[FileRange] = []
    for each in sorted(ranges):
        if joined and joined[-1].end == each.offset:
            joined[-1] = FileRange(joined[-1].offset, joined[-1].nbytes + each.nbytes)
        elif each.nbytes:
            joined.append(each)
    return joined
