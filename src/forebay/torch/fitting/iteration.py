"""One iteration of a fitted model: what it follows, how far it is, and what its profile learns from it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import ref

import torch

from forebay.torch.compat import at_end_of_pass, graph_task
from forebay.torch.fitting.facts import BlockRecord, MeasuredBlock, Signature, Span, facts_of, total_seconds
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.neighbours import groups
from forebay.torch.fitting.profile import FitPhase, IterationKey, MeasuredStep, Profile, within
from forebay.torch.fitting.tools import DeviceTools
from forebay.torch.replay.arguments import tensors_in
from forebay.torch.storage.tensors import Entry, GraphToken


class Beginning(NamedTuple):
    """What there was when an iteration began."""

    called: bool
    """whether a call of the model began it, and not one of a block"""
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

    timed: bool
    task: int | None = None
    """the pass that is under way, or was last; none before the turn"""
    below: int = 0
    """the block that the pass came to last"""
    gone: int = 0
    """how many of the blocks that move have left the device"""
    graph: "Callable[[], GraphToken | None]" = lambda: None
    """is there as long as something of its graph is"""


@dataclass(frozen=True, eq=False)
class Iteration:
    """One forward and its backward."""

    tools: DeviceTools
    key: IterationKey
    followed: IterationKey
    """that of the profile, which may be one of larger shapes"""
    profile: Profile
    """as it was when the iteration began"""
    plan: FitPlan | None
    """of this profile; None where every block is recomputed and looked into"""
    began: Beginning
    progress: IterationProgress
    records: list[BlockRecord] = field(default_factory=list)
    """of its blocks so far"""
    places: list[int | None] = field(default_factory=list)
    """which blocks of the plan these are; None for those that were not measured"""
    marks: list[tuple[BlockRecord | None, Any]] = field(default_factory=list)
    """the blocks whose backward began, and when; None at the end of a pass"""
    sent: dict[int, list["ref[Entry]"]] = field(default_factory=dict)
    """what blocks sent away, by their place in the plan"""
    turned: dict[int, int] = field(default_factory=dict)
    """the pass that came to each block last"""

    @cached_property
    def expected(self) -> Sequence[MeasuredBlock]:
        """What was measured of the blocks of the plan."""
        return self.profile.blocks

    @property
    def as_planned(self) -> bool:
        """Whether its blocks were those of its plan, all of them."""
        return self.own and self.plan is not None and self.places == list(range(len(self.plan.picks)))

    @property
    def own(self) -> bool:
        """Whether the profile is of its own shapes."""
        return self.followed is self.key

    @property
    def ended(self) -> bool:
        """Whether a block that runs now begins another.

        A backward pass has come, or nobody can ask for one any more where only that would tell.
        """
        dropped = not self.began.called and bool(self.records) and self.progress.graph() is None
        return self.progress.task is not None or dropped

    @property
    def waits(self) -> bool:
        """Whether its graph is there, and no backward pass has come."""
        return self.progress.task is None and self.progress.graph() is not None

    @property
    def next_place(self) -> int:
        """The block of the plan behind the last of them that ran."""
        return next((place + 1 for place in reversed(self.places) if place is not None), 0)

    def place_of(self, module: int, signature: Signature) -> int | None:
        """Find a block that runs next among those of the plan; the model may have left some out."""
        for place in range(self.next_place, len(self.expected)):
            expected = self.expected[place].record
            if expected.module == module and within(signature, expected.signature):
                return place
        return None

    def note_strangers(self) -> None:
        """Tell its profile whether it had blocks that nobody has measured."""
        strangers, profiles = None in self.places, self.tools.profiles
        if self.plan is not None and self.own:
            profiles[self.key] = profiles[self.key].meet(strangers)
        if strangers:
            self.tools.groups.clear()  # blocks may have been replaced

    # What the hooks on the outputs of its blocks call.

    def hook(self, inputs: list[torch.Tensor], output: Any, reached: Callable[[], None]) -> None:
        """Have `reached` called when the backward of a block begins: the gradient of one of its outputs is there."""
        own, token = [id(tensor) for tensor in inputs], self.progress.graph()
        if token is None:
            token = GraphToken()
            self.progress.graph = ref(token)

        def hook(gradient: torch.Tensor, token: GraphToken = token) -> None:
            reached()

        for tensor in tensors_in(output):
            # The caller's own tensors may outlive the iteration.
            if tensor.grad_fn is not None and id(tensor) not in own:
                tensor.register_hook(hook)  # type: ignore[no-untyped-call]

    def reach(self, number: int, end: Callable[[], None]) -> bool:
        """Come to a block in a backward pass, at the end of which `end` is called.

        Tells whether the loss needs more blocks than the one that was measured.
        """
        progress, plan, task = self.progress, self.plan, graph_task()
        if progress.task != task:
            progress.task, progress.below = task, len(self.expected)
            at_end_of_pass(end)
        if self.turned.get(number) == task:  # by another of its outputs
            return False
        self.turned[number] = task
        if plan is None:
            self._mark(self.records[number])
            return False
        place = self.places[number]
        if place is None:
            return False
        for reached in range(progress.below - 1, place - 1, -1):
            self.leave(plan.foreseen.leave[reached])
            for ahead in plan.foreseen.fetch[reached]:  # what was saved last first
                entries = [reference() for reference in reversed(self.sent.get(ahead, []))]
                self.tools.store.fetch(*[entry for entry in entries if entry is not None])
        progress.below = min(progress.below, place)
        return self.own and not self.expected[place].needed

    def leave(self, count: int) -> None:
        """Let the first blocks that move be gone from the device."""
        while self.plan is not None and self.progress.gone < count:
            number = self.plan.moving[self.progress.gone]
            for reference in reversed(self.sent.get(number, [])):  # who waits for the last waits once
                if (entry := reference()) is not None:
                    self.tools.store.leave(entry)
            self.progress.gone += 1

    def end_pass(self) -> int:
        """Mark the end of a backward pass; return the most bytes that the iteration took, where they are compared."""
        self._mark(None)
        before = self.began.most
        most = self.tools.gauge.most() if before else 0
        return most if most > before else 0  # else it was no more than what others had taken before

    def _mark(self, record: BlockRecord | None) -> None:
        """Let the backward of one block end and that of another begin; of none at the end of a backward pass."""
        if not self.progress.timed:
            return
        ended, gauge = self.marks[-1][0] if self.marks else None, self.tools.gauge
        self.marks.append((record, gauge.mark()))
        if self.plan is None:
            peak = "peak after" if ended is None else "peak backward"
            (self.records[-1] if ended is None else ended).log[peak].append(gauge.peak())

    def learned(self, profile: Profile, refused: set[int], base: int) -> Profile:
        """Return what the profile learns from it, once, when it has ended; `base` bytes of the device are in use."""
        began, gauge, planner = self.began, self.tools.gauge, self.tools.planner
        ends = [moment for record, moment in self.marks if record is None]
        if not ends or not self.progress.timed:
            return profile
        self.progress.timed = False
        if profile.anew != self.profile.anew:
            return profile  # this was to be measured anew while that one was under way
        seconds = gauge.seconds(*began.ahead) + gauge.seconds(began.start, ends[-1])
        if self.plan is not None:
            timely = profile.measured is not None and len(ends) == profile.measured.passes
            return profile.time(self.plan, seconds) if timely and self.as_planned else profile
        if profile.phase is not FitPhase.MEASURE:
            return profile
        for (record, start), (_, end) in pairwise(self.marks):
            if record is not None:
                record.log["backward"].append((start, end))
        logs = [record.log for record in self.records]
        inside = total_seconds(gauge, (span for log in logs for span in (*log["forward"], *log["backward"])))
        blocks = facts_of(self.records, refused, gauge, bool(planner.budget.host), planner.choice)
        profile = profile.take(MeasuredStep(blocks, max(0.0, seconds - inside), began.base, len(ends)))
        profile = replace(profile, plan_base=max(base, began.base))
        if profile.together is not None:
            return profile
        # The budget without what others have taken since, as the states of an optimizer.
        together = groups(profile.blocks, planner.budget["device"] - max(0, base - began.base), self.tools.sequences)
        if together:
            profile = profile.measure_anew(forget=True)  # they have to be measured as such
        return replace(profile, together=together)
