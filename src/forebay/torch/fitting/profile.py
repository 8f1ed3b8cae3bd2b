"""What is known of iterations that begin alike: how far they are, what was measured, and the plans that were run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from forebay.torch.context import Autocast
from forebay.torch.fitting.facts import MeasuredBlock, Signature
from forebay.torch.fitting.fitplan import FitPlan

MOST_ANEW = 8
"""So often at most a profile is measured anew because blocks ran that it does not know."""
MOST_SHAPES = 64
"""Plans for so many sets of shapes are kept; those used longest ago go first."""
OFTEN = 4
"""Shapes that follow the plan of larger ones get one of their own when they come so often."""
FEW = 16
"""Where there are plans for so many sets of shapes, others only get one that are larger than all."""


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
        blocks = [block.at_pace(factor) for block in self.blocks]
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

    @property
    def beside(self) -> tuple[int, int]:
        """The bytes of the device before the first block, and those that come behind the last."""
        if self.measured is None or not self.blocks:
            return self.plan_base, 0
        base, inputs = self.measured.base, sum(block.inputs for block in self.blocks)
        return max(self.plan_base, base), max(0, self.blocks[-1].planned.peak_after - base - inputs)

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
        known = iter([(block.record.module, block.record.signature) for block in self.blocks])
        among_known = all((block.record.module, block.record.signature) in known for block in measured.blocks)
        left_out = len(measured.blocks) < len(self.blocks) and among_known
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
        if len({block.record.module for block in self.blocks}) < len(self.blocks):
            return self.measure_anew(forget=True)  # it may have been several forward passes, of which nobody told
        return replace(self, plan=None)


class IterationKey(NamedTuple):
    """How an iteration begins: those that begin alike have one plan."""

    signature: Signature
    autocast: Autocast
    flags: tuple[bytes, bytes]
    """modes, and which parameters want gradients"""
    called_with: Signature
    """what the model was called with: those that begin alike may go on with several shapes"""

    def holds(self, other: "IterationKey") -> bool:
        """Tell whether iterations that begin like another take no more memory than those that begin like this one."""
        alike = self[1:3] == other[1:3]
        return alike and within(other.signature, self.signature) and within(other.called_with, self.called_with)


def within(signature: Signature, larger: Signature) -> bool:
    """Tell whether tensors are no larger than others, along no axis, want no more gradients, and are alike else."""
    if signature == larger:
        return True
    return len(signature) == len(larger) and all(
        (one[1], one[3]) == (other[1], other[3])
        and one[2] <= other[2]
        and len(one[0]) == len(other[0])
        and all(length <= most for length, most in zip(one[0], other[0], strict=True))
        for one, other in zip(signature, larger, strict=True)
    )


class ShapeProfiles:
    """The profiles of a model on one device: smaller shapes follow the plan of larger ones."""

    def __init__(self) -> None:
        self._profiles: dict[IterationKey, Profile] = {}
        self._came: Counter[IterationKey] = Counter()  # by shapes that follow the plan of larger ones

    def find(self, key: IterationKey) -> IterationKey:
        """Return the key of the profile that iterations follow which begin like this one: this, or of larger shapes."""
        followed = key if key in self._profiles else self._larger(key) or key
        profile = self[followed]
        self._profiles.pop(followed, None)
        self._profiles[followed] = profile  # the one used last
        while len(self._profiles) > MOST_SHAPES:
            del self._profiles[next(iter(self._profiles))]
        return followed

    def __getitem__(self, key: IterationKey) -> Profile:
        """Return what is known by now, from the beginning where that is forgotten."""
        return self._profiles.get(key) or Profile()

    def __setitem__(self, key: IterationKey, profile: Profile) -> None:
        """Take over what was learned, unless that profile is forgotten."""
        if key in self._profiles:
            self._profiles[key] = profile

    def _larger(self, key: IterationKey) -> IterationKey | None:
        """Find the least shapes that are planned for and no smaller than these, unless they shall have their own."""
        planned = [other for other, profile in self._profiles.items() if profile.plan is not None and other.holds(key)]
        if not planned:
            return None
        larger = min(planned, key=lambda other: sum(shape.numel() for shape, *_ in other.signature))
        plan = self._profiles[larger].plan
        if self._came[key] < OFTEN and plan and (set(plan.names) == {"keep"} or len(self._profiles) >= FEW):
            return larger
        self._came[key] += 1
        return larger if self._came[key] < OFTEN else None

    def part(self, key: IterationKey) -> None:
        """Have shapes get a plan of their own: a kernel for these may take more than that for larger ones."""
        self._came[key] = OFTEN
