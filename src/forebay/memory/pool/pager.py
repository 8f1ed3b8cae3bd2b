"""Moving arrays between device and host: rooms, fetches and write-backs, ordered by events and never waited for.

A page has one list of events: what has to end before anybody else may touch its place on the device. Whoever takes
the place over, its next owner or the link, waits for those and leaves its own behind.

Once it is known what comes next, arrays are brought in before their use. The next missing one comes first; another
leaves for it only if its own next use is later (so no fetch does harm). Only a few are on their way at a time: one that
arrives while another is computed, and a third whose place is still being written back, so that the link is busy both
ways. More would push out arrays that could have stayed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from forebay.errors import BudgetError
from forebay.machine.machine import PoolMachine, Wait
from forebay.memory.pool.coding import Coding
from forebay.memory.pool.eviction import Candidate, Order
from forebay.memory.pool.page import Page, PoolMemory, Values
from forebay.memory.pool.sequence import UseHistory
from forebay.units import to_text

CLEAN_AHEAD, DIRTY_AHEAD = 2, 3
"""Uses to come that arrays may be brought in for, where the one that leaves is clean, and where it is not."""


class Pager(PoolMemory):
    """The device's side of a pool."""

    def __init__(self, machine: PoolMachine, device: int, host: int, history: UseHistory) -> None:
        super().__init__(machine, device, host)
        self.order = Order(history)
        self.coding = Coding(self, self._empty)
        self._history = history
        self.ahead: dict[int, int] = {}
        """of the pages that were brought in for uses to come, the index of the use, by key"""
        self._next = 0  # index of the first use whose arrays are not all known to be there
        self._version = -1

    @property
    def usable(self) -> int:
        """Bytes of the device that arrays may take."""
        return self.heap.nbytes - self.coding.nbytes

    def add(self, page: Page) -> None:
        """Take a page up that has no values yet, refusing one that finds no room."""
        promised = page.spec.nbytes if page.codec is None else 0
        # First, so that whatever is stored to make room for it names a budget that holds both.
        self.host.promise(promised, page.name, partial(self.coding.to_come, page))
        try:
            self.coding.prepare(page)
        except BaseException:
            self.host.unpromise(promised)
            raise
        self.pages[page.key] = page

    def may_leave(self, key: int) -> bool:
        """Tell whether a page is in no open use."""
        return not self.pages[key].open

    def _empty(self) -> None:
        """Let everything leave the device that may."""
        while (victim := self.order.first(self.may_leave)) is not None:
            self.evict(self.pages[victim.key])

    def take_room(self, page: Page, may_push: Callable[[Candidate], bool] = lambda victim: True) -> bool:
        """Find a place for a page, letting others leave that it `may_push` out; False where none can be made."""
        while (taken := self.heap.take(page.size)) is None:
            victim = self.order.first(self.may_leave)
            if victim is None or not may_push(victim):
                return False
            self.evict(self.pages[victim.key])
        page.offset, page.events = taken
        page.origin = "room free"
        self.order.touch(page.key)
        peak = self.machine.metrics.peak
        peak["device"] = max(peak["device"], self.heap.used)
        return True

    def take_rooms(self, pages: Sequence[Page]) -> None:
        """Find places for all the pages of a use, which are open and together within the budget."""
        self._next = 0  # an array may leave whose use is near: look again
        if all(page.offset is not None or self.take_room(page) for page in pages):
            return
        # There are enough bytes, but in pieces: those that only this use has leave too, and come back in a row.
        for page in pages:
            if page.offset is not None and page.open == 1:
                self.evict(page)
        self.coding.lay_anew()  # its rooms may have been taken between arrays of uses that were open then
        for page in sorted(pages, key=lambda page: -page.size):
            if page.offset is None and not self.take_room(page):
                raise BudgetError(
                    f"{page.name} of {to_text(page.size)} finds no room between the arrays of uses that are still "
                    f"open: leave those first, or give a larger device budget than {to_text(self.heap.nbytes)}"
                )

    def fetch(self, page: Page) -> None:
        """Bring the values of a page to its place on the device."""
        if page.outgoing is not None:
            self.coding.settle(page)
        room = page.room
        assert room is not None
        stored = [] if room.stored is None else [Wait("fetch: stored", room.stored)]
        if page.codec is None:
            pairs = [(self.region(page), room.region)]
            room.read = event = self.machine.copies("up 1", "fetch", page.key, pairs, [*page.waits("fetch"), *stored])
        else:
            event = self.coding.fetch(page, room, stored)
        page.events, page.origin = [event], "fetched"
        self.count("up 1", moved=room.region.nbytes)

    def evict(self, page: Page) -> None:
        """Let a page leave the device; values that the host has not are written back."""
        assert page.offset is not None
        if page.values is Values.DIRTY:
            self.store(page)
        self.leave(page)

    def leave(self, page: Page) -> None:
        """Free the place of a page for others, who wait for what is under way there."""
        if page.offset is None:
            return
        self.heap.give(page.offset, page.size, page.events)
        self.order.remove(page.key)
        self.ahead.pop(page.key, None)
        page.offset = None
        page.events = []

    def look_ahead(self) -> None:
        """Bring arrays in before their use, as far as that should be under way now."""
        history = self._history
        if not history.believed:
            return
        if self._version != history.version:  # what was foretold does not hold
            self._next, self._version = 0, history.version
            self.ahead.clear()
        self._next = max(self._next, history.now + 1)
        while self._next <= history.now + history.period:
            use = history.expected(self._next)
            for key in use.keys:
                coming = self.pages.get(key)
                if coming is not None and coming.offset is None:
                    if not self.take_room(coming, self._may_push):
                        return  # it is tried again after the next use
                    self.ahead[key] = self._next
                    if key not in use.overwrites and coming.filled:
                        self.fetch(coming)
            self._next += 1

    def _may_push(self, victim: Candidate) -> bool:
        """Tell whether bringing an array in does no harm that pushes another out."""
        most = DIRTY_AHEAD if self.pages[victim.key].values is Values.DIRTY else CLEAN_AHEAD
        uses = set(self.ahead.values())
        return victim.next_use > self._next and (len(uses) < most or self._next in uses)

    def store(self, page: Page) -> None:
        """Write the values of a page back to the host."""
        if page.codec is not None:
            self.coding.store(page)
        else:
            after = page.waits("store")
            if page.room is None:
                page.room = self.host.take_exact(page.spec.nbytes)
                after += [Wait("store: host room free", event) for event in page.room.events]
            pairs = [(page.room.region, self.region(page))]
            page.room.stored = self.machine.copies("down 1", "store", page.key, pairs, after)
            page.events, page.origin = [page.room.stored], "stored"
            self.count("down 1", moved=page.spec.nbytes)
        page.values = Values.CLEAN

    def wrote(self, page: Page, filled: bool = True) -> None:
        """Note that the device has newer values of a page than the host, or that it has none any more."""
        page.values = Values.DIRTY if filled else Values.NONE
        if filled:
            self.count("down 1", per_use=page.spec.nbytes)
        if page.codec is not None:
            self.forget_copy(page)

    def forget_copy(self, page: Page) -> None:
        """Free the room of a page on the host, whose copy is not needed any more."""
        if page.outgoing is not None:
            self.coding.discard(page)
        if page.room is not None:
            self.host.give(page.room)
        page.room = None

    def drop(self, page: Page) -> None:
        """Forget a page and its values."""
        if page.values is Values.DROPPED:
            return
        self.leave(page)
        self.forget_copy(page)
        if page.codec is None:
            self.host.unpromise(page.spec.nbytes)
        del self.pages[page.key]
        page.values = Values.DROPPED

    def values(self, page: Page) -> Any:
        """Return the values of a page as bytes of the host, waiting for them."""
        on_device = page.offset is not None and page.origin != "room free"
        if on_device and page.codec is not None:
            return self.machine.read(self.region(page), page.waits("get"))
        if on_device and page.values is Values.DIRTY:
            self.store(page)
            page.events, page.origin = [], "computed"
        if page.room is not None and page.room.stored is not None:
            self.machine.sync([Wait("get: stored", page.room.stored)])
        if page.codec is not None:
            return self.coding.decoded(page)
        assert page.room is not None
        return page.room.region.bytes.copy()
