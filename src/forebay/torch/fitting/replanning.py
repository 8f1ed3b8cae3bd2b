"""When plans of a fitted model are made, which of them takes a turn, and which stays."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from forebay.errors import BudgetError
from forebay.machine.slabs import SlabHeap
from forebay.planner import Link
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.planning import RIVALS, foreseen_anew, given_plan, last_plans, make_plan
from forebay.torch.fitting.profile import WHOLE_TIMINGS, Profile
from forebay.torch.fitting.record import BlockRecord
from forebay.units import Budget

REPLANNED_AFTER = (3, 5, 7, 9, 11)
"""After so many iterations that were timed the plan is made anew; after the last, some of them take turns.

The first iteration with a plan is not timed: memory is pinned and allocated in it, and a device that has paused for the
planning is faster at first.
"""
LOW_OVERHEAD_AFTER = REPLANNED_AFTER[-2]
"""After so many the plan has choices of low overhead alone where these fit: so they are timed more than once."""
LAST_TIMED = REPLANNED_AFTER[-1]
"""So many iterations are timed."""
SETTLED_AFTER = LAST_TIMED + len(REPLANNED_AFTER) + (RIVALS + 1) * (WHOLE_TIMINGS + 1) + 1
"""After so many iterations at most, a plan stays; where neighbours are taken together, after one more."""
GROWTH = 2**20
"""When memory that was there before the iteration has grown by so many bytes, the plan is made anew."""


@dataclass(frozen=True)
class Replanner:
    """Makes the plans of a model on one device."""

    budget: Budget
    choice: str | None
    """the only treatment allowed, if one was asked for"""
    given: Mapping[str, str]
    """the choices of a plan that was given, by the names of blocks"""
    counts: bool
    """whether the device's memory is counted"""
    link: Link | None
    room: SlabHeap
    """of the host, which a plan may need more of"""

    def replan_if_due(self, profile: Profile, base: int) -> bool:
        """Make a plan where there is none, or one anew where more was learned or less memory is free; tell whether."""
        # Two may have been read at once.
        replanned = any(profile.planned_after < count <= profile.learned for count in REPLANNED_AFTER)
        grown = base > profile.plan_base + GROWTH
        due = profile.learned > 0 and (profile.plan is None or replanned or grown)
        if due:
            self.make(profile, base)
        return due

    def make(self, profile: Profile, base: int) -> None:
        """Make the plan, or the plans that take turns, with so many bytes of the device in use."""
        profile.plan_base = max(base, profile.base)
        arguments = profile, self.budget, self.counts, self.link, self.choice
        try:
            low_overhead = profile.learned >= LOW_OVERHEAD_AFTER
            last = profile.learned >= LAST_TIMED
            given = given_plan(*arguments, self.given) if self.given and not profile.settled else None
            if given is not None:
                profile.learned, profile.settled = LAST_TIMED, True
            plans = (given,) if given else last_plans(*arguments) if last else (make_plan(*arguments, low_overhead),)
        except BudgetError:
            if not profile.together:
                profile.plan = None  # whoever goes on after that is told again
                if len({record.module for record in profile.records}) < len(profile.records):
                    profile.forget()  # it may have been several forward passes, of which nobody told
                raise
            profile.forget()  # they may fit one by one
            profile.together = {}
            return
        profile.stale, profile.planned_after = False, profile.learned
        profile.rivals = plans if len(plans) > 1 else ()
        if profile.settled:
            profile.whole_seconds = {}
        self._follow(profile, plans[0])

    def take_turn(self, profile: Profile) -> None:
        """Have the next iteration follow the plan whose turn it is, or all to come the one that stays."""
        self._follow(profile, profile.settle() if profile.over else profile.take_turn())

    def _follow(self, profile: Profile, plan: FitPlan) -> None:
        """Have iterations follow a plan from now on."""
        profile.plan, profile.hooked = plan, hooked_blocks(plan, profile.records, profile.passes)
        moved, room = plan.foreseen.moved, self.room
        if moved + moved // 16 > room.nbytes:  # one slab for all of it; pieces that do not fit together take others
            room.reserve(min(moved + moved // 16, room.budget) - room.nbytes)

    def current_plan(self, profile: Profile) -> FitPlan | None:
        """Return the plan that is followed, with the times that were read last."""
        if profile.plan is None:
            return None
        plan = foreseen_anew(profile, profile.plan, self.counts) if profile.stale else profile.plan
        seconds = profile.whole_seconds.get(plan.names)
        pace = median(seconds) / plan.foreseen.seconds if seconds else 1.0
        return replace(plan, pace=pace, measured=profile.measured.get(plan.names))


def hooked_blocks(plan: FitPlan, records: list[BlockRecord], passes: int) -> frozenset[int]:
    """Return the blocks whose backward a plan has to be told of, which takes the host as long as a small operation.

    Something leaves or is fetched with them, or with those behind them that no loss comes to; the pass begins with
    them; or no loss came to them so far. Where there are several passes, they are all: each may begin anywhere.
    """
    if passes > 1:
        return frozenset(range(len(records)))
    hooked, foreseen, begun, waiting = set(), plan.foreseen, False, False
    for number in reversed(range(len(records))):
        # As many as leave with the last block have left when the model returns, wherever a pass begins after that.
        leaves = foreseen.leave[number] > foreseen.leave[-1]
        waiting = waiting or leaves or bool(foreseen.fetch[number])
        if not records[number].spans:
            hooked.add(number)
        elif waiting or not begun:
            hooked.add(number)
            begun, waiting = True, False
    return frozenset(hooked)
