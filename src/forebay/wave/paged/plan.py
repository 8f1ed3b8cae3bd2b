"""How fields that are larger than a budget are paged: slabs and steps of a pass, and what that costs."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from forebay.errors import BudgetError
from forebay.units import seconds_to_text, to_text
from forebay.wave.paged.course import Planes, course
from forebay.wave.paged.pages import FieldPage, Window

MOST_STEPS = 64
"""Of a pass: more hide no copy that these do not."""
TRIED = 32
"""Thicknesses that are tried for each number of steps, at most."""


@dataclass(frozen=True)
class LinkRates:
    """What paging is planned by."""

    both: float
    """bytes a second of the link, each way while the other way is as busy"""
    inside: float
    """bytes a second that are read and written in the memory of the window, together"""


STEP_BYTES = 5
"""Numbers of a point that a step moves inside the memory of the window, with what it reads twice."""


@dataclass(frozen=True)
class PagingPlan:
    """What is moved when, and what that is expected to cost.

    Attributes
    ----------
    window, planes : Window, Planes
        Its memory, and what a pass must know of planes.
    steps, slab : int
        Steps of a pass, and the planes of its slabs.
    budget : int
        Bytes of the memory in which waves are computed.
    needed : int
        Bytes of that memory which a run without paging takes.
    link_bytes : float
        Moved over the link in each step, both ways together.
    seconds, fitting_seconds : float
        Of a step, as it is expected, and of one without paging.
    """

    window: Window
    planes: Planes
    steps: int
    slab: int
    budget: int
    needed: int
    link_bytes: float
    seconds: float
    fitting_seconds: float

    @property
    def slabs(self) -> int:
        """Slabs of a pass."""
        return len(self.planes.borders(self.steps, self.slab)) + 1

    def explain(self) -> str:
        """Say what is moved, and what that costs."""
        return (
            f"the fields take {to_text(self.needed)}, and the budget allows {to_text(self.budget)}: {self.slabs} slabs "
            f"of up to {self.slab} planes go through a window of {to_text(self.window.nbytes)}, {self.steps} steps at "
            f"a time. Each step moves {to_text(self.link_bytes)} over the link and takes about "
            f"{seconds_to_text(self.seconds)}, {self.seconds / self.fitting_seconds:.2g} times as long as with "
            f"{to_text(self.needed)}"
        )


def plan_paging(pages: Sequence[FieldPage], itemsize: int, planes: Planes, budget: int, rates: LinkRates) -> PagingPlan:
    """Choose steps and slabs of a pass with the smallest expected seconds a step; refuse too small a budget."""
    pages = tuple(pages)
    needed = Window(pages, itemsize, planes.count).nbytes
    sizes = [Window(pages, itemsize, room).nbytes for room in range(planes.count + 1)]
    room = bisect_right(sizes, budget) - 1
    smallest = planes.window(1, planes.thinnest) if planes.most_steps > 0 else planes.count
    if smallest > room:
        least = sizes[smallest]
        raise BudgetError(
            f"the budget does not hold a slab of the fields: it has {to_text(budget)} and needs {to_text(least)} "
            f"({least} bytes) at least"
        )
    window = Window(pages, itemsize, room)
    plans = []
    for steps in range(1, min(MOST_STEPS, planes.most_steps) + 1):
        thickest = room - (steps + 1) * planes.reach
        for slab in range(planes.thinnest, thickest + 1, max(1, (thickest - planes.thinnest) // TRIED)):
            seconds, moved = _seconds(window, planes, steps, slab, rates)
            plans.append((seconds, steps, -slab, moved))
    seconds, steps, slab, moved = min(plans)
    points = planes.count * prod(pages[0].shape[1:])
    fitting = points * itemsize * STEP_BYTES / rates.inside
    return PagingPlan(window, planes, steps, -slab, budget, needed, moved, seconds, fitting)


def _seconds(window: Window, planes: Planes, steps: int, slab: int, rates: LinkRates) -> tuple[float, float]:
    """Return the seconds of a step in passes of so many, and the bytes that are moved.

    Copies wait for the room that they go to, so a visit's are either beside the one before, or after it.
    """
    pages, itemsize, moved, end = window.pages, window.itemsize, 0.0, 0.0
    point = itemsize * prod(pages[0].shape[1:])
    up = sum(window.plane_bytes(page) * page.shape[0] / planes.count for page in pages)
    down = sum(window.plane_bytes(page) * page.shape[0] / planes.count for page in pages if page.written)
    arrived = left = computed = 0.0
    freed = [0.0] * window.room
    for visit in course(planes, steps, slab, window.room):
        origin, shifted = visit.origin, 0.0
        if visit.moved is not None:
            (begin, stop), before = visit.moved
            shifted = 2 * (stop - begin) * up / rates.inside
            computed = max(computed, *freed[: stop - origin]) + shifted
            freed[begin - before : stop - before] = [computed] * (stop - begin)
        begin, stop = visit.arrive
        arrived = max(arrived, *freed[begin - origin : stop - origin]) + (stop - begin) * up / rates.both
        work = sum(last - first for first, last in visit.steps) * point * STEP_BYTES / rates.inside
        computed = max(computed, arrived) + work
        begin, stop = visit.leave
        left = max(left, computed) + (stop - begin) * down / rates.both
        freed[begin - origin : stop - origin] = [left] * (stop - begin)
        end = max(end, left)
    moved = planes.count * (up + down)
    return end / steps, moved / steps
