"""Passes through a model: planes arrive in the window, are taken several steps further, and leave again."""

from collections.abc import Callable, Sequence
from typing import Any

from forebay.machine.machine import Wait
from forebay.machine.region import Region
from forebay.wave.paged.course import Planes, Span, Visit, course
from forebay.wave.paged.lanes import PagingLanes
from forebay.wave.paged.pages import Window

Freed = tuple[int, Wait]
"""Which visit freed the room of a plane, and what has to end before it is used again."""
Compute = Callable[[Visit], None]
"""Takes the planes of a visit through its steps, in the window."""


class Passes:
    """Passes that follow each other, each of which begins while the one before ends."""

    def __init__(self, lanes: PagingLanes, window: Window, home: dict[str, Region]) -> None:
        self._lanes, self._window, self._home = lanes, window, home
        self._freed: list[Freed | None] = [None] * window.room
        self._visits = 0
        self._left: list[tuple[Span, Any]] = []  # planes of this pass and of the one before, and when they were home
        self._before: list[tuple[Span, Any]] = []

    def run(self, planes: Planes, steps: int, slab: int, compute: Compute) -> None:
        """Enqueue a pass."""
        self._before, self._left = self._left, []
        for visit in course(planes, steps, slab, self._window.room):
            self._visit(visit, compute)

    def swap(self, one: str, other: str) -> None:
        """Let the next pass have two pages in each other's place."""
        self._home[one], self._home[other] = self._home[other], self._home[one]

    def _visit(self, visit: Visit, compute: Compute) -> None:
        lanes, window, memory, origin = self._lanes, self._window, self._lanes.memory, visit.origin
        self._visits += 1
        if visit.moved is not None:
            (begin, end), before = visit.moved
            targets = self._freed[begin - origin : end - origin]
            left = [wait._replace(why="move: its room was left") for wait in _last(targets, "left")]
            event = lanes.copies("compute", window.shift(visit, memory), left)
            for place in range(begin - before, end - before):
                self._freed[place] = self._visits, Wait("arrive: its room was moved from", event)
            self._freed[: end - origin] = [None] * (end - origin)
        begin, end = visit.arrive
        freed = self._freed[begin - origin : end - origin]
        after = [*_last(freed, "left"), *_last(freed, "moved from"), *self._is_home(visit.arrive)]
        pairs = window.moves(visit.arrive, origin, memory, self._home, back=False)
        arrived = lanes.copies("up", pairs, after)
        computed = lanes.compute(lambda: compute(visit), [Wait("visit: its planes have arrived", arrived)])
        pairs = window.moves(visit.leave, origin, memory, self._home, back=True)
        left = lanes.copies("down", pairs, [Wait("leave: its planes are computed", computed)])
        for place in range(visit.leave[0] - origin, visit.leave[1] - origin):
            self._freed[place] = self._visits, Wait("arrive: its room was left", left)
        self._left.append((visit.leave, left))

    def _is_home(self, span: Span) -> list[Wait]:
        """Return the wait for planes that were in the window before: they leave in the order of the lane."""
        events = [event for leave, event in self._before if leave[0] < span[1] and span[0] < leave[1]]
        return [Wait("arrive: its planes are home", event) for event in events[-1:]]

    def finish(self) -> None:
        """Wait until all planes are home."""
        self._lanes.sync([Wait("end: all planes are home", event) for _, event in self._left[-1:]])


def _last(freed: Sequence[Freed | None], why: str) -> list[Wait]:
    """Return the last wait of a kind: those of a lane end in their order."""
    waits = [each for each in freed if each is not None and each[1].why.endswith(why)]
    return [max(waits, key=lambda each: each[0])[1]] if waits else []
