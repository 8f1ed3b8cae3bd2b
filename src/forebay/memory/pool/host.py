"""The host's side of a pool: pinned memory of exactly the size of each array, and rooms for encodings."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from forebay.errors import BudgetError
from forebay.machine.machine import PoolMachine, Slab, Wait
from forebay.machine.region import ALIGNMENT, Region, aligned
from forebay.machine.slabs import Piece, SlabHeap
from forebay.tier.capacity import free_host_bytes, less_of_host
from forebay.units import Budget, to_text

STEP = 64 * 2**20
"""Bytes that are pinned at a time for encodings, at most but for one that needs more: pinning is slow, and their sizes
are not known before."""
GROWTH = 8
"""As long as they are few, so many parts of them that are pinned make the next."""
GRAINS = 8
"""Sizes of rooms for encodings between one power of two and the next: encodings of about one size take each other's
places, and none takes more than an eighth too much."""
CHECKED = 64 * 2**20
"""Bytes that are pinned before it is looked up again whether the host has as many as the budget allows."""
AMPLE = 1 << 62
"""A budget in which there is no want."""

ToCome = Callable[[], Iterable[int]]
"""Lists the most bytes that encodings of other arrays take, of those that the host has none of."""


def enough(nbytes: int) -> str:
    """Write bytes in three digits that are not less.

    Examples
    --------
    >>> enough(1024), enough(3_000_000_001)
    ('1.03kB', '3.01GB')
    """
    step = 10 ** max(0, len(str(nbytes)) - 3)
    return to_text(-(-nbytes // step) * step)


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
class HostRoom:
    """Room for one array or encoding."""

    region: Region
    held: "Slab | tuple[Piece, Piece]"
    """the slab of an array; of an encoding the piece that it has, and the one that it would have, were there no want"""
    events: list[Any] = field(default_factory=list)
    """of whatever was done with it by those who had it before"""
    stored: Any = None
    """the event of the last copy into it"""
    read: Any = None
    """the event of the last copy from it"""


class _Encodings(SlabHeap):
    """Slabs in which encodings lie."""

    def step(self, nbytes: int) -> int:
        """Return the bytes of the slab to add, in pieces of the size that finds no room."""
        pieces = max(1, -(-min(STEP, self.nbytes // GROWTH) // nbytes))
        return nbytes * min(pieces, (self.budget - self.nbytes) // nbytes)


class HostMemory:
    """Pinned memory within a budget.

    Room for an array that is kept as it is, is promised when the array is made, and pinned when it first leaves the
    device: so an array that never does costs no time, and one that has to will find its room. Room for encodings is
    given as long as there is some.

    How well encodings fill their slabs depends on the budget. So they are laid out a second time, on paper and as if
    there were no want: in the budget that this takes, everything so far finds its room, and that is what errors name.
    """

    def __init__(self, budget: int, machine: PoolMachine) -> None:
        self._budget = budget
        self._machine = machine
        self._spare: defaultdict[int, list[tuple[Slab, list[Any]]]] = defaultdict(list)  # pinned before, by size
        self._slabs: set[Slab] = set()
        self._encodings = _Encodings(budget, self._pin, machine.passed)  # within what is not promised to arrays
        self._ample = _Encodings(AMPLE, partial(Region, 0))  # only counted
        self._needed = 0  # the budget in which that has always found room, with what was promised
        self._unchecked = 0  # bytes that were pinned since it was looked up what the host has
        self.held = 0
        """Bytes that are pinned."""

    def promise(self, nbytes: int, name: str, others: ToCome = tuple) -> None:
        """Promise room for an array; `others` lists the most bytes of the encodings that are still to come."""
        if not self._have_left(nbytes):
            raise BudgetError(
                f"no room on the host for {name} of {to_text(nbytes)}: {to_text(self._budget - self._left)} of the "
                f"host budget of {to_text(self._budget)} are taken. Give {self._enough(others(), nbytes)}, a codec, or "
                "drop arrays that are not needed any more"
            )
        self._encodings.budget -= nbytes
        self._note_need()

    def unpromise(self, nbytes: int) -> None:
        """Take a promise back; the room was given back before."""
        self._encodings.budget += nbytes

    def take_exact(self, nbytes: int) -> HostRoom:
        """Return the room that was promised to an array."""
        slab, events = self._spare[nbytes].pop() if self._spare[nbytes] else (self._pin(nbytes), [])
        return HostRoom(Region(slab.pointer, nbytes, slab.array[:nbytes]), slab, events=events)

    def take(self, nbytes: int, name: str, others: ToCome = tuple) -> HostRoom:
        """Return room for an encoding of an array, with the same parameters."""
        # Room of the exact size is looked for only where there is no other: it would fit nothing else later.
        piece = self._take(nbytes, coarse(nbytes)) or self._take(nbytes, aligned(nbytes))
        if piece is None:
            raise BudgetError(
                f"no room on the host for the encoding of {name} ({to_text(nbytes)}): the host budget of "
                f"{to_text(self._budget)} is taken. Give {self._enough((nbytes, *others()))}, a codec with a higher "
                "ratio, or drop arrays that are not needed any more"
            )
        ample = self._ample.take(nbytes, coarse(nbytes))
        assert ample is not None
        self._note_need()
        return HostRoom(piece.region, (piece, ample), piece.after)

    def give(self, room: HostRoom) -> None:
        """Take a room back, with the events of its last uses."""
        events = [event for event in (room.stored, room.read) if event is not None]
        if isinstance(room.held, tuple):
            piece, ample = room.held
            self._encodings.give(piece, events)
            self._ample.give(ample, [])
        else:
            self._spare[room.region.nbytes].append((room.held, events))

    def close(self) -> None:
        """Unpin everything."""
        for slab in self._slabs:
            slab.close()
        self._slabs.clear()
        self.held = 0

    @property
    def _promised(self) -> int:
        return self._budget - self._encodings.budget

    @property
    def _left(self) -> int:
        return self._encodings.budget - self._encodings.nbytes

    def _take(self, nbytes: int, size: int) -> Piece | None:
        piece = self._encodings.take(nbytes, size)
        return self._encodings.take(nbytes, size) if piece is None and self._have_left(size) else piece

    def _have_left(self, nbytes: int) -> bool:
        """Tell whether so many bytes are left, and unpin slabs without encodings where that makes it so."""
        if self._left < nbytes <= self._left + self._encodings.empty:
            for slab, events in self._encodings.remove_empty():
                self._unpin(slab, events)
        return self._left >= nbytes

    def _note_need(self) -> None:
        self._needed = max(self._needed, self._promised + self._ample.nbytes)

    def _enough(self, encodings: Iterable[int], more: int = 0) -> str:
        """Name the budget in which all so far would have found room, and now encodings do and more bytes of arrays."""
        plan = deepcopy(self._ample)
        for nbytes in encodings:
            plan.take(nbytes, coarse(nbytes))
        needed = max(self._needed, self._promised + plan.nbytes + more)
        return f"Budget(host={enough(needed)!r}), which holds it with all that is in the pool now"

    def _pin(self, nbytes: int) -> Slab:
        if self.held + nbytes > self._budget:
            self._let_go_of_spare()
        self._unchecked += nbytes
        if self._unchecked >= CHECKED:
            self._check_host(nbytes)
        slab = self._machine.pin(nbytes)
        self._slabs.add(slab)
        self.held += slab.nbytes
        self._machine.metrics.peak["host"] = max(self._machine.metrics.peak["host"], self.held)
        return slab

    def _check_host(self, nbytes: int) -> None:
        """Refuse to pin more than the host has, though the budget allows it."""
        free = free_host_bytes()
        budget, less = less_of_host(Budget(host=self._budget), None if free is None else self.held + free)
        if less and self.held + nbytes > budget["host"]:
            self._let_go_of_spare()
        if less and self.held + nbytes > budget["host"]:
            raise BudgetError(
                f"{less}; {to_text(self.held)} are pinned, and another {to_text(nbytes)} find no room: drop arrays "
                "that are not needed any more, or give a codec"
            )
        self._unchecked = 0

    def _let_go_of_spare(self) -> None:
        """Unpin what arrays had that are gone."""
        spare = [entry for entries in self._spare.values() for entry in entries]
        self._spare.clear()
        for slab, events in spare:
            self._unpin(slab, events)

    def _unpin(self, slab: Slab, events: Sequence[Any]) -> None:
        """Unpin a slab, once what is under way there has ended."""
        self._machine.sync([Wait("unpin: room free", event) for event in events])
        self._slabs.remove(slab)
        self.held -= slab.nbytes
        slab.close()
