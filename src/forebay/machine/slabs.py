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
    heap: Heap
    """of its slab"""
    offset: int
    after: Sequence[Any]
    """what has to end before it may be written"""


class SlabHeap:
    """Slabs that grow with what is asked for, up to a budget, and are never given back before the heap itself.

    `make` makes a slab of so many bytes, `passed` tells whether an event has passed; no budget is one of no bytes.

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
        self._slabs: list[tuple[Slab, Heap]] = []

    def take(self, nbytes: int) -> Piece | None:
        """Take a piece, from a new slab where those that are there have no room; None where the budget has none."""
        wanted = aligned(nbytes)
        for slab, heap in self._slabs:
            if (taken := heap.take(wanted)) is not None:
                self.used += wanted
                return Piece(Region(slab.pointer, slab.nbytes, slab.array).cut(taken[0], nbytes), heap, *taken)
        return self.take(nbytes) if self.reserve(wanted) else None

    def reserve(self, nbytes: int) -> bool:
        """Take a slab that has at least so many bytes, before they are asked for; False where the budget has none."""
        size = min(max(nbytes, LEAST_SLAB, self.nbytes // 2), self.budget - self.nbytes)
        if size < nbytes or not size:
            return False
        self._slabs.append((self._make(size), Heap(size, passed=self._passed)))
        self.nbytes += size
        return True

    def give(self, piece: Piece, events: Sequence[Any]) -> None:
        """Take a piece back, with what has to end before it is written again."""
        taken = aligned(piece.region.nbytes)
        self.used -= taken
        piece.heap.give(piece.offset, taken, events)
