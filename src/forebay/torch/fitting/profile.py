"""What a fitted model knows: its blocks, what was measured for each set of shapes, and the iteration at work."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from random import Random
from statistics import median
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn

from forebay.torch.fitting.blocks import Call, compiled
from forebay.torch.fitting.choices import LIGHT
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.record import Record, Signature, find_dear, find_loose
from forebay.torch.fitting.timings import Run, Trial, first_run, spent, together, trial
from forebay.torch.gauge import HostGauge
from forebay.torch.offloading.keeper import Alive
from forebay.torch.replay.module_state import Belongings
from forebay.torch.saved_tensors import Entry

CALM = 6
"""So many iterations with a plan that may stay are timed as a whole: block by block takes time of its own."""
MOST_TURNS = 60
"""So many turns at most are taken, whatever happens to plans meanwhile."""


@dataclass(frozen=True, eq=False)
class Part:
    """A block of the model."""

    name: str
    call: Call
    belongings: Belongings
    module: nn.Module
    count: int = 1
    """the blocks of the model that it is made of"""

    @cached_property
    def kind(self) -> tuple[Any, ...]:
        """What blocks that are alike have in common, besides what they are given."""
        return type(self.module), tuple(one.shape for one in self.module.parameters())

    @cached_property
    def identity(self) -> int:
        """What tells it from others: its module, or those that it is made of."""
        return id(self.module) if self.count == 1 else hash(tuple(map(id, self.module.children())))

    @property
    def compiled(self) -> bool:
        """Whether torch.compile made its call, whose operations cannot be seen one by one."""
        return compiled(self.module)

    def record(self, given: Signature) -> Record:
        """Begin to take note of a call, with what it is given."""
        return Record(self.name, self.identity, given, self.compiled, (self.kind, given), self.count)


class Inputs(NamedTuple):
    """What a block is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    """those among them"""


class Follows(NamedTuple):
    """What is looked at in an iteration that begins."""

    measuring: bool
    """everything: it has no plan yet"""
    learning: bool
    """its peak, and its blocks unless it is the first with its plan"""
    timed: bool
    """the seconds of its blocks"""
    calm: bool
    """its seconds as a whole"""


@dataclass
class Known:
    """What is known of iterations with the same shapes."""

    records: list[Record] = field(default_factory=list)
    first: Run | None = None
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
    planned: int = 0
    """the same before the one that the plan was made for"""
    short: int = 0
    """bytes that an iteration took above what its plan foresaw, at most"""
    seen: int = 0
    plan: FitPlan | None = None
    told: frozenset[int] = frozenset()
    """the blocks whose backward the plan has to be told of"""
    passes: int = 0
    """backward passes of the iteration that was measured"""
    stale: bool = False
    """whether times were read since the plan was made"""
    looked: int = 0
    """iterations that had been read when it was made"""
    together: dict[int, tuple[int, ...]] | None = None
    """the blocks that are taken together, by the identity of the first, once they have been measured one by one"""
    groups: dict[int, Part] = field(default_factory=dict)
    """these as one, where they have been called"""
    missed: bool = False
    """whether the last iteration went otherwise"""
    calm: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    """seconds of iterations none of whose blocks was timed, by the names of their choices: a few for each"""
    rivals: tuple[FitPlan, ...] = ()
    """the plans that take turns until one stays"""
    turns: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """turns that they have had, by the names of their choices"""
    forwards: int = 0
    """forward passes since the last one that was learned from, or since a turn began"""
    usual: float = inf
    """forward passes for each that was learned from, at least: there may be several before a backward pass"""
    settled: bool = False
    """whether one of them stays"""
    forgotten: int = 0
    """how often all of it was forgotten"""

    @property
    def parts(self) -> Run:
        """The seconds that a plan is made from."""
        assert self.first is not None
        return together(self.first, [one.kind for one in self.records], self.later)

    def forget(self) -> None:
        """Have the next iteration measured anew."""
        self.seen, self.first, self.later, self.tried, self.plan, self.calm = 0, None, [], {}, None, {}
        self.together, self.groups, self.rivals, self.turns, self.settled = None, {}, (), Counter(), False
        self.forwards, self.usual, self.looked = 0, inf, 0
        self.forgotten += 1

    def take_together(self, groups: dict[int, tuple[int, ...]]) -> None:
        """Take neighbours together from now on, which have to be measured as such."""
        if groups:
            self.forget()
        self.together = groups

    def miss(self) -> None:
        """Take note of an iteration that went otherwise; after two in a row, have the next measured anew."""
        if self.missed:
            self.forget()
        self.missed = not self.missed

    @property
    def over(self) -> bool:
        """Whether each rival has had its turns, one that is not timed and then some that are; or all too many."""
        return self.turns.total() >= MOST_TURNS or all(self.turns[one.names] > CALM for one in self.rivals)

    def goes_on(self, before: "Iteration | None") -> bool:
        """Tell whether a turn goes on after an iteration, as there are more forward passes before a backward pass."""
        waits = before is not None and before.known is self and before.plan is self.plan and before.task is None
        if waits and self.forwards <= self.usual:
            return True
        self.forwards = 1
        return False

    def take_turn(self) -> FitPlan:
        """Give a rival that has had the fewest turns; in no order that iterations might have too."""
        fewest = min(self.turns[one.names] for one in self.rivals)
        due = [one for one in self.rivals if self.turns[one.names] == fewest]
        found = Random(self.turns.total()).choice(due)
        self.turns[found.names] += 1
        return found

    def settle(self) -> FitPlan:
        """Give the fastest rival, of those whose turns ended; for want of such, the first."""
        times = {one.names: len(self.calm.get(one.names, ())) for one in self.rivals}
        ended = [one for one in self.rivals if 2 * times[one.names] >= max(1, *times.values())]
        stays = self._fastest(ended) or self.rivals[0]
        self.tried = {one.names: self.calm[one.names] for one in ended} or self.tried
        self.rivals, self.settled = (), True
        return stays

    def _fastest(self, ended: list[FitPlan]) -> FitPlan | None:
        """Give the fastest of some plans, or a light one that may be as fast, for all that a few iterations tell."""

        def taken(one: FitPlan) -> float:
            return median(self.calm[one.names])

        fastest = min(ended, key=taken, default=None)
        light = min((one for one in ended if LIGHT.issuperset(one.names)), key=taken, default=None)
        if fastest is None or light is None:
            return fastest
        times = sorted(self.calm[light.names])
        return fastest if taken(fastest) < times[len(times) // 4] else light

    def follow(self, planned: bool, enough: int) -> Follows:
        """Begin an iteration with the plan that is there, or with none.

        Parameters
        ----------
        planned
            Whether the plan was made just now.
        enough
            So many iterations are timed block by block.
        """
        learning = self.seen < enough
        names = () if self.plan is None else self.plan.names
        timed = learning and (self.plan is None or names == self.followed)
        first = bool(self.rivals) and self.turns[names] == 1  # in which memory may have to be taken
        calm = not (learning or planned or first) and len(self.calm.get(names, ())) < CALM
        self.followed = names
        return Follows(not self.seen, learning, timed, calm)

    def weigh(self, plan: FitPlan, taken: int) -> None:
        """Take note of the bytes that an iteration with a plan took; above the budget, have another plan made."""
        self.short = max(self.short, taken - plan.foreseen.peak)
        if taken > plan.budget["device"]:
            self.plan = None

    def learn(self, now: "Iteration", gauge: HostGauge, total: float) -> None:
        """Take over what an iteration of so many seconds tells of its blocks."""
        if (self.first is None) != now.measuring or self.forgotten != now.forgotten:
            return  # this was forgotten, or measured, while that one was under way
        inside = [record.forward for record in now.records if record.forward]
        inside += [span for record in now.records for span in record.spans]
        outside = max(0.0, total - spent(gauge, inside + now.waits))
        if self.first is None:
            records = now.records
            find_loose(records)
            find_dear(records, gauge)
            if [_which(one) for one in self.records] == [_which(one) for one in records]:
                # Of a block that this loss did not need, what is known from another time is better than nothing.
                records = [
                    old if old.spans and not new.spans else new for old, new in zip(self.records, records, strict=True)
                ]
            self.records, self.base, self.passes = records, now.base, now.passes
            self.first = first_run(records, gauge, outside)
        elif now.plan is not None:
            self.later.append(trial(self.first, now.records, now.plan.names, gauge, outside))
            self.tried.setdefault(now.plan.names, []).append(total)
        self.seen += 1
        self.stale = True
        self.usual, self.forwards = min(self.usual, self.forwards), 0

    def learn_whole(self, now: "Iteration", total: float) -> None:
        """Take over the seconds of an iteration that did what the measured one did, with a plan that may stay."""
        current = any(now.plan is one for one in (self.plan, *self.rivals))
        if now.plan is not None and current and not now.broken and now.passes == self.passes:
            self.calm.setdefault(now.plan.names, []).append(total)


def turning_points(plan: FitPlan, records: list[Record], passes: int) -> frozenset[int]:
    """Give the blocks whose backward a plan has to be told of, which takes the host as long as a small operation.

    Something leaves or is fetched with them, or with those behind them that no loss comes to; the pass begins with
    them; or no loss came to them so far. Where there are several passes, they are all: each may begin anywhere.
    """
    if passes > 1:
        return frozenset(range(len(records)))
    found, foreseen, begun, waiting = set(), plan.foreseen, False, False
    for number in reversed(range(len(records))):
        # As many as leave with the last block have left when the model returns, wherever a pass begins after that.
        leaves = foreseen.leave[number] > foreseen.leave[-1]
        waiting = waiting or leaves or bool(foreseen.fetch[number])
        if not records[number].spans:
            found.add(number)
        elif waiting or not begun:
            found.add(number)
            begun, waiting = True, False
    return frozenset(found)


def _which(record: Record) -> tuple[int, Any]:
    return record.module, record.signature


@dataclass(eq=False)
class Iteration:
    """One forward and its backward."""

    known: Known
    measuring: bool
    base: int
    before: tuple[Any, Any]
    """what the model did before its first block"""
    start: Any
    """None where nothing is timed, or its times were read"""
    plan: FitPlan | None
    timed: bool
    expected: list[Record]
    """what was measured of each block, where it has a plan"""
    told: frozenset[int] | None
    """the blocks whose backward it is told of; of all where that is None"""
    calm: bool = False
    """whether it is timed as a whole, and nothing in it"""
    records: list[Record] = field(default_factory=list)
    """of its blocks so far; where nothing is timed, those that were measured"""
    sent: dict[int, list["ref[Entry]"]] = field(default_factory=dict)
    gone: int = 0
    given: set[int] = field(default_factory=set)
    """the storages that blocks were given"""
    waits: list[tuple[Any, Any]] = field(default_factory=list)
    """in which the computation waited for copies, outside of the backward of all blocks"""
    open: tuple[Record, Any] | None = None
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
    """how often what is known of it had been forgotten when it began"""
    called: bool = True
    """whether a call of the model began it, and not one of a block"""
    steady: bool = False
    """whether nothing of it is timed, nor it as a whole"""
    guessed: bool = False
    """whether modes and frozen parameters are taken to be those of the last one"""
    graph: "ref[Alive] | None" = None
    """is there as long as something of its graph is"""

    @property
    def dropped(self) -> bool:
        """Whether nobody can ask for its backward any more, where only that would tell that another begins."""
        return not self.called and self.graph is not None and self.graph() is None

    def held(self) -> Alive:
        """Give what the hooks on the outputs of its blocks hold."""
        alive = None if self.graph is None else self.graph()
        if alive is None:
            alive = Alive()
            self.graph = ref(alive)
        return alive

    @property
    def other_way(self) -> bool:
        """Whether it ended before its plan did."""
        return self.plan is not None and len(self.records) != len(self.plan.picks)

    def clock(self, gauge: HostGauge, record: Record | None) -> None:
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
        """Be around what makes the computation wait for a copy."""
        start = gauge.mark()
        yield
        (self.waits if self.open is None else self.open[0].waits).append((start, gauge.mark()))
