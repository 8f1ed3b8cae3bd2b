"""Loops whose end, or whose costs, nobody knows: snapshots are kept as they go, and a plan is made at the turn."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import update_wrapper
from itertools import accumulate, chain, islice
from math import ceil
from statistics import fmean
from typing import Any

from forebay.codec import Codec
from forebay.engine.executor import Executor
from forebay.engine.loop import TimeLoop
from forebay.engine.reversal import MakeMachine, Reversal, Setup
from forebay.engine.spilling import EndlessExecutor, Rooms, SnapshotCoding, rooms_of_budget
from forebay.errors import BudgetError, PlanError, StateError
from forebay.machine.packing import Packing
from forebay.planner import Plan, check_budget, plan
from forebay.planner.choose import Setting, priced
from forebay.planner.operations import Operation
from forebay.planner.residency import StreamedResidency, follow, reside_back, reside_online
from forebay.planner.settings import Problem, check_tiers
from forebay.planner.simulate import BOUNDLESS, simulate
from forebay.planner.trace import Reiterable
from forebay.schedule import Action, Drop, Foreign, Forward, Online, Save, Schedule
from forebay.schedule.learning import LearningSweep
from forebay.schedule.names import is_auto, split_name
from forebay.schedule.online import back, unending
from forebay.schedule.segmented import check_count, check_steps
from forebay.schedule.weighted import WeightedSplits

WORTHWHILE = 1e-3
"""Seconds of a lap at least where steps are shorter: to time one takes some hundredth of that."""
DECIDING = 0.04
"""The part of a sweep's seconds that it may take to decide what to keep."""
LAPS = 1 << 13
"""Laps of a sweep at most."""
SHORTEST = 1e-9
"""Seconds of a lap at least."""
FOREVER = 1 << 62
"""Steps of a loop before its end is known."""
MOST = 1 << 17
"""Slots of a tier that are used at most: a loop of no more steps keeps them all."""


@dataclass(frozen=True)
class Ended:
    """What a ``forward`` returns where its loop is over, in place of a state.

    Examples
    --------
    >>> import numpy as np
    >>> import forebay as fb
    >>> def halve(state, start, stop):
    ...     for step in range(start, stop):
    ...         if state[0] < 1e-3:
    ...             return fb.Ended(state, step)
    ...         state = (state[0] / 2,)
    ...     return state
    >>> seen = []
    >>> result = fb.reverse(halve, lambda state, step: seen.append(step), (np.ones(1),), steps=None, budget="64kB")
    >>> result.plan.steps, seen[:2]
    (10, [9, 8])
    """

    state: Any
    """the final one"""
    steps: int
    """that the loop has had, counted from its start; at least one"""


class EndWatch:
    """A ``forward`` that may return `Ended`, as one that returns states; it is not called for steps behind the end."""

    def __init__(self, forward: Any) -> None:
        update_wrapper(self, forward)
        self._forward = forward
        self.ended: int | None = None

    def __call__(self, state: Any, start: int, stop: int, **more: Any) -> Any:
        """Run forward, as far as the loop goes."""
        if self.ended is not None:
            stop = min(stop, self.ended)
        if start >= stop:
            return state
        returned = self._forward(state, start, stop, **more)
        if not isinstance(returned, Ended):
            return returned
        check_count(returned.steps, "the steps of Ended")
        if not start <= returned.steps <= stop:
            raise StateError(f"forward ended at step {returned.steps}, but was asked for steps {start} to {stop}")
        if self.ended is not None and returned.steps != self.ended:
            raise StateError(
                f"forward ended at step {self.ended} before and at step {returned.steps} now: "
                "it must depend on its state alone"
            )
        self.ended = int(returned.steps)
        return returned.state


class TurnPlanned(Reversal):
    """A reversal whose first sweep finds out what its plan is made from, at the turn."""

    def __init__(
        self,
        loop: TimeLoop,
        problem: Problem,
        schedule: Any,
        machine: MakeMachine,
        note: str,
        encoders: Sequence[Codec] = (),
    ) -> None:
        codecs = [encoder.name for encoder in encoders if encoder.name in problem.costs.codecs]
        self._problem, self._setting = problem, self._setting_of(problem, schedule, codecs)
        slots = self._setting.slots
        tiers, sizes = problem.budget.tiers[: len(slots)], tuple(count * problem.state_bytes for count in slots)
        coding, rooms = None, Rooms(sizes, sizes)
        if self._setting.codec is not None:
            encoder = next(encoder for encoder in encoders if encoder.name == self._setting.codec)
            with loop.memory.current():
                packing = Packing.of(loop.layout.leaves, encoder, loop.memory.tier)
            nbytes = self._setting.snapshot_bytes
            coding = SnapshotCoding(packing, None, nbytes, sum(slots), forward_steps=0, steps=1)
            rooms = rooms_of_budget(problem.budget, tiers, "states", loop.layout, packing, problem.overhead)
        setup = Setup(loop, True, loop.layout, coding, tiers, rooms, machine, EndlessExecutor)
        super().__init__(setup, None, note=note)

    @abstractmethod
    def _setting_of(self, problem: Problem, schedule: Any, codecs: Sequence[str]) -> Setting:
        """Return how snapshots are kept, as far as the schedule that was asked for says."""

    def _held_at_turn(self) -> list[set[int]]:
        assert self._executor is not None
        return [set(held) for held in self._executor.held]

    def _planned(self, schedule: Schedule, problem: Problem, operations: Iterable[Operation]) -> Plan:
        """Return the plan that has been followed in a sweep to the turn, and that will be from there."""
        setting = self._setting
        work = problem.work("states", setting.codec, len(setting.slots))
        prediction = simulate(operations, (*setting.slots[:-1], BOUNDLESS), work)
        return Plan.of(problem, priced(prediction, schedule, setting.slots, setting))


class OnlineReversal(TurnPlanned):
    """A reversal whose first sweep ends where the loop says so."""

    def __init__(
        self,
        watch: EndWatch,
        loop: TimeLoop,
        problem: Problem,
        schedule: Any,
        machine: MakeMachine,
        note: str,
        encoders: Sequence[Codec],
    ) -> None:
        super().__init__(loop, problem, schedule, machine, note, encoders)
        self._watch = watch
        self._most = FOREVER if is_auto(schedule) else sum(self._setting.slots)
        if encoders and self._setting.codec is None:
            unused = (
                f"codec {' or '.join(encoder.name for encoder in encoders)} is not used: no more snapshots fit with it"
            )
            self.note = f"{note}; {unused}" if note else unused

    def _setting_of(self, problem: Problem, schedule: Any, codecs: Sequence[str]) -> Setting:
        setting = _roomiest(problem, codecs)
        return replace(setting, slots=_limited([min(count, MOST) for count in setting.slots], schedule, "online"))

    def _sweep(self, executor: Executor, state: Any) -> Any:
        if isinstance(executor, EndlessExecutor):
            return self._sweep_encoded(executor, state)
        loop, slots = self._setup.loop, self._setting.slots
        tiers, start, before = StreamedResidency(slots), 0, 0  # where the last call began, and the actions before it
        for number, action in enumerate(unending(sum(slots))):
            state = executor.run(tiers.follow(action), state)
            if isinstance(action, Forward):
                ended, start, before = self._watch.ended, action.start, number
                if ended is not None and ended <= loop.every * action.stop:
                    check_steps(ended)
                    loop.end(ended)
                    break
        schedule = Online(loop.coarse_steps, sum(slots))
        # The last snapshot may be of the very end, and one may be left that makes room for the next.
        drops = [Drop(step) for step in sorted({step for held in tiers.held for step in held} - set(schedule.kept))]
        for drop in drops:
            executor.run(tiers.follow(drop), state)
        self._later = reside_back(Reiterable(schedule.back), slots, tiers.held)
        problem = replace(self._problem, steps=loop.steps, every=loop.every)
        last = [Forward(start, schedule.steps)] if start < schedule.steps else []
        sweep = chain(islice(unending(sum(slots)), before), last, drops)
        followed = chain(follow(sweep, StreamedResidency(slots)), self._later)
        self._plan = self._planned(schedule, problem, followed)
        return state

    def _sweep_encoded(self, executor: EndlessExecutor, state: Any) -> Any:
        """Run to the end with encoded snapshots, whose sizes decide how many are kept; the plan assumes them alike."""
        loop, slots = self._setup.loop, self._setting.slots

        def end_before(position: int) -> int | None:
            ended = self._watch.ended
            if ended is None or ended > loop.every * position:
                return None
            check_steps(ended)
            loop.end(ended)
            return loop.coarse_steps

        state = executor.sweep(state, end_before, self._most)
        schedule = Online(loop.coarse_steps, sum(slots))
        problem = replace(self._problem, steps=loop.steps, every=loop.every)
        self._plan = self._planned(schedule, problem, reside_online(schedule, slots))
        return state

    def _way_back(self, retain: bool) -> Iterable[Operation]:
        if self._setup.coding is None:
            return super()._way_back(retain)
        self._held = self._held_at_turn()
        return ()  # it goes by the sizes of what is there


class LearningReversal(TurnPlanned):
    """A reversal whose first sweep times its steps, and keeps snapshots as they turn out."""

    def _setting_of(self, problem: Problem, schedule: Any, codecs: Sequence[str]) -> Setting:
        problem = replace(problem, costs=replace(problem.costs, steps=()))
        setting = _roomiest(problem)
        slots = _limited(setting.slots, schedule, "weighted")
        if is_auto(schedule):  # as many as would be used if all steps were equal
            equal = plan(
                problem.steps,
                problem.state_bytes,
                problem.budget,
                costs=problem.costs,
                every=problem.every,
                slots=problem.slots,
                reversals=problem.reversals,
                overhead=problem.overhead,
                hurry=True,
            )
            slots = tuple(count for count in equal.prediction.peak if count)
        return replace(setting, slots=slots)

    def _sweep(self, executor: Executor, state: Any) -> Any:
        loop, slots, tiers = self._setup.loop, self._setting.slots, StreamedResidency(self._setting.slots)
        machine, steps, taken = executor.machine, loop.coarse_steps, list[float]()
        lap = _lap(self._problem)
        sweep, actions = LearningSweep(steps, sum(slots), lap), list[Action]()

        def run(*following: Action) -> Any:
            reached = state
            for action in following:
                actions.append(action)
                reached = executor.run(tiers.follow(action), reached)
            return reached

        run(Save(0))
        ran = deciding = 0.0
        for start in range(0, steps, lap):
            stop, before = min(start + lap, steps), machine.moment()
            state = run(Forward(start, stop))
            reached = machine.moment()
            seconds = max(machine.between(before, reached), SHORTEST)
            taken += [seconds / (stop - start)] * (stop - start)
            ran += seconds
            following = sweep.learn(seconds, asks=deciding <= DECIDING * ran)
            deciding += machine.between(reached, machine.moment())
            run(*following)
        later = list(back(sweep.kept, steps, sum(slots), splits=WeightedSplits(taken, sum(slots)).split))
        self._later = reside_back(later, slots, tiers.held)
        schedule = Foreign(steps, (*actions, *later), f"learned:{sum(slots)}")
        last = loop.steps - (steps - 1) * loop.every  # a step of the schedule is of so many, or of `every`
        each = [seconds / loop.every for seconds in taken[:-1] for _ in range(loop.every)] + [taken[-1] / last] * last
        learned = replace(self._problem.costs, forward=fmean(each), steps=tuple(each))
        followed = chain(follow(actions, StreamedResidency(slots)), self._later)
        self._plan = self._planned(schedule, replace(self._problem, costs=learned), followed)
        return state


def _lap(problem: Problem) -> int:
    """Return the steps of the schedule that are timed as one."""
    by_time = WORTHWHILE / (problem.costs.forward * problem.every)
    return max(1, ceil(by_time), ceil(problem.coarse_steps / LAPS))


def _roomiest(problem: Problem, codecs: Sequence[str] = ()) -> Setting:
    """Return the setting with the most slots, refusing a budget that holds no snapshot."""
    check_tiers(problem.budget, problem.costs)
    settings = [setting for setting in problem.settings(codecs) if setting.slots[0] > 0]
    if not settings:
        check_budget(1, problem.state_bytes, problem.budget)
        raise BudgetError(
            f"slots={problem.slots}: the {problem.budget.tiers[0]} budget does not hold so many snapshots"
        )
    return max(settings, key=lambda setting: sum(setting.slots))


def _limited(slots: Sequence[int], schedule: str | Any, name: str) -> tuple[int, ...]:
    """Return the slots to use of each tier, the fastest first."""
    if is_auto(schedule):
        return tuple(slots)
    family, numbers = split_name(schedule) if isinstance(schedule, str) else ("", [])
    if family == name and numbers:
        wanted = Online(1, *numbers).snapshots
        if wanted > sum(slots):
            raise BudgetError(
                f"the budget holds {sum(slots)} snapshots, fewer than {schedule} keeps: give a larger one"
            )
        before = accumulate(slots, initial=0)
        used = [min(count, wanted - held) for count, held in zip(slots, before, strict=False)]
        return tuple(count for count in used if count > 0)
    where = "steps=None" if name == "online" else "step_costs='learn'"
    raise PlanError(f"schedule={schedule}: with {where} it is 'auto', or '{name}:20' for that many snapshots")
