"""What is known of iterations that begin alike: how far they are, what was measured, and the plans that were run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.record import MeasuredBlock

MOST_ANEW = 8
"""So often at most a profile is measured anew because blocks ran that it does not know."""


class FitPhase(Enum):
    """How far a profile is."""

    MEASURE = "every block is recomputed and looked into"
    TRY = "a few plans are run under the clock"
    STAY = "the fastest of them stays"


@dataclass(frozen=True)
class MeasuredStep:
    """An iteration in which every block was recomputed and looked into."""

    blocks: Sequence[MeasuredBlock]
    outside: float
    """seconds of what is around its blocks"""
    base: int
    """bytes of the device before its first block"""
    passes: int
    """its backward passes"""
    paced: bool = False
    """whether its seconds were corrected by those of a whole step with a plan"""

    def at_pace(self, factor: float) -> "MeasuredStep":
        """Return it with all that was timed slower or faster: nobody looked into the step with the plan."""
        blocks = [replace(block, times=block.times.at_pace(factor)) for block in self.blocks]
        return replace(self, blocks=blocks, outside=factor * self.outside, paced=True)


@dataclass(frozen=True, eq=False)
class Profile:
    """What is known of iterations that begin alike; what is learned makes another."""

    phase: FitPhase = FitPhase.MEASURE
    measured: MeasuredStep | None = None
    runs: Mapping[tuple[str, ...], tuple[float, ...]] = field(default_factory=dict)
    """seconds of whole steps with the plans that were begun, by the names of their choices"""
    above: frozenset[tuple[str, ...]] = frozenset()
    """the names of the choices of plans that took more than the budget"""
    plan: FitPlan | None = None
    begun: int = 0
    """iterations with this plan"""
    tried: int = 0
    """iterations with a plan under the clock, timed or not"""
    plan_base: int = 0
    """bytes of the device before the iteration that it was made for"""
    shortfall: int = 0
    """bytes that an iteration took above what its plan foresaw, at most"""
    together: Mapping[int, tuple[int, ...]] | None = None
    """the blocks that are taken together, by the identity of the first, once they have been measured one by one"""
    strangers: int = 0
    """iterations in a row with blocks that were not measured"""
    anew: int = 0
    """how often it was to be measured anew"""

    @property
    def blocks(self) -> Sequence[MeasuredBlock]:
        """What was measured of each block."""
        return () if self.measured is None else self.measured.blocks

    def begin(self) -> "Profile":
        """Count an iteration that begins."""
        return replace(self, begun=self.begun + 1, tried=self.tried + (self.phase is FitPhase.TRY))

    def time(self, plan: FitPlan, seconds: float) -> "Profile":
        """Take over the seconds of a step with a plan; where nothing moves, they tell how fast the device computes."""
        measured, runs = self.measured, {**self.runs, plan.names: (*self.runs.get(plan.names, ()), seconds)}
        if measured is not None and not measured.paced and not plan.foreseen.moved and plan.seconds:
            measured = measured.at_pace(seconds / plan.seconds)
        return replace(self, runs=runs, measured=measured)

    def measure_anew(self, forget: bool = False) -> "Profile":
        """Have the next iteration measured; what was measured before is compared with it, unless it is forgotten."""
        return Profile(
            measured=None if forget else self.measured,
            above=self.above,
            tried=self.tried,
            plan_base=self.plan_base,
            shortfall=self.shortfall,
            anew=self.anew + 1,
        )

    def take(self, measured: MeasuredStep) -> "Profile":
        """Take over what was measured, unless blocks were left out, as by chance, of those that are known."""
        left_out = self.measured is not None and _left_out(measured.blocks, self.blocks)
        return replace(self, measured=self.measured if left_out else measured, phase=FitPhase.TRY)

    def meet(self, strangers: bool) -> "Profile":
        """Count an iteration that had blocks that were not measured; after two in a row, have the next one measured."""
        count = self.strangers + 1 if strangers else 0
        return self.measure_anew() if count > 1 and self.anew < MOST_ANEW else replace(self, strangers=count)

    def meet_loss(self) -> "Profile":
        """Have the next iteration measured, where a loss needs a block that the measured one did not."""
        return self.measure_anew() if self.anew < MOST_ANEW else self

    def weigh(self, plan: FitPlan, peak: int) -> "Profile":
        """Compare the bytes that an iteration took with its plan's; above the budget, have another plan made."""
        profile = replace(self, shortfall=max(self.shortfall, peak - plan.foreseen.peak))
        if peak <= plan.budget["device"]:
            return profile
        return replace(profile, above=self.above | {plan.names}, plan=None)

    def refuse(self) -> "Profile":
        """Have whoever goes on after an error of the budget told again."""
        if len({block.module for block in self.blocks}) < len(self.blocks):
            return self.measure_anew(forget=True)  # it may have been several forward passes, of which nobody told
        return replace(self, plan=None)


def _left_out(blocks: Sequence[MeasuredBlock], others: Sequence[MeasuredBlock]) -> bool:
    """Tell whether these are others of which some were left out."""
    calls = iter([(block.module, block.signature) for block in others])
    return len(blocks) < len(others) and all((block.module, block.signature) in calls for block in blocks)
