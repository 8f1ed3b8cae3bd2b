"""Moving arrays between device and host: rooms, fetches and write-backs, ordered by events and never waited for.

A page has one list of events: what has to end before anybody else may touch its place on the device. Whoever takes
the place over, its next owner or the link, waits for those and leaves its own behind.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from forebay.errors import BudgetError
from forebay.machine.machine import PoolMachine, Wait
from forebay.memory.pool.coding import Coding
from forebay.memory.pool.eviction import Order
from forebay.memory.pool.page import Page
from forebay.memory.pool.places import PoolMemory
from forebay.memory.pool.sequence import UseHistory
from forebay.units import to_text


class Pager(PoolMemory):
    """The device's side of a pool."""

    def __init__(self, machine: PoolMachine, device: int, host: int, history: UseHistory) -> None:
        super().__init__(machine, device, host)
        self.order = Order(history)
        self.coding = Coding(self, self._empty)
        self.ahead: Counter[int] = Counter()
        """How many pages were brought in for each use that is still to come."""

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

    def take_room(self, page: Page) -> bool:
        """Find a place for a page, letting others leave; False where none can be made."""
        while not self.try_room(page):
            victim = self.order.first(self.may_leave)
            if victim is None:
                return False
            self.evict(self.pages[victim.key])
        return True

    def try_room(self, page: Page) -> bool:
        """Find a place for a page that is free already."""
        taken = self.heap.take(page.size)
        if taken is None:
            return False
        page.offset, page.events = taken
        page.origin = "room free"
        self.order.touch(page.key)
        peak = self.machine.metrics.peak
        peak["device"] = max(peak["device"], self.heap.used)
        return True

    def take_rooms(self, pages: Sequence[Page]) -> None:
        """Find places for all the pages of a use, which are open and together within the budget."""
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
        if page.encoding is not None:
            self.coding.settle(page)
        assert page.room is not None
        stored = [] if page.stored is None else [Wait("fetch: stored", page.stored)]
        if page.codec is None:
            pairs = [(self.region(page), page.room.region)]
            page.read = event = self.machine.copies("up 1", "fetch", page.key, pairs, [*page.waits("fetch"), *stored])
        else:
            event = self.coding.fetch(page, stored)
        page.events, page.origin = [event], "fetched"
        self.count("up 1", moved=page.room.region.nbytes)

    def evict(self, page: Page) -> None:
        """Let a page leave the device; values that the host has not are written back."""
        assert page.offset is not None
        if page.filled and not page.clean:
            self.store(page)
        self.leave(page)

    def leave(self, page: Page) -> None:
        """Free the place of a page for others, who wait for what is under way there."""
        if page.offset is None:
            return
        self.heap.give(page.offset, page.size, page.events)
        self.order.remove(page.key)
        self.arrived(page)
        page.offset = None
        page.events = []

    def arrived(self, page: Page) -> None:
        """Note that a page is no longer on its way to a use to come."""
        if page.ahead is not None:
            self.ahead[page.ahead] -= 1
            if not self.ahead[page.ahead]:
                del self.ahead[page.ahead]
            page.ahead = None

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
            page.stored = self.machine.copies("down 1", "store", page.key, pairs, after)
            page.events, page.origin = [page.stored], "stored"
            self.count("down 1", moved=page.spec.nbytes)
        page.clean = True

    def wrote(self, page: Page) -> None:
        """Note that the device has newer values of a page than the host."""
        page.filled = True
        self.count("down 1", per_use=page.spec.nbytes)
        self._changed(page)

    def spoiled(self, page: Page) -> None:
        """Note that a page has no values any more."""
        page.filled = False
        self._changed(page)

    def _changed(self, page: Page) -> None:
        page.clean = False
        if page.codec is not None:
            self.forget_copy(page)

    def forget_copy(self, page: Page) -> None:
        """Free the room of a page on the host, whose copy is not needed any more."""
        if page.encoding is not None:
            self.coding.discard(page)
        if page.room is not None:
            self.host.give(page.room, [event for event in (page.stored, page.read) if event is not None])
        page.room = page.stored = page.read = None

    def drop(self, page: Page) -> None:
        """Forget a page and its values."""
        if page.dropped:
            return
        self.leave(page)
        self.forget_copy(page)
        if page.codec is None:
            self.host.unpromise(page.spec.nbytes)
        del self.pages[page.key]
        page.dropped = True

    def values(self, page: Page) -> Any:
        """Return the values of a page as bytes of the host, waiting for them."""
        on_device = page.offset is not None and page.origin != "room free"
        if on_device and page.codec is not None:
            return self.machine.read(self.region(page), page.waits("get"))
        if on_device and not page.clean:
            self.store(page)
            page.events, page.origin = [], "computed"
        if page.stored is not None:
            self.machine.sync([Wait("get: stored", page.stored)])
        if page.codec is not None:
            return self.coding.decoded(page)
        assert page.room is not None and page.room.region.array is not None
        return page.room.region.array.copy()
