"""Carrying uses out: what they ask for is checked, brought in and handed out, and what they leave behind is noted."""

import warnings
from collections.abc import Sequence
from typing import Any

from forebay.errors import BudgetError, StateError
from forebay.machine.machine import PoolMachine, UseRegions
from forebay.machine.region import Region
from forebay.memory.pool.host import enough
from forebay.memory.pool.page import Page, Values
from forebay.memory.pool.pager import Pager
from forebay.memory.pool.sequence import Use, UseHistory
from forebay.memory.pool.thrash import RoundWatch, ThrashWarning
from forebay.units import to_text


class Uses:
    """The uses of a pool, in the order in which they are entered."""

    def __init__(self, machine: PoolMachine, device: int, host: int) -> None:
        self._machine = machine
        self._history = UseHistory()
        self.pager = Pager(machine, device, host, self._history)
        self.watch = RoundWatch()
        self.closed = False
        self._open = 0  # bytes of the arrays of open uses

    def check_open(self) -> None:
        """Refuse to go on with a pool that is closed."""
        if self.closed:
            raise StateError("the pool is closed: its arrays are gone")

    def check(self, lease: "Lease") -> None:
        """Refuse a use that cannot be given what it asks for, before anything is moved."""
        self.check_open()
        if lease.index >= 0:
            raise StateError("this use is open already: ask pool.use(...) for another")
        pages = lease.pages
        for page in pages:
            if page.values is Values.DROPPED:
                raise StateError(f"{page.name} was dropped from the pool")
        if len({page.key for page in pages}) != len(pages):
            twice = next(page for page in pages if sum(page is other for other in pages) > 1)
            raise StateError(f"{twice.name} is named twice: name it once, in `writes` where it is read and written")
        for page in pages[: lease.readable]:
            page.check_values()
        for number, page in enumerate(pages):
            if page.open and (page.written or number >= lease.readable):
                raise StateError(f"{page.name} is in a use that is still open, and one of the two writes it")
        needed = sum(page.size for page in pages)
        others = self._open - sum(page.size for page in pages if page.open)
        wanted = needed + others
        if wanted > self.pager.usable:
            self.pager.coding.shrink(wanted)
        if wanted > self.pager.usable:
            beside = f" beside the {to_text(others)} of open uses" if others else ""
            raise BudgetError(
                f"{len(pages)} arrays of {to_text(needed)} are used together{beside}, but the device budget of "
                f"{to_text(self.pager.heap.nbytes)} has {to_text(self.pager.usable)} for arrays: give "
                f"Budget(device={enough(wanted + self.pager.coding.beside(wanted))!r}) or more, or use fewer at once"
            )

    def enter(self, lease: "Lease") -> tuple[Any, ...]:
        """Bring in what a use asks for, and hand it out."""
        pages = lease.pages
        self.check(lease)
        metrics, pager = self._machine.metrics, self.pager
        needed = [page for page in pages[: lease.given] if page.filled]
        missed = [page for page in needed if page.offset is None or page.key in pager.ahead]
        self._history.add(lease.use)
        lease.index = self._history.now
        metrics.misses += len(missed)
        metrics.hits += len(needed) - len(missed)
        pager.count("up 1", per_use=sum(page.spec.nbytes for page in needed))
        for number, page in enumerate(pages):
            self._open += 0 if page.open else page.size
            page.open += 1
            page.written = number >= lease.readable
            pager.ahead.pop(page.key, None)
        try:
            if any(page.offset is None for page in pages):
                pager.take_rooms(pages)
            for page in needed:
                if page.origin == "room free":
                    pager.fetch(page)
            regions = self._begin(lease, {page.key for page in needed})
        except BaseException:
            for page in pages:
                if page.origin == "room free" and page.open == 1:
                    pager.leave(page)
            self._release(lease)
            raise
        self.watch.add(pages, missed)
        try:
            return tuple(
                self._machine.array(region, page.spec, number >= lease.readable)
                for number, (page, region) in enumerate(zip(pages, regions, strict=True))
            )
        except BaseException:
            self.leave(lease, failed=True)
            raise

    def leave(self, lease: "Lease", failed: bool) -> None:
        """Take note of what a use has written, and start what comes next.

        One that failed may have written some of what it writes, which is kept, and may not have written all that it
        overwrites, which is lost.
        """
        pages, pager = lease.pages, self.pager
        try:
            event = self._machine.leave(lease.index)
            for page in pages:
                page.events, page.origin = [event], "computed"
            for number, page in enumerate(pages[lease.readable :], lease.readable):
                pager.wrote(page, filled=not failed or (number < lease.given and page.filled))
        finally:
            self._release(lease)
        if self.closed or failed:  # what goes wrong from here on would hide what went wrong before
            return
        pager.coding.settle_arrived()
        pager.look_ahead()
        if self._history.believed:
            message = self.watch.verdict(
                self._history.period, self._machine.stalled(), pager.usable, pager.coding.beside
            )
            if message:
                warnings.warn(message, ThrashWarning, stacklevel=3)
        else:
            self.watch.restart()

    def _begin(self, lease: "Lease", valued: set[int]) -> list[Region]:
        """Have the computation of a use wait for what it needs, and return the places of its arrays."""
        waits = []
        for page in lease.pages:
            self.pager.order.touch(page.key)
            if page.origin != "computed":
                waits += page.waits("use")
        regions = [self.pager.region(page) for page in lease.pages]
        written = list(zip(lease.pages, regions, strict=True))[lease.readable :]
        writes = [region for page, region in written if page.key in valued]
        overwrites = [region for page, region in written if page.key not in valued]
        self._machine.enter(lease.index, waits, UseRegions(regions[: lease.readable], writes, overwrites))
        return regions

    def _release(self, lease: "Lease") -> None:
        lease.index = -1
        for page in lease.pages:
            page.open -= 1
            page.written = False
            self._open -= 0 if page.open else page.size


class Lease:
    """Arrays of a pool, handed out for the time of a ``with`` block; made by `Pool.use`."""

    __slots__ = ("_uses", "given", "index", "pages", "readable", "use")

    def __init__(self, uses: Uses, reads: Sequence[Page], writes: Sequence[Page], overwrites: Sequence[Page]) -> None:
        self._uses = uses
        self.pages = [*reads, *writes, *overwrites]
        self.readable = len(reads)
        """how many of them are only read; they come first"""
        self.given = len(reads) + len(writes)
        """how many come with their values"""
        keys = tuple(page.key for page in self.pages)
        self.use = Use(keys[: self.readable], keys[self.readable : self.given], keys[self.given :])
        self.index = -1
        """of the use, while it is open"""

    def __enter__(self) -> tuple[Any, ...]:
        return self._uses.enter(self)

    def __exit__(self, error: type[BaseException] | None = None, *_details: object) -> None:
        self._uses.leave(self, failed=error is not None)
