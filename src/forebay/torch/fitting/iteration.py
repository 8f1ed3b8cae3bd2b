"""One iteration of a fitted model: what it follows, what was observed of it, and what its profile learns from it."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import ref

from forebay.torch.execution_context import Autocast
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.neighbours import groups
from forebay.torch.fitting.profile import FitPhase, MeasuredStep, Profile
from forebay.torch.fitting.record import BlockRecord, MeasuredBlock, Signature, Span, measured_blocks, total_seconds
from forebay.torch.gauge import HostGauge
from forebay.torch.saved_tensors import Entry, GraphToken


class IterationKey(NamedTuple):
    """How an iteration begins: those that begin alike have one plan."""

    signature: Signature
    autocast: Autocast
    flags: tuple[bytes, bytes]
    """modes, and which parameters want gradients"""
    called_with: Signature
    """what the model was called with: those that begin alike may go on with several shapes"""


class ModelCall(NamedTuple):
    """One call of the model."""

    begins: bool = False
    """whether none of its blocks has begun an iteration yet"""
    signature: Signature = ()
    """of what it was called with"""
    start: Any = None
    """the moment; None where nothing is timed"""
    ran_blocks: bool = False


class Beginning(NamedTuple):
    """What there was when an iteration began."""

    gauge: HostGauge
    """of the device that it computes on"""
    base: int
    """bytes of the device before its first block"""
    most: int
    """bytes that the device had held at most, where that is to be compared; else 0"""
    ahead: Span
    """from its first moment to its last, what the model did ahead of its blocks, where it is timed"""
    start: Any
    """of its blocks, where it is timed"""


@dataclass(eq=False)
class IterationProgress:
    """How far an iteration is with its backward passes, and with what leaves the device."""

    marks: list[tuple[BlockRecord | None, Any]] | None
    """the blocks whose backward began, and when; None at the end of a pass. No list where nothing is timed"""
    task: int | None = None
    """the pass that is under way, or was last; none before the turn"""
    below: int = 0
    """the block that the pass came to last"""
    turned: dict[int, int] = field(default_factory=dict)
    """the pass that came to each block last"""
    gone: int = 0
    """how many of the blocks that move have left the device"""
    graph: "ref[GraphToken] | None" = None
    """is there as long as something of its graph is"""


@dataclass(frozen=True, eq=False)
class Iteration:
    """One forward and its backward."""

    key: IterationKey
    followed: IterationKey
    """that of the profile, which may be one of larger shapes"""
    own: bool
    """whether that is of its own shapes"""
    profile: Profile
    """as it was when the iteration began"""
    plan: FitPlan | None
    """of this profile; None where every block is recomputed and looked into"""
    expected: Sequence[MeasuredBlock]
    """what was measured of the blocks of the plan"""
    called: bool
    """whether a call of the model began it, and not one of a block"""
    began: Beginning
    progress: IterationProgress
    records: list[BlockRecord] = field(default_factory=list)
    """of its blocks so far"""
    places: list[int | None] = field(default_factory=list)
    """which blocks of the plan these are; None for those that were not measured"""
    sent: dict[int, list["ref[Entry]"]] = field(default_factory=dict)
    """what blocks sent away, by their place in the plan"""

    @property
    def alive(self) -> bool:
        """Whether something of its graph is there."""
        return self.progress.graph is not None and self.progress.graph() is not None

    @property
    def dropped(self) -> bool:
        """Whether nobody can ask for its backward any more, where only that would tell that another begins."""
        return not self.called and self.progress.graph is not None and not self.alive

    @property
    def as_planned(self) -> bool:
        """Whether its blocks were those of its plan, all of them."""
        return self.own and self.plan is not None and self.places == list(range(len(self.plan.picks)))

    def graph_token(self) -> GraphToken:
        """Return what the hooks on the outputs of its blocks hold."""
        token = None if self.progress.graph is None else self.progress.graph()
        if token is None:
            token = GraphToken()
            self.progress.graph = ref(token)
        return token

    @property
    def next_place(self) -> int:
        """The block of the plan behind the last of them that ran."""
        return next((place + 1 for place in reversed(self.places) if place is not None), 0)

    def place_of(self, module: int, signature: Signature) -> int | None:
        """Find a block that runs next among those of the plan; the model may have left some out."""
        for place in range(self.next_place, len(self.expected)):
            expected = self.expected[place]
            if expected.module == module and within(signature, expected.signature):
                return place
        return None

    def mark(self, record: BlockRecord | None) -> None:
        """Let the backward of one block end and that of another begin; of none at the end of a backward pass."""
        marks, gauge = self.progress.marks, self.began.gauge
        if marks is None:
            return
        ended = marks[-1][0] if marks else None
        marks.append((record, gauge.mark()))
        if self.plan is None:
            peak = "peak after" if ended is None else "peak backward"
            (self.records[-1] if ended is None else ended).log[peak].append(gauge.peak())


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


def learn(iteration: Iteration, profile: Profile, refused: Container[int], base: int, budget: int) -> Profile:
    """Read the times of an iteration that has ended, once; `base` bytes of the device are in use now."""
    began, gauge, marks = iteration.began, iteration.began.gauge, iteration.progress.marks or []
    ends = [moment for record, moment in marks if record is None]
    if not ends:
        return profile
    iteration.progress.marks = None
    if profile.anew != iteration.profile.anew:
        return profile  # this was to be measured anew while that one was under way
    seconds = gauge.seconds(*began.ahead) + gauge.seconds(began.start, ends[-1])
    if iteration.plan is not None:
        timely = profile.measured is not None and len(ends) == profile.measured.passes
        return profile.time(iteration.plan, seconds) if timely and iteration.as_planned else profile
    if profile.phase is not FitPhase.MEASURE:
        return profile
    for (record, start), (_, end) in pairwise(marks):
        if record is not None:
            record.log["backward"].append((start, end))
    logs = [record.log for record in iteration.records]
    inside = total_seconds(gauge, (span for log in logs for span in (*log["forward"], *log["backward"])))
    blocks = measured_blocks(iteration.records, refused, gauge)
    profile = profile.take(MeasuredStep(blocks, max(0.0, seconds - inside), began.base, len(ends)))
    profile = replace(profile, plan_base=max(base, began.base))
    if profile.together is not None:
        return profile
    # The budget without what others have taken since, as the states of an optimizer.
    together = groups(profile.blocks, budget - max(0, base - began.base))
    if together:
        profile = profile.measure_anew(forget=True)  # they have to be measured as such
    return replace(profile, together=together)
