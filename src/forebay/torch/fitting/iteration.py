"""One iteration of a fitted model: what it follows, what was observed of it, and what its profile learns from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

from forebay.torch.fitting.choices import timing_of
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.neighbours import groups
from forebay.torch.fitting.profile import FitPhase, MeasuredStep, Profile
from forebay.torch.fitting.record import BlockRecord, Signature, find_costly, find_loose, total_seconds
from forebay.torch.gauge import HostGauge
from forebay.torch.saved_tensors import Entry, GraphToken


class IterationKey(NamedTuple):
    """How an iteration begins: those that begin alike have one plan."""

    signature: Signature
    autocast: Any
    flags: tuple[bytes, bytes]
    """modes, and which parameters want gradients"""
    called_with: Signature
    """what the model was called with: those that begin alike may go on with several shapes"""


class IterationClock:
    """Times an iteration: `before`, from its first moment to its last, is what the model did ahead of its blocks."""

    def __init__(self, gauge: HostGauge, before: tuple[Any, Any], start: Any) -> None:
        self.gauge, self._before, self._start = gauge, before, start
        self.end: Any = None
        """of the last backward pass so far"""
        self._open: tuple[BlockRecord, Any] | None = None  # the block whose backward began last, and when

    def backward_of(self, record: BlockRecord | None) -> BlockRecord | None:
        """Let the backward of one block begin, or of none; return that whose backward has ended with it."""
        moment, ended = self.gauge.mark(), self._open
        if ended is not None:
            ended[0].times.spans.append((ended[1], moment))
        self._open = None if record is None else (record, moment)
        if record is None:
            self.end = moment
        return None if ended is None else ended[0]

    def seconds(self) -> float:
        """Return the seconds of all of it."""
        return self.gauge.seconds(*self._before) + self.gauge.seconds(self._start, self.end)


@dataclass
class ModelCall:
    """One call of the model."""

    begins: bool = False
    """whether none of its blocks has begun an iteration yet"""
    signature: Signature = ()
    """of what it was called with"""
    start: Any = None
    """the moment; None where nothing is timed"""
    ran_blocks: bool = False


@dataclass(eq=False)
class IterationProgress:
    """How far an iteration is with its backward passes, and with what leaves the device."""

    clock: IterationClock | None
    """None where nothing is timed, or its times were read"""
    most: int
    """bytes that the device had held at most before it, where that is to be compared; else 0"""
    task: int | None = None
    """the pass that is under way, or was last; none before the turn"""
    count: int = 0
    below: int = 0
    """the block that the pass came to last"""
    turned: dict[int, int] = field(default_factory=dict)
    """the pass that came to each block last"""
    gone: int = 0
    """how many of the blocks that move have left the device"""
    above: bool = False
    """whether it took more than the budget, though its shapes are smaller than those that were planned for"""
    graph: "ref[GraphToken] | None" = None
    """is there as long as something of its graph is"""


@dataclass(frozen=True, eq=False)
class Iteration:
    """One forward and its backward."""

    key: IterationKey
    profile: Profile
    plan: FitPlan | None
    """None where every block is recomputed and looked into"""
    expected: Sequence[BlockRecord]
    """what was measured of the blocks of the plan"""
    own: bool
    """whether the profile is of its shapes, and not of larger ones"""
    called: bool
    """whether a call of the model began it, and not one of a block"""
    base: int
    """bytes of the device before its first block"""
    anew: int
    """how often its profile was to be measured anew when it began"""
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

    def reach(self, record: BlockRecord | None) -> None:
        """Let the backward of one block end and that of another begin; of none at the end of a backward pass."""
        clock = self.progress.clock
        if clock is None:
            return
        ended = clock.backward_of(record)
        if self.plan is None:
            peak = clock.gauge.peak()
            if ended is None:
                self.records[-1].bytes.peak_after = max(self.records[-1].bytes.peak_after, peak)
            else:
                ended.bytes.peak_backward = max(ended.bytes.peak_backward, peak)


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


def learn(iteration: Iteration, base: int, budget: int) -> None:
    """Read the times of an iteration that has ended, once; `base` bytes of the device are in use now."""
    profile, clock = iteration.profile, iteration.progress.clock
    if clock is None or clock.end is None:
        return
    iteration.progress.clock = None
    if profile.anew != iteration.anew:
        return  # this was to be measured anew while that one was under way
    if iteration.plan is None:
        if profile.phase is FitPhase.MEASURE:
            _learn_measured(iteration, clock, base, budget)
    elif profile.measured is not None and iteration.as_planned and iteration.progress.count == profile.measured.passes:
        profile.time(iteration.plan, clock.seconds())


def _learn_measured(iteration: Iteration, clock: IterationClock, base: int, budget: int) -> None:
    profile, gauge = iteration.profile, clock.gauge
    find_loose(iteration.records)
    find_costly(iteration.records, gauge)
    inside = [record.times.forward for record in iteration.records if record.times.forward]
    inside += [span for record in iteration.records for span in record.times.spans]
    outside = max(0.0, clock.seconds() - total_seconds(gauge, inside))
    timings = [timing_of(record, gauge) for record in iteration.records]
    profile.take(MeasuredStep(iteration.records, timings, outside, iteration.base, iteration.progress.count))
    profile.plan_base = max(base, iteration.base)
    if profile.together is None:
        together = groups(profile.records, budget - max(0, base - iteration.base))  # grown by states of an optimizer
        if together:
            profile.measure_anew()  # they have to be measured as such
            profile.measured = None
        profile.together = together
