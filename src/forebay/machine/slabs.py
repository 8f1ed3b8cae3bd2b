"""Host memory for arrays that left the device: taken in slabs, and kept for whoever needs it next."""

from collections.abc import Callable, Iterator, Sequence
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
    size: int
    """bytes that are taken, no fewer than the region's"""
    after: list[Any]
    """what has to end before it may be written"""


class SlabHeap:
    """Slabs that grow with what is asked for; a piece is of the first that has room.

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
        self,
        budget: int | None,
        make: Callable[[int], Slab | Region],
        passed: Callable[[Any], bool] = lambda event: True,
    ) -> None:
        self.budget = budget or 0
        self.nbytes = 0
        self.used = 0
        """bytes that are taken"""
        self._make, self._passed = make, passed
        self._slabs: list[tuple[Slab | Region, Heap]] = []

    def take(self, nbytes: int, size: int | None = None) -> Piece | None:
        """Take a piece, of a new slab where the others have no room for its size; None where there is none."""
        size = aligned(nbytes) if size is None else size
        for slab, heap in self._slabs:
            if heap.used + size <= heap.nbytes and (taken := heap.take(size)) is not None:  # most are full
                self.used += size
                region = Region(slab.pointer, slab.nbytes, slab.array).cut(taken[0], nbytes)
                return Piece(region, heap, taken[0], size, taken[1])
        return self.take(nbytes, size) if self.reserve(size) else None

    def reserve(self, nbytes: int) -> bool:
        """Take a slab that has at least so many bytes, before they are asked for; False where there is none."""
        size = self.step(nbytes)
        if size < nbytes or not size:
            return False
        self._slabs.append((self._make(size), Heap(size, passed=self._passed)))
        self.nbytes += size
        return True

    def give(self, piece: Piece, events: Sequence[Any]) -> None:
        """Take a piece back, with what has to end before it is written again."""
        self.used -= piece.size
        piece.heap.give(piece.offset, piece.size, events)

    @property
    def empty(self) -> int:
        """Bytes of the slabs of which nothing is taken."""
        return sum(heap.nbytes for _, heap in self._slabs if not heap.used)

    def remove_empty(self) -> Iterator[tuple[Any, list[Any]]]:
        """Take those slabs away, each with what has to end before it is let go."""
        for slab, heap in [entry for entry in self._slabs if not entry[1].used]:
            self._slabs.remove((slab, heap))
            self.nbytes -= heap.nbytes
            taken = heap.take(heap.nbytes)
            yield slab, taken[1] if taken else []

    def step(self, nbytes: int) -> int:
        """Return the bytes of the slab to add where a piece finds no room, fewer than its where the budget has none."""
        return min(max(nbytes, LEAST_SLAB, self.nbytes // 2), self.budget - self.nbytes)
