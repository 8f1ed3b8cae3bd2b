"""Bringing arrays to the device before their use, once it is known what comes next.

The next missing array is brought first; one leaves for it only if its own next use is later (so no fetch does harm).
Only a few are on their way at a time: one that arrives while another is computed, and a third whose place is still
being written back, so that the link is busy both ways. More would push out arrays that could have stayed.
"""

from forebay.memory.pool.page import Page
from forebay.memory.pool.pager import Pager
from forebay.memory.pool.sequence import UseHistory

CLEAN_AHEAD, DIRTY_AHEAD = 2, 3
"""Uses to come that arrays may be brought in for, where the one that leaves is clean, and where it is not."""


class LookAhead:
    """Keeps the link busy between uses."""

    def __init__(self, pager: Pager, uses: UseHistory) -> None:
        self._pager = pager
        self._uses = uses
        self._next = 0  # index of the first use whose arrays are not all known to be there
        self._version = -1

    def run(self) -> None:
        """Start what should be under way now."""
        uses = self._uses
        if not uses.believed:
            return
        if self._version != uses.version:
            self.forget()
            self._version = uses.version
        self._next = max(self._next, uses.now + 1)
        while self._next <= uses.now + uses.period:
            use = uses.expected(self._next)
            for key in use.keys:
                page = self._pager.pages.get(key)
                if page is not None and page.offset is None and not self._bring(page, key in use.overwrites):
                    return
            self._next += 1

    def forget(self) -> None:
        """Start anew: what was foretold does not hold."""
        self._next = self._uses.now + 1
        for page in self._pager.pages.values():
            page.ahead = None
        self._pager.ahead.clear()

    def rewind(self) -> None:
        """Look again from the next use on: an array may have left whose use was near."""
        self._next = 0

    def _bring(self, page: Page, overwritten: bool) -> bool:
        """Bring one array in, if that does no harm; otherwise it is tried again after the next use."""
        pager = self._pager
        while not pager.heap.fits(page.size):
            victim = pager.order.first(pager.may_leave)
            if victim is None or victim.next_use <= self._next:
                return False
            leaving = pager.pages[victim.key]
            dirty = leaving.filled and not leaving.clean
            full = len(pager.ahead) >= (DIRTY_AHEAD if dirty else CLEAN_AHEAD)
            if full and self._next not in pager.ahead:
                return False
            pager.evict(leaving)
        pager.try_room(page)
        page.ahead = self._next
        pager.ahead[self._next] += 1
        if not overwritten and page.filled:
            pager.fetch(page)
        return True
