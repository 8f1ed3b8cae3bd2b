"""Passes through a model: planes arrive in the window, are taken several steps further, and leave again."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from forebay.machine.machine import Wait
from forebay.machine.region import Region
from forebay.wave.paged.course import Planes, Span, Visit, course
from forebay.wave.paged.lanes import PagingLanes
from forebay.wave.paged.pages import Window

Compute = Callable[[Visit], None]
"""Takes the planes of a visit through its steps, in the window."""


class How(Enum):
    """How the room of a plane became free."""

    LEFT = "its plane left the window"
    MOVED = "its plane was moved inside the window"


class Freed(NamedTuple):
    """When the room of a plane becomes free."""

    visit: int
    how: How
    event: Any


class Passes:
    """Passes that follow each other, each of which begins while the one before ends."""

    def __init__(self, lanes: PagingLanes, window: Window, home: dict[str, Region]) -> None:
        self._lanes, self._window, self._home = lanes, window, home
        self._freed: list[Freed | None] = [None] * window.room
        self._visits = 0
        self._home_again: Any = None  # when all planes that have left so far are

    def run(self, planes: Planes, steps: int, slab: int, compute: Compute) -> None:
        """Enqueue a pass."""
        for visit in course(planes, steps, slab, self._window.room):
            self._visits += 1
            self._move(visit)
            self._visit(visit, compute)

    def swap(self, one: str, other: str) -> None:
        """Let the next pass have two pages in each other's place."""
        self._home[one], self._home[other] = self._home[other], self._home[one]

    def _move(self, visit: Visit) -> None:
        """Move the planes to the window's beginning that a visit finds at its end, if it does."""
        if visit.moved is None:
            return
        (begin, end), before = visit.moved
        targets = slice(begin - visit.origin, end - visit.origin)
        left = [Wait("move: its room was left", event) for event in self._last(targets, How.LEFT)]
        event = self._lanes.copies("compute", self._window.shift(visit, self._lanes.memory), left)
        self._free((begin, end), before, How.MOVED, event)
        self._freed[targets] = [None] * (end - begin)

    def _visit(self, visit: Visit, compute: Compute) -> None:
        lanes, window, memory, origin = self._lanes, self._window, self._lanes.memory, visit.origin
        begin, end = visit.arrive
        targets = slice(begin - origin, end - origin)
        after = [Wait("arrive: its room was left", event) for event in self._last(targets, How.LEFT)]
        after += [Wait("arrive: its room was moved from", event) for event in self._last(targets, How.MOVED)]
        # Its planes are home by then: what they were in, in the pass before, was free no earlier.
        arrived = lanes.copies("up", window.moves(visit.arrive, origin, memory, self._home, back=False), after)
        computed = lanes.compute(lambda: compute(visit), [Wait("visit: its planes have arrived", arrived)])
        pairs = window.moves(visit.leave, origin, memory, self._home, back=True)
        left = lanes.copies("down", pairs, [Wait("leave: its planes are computed", computed)])
        self._free(visit.leave, origin, How.LEFT, left)
        self._home_again = left

    def finish(self) -> None:
        """Wait until all planes are home."""
        self._lanes.sync([Wait("end: all planes are home", self._home_again)])

    def _free(self, planes: Span, origin: int, how: How, event: Any) -> None:
        """Take note that the room of some planes becomes free."""
        count = planes[1] - planes[0]
        self._freed[planes[0] - origin : planes[1] - origin] = [Freed(self._visits, how, event)] * count

    def _last(self, room: slice, how: How) -> Sequence[Any]:
        """Return the last event by which some room becomes free: those of a lane pass in their order."""
        found = [freed for freed in self._freed[room] if freed is not None and freed.how is how]
        return [max(found, key=lambda freed: freed.visit).event] if found else []
