"""The plans of a fitted model: made from what was measured of its blocks, run for two steps each, the fastest kept."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forebay.errors import BudgetError
from forebay.machine.slabs import SlabHeap
from forebay.planner import Link
from forebay.planner.blocks import BlockChoice, Chain, Forecast, simulate
from forebay.planner.blockwise import choose
from forebay.torch.fitting.choices import LOW_OVERHEAD, block_of
from forebay.torch.fitting.fitplan import FitPlan, numbered
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
            given = self._given(profile)
            if given is not None:
                return self._follow(replace(profile, phase=FitPhase.STAY), given)
        if profile.tried >= MOST_PLANS * STEPS_EACH:
            return self._settled(profile)
        if plan is not None and not profile.runs.get(plan.names):
            return profile
        candidate = self._candidate(profile)
        return self._settled(profile) if candidate is None else self._follow(profile, candidate)

    def _settled(self, profile: Profile) -> Profile:
        """Have the fastest plan stay from now on."""
        plan = self._fastest_run(profile) or profile.plan or self._fastest(profile)
        return self._follow(replace(profile, phase=FitPhase.STAY), plan)

    def _candidate(self, profile: Profile) -> FitPlan | None:
        """Return the plan to be tried next; None where enough were."""
        if not profile.runs:
            return self._fastest(profile)
        for low_overhead in (True, False) if len(profile.runs) < MOST_PLANS else ():
            plan = self._search(profile, low_overhead)[0]
            if plan is not None and plan.names not in profile.runs:
                return plan
        return None

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
        )

    def _search(self, profile: Profile, low_overhead: bool = False) -> tuple[FitPlan | None, int]:
        """Search for the fastest plan, among choices of low overhead alone where asked; tell what it lacks if none."""
        chain, lacking = self._chain(profile), 0
        offered = _plain(chain) if low_overhead else chain
        for room in self._rooms(profile):
            picks, foreseen = choose(offered, room)
            lacking = foreseen.excess
            if not lacking and not self._left(profile, tuple(pick.name for pick in picks)):
                return self._plan(profile, chain, picks, foreseen), 0
        return None, lacking

    def _left(self, profile: Profile, names: tuple[str, ...]) -> bool:
        """Tell whether a plan is left since it took more than the budget; not where no other treatment is allowed."""
        return self.choice is None and names in profile.above

    def _fastest_run(self, profile: Profile) -> FitPlan | None:
        """Return the fastest of the plans that were timed and that fit."""
        times = {names: min(runs) for names, runs in profile.runs.items() if runs}
        for names in sorted(times, key=lambda names: times[names]):
            plan = self._again(profile, names)
            if plan is not None:
                return plan
        return None

    def _again(self, profile: Profile, names: Sequence[str]) -> FitPlan | None:
        """Return the plan with choices of these names, where blocks have them and they fit."""
        chain = self._chain(profile)
        offered = ({choice.name: choice for choice in block.choices} for block in chain.blocks)
        picks = tuple(choices[name] for choices, name in zip(offered, names, strict=False) if name in choices)
        if len(picks) != len(chain.blocks) or self._left(profile, tuple(names)):
            return None
        for room in self._rooms(profile):
            foreseen = simulate(chain, picks, room)
            if not foreseen.excess:
                return self._plan(profile, chain, picks, foreseen)
        return None

    def _given(self, profile: Profile) -> FitPlan | None:
        """Return the plan that was given; warn where it is of other blocks, or does not fit any more."""
        names = numbered(block.name for block in profile.blocks)
        plan = self._again(profile, list(self.given.values())) if list(self.given) == names else None
        if plan is None:
            self._warn_of_given()
        return plan

    def _warn_of_given(self) -> None:
        warnings.warn(
            f"the plan that was given for {len(self.given)} blocks is followed no further: the model has others, "
            f"or it needs more than {self.budget!r} by now. Another is made",
            stacklevel=2,
        )

    def _plan(self, profile: Profile, chain: Chain, picks: tuple[BlockChoice, ...], foreseen: Forecast) -> FitPlan:
        count = sum(block.count for block in profile.blocks)
        return FitPlan(self.budget, chain, picks, foreseen, self.link, self.counts, count=count)

    def _rooms(self, profile: Profile) -> list[int]:
        """List the bytes to plan with: some are left where that is possible, all are taken where nothing else is."""
        device = self.budget["device"]
        most = int(device * (1 - MARGIN))
        if not self.counts:
            return sorted({most, device})
        cautious = {most - max(ALLOCATOR_SLACK, profile.shortfall), device - profile.shortfall}
        return sorted({*cautious, most, device})

    def _chain(self, profile: Profile) -> Chain:
        """Describe what was measured to the planner."""
        measured = profile.measured
        assert measured is not None
        grown, input_bytes, blocks = max(profile.plan_base - measured.base, 0), 0, []
        for block in measured.blocks:
            input_bytes += block.bytes.inputs
            peaks = input_bytes, input_bytes, input_bytes + block.bytes.saved
            if self.counts:
                forward, after, backward = block.bytes.peaks
                peaks = grown + forward, grown + after, grown + backward
            blocks.append(block_of(block, peaks, bool(self.budget.host), self.choice))
        speed = self.link or Link(1e9, 1e9)
        return Chain(tuple(blocks), measured.outside, speed.down, speed.up, self.budget.host or 0)


def _plain(chain: Chain) -> Chain:
    """Leave the choices of low overhead alone, to the blocks that have such."""
    blocks = []
    for block in chain.blocks:
        choices = tuple(choice for choice in block.choices if choice.name in LOW_OVERHEAD)
        blocks.append(replace(block, choices=choices or block.choices))
    return replace(chain, blocks=tuple(blocks))
