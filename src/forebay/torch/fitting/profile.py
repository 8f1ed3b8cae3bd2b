"""The profile of iterations with the same shapes: what was measured of them, and which plans were tried."""

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from random import Random
from statistics import median
from typing import NamedTuple

from forebay.torch.fitting.choices import LOW_OVERHEAD
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.fitted_block import FittedBlock
from forebay.torch.fitting.record import BlockRecord
from forebay.torch.fitting.timings import StepTiming, Trial, combine

WHOLE_TIMINGS = 6
"""So many iterations with a plan that may stay are timed as a whole: block by block takes time of its own."""
MOST_TURNS = 60
"""So many turns at most are taken, whatever happens to plans meanwhile."""


class IterationObservation(NamedTuple):
    """What is looked at in an iteration that begins."""

    measuring: bool
    """everything: it has no plan yet"""
    learning: bool
    """its peak, and its blocks unless it is the first with its plan"""
    timed: bool
    """the seconds of its blocks"""
    timed_whole: bool
    """its seconds as a whole"""


@dataclass
class Profile:
    """What was measured of iterations with the same shapes, and the plan for them."""

    records: list[BlockRecord] = field(default_factory=list)
    first: StepTiming | None = None
    """of the iteration that was measured"""
    later: list[Trial] = field(default_factory=list)
    """those with a plan whose times were read"""
    tried: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    """seconds of whole iterations, by the names of their choices"""
    followed: tuple[str, ...] | None = None
    """the names of the choices of the last iteration"""
    measured: dict[tuple[str, ...], float] = field(default_factory=dict)
    """seconds of the last iteration that was timed, by the names of its choices"""
    base: int = 0
    """bytes of the device before the first block of the iteration that was measured"""
    plan_base: int = 0
    """the same before the one that the plan was made for"""
    shortfall: int = 0
    """bytes that an iteration took above what its plan foresaw, at most"""
    learned: int = 0
    """iterations whose times were read"""
    plan: FitPlan | None = None
    hooked: frozenset[int] = frozenset()
    """the blocks whose backward the plan has to be told of"""
    passes: int = 0
    """backward passes of the iteration that was measured"""
    stale: bool = False
    """whether times were read since the plan was made"""
    planned_after: int = 0
    """iterations that had been read when it was made"""
    together: dict[int, tuple[int, ...]] | None = None
    """the blocks that are taken together, by the identity of the first, once they have been measured one by one"""
    groups: dict[int, FittedBlock] = field(default_factory=dict)
    """these as one, where they have been called"""
    missed: bool = False
    """whether the last iteration went otherwise"""
    whole_seconds: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    """seconds of iterations none of whose blocks was timed, by the names of their choices: a few for each"""
    rivals: tuple[FitPlan, ...] = ()
    """the plans that take turns until one stays"""
    turns: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """turns that they have had, by the names of their choices"""
    forwards: int = 0
    """forward passes since the last one that was learned from, or since a turn began"""
    least_forwards: float = inf
    """forward passes for each that was learned from, at least: there may be several before a backward pass"""
    settled: bool = False
    """whether one of them stays"""
    forgotten: int = 0
    """how often all of it was forgotten"""

    @property
    def timing(self) -> StepTiming:
        """The seconds that a plan is made from."""
        assert self.first is not None
        return combine(self.first, [record.kind for record in self.records], self.later)

    def forget(self) -> None:
        """Have the next iteration measured anew."""
        self.learned, self.first, self.later, self.tried, self.plan, self.whole_seconds = 0, None, [], {}, None, {}
        self.together, self.groups, self.rivals, self.turns, self.settled = None, {}, (), Counter(), False
        self.forwards, self.least_forwards, self.planned_after = 0, inf, 0
        self.forgotten += 1

    def take_together(self, groups: dict[int, tuple[int, ...]]) -> None:
        """Take neighbours together from now on, which have to be measured as such."""
        if groups:
            self.forget()
        self.together = groups

    def miss(self) -> None:
        """Count an iteration that went otherwise; after two in a row, have the next measured anew."""
        if self.missed:
            self.forget()
        self.missed = not self.missed

    @property
    def over(self) -> bool:
        """Whether each rival has had its turns, one that is not timed and then some that are; or all too many."""
        return self.turns.total() >= MOST_TURNS or all(self.turns[plan.names] > WHOLE_TIMINGS for plan in self.rivals)

    def turn_goes_on(self, waits: bool) -> bool:
        """Tell whether a turn goes on with one more forward pass, the last one's backward being waited for."""
        if waits and self.forwards <= self.least_forwards:
            return True
        self.forwards = 1
        return False

    def take_turn(self) -> FitPlan:
        """Choose a rival that has had the fewest turns; in no order that iterations might have too."""
        fewest = min(self.turns[plan.names] for plan in self.rivals)
        due = [plan for plan in self.rivals if self.turns[plan.names] == fewest]
        chosen = Random(self.turns.total()).choice(due)
        self.turns[chosen.names] += 1
        return chosen

    def settle(self) -> FitPlan:
        """Choose the fastest rival, of those whose turns ended; for want of such, the first."""
        times = {plan.names: len(self.whole_seconds.get(plan.names, ())) for plan in self.rivals}
        ended = [plan for plan in self.rivals if 2 * times[plan.names] >= max(1, *times.values())]
        stays = self._fastest(ended) or self.rivals[0]
        self.tried = {plan.names: self.whole_seconds[plan.names] for plan in ended} or self.tried
        self.rivals, self.settled = (), True
        return stays

    def _fastest(self, ended: list[FitPlan]) -> FitPlan | None:
        """Choose the fastest plan, or one of low overhead that may be as fast, for all that a few iterations tell."""

        def seconds(plan: FitPlan) -> float:
            return median(self.whole_seconds[plan.names])

        fastest = min(ended, key=seconds, default=None)
        plain = min((plan for plan in ended if LOW_OVERHEAD.issuperset(plan.names)), key=seconds, default=None)
        if fastest is None or plain is None:
            return fastest
        times = sorted(self.whole_seconds[plain.names])
        return fastest if seconds(fastest) < times[len(times) // 4] else plain

    def follow(self, planned: bool, enough: int) -> IterationObservation:
        """Begin an iteration with the plan that is there, or with none.

        Parameters
        ----------
        planned
            Whether the plan was made just now.
        enough
            So many iterations are timed block by block.
        """
        learning = self.learned < enough
        names = () if self.plan is None else self.plan.names
        timed = learning and (self.plan is None or names == self.followed)
        first = bool(self.rivals) and self.turns[names] == 1  # in which memory may have to be taken
        counted = len(self.whole_seconds.get(names, ()))
        timed_whole = not (learning or planned or first) and counted < WHOLE_TIMINGS
        self.followed = names
        return IterationObservation(not self.learned, learning, timed, timed_whole)

    def weigh(self, plan: FitPlan, peak: int) -> None:
        """Compare the bytes that an iteration took with its plan's; above the budget, have another plan made."""
        self.shortfall = max(self.shortfall, peak - plan.foreseen.peak)
        if peak > plan.budget["device"]:
            self.plan = None
