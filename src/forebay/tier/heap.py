"""The bytes of one tier, handed out in pieces of any size, each with what has to end before it may be written."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple


class _Use(NamedTuple):
    """What was done with some bytes by those who had them before."""

    start: int
    stop: int
    events: Sequence[Any]


@dataclass(eq=False, slots=True)
class _Piece:
    offset: int
    nbytes: int
    uses: list[_Use]

    def events(self) -> list[Any]:
        """List the events of its bytes, each once."""
        if len(self.uses) == 1:
            return list(self.uses[0].events)
        return list(dict.fromkeys(event for use in self.uses for event in use.events))

    def cut(self, nbytes: int) -> "_Piece":
        """Cut off what is behind the first bytes; each part keeps the events of its own bytes alone."""
        middle = self.offset + nbytes
        rest = _Piece(middle, self.nbytes - nbytes, [use for use in self.uses if use.stop > middle])
        self.nbytes, self.uses = nbytes, [use for use in self.uses if use.start < middle]
        return rest


class Heap:
    """A range of bytes.

    A piece of just the right size is taken first, and of several the one that came back first, whose copies have had
    the most time to end. Otherwise the smallest that is large enough is split. Neighbours are joined when nothing fits.

    It is cut at the start into pieces of the size that most will have, where `piece` says it. Events of which `passed`
    is true need not be remembered.

    Examples
    --------
    >>> heap = Heap(100)
    >>> heap.take(60), heap.take(60)
    ((0, []), None)
    >>> heap.give(20, 40, ["copied"])
    >>> heap.take(80), heap.used
    ((20, ['copied']), 100)
    """

    def __init__(
        self, nbytes: int, piece: int | None = None, passed: Callable[[Any], bool] = lambda event: False
    ) -> None:
        self.nbytes = nbytes
        self.used = nbytes
        self._end = nbytes
        self._passed = passed
        self._free: dict[int, deque[_Piece]] = {}
        step = min(piece or nbytes, nbytes) or 1
        for offset in range(0, nbytes, step):
            self.give(offset, min(step, nbytes - offset), [])

    def grow(self, nbytes: int) -> int:
        """Add bytes that lie elsewhere, and return the offset at which they begin: pieces never reach across."""
        start, self._end = self._end + 1, self._end + 1 + nbytes
        self.nbytes += nbytes
        self.used += nbytes
        self.give(start, nbytes, [])
        return start

    def fits(self, nbytes: int) -> bool:
        """Tell whether a piece can be taken."""
        if self.used + nbytes > self.nbytes:
            return False
        if nbytes in self._free:
            return True
        if max(self._free) < nbytes:
            self._join()
        return max(self._free) >= nbytes

    def take(self, nbytes: int) -> tuple[int, list[Any]] | None:
        """Take a piece: where it begins and what to wait for before it is written; None where there is no room."""
        if not self.fits(nbytes):
            return None
        piece = self._pop(nbytes)
        self.used += nbytes
        if piece.nbytes > nbytes:
            self._put(piece.cut(nbytes))
        return piece.offset, piece.events()

    def give(self, offset: int, nbytes: int, events: Sequence[Any]) -> None:
        """Take a piece back, or the end of one, with the events of its last uses."""
        if nbytes:
            self.used -= nbytes
            self._put(_Piece(offset, nbytes, [_Use(offset, offset + nbytes, events)] if events else []))

    def pack(self, taken: Sequence[tuple[int, int]]) -> list[int]:
        """Move taken pieces, given by offset and bytes in that order, together, and return where each begins now.

        None moves up. Nothing may be under way with any of the bytes.

        Examples
        --------
        >>> heap = Heap(100)
        >>> pieces = [heap.take(30)[0] for _ in range(3)]
        >>> heap.give(0, 30, [])
        >>> heap.fits(40), heap.pack([(30, 30), (60, 30)]), heap.fits(40)
        (False, [0, 30], True)
        """
        for offset, nbytes in taken:
            self.give(offset, nbytes, [])
        self._join()
        ranges = sorted(chain.from_iterable(self._free.values()), key=lambda piece: piece.offset)
        self._free.clear()
        offsets = []
        for _, nbytes in taken:
            place = next(piece for piece in ranges if piece.nbytes >= nbytes)
            offsets.append(place.offset)
            place.offset, place.nbytes, place.uses = place.offset + nbytes, place.nbytes - nbytes, []
            self.used += nbytes
        for rest in ranges:
            if rest.nbytes:
                self._put(rest)
        return offsets

    def under_way(self) -> list[Any]:
        """List the events that have to pass before all that is free may be written."""
        pieces = chain.from_iterable(self._free.values())
        return [event for piece in pieces for event in piece.events() if not self._passed(event)]

    def _put(self, piece: _Piece) -> None:
        self._free.setdefault(piece.nbytes, deque()).append(piece)

    def _pop(self, nbytes: int) -> _Piece:
        size = nbytes if nbytes in self._free else min(size for size in self._free if size > nbytes)
        pieces = self._free[size]
        piece = pieces.popleft()
        if not pieces:
            del self._free[size]
        return piece

    def _join(self) -> None:
        joined: list[_Piece] = []
        for piece in sorted(chain.from_iterable(self._free.values()), key=lambda piece: piece.offset):
            piece.uses = [use for use in piece.uses if not all(map(self._passed, use.events))]
            if joined and joined[-1].offset + joined[-1].nbytes == piece.offset:
                joined[-1].nbytes += piece.nbytes
                joined[-1].uses += piece.uses
            else:
                joined.append(piece)
        self._free.clear()
        for piece in joined:
            self._put(piece)


class Meter(Heap):
    """The bytes of a tier that finds places by itself, as a disk does: they are only counted."""

    def fits(self, nbytes: int) -> bool:
        """Tell whether there is room."""
        return self.used + nbytes <= self.nbytes

    def _put(self, piece: _Piece) -> None:
        return

    def _pop(self, nbytes: int) -> _Piece:
        return _Piece(0, nbytes, [])
