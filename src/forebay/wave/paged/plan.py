"""How fields that are larger than a budget are paged: slabs and steps of a pass, and what that costs."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from forebay.errors import BudgetError
from forebay.machine.machine import Pair, Wait
from forebay.machine.region import Region
from forebay.units import seconds_to_text, to_text
from forebay.wave.paged.course import Planes, Visit
from forebay.wave.paged.lanes import PagingLanes
from forebay.wave.paged.pages import FieldPage, Window
from forebay.wave.paged.passes import Passes

MOST_STEPS = 64
"""Of a pass: more hide no copy that these do not."""
FEW = 8
"""Passes of a run that are looked at, at most."""
TRIED = 4
"""Thicknesses that are tried for each number of steps, at most."""


@dataclass(frozen=True)
class LinkRates:
    """What paging is planned by."""

    both: float
    """bytes a second of the link, each way while the other way is as busy"""
    inside: float
    """bytes a second that are read and written in the memory of the window, together"""
    devices: int = 1
    """how many have a window"""


STEP_NUMBERS = 4.5
"""Numbers of a point that a step moves inside the memory of the window."""
AROUND = 12
"""Planes that a step of a slab takes as long as, beside its own: what threads load before they begin, and idle ones."""


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
    back: bool = False
    """whether it is of the steps back of a reversal, which move more than those forward"""

    @property
    def slabs(self) -> int:
        """Slabs of a pass."""
        return len(self.planes.borders(self.steps, self.slab)) + 1

    def explain(self) -> str:
        """Say what is moved, and what that costs."""
        step = "Each step back" if self.back else "Each step"
        return (
            f"the fields take {to_text(self.needed)}, and the budget allows {to_text(self.budget)}: {self.slabs} slabs "
            f"of up to {self.slab} planes go through a window of {to_text(self.window.nbytes)}, {self.steps} steps at "
            f"a time. {step} moves {to_text(self.link_bytes)} over the link and takes about "
            f"{seconds_to_text(self.seconds)}, {self.seconds / self.fitting_seconds:.2g} times as long as with "
            f"{to_text(self.needed)}"
        )


def plan_paging(
    pages: Sequence[FieldPage], itemsize: int, planes: Planes, budget: int, rates: LinkRates, every: int | None = None
) -> PagingPlan:
    """Choose steps and slabs of a pass with the smallest expected seconds a step; refuse too small a budget.

    All planes go home after `every` so many steps, if they do before the end.
    """
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
    for steps in _tried(min(MOST_STEPS, planes.most_steps, every or MOST_STEPS)):
        thickest = room - (steps + 1) * planes.reach
        for slab in range(planes.thinnest, thickest + 1, max(1, (thickest - planes.thinnest) // TRIED)):
            seconds, moved = _seconds(window, planes, steps, slab, rates, every)
            plans.append((seconds, steps, slab, moved))
    seconds, steps, slab, moved = min(plans)
    point = itemsize * prod(pages[0].shape[1:])
    fitting = (planes.count + AROUND) * point * STEP_NUMBERS / rates.inside
    return PagingPlan(window, planes, steps, slab, budget, needed, moved, seconds, fitting)


def _tried(most: int) -> list[int]:
    """Return numbers of steps, each about a third more than the one before."""
    found = [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, found[-1] * 4 // 3)))
    return found


class _Clock(PagingLanes):
    """Lanes on which nothing happens but that time passes: an event is the seconds at which it does."""

    def __init__(self, window: Window, rates: LinkRates) -> None:
        self.memory, self._rates = Region(0, window.nbytes), rates
        self._times = dict.fromkeys(("up", "down", "compute"), 0.0)
        self.moved, self.work = 0, 0.0

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> float:
        """Copy."""
        size = sum(target.nbytes for target, _ in pairs)
        self.moved += size if lane != "compute" else 0
        return self._pass(lane, 2 * size / self._rates.inside if lane == "compute" else size / self._rates.both, after)

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> float:
        """Let something say how long it takes, as `work`."""
        act()
        return self._pass("compute", self.work, after)

    def _pass(self, lane: str, seconds: float, after: Sequence[Wait]) -> float:
        self._times[lane] = max([self._times[lane], *(wait.event for wait in after)]) + seconds
        return self._times[lane]

    @property
    def computed(self) -> float:
        """When the last computation ends."""
        return self._times["compute"]

    @property
    def ended(self) -> float:
        """When all ends."""
        return max(self._times.values())

    def call(self, act: Callable[[], None]) -> None:
        """Do nothing."""

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Do nothing."""


def _seconds(
    window: Window, planes: Planes, steps: int, slab: int, rates: LinkRates, every: int | None
) -> tuple[float, float]:
    """Return the seconds of a step in passes of so many, and the bytes that it moves.

    Passes of a run without end are counted from where each device has had its turn, those of `every` steps from the
    first to the last, or a few of them.
    """
    clocks = [_Clock(window, rates) for _ in range(rates.devices)]
    point = window.itemsize * prod(window.pages[0].shape[1:])
    home = {page.name: Region(0, page.shape[0] * window.plane_bytes(page)) for page in window.pages}
    passes, began, before = Passes(clocks, window, home), 0.0, 0
    taken = 2 * rates.devices * steps if every is None else min(every, FEW * steps)
    for first in range(0, taken, steps):
        clock = clocks[passes.turn]

        def compute(visit: Visit, clock: _Clock = clock) -> None:
            thick = sum(last - first + AROUND for first, last in visit.steps)
            clock.work = thick * point * STEP_NUMBERS / rates.inside

        last = every is not None and first + steps >= taken
        passes.run(planes, min(steps, taken - first), slab, compute, last=last)
        if every is None and first == (rates.devices - 1) * steps:
            began, before = clock.computed, sum(each.moved for each in clocks)
    if every is not None:
        return max(each.ended for each in clocks) / taken, sum(each.moved for each in clocks) / taken
    return (clock.computed - began) / (taken / 2), (sum(each.moved for each in clocks) - before) / (taken / 2)
