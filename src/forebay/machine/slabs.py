"""Host memory for arrays that left the device: taken in slabs, up to a budget, and kept for the next iteration."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forebay.machine.machine import Slab
from forebay.machine.region import Region, aligned
from forebay.tier.heap import Heap

LEAST_SLAB = 2**28
"""Pinning costs time by the call as well as by the byte, so few slabs are taken, and no small ones."""


class Piece(NamedTuple):
    """Some bytes of a slab."""

    region: Region
    slab: int
    """its number"""
    offset: int
    after: Sequence[Any]
    """what has to end before it may be written"""


class SlabHeap:
    """Slabs that grow with what is asked for and are never given back before the heap itself.

    Parameters
    ----------
    budget
        The most bytes of all slabs together; None allows none.
    make
        Makes a slab of so many bytes.
    passed
        Tells whether an event has passed.

    Examples
    --------
    >>> from forebay.machine.host import PlainSlab
    >>> heap = SlabHeap(1000, PlainSlab)
    >>> piece = heap.take(600)
    >>> heap.take(600) is None, heap.nbytes
    (True, 1000)
    >>> heap.give(piece, [])
    >>> heap.take(700).region.nbytes
    700
    """

    def __init__(
        self, budget: int | None, make: Callable[[int], Slab], passed: Callable[[Any], bool] = lambda event: True
    ) -> None:
        self.budget = budget or 0
        self.nbytes = 0
        self.used = 0
        """bytes that are taken"""
        self._make = make
        self._passed = passed
        self._slabs: list[tuple[Slab, Region, Heap]] = []

    def take(self, nbytes: int) -> Piece | None:
        """Take a piece, from a new slab where those that are there have no room; None where the budget has none."""
        wanted = aligned(nbytes)
        for number, (_, whole, heap) in enumerate(self._slabs):
            taken = heap.take(wanted)
            if taken is not None:
                offset, after = taken
                self.used += wanted
                return Piece(whole.cut(offset, nbytes), number, offset, after)
        return self.take(nbytes) if self.reserve(wanted) else None

    def reserve(self, nbytes: int) -> bool:
        """Take a slab that has at least so many bytes, before they are asked for; False where the budget has none."""
        size = min(max(nbytes, LEAST_SLAB, self.nbytes // 2), self.budget - self.nbytes)
        if size < nbytes or not size:
            return False
        slab = self._make(size)
        self._slabs.append((slab, Region(slab.pointer, size, slab.array), Heap(size, passed=self._passed)))
        self.nbytes += size
        return True

    def give(self, piece: Piece, events: Sequence[Any]) -> None:
        """Take a piece back, with what has to end before it is written again."""
        taken = aligned(piece.region.nbytes)
        self.used -= taken
        self._slabs[piece.slab][-1].give(piece.offset, taken, events)
