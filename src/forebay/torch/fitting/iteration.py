"""One iteration of a fitted model: what it follows, what was observed of it, and what its profile learns from it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import ref

from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.neighbours import groups
from forebay.torch.fitting.profile import Profile
from forebay.torch.fitting.record import BlockRecord, Signature, find_costly, find_loose
from forebay.torch.fitting.timings import read_first_iteration, read_trial, total_seconds
from forebay.torch.gauge import HostGauge
from forebay.torch.saved_tensors import Entry, GraphToken


class IterationKey(NamedTuple):
    """How an iteration begins: those that begin alike have one plan."""

    signature: Signature
    autocast: Any
    flags: tuple[bytes, bytes]
    """modes, and which parameters want gradients"""


@dataclass(eq=False)
class Iteration:
    """One forward and its backward."""

    profile: Profile
    measuring: bool
    base: int
    before: tuple[Any, Any]
    """what the model did before its first block"""
    start: Any
    """None where nothing is timed, or its times were read"""
    plan: FitPlan | None
    timed: bool
    expected: list[BlockRecord]
    """what was measured of each block, where it has a plan"""
    hooked: frozenset[int] | None
    """the blocks whose backward calls a hook; all where that is None"""
    timed_whole: bool = False
    """whether it is timed as a whole, and nothing in it"""
    records: list[BlockRecord] = field(default_factory=list)
    """of its blocks so far; where nothing is timed, those that were measured"""
    sent: dict[int, list["ref[Entry]"]] = field(default_factory=dict)
    gone: int = 0
    input_storages: set[int] = field(default_factory=set)
    """the storages that blocks were given"""
    waits: list[tuple[Any, Any]] = field(default_factory=list)
    """in which the computation waited for copies, outside of the backward of all blocks"""
    open: tuple[BlockRecord, Any] | None = None
    """the block whose backward began last, and when"""
    task: int | None = None
    """the backward pass that is under way, or was last; none before the turn"""
    passes: int = 0
    """backward passes so far"""
    turned: dict[int, int] = field(default_factory=dict)
    """the backward pass that came to each block last"""
    end: Any = None
    most: int = 0
    """bytes that the device had held at most before it, where they are counted"""
    broken: bool = False
    """whether it went otherwise than its plan"""
    forgotten: int = 0
    """how often its profile had been forgotten when it began"""
    called: bool = True
    """whether a call of the model began it, and not one of a block"""
    steady: bool = False
    """whether nothing of it is timed, nor it as a whole"""
    guessed: bool = False
    """whether modes and frozen parameters are taken to be those of the last one"""
    graph: "ref[GraphToken] | None" = None
    """is there as long as something of its graph is"""

    @property
    def dropped(self) -> bool:
        """Whether nobody can ask for its backward any more, where only that would tell that another begins."""
        return not self.called and self.graph is not None and self.graph() is None

    @property
    def awaited(self) -> bool:
        """Whether its graph is alive, and no backward pass has come to it."""
        return self.task is None and self.graph is not None and self.graph() is not None

    def graph_token(self) -> GraphToken:
        """Return what the hooks on the outputs of its blocks hold."""
        token = None if self.graph is None else self.graph()
        if token is None:
            token = GraphToken()
            self.graph = ref(token)
        return token

    @property
    def other_way(self) -> bool:
        """Whether it ended before its plan did."""
        return self.plan is not None and len(self.records) != len(self.plan.picks)

    def clock(self, gauge: HostGauge, record: BlockRecord | None) -> None:
        """Let the backward of one block end and that of another begin; of none at the end of a backward pass."""
        moment = gauge.mark()
        if self.measuring:
            peak = gauge.peak()
            if self.open is None:
                self.records[-1].peak_after = max(self.records[-1].peak_after, peak)
            else:
                self.open[0].peak_backward = max(self.open[0].peak_backward, peak)
        if self.open is not None:
            self.open[0].spans.append((self.open[1], moment))
        self.open = None if record is None else (record, moment)
        if record is None:
            self.end = moment

    @contextmanager
    def waiting(self, gauge: HostGauge) -> Iterator[None]:
        """Time what makes the computation wait for a copy."""
        start = gauge.mark()
        yield
        (self.waits if self.open is None else self.open[0].waits).append((start, gauge.mark()))


def read_times(iteration: Iteration, gauge: HostGauge, base: int, budget: int) -> None:
    """Read the times of an iteration that has ended, once.

    Parameters
    ----------
    iteration, gauge
        What has ended, and what its moments are read with.
    base
        Bytes of the device before the first block of the current iteration.
    budget
        Bytes of the device.
    """
    profile = iteration.profile
    if iteration.end is None or iteration.start is None:
        return
    total = gauge.seconds(*iteration.before) + gauge.seconds(iteration.start, iteration.end)
    iteration.start = None
    if iteration.plan is not None:
        profile.measured[iteration.plan.names] = total
    if iteration.other_way:
        profile.forget()
    elif iteration.timed and not iteration.broken:
        _learn_blocks(profile, iteration, gauge, total)
        if profile.first is not None and profile.together is None:
            grown = max(0, base - profile.base)  # by the states of an optimizer, after its first step
            profile.take_together(groups(profile.records, budget - grown))
    elif iteration.timed_whole:
        _learn_whole(profile, iteration, total)


def _learn_blocks(profile: Profile, iteration: Iteration, gauge: HostGauge, total: float) -> None:
    """Take over what an iteration of so many seconds tells of its blocks."""
    if (profile.first is None) != iteration.measuring or profile.forgotten != iteration.forgotten:
        return  # this was forgotten, or measured, while that one was under way
    inside = [record.forward for record in iteration.records if record.forward]
    inside += [span for record in iteration.records for span in record.spans]
    outside = max(0.0, total - total_seconds(gauge, inside + iteration.waits))
    if profile.first is None:
        records = iteration.records
        find_loose(records)
        find_costly(records, gauge)
        if [_call_of(record) for record in profile.records] == [_call_of(record) for record in records]:
            # Of a block that this loss did not need, what is known from another time is better than nothing.
            records = [
                old if old.spans and not new.spans else new for old, new in zip(profile.records, records, strict=True)
            ]
        profile.records, profile.base, profile.passes = records, iteration.base, iteration.passes
        profile.first = read_first_iteration(records, gauge, outside)
    elif iteration.plan is not None:
        profile.later.append(read_trial(profile.first, iteration.records, iteration.plan.names, gauge, outside))
        profile.tried.setdefault(iteration.plan.names, []).append(total)
    profile.learned += 1
    profile.stale = True
    profile.least_forwards, profile.forwards = min(profile.least_forwards, profile.forwards), 0


def _learn_whole(profile: Profile, iteration: Iteration, total: float) -> None:
    """Take over the seconds of an iteration that did what the measured one did, with a plan that may stay."""
    current = any(iteration.plan is plan for plan in (profile.plan, *profile.rivals))
    if iteration.plan is not None and current and not iteration.broken and iteration.passes == profile.passes:
        profile.whole_seconds.setdefault(iteration.plan.names, []).append(total)


def _call_of(record: BlockRecord) -> tuple[int, Any]:
    return record.module, record.signature
