"""Host memory for tensors that left the device: taken in slabs, up to a budget, and kept for the next iteration."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.machine.region import aligned
from forebay.tier.heap import Heap

LEAST_SLAB = 2**28
"""Pinning costs time by the call as well as by the byte, so few slabs are taken, and no small ones."""


class Piece(NamedTuple):
    """Some bytes of a slab."""

    slab: int
    offset: int
    nbytes: int
    address: int
    whole: NDArray[np.uint8]
    """the slab"""
    after: Sequence[Any]
    """what has to end before it may be written"""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The bytes."""
        return self.whole[self.offset : self.offset + self.nbytes]


class Room:
    """Slabs that grow with what is asked for and are never given back before the room itself.

    Parameters
    ----------
    budget
        The most bytes of all slabs together; None allows none.
    slab
        Makes a slab of so many bytes.
    passed
        Tells whether an event has passed.

    Examples
    --------
    >>> room = Room(1000, lambda nbytes: np.empty(nbytes, np.uint8))
    >>> one = room.take(600)
    >>> room.take(600) is None, room.nbytes
    (True, 1000)
    >>> room.give(one, [])
    >>> room.take(700).array.nbytes
    700
    """

    def __init__(
        self,
        budget: int | None,
        slab: Callable[[int], Any],
        passed: Callable[[Any], bool] = lambda event: True,
    ) -> None:
        self.budget = budget or 0
        self.nbytes = 0
        self.used = 0
        """bytes that are taken"""
        self._slab = slab
        self._passed = passed
        self._slabs: list[tuple[Any, NDArray[np.uint8], int, Heap]] = []  # with their addresses

    def take(self, nbytes: int) -> Piece | None:
        """Take a piece, from a new slab where those that are there have no room; None where the budget has none."""
        wanted = aligned(nbytes)
        for number, (_, array, address, heap) in enumerate(self._slabs):
            found = heap.take(wanted)
            if found is not None:
                offset, after = found
                self.used += wanted
                return Piece(number, offset, nbytes, address + offset, array, after)
        return self.take(nbytes) if self.reserve(wanted) else None

    def reserve(self, nbytes: int) -> bool:
        """Take a slab that has at least so many bytes, before they are asked for; False where the budget has none."""
        size = min(max(nbytes, LEAST_SLAB, self.nbytes // 2), self.budget - self.nbytes)
        if size < nbytes or not size:
            return False
        slab = self._slab(size)
        array = slab if isinstance(slab, np.ndarray) else slab.array
        self._slabs.append((slab, array, int(array.ctypes.data), Heap(size, passed=self._passed)))
        self.nbytes += size
        return True

    def give(self, piece: Piece, events: Sequence[Any]) -> None:
        """Give a piece back, with what has to end before it is written again."""
        taken = aligned(piece.nbytes)
        self.used -= taken
        self._slabs[piece.slab][-1].give(piece.offset, taken, events)
