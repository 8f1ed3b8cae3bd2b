"""The plans of a fitted model: made from what was measured of its blocks, run for two steps each, the fastest kept."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from forebay.errors import BudgetError
from forebay.machine.slabs import SlabHeap
from forebay.planner import Link
from forebay.planner.blocks import BlockChoice, Chain, Forecast, simulate
from forebay.planner.blockwise import choose
from forebay.torch.fitting.facts import LOW_OVERHEAD
from forebay.torch.fitting.fitplan import FitPlan, besides, numbered
from forebay.torch.fitting.profile import FitPhase, Profile
from forebay.units import Budget, to_text

MARGIN = 0.01
"""The part of the budget that is left for what varies between iterations."""
ALLOCATOR_SLACK = 2**23
"""Bytes of a GPU that are left besides: torch's allocator may hand out up to a mebibyte too many with each tensor.

It does so in the iteration that is measured too. Mixtures of choices went up to 3.5 MiB above that, emulated for
networks of 8 to 26 blocks.
"""
MOST_PLANS = 3
"""So many plans are run at most: what is predicted to be fastest, one of low overhead, the fastest at their pace."""
STEPS_EACH = 2
"""Iterations that each of them gets; memory is pinned and allocated in the first, so that the second is timed."""
SETTLED_AFTER = 2 + MOST_PLANS * STEPS_EACH
"""After so many iterations at most a plan stays: two are measured where neighbours are taken together, else one."""
GROWTH = 2**20
"""When memory that was there before the iteration has grown by so many bytes, plans are looked over."""

Picks = tuple[BlockChoice, ...]


@dataclass(frozen=True)
class FitPlanner:
    """Makes the plans of a model on one device."""

    budget: Budget
    choice: str | None
    """the only treatment allowed, if one was asked for"""
    given: Mapping[str, str]
    """the choices of a plan that was given, by the names of blocks"""
    counts: bool
    """whether the device's memory is counted; else peaks follow from what blocks save and are given"""
    link: Link | None
    room: SlabHeap
    """of the host, which a plan may need more of"""

    def advance(self, profile: Profile, base: int) -> Profile:
        """Have the iteration that begins follow the plan that is due, with so many bytes of the device in use."""
        if profile.phase is FitPhase.MEASURE:
            return profile
        grown = base > profile.plan_base + GROWTH
        if grown:
            profile = replace(profile, plan_base=base)
        try:
            return self._due(profile, grown)
        except BudgetError:
            if not profile.together:
                raise
            return replace(profile.measure_anew(forget=True), together={})  # they may fit one by one

    def _due(self, profile: Profile, grown: bool) -> Profile:
        plan = profile.plan
        if plan is not None and grown:
            again = self._again(profile, plan.names)
            if again is None and plan.names == tuple(self.given.values()):
                self._warn_of_given()
            return self._follow(profile, again or self._fastest_run(profile) or self._fastest(profile))
        if profile.phase is FitPhase.STAY:
            return profile if plan is not None else self._settled(profile)
        if plan is None and not profile.runs and self.given:
            names = numbered(block.record.name for block in profile.blocks)
            given = self._again(profile, list(self.given.values())) if list(self.given) == names else None
            if given is not None:
                return self._follow(replace(profile, phase=FitPhase.STAY), given)
            self._warn_of_given()
        if plan is not None and not profile.runs.get(plan.names) and profile.tried < MOST_PLANS * STEPS_EACH:
            return profile
        candidate = self._candidate(profile)
        return self._settled(profile) if candidate is None else self._follow(profile, candidate)

    def _candidate(self, profile: Profile) -> FitPlan | None:
        """Return the plan to be tried next; None where enough were."""
        if profile.tried >= MOST_PLANS * STEPS_EACH:
            return None
        if not profile.runs:
            return self._fastest(profile)
        for low_overhead in (True, False) if len(profile.runs) < MOST_PLANS else ():
            plan = self._search(profile, low_overhead)[0]
            if plan is not None and plan.names not in profile.runs:
                return plan
        return None

    def _settled(self, profile: Profile) -> Profile:
        """Have the fastest plan stay from now on."""
        plan = self._fastest_run(profile) or profile.plan or self._fastest(profile)
        return self._follow(replace(profile, phase=FitPhase.STAY), plan)

    def _follow(self, profile: Profile, plan: FitPlan) -> Profile:
        """Have iterations follow a plan from now on."""
        moved, room = plan.foreseen.moved, self.room
        if moved + moved // 16 > room.nbytes:  # one slab for all of it; pieces that do not fit together take others
            room.reserve(min(moved + moved // 16, room.budget) - room.nbytes)
        runs = {plan.names: (), **profile.runs} if profile.phase is FitPhase.TRY else profile.runs
        return replace(profile, plan=plan, begun=0, runs=runs)

    def current(self, profile: Profile, base: int) -> tuple[Profile, FitPlan | None]:
        """Return the plan that is followed, with the times that were read last; that stays, where enough were tried."""
        if profile.plan is None:
            profile = self.advance(profile, base)
        plan, enough = profile.plan, profile.phase is FitPhase.TRY and len(profile.runs) == MOST_PLANS
        if plan is not None and enough and profile.runs.get(plan.names):
            profile = self._settled(profile)
            plan = profile.plan
        if plan is None:
            return profile, None
        plan = self._again(profile, plan.names) or plan
        runs = profile.runs.get(plan.names)
        return profile, replace(plan, measured=runs[-1]) if runs else plan

    # The ways to a plan.

    def _fastest(self, profile: Profile) -> FitPlan:
        """Choose what is predicted to be fastest, refusing a budget in which nothing fits."""
        plan, lacking = self._search(profile)
        if plan is not None:
            return plan
        what = "any choice" if self.choice is None else f"{self.choice!r}"
        raise BudgetError(
            f"the step does not fit in {self.budget!r} with {what} for its blocks: it lacks about "
            f"{to_text(lacking or profile.shortfall)}. Raise the budget of the device, or of the host where it is "
            "small, or make the batch or the blocks smaller (blocks=...)"
            + (f". Beside its blocks {besides(*profile.beside)}" if self.counts else "")
        )

    def _fastest_run(self, profile: Profile) -> FitPlan | None:
        """Return the fastest of the plans that were timed and that fit."""
        times = {names: min(runs) for names, runs in profile.runs.items() if runs}
        plans = (self._again(profile, names) for names in sorted(times, key=lambda names: times[names]))
        return next((plan for plan in plans if plan is not None), None)

    def _search(self, profile: Profile, low_overhead: bool = False) -> tuple[FitPlan | None, int]:
        """Search for the fastest plan, among choices of low overhead alone where asked; tell what it lacks if none."""
        chain = offered = self._chain(profile)
        if low_overhead:  # but for blocks that have no such choice
            some = [tuple(choice for choice in block.choices if choice.name in LOW_OVERHEAD) for block in chain.blocks]
            blocks = [replace(b, choices=few or b.choices) for b, few in zip(chain.blocks, some, strict=True)]
            offered = replace(chain, blocks=tuple(blocks))
        return self._that_fits(profile, chain, lambda room: choose(offered, room))

    def _again(self, profile: Profile, names: Sequence[str]) -> FitPlan | None:
        """Return the plan with choices of these names, where blocks have them and they fit."""
        chain = self._chain(profile)
        offered = ({choice.name: choice for choice in block.choices} for block in chain.blocks)
        picks = tuple(choices[name] for choices, name in zip(offered, names, strict=False) if name in choices)
        if len(picks) != len(chain.blocks):
            return None
        return self._that_fits(profile, chain, lambda room: (picks, simulate(chain, picks, room)))[0]

    def _that_fits(
        self, profile: Profile, chain: Chain, pick: Callable[[int], tuple[Picks, Forecast]]
    ) -> tuple[FitPlan | None, int]:
        """Return the first plan that fits, leaving some bytes where that is possible; tell what it lacks if none.

        One that took more than the budget is left, unless no other treatment is allowed.
        """
        device, lacking = self.budget["device"], 0
        most = int(device * (1 - MARGIN))
        cautious = {most - max(ALLOCATOR_SLACK, profile.shortfall), device - profile.shortfall} if self.counts else ()
        for room in sorted({*cautious, most, device}):
            picks, foreseen = pick(room)
            lacking = foreseen.excess
            left = self.choice is None and tuple(pick.name for pick in picks) in profile.above
            if not lacking and not left:
                count = sum(block.record.count for block in profile.blocks)
                base, behind = profile.beside
                return FitPlan(self.budget, chain, picks, foreseen, self.link, self.counts, base, behind, count), 0
        return None, lacking

    def _warn_of_given(self) -> None:
        warnings.warn(
            f"the plan that was given for {len(self.given)} blocks is followed no further: the model has others, "
            f"or it needs more than {self.budget!r} by now. Another is made",
            stacklevel=2,
        )

    def _chain(self, profile: Profile) -> Chain:
        """Describe what was measured to the planner."""
        measured = profile.measured
        assert measured is not None
        grown = max(profile.plan_base - measured.base, 0)
        blocks = [
            replace(
                block,
                peak_forward=grown + block.peak_forward,
                peak_after=grown + block.peak_after,
                peak_backward=grown + block.peak_backward,
            )
            for block in (block.planned for block in measured.blocks)
        ]
        speed = self.link or Link(1e9, 1e9)
        return Chain(tuple(blocks), measured.outside, speed.down, speed.up, self.budget.host or 0)
