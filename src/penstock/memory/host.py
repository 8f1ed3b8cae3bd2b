"""The host's side of a pool: pinned memory of exactly the size of each array, and rooms for encodings."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import BudgetError
from penstock.memory.machine import ALIGNMENT, Block, Machine, Slab, aligned, enough
from penstock.tier.heap import Heap
from penstock.tier.lanes import Wait
from penstock.units import to_text

STEP = 64 * 2**20
"""Bytes that are pinned at a time for encodings, at most but for one that needs more: pinning is slow, and their sizes
are not known before."""
GROWTH = 8
"""As long as they are few, so many parts of them that are pinned make the next. It does not depend on the budget, so
that a larger one is filled in the same way, and can be named."""
GRAINS = 8
"""Sizes of rooms for encodings between one power of two and the next: encodings of about one size take each other's
places, and none takes more than an eighth too much."""


def coarse(nbytes: int) -> int:
    """Round the bytes of an encoding up to those of a room.

    Examples
    --------
    >>> coarse(1025), coarse(36_000), coarse(36_800)
    (1280, 36864, 36864)
    """
    grain = max(ALIGNMENT, (1 << (max(1, nbytes).bit_length() - 1)) // GRAINS)
    return max(1, -(-nbytes // grain)) * grain


@dataclass(eq=False)
class Room:
    """Room for one array or encoding."""

    block: Block
    slab: "Slab | _Shared"
    offset: int = 0
    size: int = 0
    """bytes that are taken of a slab that is shared"""
    events: list[Any] = field(default_factory=list)
    """of whatever was done with it by those who had it before"""
    short: int = 0
    """bytes more that would be pinned for it, had the budget been larger"""


@dataclass(eq=False)
class _Shared:
    """A slab in which many encodings lie."""

    slab: Slab
    heap: Heap
    short: int
    """bytes more that it would have, had the budget been larger"""


class HostMemory:
    """Pinned memory within a budget.

    Room for an array that is kept as it is, is promised when the array is made, and pinned when it first leaves the
    device: so an array that never does costs no time, and one that has to will find its room. Room for encodings is
    given as long as there is some.
    """

    def __init__(self, budget: int, machine: Machine) -> None:
        self._budget = budget
        self._machine = machine
        self._promised = 0
        self._spare: defaultdict[int, list[tuple[Slab, list[Any]]]] = defaultdict(list)  # pinned before, by size
        self._shared: list[_Shared] = []
        self._slabs: set[Slab] = set()
        self._encodings = 0  # bytes of shared slabs
        self._squeezed = 0  # bytes that rooms are short of
        self.held = 0
        """Bytes that are pinned."""

    def promise(self, nbytes: int, name: str) -> None:
        """Promise room for an array."""
        if self._promised + nbytes + self._encodings > self._budget:
            self._let_go_of_unused()
        needed = self._promised + nbytes + self._encodings
        if needed > self._budget:
            raise BudgetError(
                f"no room on the host for {name} of {to_text(nbytes)}: {to_text(needed - nbytes)} of the host budget "
                f"of {to_text(self._budget)} are taken. Give Budget(host={self._enough(nbytes)!r}) or more, a codec, "
                "or drop arrays that are not needed any more"
            )
        self._promised += nbytes

    def unpromise(self, nbytes: int) -> None:
        """Take a promise back; the room was given back before."""
        self._promised -= nbytes

    def take_exact(self, nbytes: int) -> Room:
        """Give the room that was promised to an array."""
        if self._spare[nbytes]:
            slab, events = self._spare[nbytes].pop()
            return Room(Block(slab.pointer, nbytes, slab.array[:nbytes]), slab, events=events)
        if self.held + nbytes > self._budget:
            self._let_go_of_unused()
        slab = self._pin(nbytes)
        return Room(Block(slab.pointer, nbytes, slab.array[:nbytes]), slab)

    def take(self, nbytes: int, name: str) -> Room:
        """Give room for an encoding."""
        # Room of the exact size is looked for only where there is no other: it would fit nothing else later.
        if (room := self._take(coarse(nbytes), nbytes)) is not None:
            return room
        if (room := self._take(aligned(nbytes), nbytes)) is not None:
            room.short = coarse(nbytes)
            self._squeezed += room.short
            return room
        raise BudgetError(
            f"no room on the host for the encoding of {name} ({to_text(nbytes)}): the host budget of "
            f"{to_text(self._budget)} is taken. It fits beside what is there into "
            f"Budget(host={self._enough(coarse(nbytes))!r}), and others need more; or give a codec with a higher "
            "ratio, or drop arrays that are not needed any more"
        )

    def give(self, room: Room, events: Sequence[Any]) -> None:
        """Take a room back, with the events of its last uses."""
        if isinstance(room.slab, _Shared):
            room.slab.heap.give(room.offset, room.size, events)
            self._squeezed -= room.short
        else:
            self._spare[room.block.nbytes].append((room.slab, list(events)))

    def close(self) -> None:
        """Unpin everything."""
        for slab in self._slabs:
            slab.close()
        self._slabs.clear()
        self.held = 0

    def _take(self, size: int, nbytes: int) -> Room | None:
        for attempt in range(2):
            for shared in self._shared:
                if (taken := shared.heap.take(size)) is not None:
                    return _room(shared, *taken, size, nbytes)
            if self._budget - self._promised - self._encodings >= size:
                return self._take_new(size, nbytes)
            if attempt == 0:
                self._let_go_of_unused()
        return None

    def _take_new(self, size: int, nbytes: int) -> Room:
        if self.held + size > self._budget:
            self._let_go_of_unused()
        left = self._budget - max(self.held, self._promised + self._encodings)
        rooms = max(1, -(-min(STEP, self._encodings // GROWTH) // size))
        slab = self._pin(size * max(1, min(rooms, left // size)))
        self._encodings += slab.nbytes
        shared = _Shared(slab, Heap(slab.nbytes, passed=self._machine.passed), short=size * rooms - slab.nbytes)
        self._shared.append(shared)
        taken = shared.heap.take(size)
        assert taken is not None
        return _room(shared, *taken, size, nbytes)

    def _enough(self, more: int) -> str:
        """Name the budget in which all that is here finds room, and more, as it is laid out where there is no want."""
        short = self._squeezed + sum(shared.short for shared in self._shared)
        return enough(self._promised + self._encodings + short + more)

    def _pin(self, nbytes: int) -> Slab:
        slab = self._machine.pin(nbytes)
        self._slabs.add(slab)
        self.held += slab.nbytes
        self._machine.metrics.peak["host"] = max(self._machine.metrics.peak["host"], self.held)
        return slab

    def _let_go_of_unused(self) -> None:
        """Unpin what nothing is in, once what is under way there has ended."""
        unused = [entry for spare in self._spare.values() for entry in spare]
        self._spare.clear()
        for shared in [shared for shared in self._shared if not shared.heap.used]:
            taken = shared.heap.take(shared.slab.nbytes)
            unused.append((shared.slab, taken[1] if taken else []))
            self._shared.remove(shared)
            self._encodings -= shared.slab.nbytes
        for slab, events in unused:
            self._machine.sync([Wait("unpin: room free", event) for event in events])
            self._slabs.remove(slab)
            self.held -= slab.nbytes
            slab.close()


def _room(shared: _Shared, offset: int, events: list[Any], size: int, nbytes: int) -> Room:
    whole = Block(shared.slab.pointer, shared.slab.nbytes, shared.slab.array)
    return Room(whole.cut(offset, nbytes), shared, offset, size, events)
