"""Passes through a model: planes arrive in the window, are taken several steps further, and leave again."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from forebay.machine.machine import Wait
from forebay.machine.region import Region
from forebay.wave.paged.course import Planes, Remaining, Span, Visit, course
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
    """Passes that follow each other, each of which begins while the one before ends.

    Where several devices have a window each, they take turns: the planes that one has brought home go on to the next.
    """

    def __init__(self, lanes: Sequence[PagingLanes], window: Window, home: dict[str, Region]) -> None:
        self._all_lanes, self._window, self._home = lanes, window, home
        self._all_freed: list[list[Freed | None]] = [[None] * window.room for _ in lanes]
        self._passes = self._visits = 0
        self._there: Remaining | None = None  # what the pass before has left
        self._left: dict[int, Freed] = {}  # when planes that have left are home

    @property
    def turn(self) -> int:
        """Whose turn the next pass is."""
        return self._passes % len(self._all_lanes)

    def run(self, planes: Planes, steps: int, slab: int, compute: Compute, *, last: bool) -> None:
        """Enqueue a pass; after the last one all planes are home."""
        home = last or len(self._all_lanes) > 1
        for visit in course(planes, steps, slab, self._window.room, self._there, home):
            self._visits += 1
            self._move(visit)
            self._visit(visit, compute)
        self._there = None if home else Remaining(visit.window, visit.origin)
        self._passes += 1

    @property
    def _lanes(self) -> PagingLanes:
        return self._all_lanes[self.turn]

    @property
    def _freed(self) -> list[Freed | None]:
        return self._all_freed[self.turn]

    def _move(self, visit: Visit) -> None:
        """Move planes back that a visit finds at the window's end, if it does."""
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
        left = [self._left[plane] for plane in range(begin, end) if plane in self._left]
        after += [Wait("arrive: its planes are home", event) for event in _latest(left)]
        arrived = lanes.copies("up", window.moves(visit.arrive, origin, memory, self._home, back=False), after)
        computed = lanes.compute(lambda: compute(visit), [Wait("visit: its planes have arrived", arrived)])
        pairs = window.moves(visit.leave, origin, memory, self._home, back=True)
        event = lanes.copies("down", pairs, [Wait("leave: its planes are computed", computed)])
        self._free(visit.leave, origin, How.LEFT, event)
        self._left |= dict.fromkeys(range(*visit.leave), Freed(self._visits, How.LEFT, event))

    def finish(self) -> None:
        """Wait until all planes are home."""
        self._lanes.sync([Wait("end: all planes are home", event) for event in _latest(self._left.values())])

    def _free(self, planes: Span, origin: int, how: How, event: Any) -> None:
        """Take note that the room of some planes becomes free."""
        count = planes[1] - planes[0]
        self._freed[planes[0] - origin : planes[1] - origin] = [Freed(self._visits, how, event)] * count

    def _last(self, room: slice, how: How) -> list[Any]:
        """Return the last event by which some room becomes free in a way, if any does."""
        return _latest(freed for freed in self._freed[room] if freed is not None and freed.how is how)


def _latest(freed: Iterable[Freed]) -> list[Any]:
    """Return the last of some events of a lane, which pass in their order, if there are any."""
    last = max(freed, key=lambda each: each.visit, default=None)
    return [] if last is None else [last.event]
