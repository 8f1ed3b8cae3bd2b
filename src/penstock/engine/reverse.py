"""Reversing a time loop inside a budget: the one call that plans, measures and runs."""

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from penstock.engine.executor import Callbacks, Executor
from penstock.engine.layout import Layout, arrays_of
from penstock.engine.library import library_of
from penstock.errors import BudgetError, PlanError, StateError
from penstock.metrics import Metrics
from penstock.planner import Costs, Plan
from penstock.planner import plan as make_plan
from penstock.planner.operations import Operation
from penstock.schedule import Restore, Schedule
from penstock.schedule.segmented import check_steps
from penstock.units import Budget, seconds_to_text, to_text

LONG = 5.0
"""Predicted seconds from which a reversal shows its progress on a terminal."""

Record = Sequence[Any] | Callable[[Any, int], Any]


@dataclass(frozen=True)
class Result:
    """What a reversal gives back beside what its callbacks did."""

    plan: Plan
    """can be given again, to this loop's next reversal or to one like it"""
    metrics: Metrics
    note: str = ""
    """what was decided for the caller"""

    def explain(self) -> str:
        """Tell why this plan, and set what was predicted beside what was measured."""
        predicted, metrics = self.plan.prediction, self.metrics
        lines = [self.note] if self.note else []
        lines += [self.plan.explain(), "measured against predicted:"]
        rows = {"whole": (metrics.seconds, predicted.seconds)}
        for phase in ("forward", "backward", "save", "restore", "stall"):
            rows[phase] = (metrics.phases[phase], getattr(predicted, phase))
        for name, (measured, foreseen) in rows.items():
            if max(measured, foreseen) > 1e-3 * metrics.seconds:
                lines.append(f"  {name:<9} {seconds_to_text(measured):>9}  predicted {seconds_to_text(foreseen)}")
        for tier, planned in self.plan.peak_bytes.items():
            lines.append(f"  {tier:<9} {to_text(metrics.peak[tier]):>9}  predicted {to_text(planned)}")
        return "\n".join(lines)


def reverse(
    forward: Callable[..., Any],
    backward: Callable[[Any, int], None],
    state: Any,
    steps: int,
    *,
    budget: Budget | str | int | None = None,
    schedule: str | Schedule | Any = "auto",
    record: Record | None = None,
    every: int = 1,
    turn: Callable[[Any], None] | None = None,
    plan: Plan | None = None,
    costs: Costs | None = None,
    policy: str = "min",
    slots: int | None = None,
    reversals: int = 1,
    synchronous: bool = False,
    directory: Path | str | None = None,
    progress: bool | None = None,
) -> Result:
    """Run a time loop forward and then backward, keeping and recomputing states inside a budget.

    Results are bit-equal to keeping every state, whatever the plan.

    Parameters
    ----------
    forward
        ``forward(state, start, stop) -> state`` advances several steps. It owns its input and may overwrite it,
        depends on nothing else, and is called again for the same steps. Where it takes ``replay``, it is told whether
        it recomputes.
    backward
        ``backward(state_or_record, step)`` is called once a step, from the last to the first, with the state before
        that step, or its record; read-only, and valid during the call.
    state
        The state at step 0, left untouched: a tuple, list or dict of arrays, all of NumPy, CuPy or torch, in one
        memory. On the host, arrays with gaps are gathered when they are kept and come back without them; on a GPU
        they are refused.
    steps
        Steps of the loop.
    budget
        Bytes for snapshots, per tier; a bare amount is that of the tier in which the arrays are. The working state
        comes on top. None takes half of what is free.
    schedule, policy, slots, reversals
        As for `plan`.
    record
        What backward needs of a state, where that is less: keys of the state (or indices), or ``record(state, step)``.
    every
        Steps from one backward computation to the next, which then covers them all.
    turn
        ``turn(final_state)``, called once before the first backward computation.
    plan, costs
        Known from before; otherwise forward and links are timed on the first steps, which are run again afterwards.
    synchronous
        On a GPU, callbacks are called with the engine's stream current in CuPy and torch and may return before their
        work has ended. With this, the engine waits before each call and takes the return as completion, which suits
        callbacks that launch on streams of their own.
    directory
        Where the disk tier keeps its files.
    progress
        Whether to show progress; None shows it for long reversals on a terminal.

    Examples
    --------
    >>> import numpy as np
    >>> total = np.zeros(3)
    >>> def step(state, start, stop):
    ...     for _ in range(start, stop):
    ...         state = (0.5 * state[0] + 1,)
    ...     return state
    >>> def add(state, step):
    ...     total[:] += state[0]
    >>> result = reverse(step, add, (np.ones(3),), steps=100, budget="64kB", schedule="revolve:5")
    >>> float(total[0]), result.metrics.peak["host"]
    (198.0, 20480)
    """
    check_steps(steps)
    library = library_of(state)
    layout = Layout.of(state, library.describe)
    first_record = _record_of(record, state, 0) if record is not None else None
    record_layout = Layout.of(first_record, library.describe) if record is not None else None
    where = Path(directory) if directory is not None else Path(tempfile.gettempdir())
    note = ""
    if plan is not None:
        budget = plan.budget
    elif budget is None:
        budget = Budget(**{library.tier: library.free_bytes() // 2})
        note = (
            f"no budget was given: taking half of what is free on the {library.tier}, {to_text(budget[library.tier])}"
        )
    budget = Budget.of(budget, first=library.tier)
    if budget.tiers[0] != library.tier:
        raise BudgetError(f"the arrays are on the {library.tier}, so the budget must start there, not with {budget!r}")
    takes_replay = "replay" in inspect.signature(forward).parameters
    furthest = 0

    def advance(current: Any, start: int, stop: int) -> Any:
        nonlocal furthest
        first, last = start * every, min(stop * every, steps)
        if not takes_replay:
            return forward(current, first, last)
        known = min(max(first, furthest), last)  # up to here the steps have been run before
        if first < known:
            current = forward(current, first, known, replay=True)
        if known < last:
            current = forward(current, known, last, replay=False)
            furthest = last
        return current

    def fresh() -> Any:
        return layout.build([library.copy(array) for array in arrays_of(state)])

    if plan is None:
        if costs is None:
            disk = where if "disk" in budget.tiers else None
            costs = library.measure(advance, fresh, layout.nbytes, -(-steps // every), disk)
            costs = replace(costs, forward=costs.forward / every, backward=costs.backward / every)
        plan = make_plan(
            steps,
            layout.nbytes,
            budget,
            costs=costs,
            schedule=schedule,
            record_bytes=record_layout.nbytes if record_layout else None,
            every=every,
            policy=policy,
            slots=slots,
            reversals=reversals,
        )
    keeps = plan.keep == "states"
    kept = layout if keeps else record_layout
    if kept is None:
        raise PlanError("the plan keeps records: say what they are with record=")
    _check_plan(plan, steps, every, kept)

    def look(seen: Any, step: int) -> None:
        backward(_record_of(record, seen, step * every) if keeps else seen, step * every)
        advance_bar()

    callbacks = Callbacks(
        forward=advance,
        backward=look,
        turn=turn or (lambda final: None),
        snapshot=(lambda s, step: s) if keeps else (lambda s, step: _record_of(record, s, step * every)),
    )
    kinds = [library.kind_of(array) for array in arrays_of(state if keeps else first_record)]
    disk_bytes = plan.prediction.peak[-1] * kept.nbytes if plan.tiers[-1] == "disk" else 0
    operations = plan.operations()
    with _progress(plan, progress) as advance_bar:
        backend = library.backend(kinds, where, disk_bytes, synchronous)
        try:
            executor = Executor(backend, kept, plan.tiers, plan.prediction.peak)
            working = executor.load(list(arrays_of(state))) if keeps else fresh()
            executor.run(operations, plan.schedule.steps, working, callbacks, keeps)
            backend.finish()
        finally:
            backend.close()
    _count(backend.metrics, plan, operations, kept.nbytes)
    return Result(plan, backend.metrics, note)


def _record_of(record: Record | None, state: Any, step: int) -> Any:
    if record is None:
        return state
    if callable(record):
        return record(state, step)
    try:
        return {key: state[key] for key in record} if isinstance(state, dict) else tuple(state[key] for key in record)
    except (KeyError, IndexError, TypeError) as error:
        raise StateError(f"record={record!r} names what the state does not have: {error}") from error


def _check_plan(plan: Plan, steps: int, every: int, kept: Layout) -> None:
    if (plan.steps, plan.every) != (steps, every):
        raise PlanError(
            f"the plan was made for {plan.steps} steps, every {plan.every}; the loop has {steps}, every {every}"
        )
    if plan.codec is not None:
        raise PlanError(f"the plan uses the codec {plan.codec}, which the engine does not carry out yet")
    for tier, peak in zip(plan.tiers, plan.prediction.peak, strict=True):
        if peak * kept.nbytes > plan.budget[tier]:
            raise PlanError(
                f"the plan was made for snapshots of {plan.snapshot_bytes} bytes, but they have {kept.nbytes}: "
                f"{peak} of them exceed the {tier} budget; make a plan for this state"
            )


@contextmanager
def _progress(plan: Plan, wanted: bool | None) -> Iterator[Callable[[], None]]:
    """Show the backward steps done, where that is wanted."""
    console = Console(stderr=True)
    if not (wanted or (wanted is None and console.is_terminal and plan.seconds > LONG)):
        yield lambda: None
        return
    with Progress(console=console, transient=True) as shown:
        task = shown.add_task(f"reversing with {plan.schedule}", total=plan.schedule.steps)
        yield lambda: shown.advance(task)


def _count(metrics: Metrics, plan: Plan, operations: Sequence[Operation], nbytes: int) -> None:
    """Fill in what follows from the operations that were carried out."""
    restores = sum(isinstance(operation, Restore) for operation in operations)
    fetched, stored = (sum(moved[:1]) for moved in (plan.prediction.fetched, plan.prediction.stored))
    metrics.misses, metrics.hits = fetched, restores - fetched
    if len(plan.slots) > 1:
        metrics.avoided["up 1"] = (restores - fetched) * nbytes
        metrics.avoided["down 1"] = (plan.schedule.saves - stored) * nbytes
