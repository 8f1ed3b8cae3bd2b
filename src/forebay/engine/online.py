"""Loops that say themselves when they are over: snapshots are kept as if they never were, until the end is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from itertools import accumulate
from pathlib import Path
from typing import Any

from forebay.engine.executor import Executor
from forebay.engine.loop import TimeLoop
from forebay.engine.reversal import Reversal, Setup
from forebay.engine.spilling import Rooms
from forebay.errors import BudgetError, PlanError, StateError
from forebay.planner import Plan, check_budget
from forebay.planner.choose import Setting
from forebay.planner.operations import Operation
from forebay.planner.residency import StreamedResidency, reside_back
from forebay.planner.settings import Problem, check_tiers
from forebay.planner.simulate import simulate
from forebay.schedule import Drop, Forward, Online
from forebay.schedule.names import split_name
from forebay.schedule.online import unending
from forebay.schedule.segmented import check_count, check_steps

FOREVER = 1 << 62
"""Steps of a loop before its end is known."""
MOST = 1 << 17
"""Slots of a tier that are used at most: as many steps are then kept all."""


@dataclass(frozen=True)
class Ended:
    """What a ``forward`` returns where its loop is over, in place of a state.

    Examples
    --------
    >>> import numpy as np
    >>> from forebay.engine import reverse
    >>> def halve(state, start, stop):
    ...     for step in range(start, stop):
    ...         if state[0] < 1e-3:
    ...             return Ended(state, step)
    ...         state = (state[0] / 2,)
    ...     return state
    >>> seen = []
    >>> result = reverse(halve, lambda state, step: seen.append(step), (np.ones(1),), steps=None, budget="64kB")
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


class OnlineReversal(Reversal):
    """A reversal whose first sweep ends where the loop says so; its plan is made at the turn."""

    def __init__(
        self,
        setup: Setup,
        watch: EndWatch,
        plan_of: Callable[[TimeLoop, Online, Sequence[Operation]], Plan],
        note: str,
    ) -> None:
        super().__init__(setup, None, note=note)
        self._watch, self._plan_of = watch, plan_of

    def _sweep(self, executor: Executor, state: Any) -> Any:
        loop, slots = self._setup.loop, [room // self._setup.kept.nbytes for room in self._setup.rooms.first]
        tiers, done, start = StreamedResidency(slots), self._done, 0
        for action in unending(sum(slots)):
            operations = tiers.follow(action)
            state = executor.run(operations, state)
            if isinstance(action, Forward):
                ended, start = self._watch.ended, action.start
                if ended is not None and ended <= loop.every * action.stop:
                    check_steps(ended)
                    loop.end(ended)
                    break
            done += operations
        schedule = Online(loop.coarse_steps, sum(slots))
        if start < schedule.steps:
            done.append(Forward(start, schedule.steps))
        # The last snapshot may be of the very end, and one may be left that makes room for the next.
        for step in sorted({step for held in tiers.held for step in held} - set(schedule.kept)):
            operations = tiers.follow(Drop(step))
            executor.run(operations, state)
            done += operations
        self._later = reside_back(schedule.back(), slots, tiers.held)
        self._plan = self._plan_of(loop, schedule, [*self._done, *self._later])
        return state


def prepare_online(
    loop: TimeLoop,
    watch: EndWatch,
    problem: Problem,
    schedule: str | Any,
    where: Path,
    synchronous: bool,
    note: str,
) -> OnlineReversal:
    """Prepare the reversal of a loop of unknown end, with all the slots of a budget, or as many as `schedule` says."""
    setting = _roomiest(problem)
    slots = _limited([min(count, MOST) for count in setting.slots], schedule)
    bytes_of_slots = tuple(count * problem.state_bytes for count in slots)
    setup = Setup(
        loop=loop,
        keeps=True,
        kept=loop.layout,
        packing=None,
        tiers=problem.budget.tiers[: len(slots)],
        rooms=Rooms(bytes_of_slots, bytes_of_slots),
        where=where,
        synchronous=synchronous,
    )
    return OnlineReversal(setup, watch, partial(_plan_of, problem, replace(setting, slots=slots)), note)


def _roomiest(problem: Problem) -> Setting:
    """Return the setting with the most slots, refusing a budget that holds no snapshot."""
    check_tiers(problem.budget, problem.costs)
    settings = [setting for setting in problem.settings(()) if setting.slots[0] > 0]
    if not settings:
        check_budget(1, problem.state_bytes, problem.budget)
        raise BudgetError(
            f"slots={problem.slots}: the {problem.budget.tiers[0]} budget does not hold so many snapshots"
        )
    return max(settings, key=lambda setting: sum(setting.slots))


def _limited(slots: Sequence[int], schedule: str | Any) -> tuple[int, ...]:
    """Return the slots to use of each tier, the fastest first."""
    if isinstance(schedule, str) and schedule.strip().lower() == "auto":
        return tuple(slots)
    family, numbers = split_name(schedule) if isinstance(schedule, str) else ("", [])
    if family == "online" and numbers:
        wanted = Online(1, *numbers).snapshots
        if wanted > sum(slots):
            raise BudgetError(
                f"the budget holds {sum(slots)} snapshots, fewer than {schedule} keeps: give a larger one"
            )
        before = accumulate(slots, initial=0)
        used = [min(count, wanted - held) for count, held in zip(slots, before, strict=False)]
        return tuple(count for count in used if count > 0)
    raise PlanError(f"schedule={schedule}: with steps=None it is 'auto', or 'online:20' for that many snapshots")


def _plan_of(
    problem: Problem, setting: Setting, loop: TimeLoop, schedule: Online, operations: Sequence[Operation]
) -> Plan:
    """Return the plan that has been followed to the turn, and that will be from there."""
    problem = replace(problem, steps=loop.steps, every=loop.every)
    work = problem.work("states", None, len(setting.slots))
    prediction = simulate(operations, (*setting.slots[:-1], len(operations)), work)
    pinned = prediction.peak[1] if len(setting.slots) > 1 else 0
    return Plan(
        steps=loop.steps,
        every=loop.every,
        state_bytes=problem.state_bytes,
        record_bytes=None,
        keep="states",
        snapshot_bytes=problem.state_bytes,
        schedule=schedule,
        policy="min",
        codec=None,
        reversals=problem.reversals,
        budget=problem.budget,
        slots=setting.slots,
        costs=problem.costs,
        seconds=prediction.seconds + setting.pin * pinned,
        prediction=prediction,
        alternatives=(),
    )
