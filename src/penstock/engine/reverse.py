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

from penstock.codec import Codec, get
from penstock.codec.auto import choices
from penstock.engine.executor import Callbacks, Executor
from penstock.engine.layout import Layout, arrays_of
from penstock.engine.library import library_of
from penstock.engine.packing import Packing
from penstock.engine.sampling import Sampler
from penstock.engine.spilling import SpillingExecutor
from penstock.errors import BudgetError, PlanError, StateError
from penstock.metrics import Metrics
from penstock.planner import Costs, Plan
from penstock.planner import plan as make_plan
from penstock.planner.operations import Operation
from penstock.planner.settings import staging
from penstock.schedule import Restore, Schedule
from penstock.schedule.segmented import check_steps
from penstock.units import Budget, seconds_to_text, to_text

LONG = 5.0
"""Predicted seconds from which a reversal shows its progress on a terminal."""
MARGIN = 1.5
"""How much more room than planned encoded snapshots are given where the budget allows: ratios are guesses."""

Record = Sequence[Any] | Callable[[Any, int], Any]


@dataclass(frozen=True)
class Result:
    """What a reversal gives back beside what its callbacks did."""

    plan: Plan
    """can be given again, to this loop's next reversal or to one like it"""
    metrics: Metrics
    note: str = ""
    """what was decided for the caller"""

    @property
    def costs(self) -> Costs:
        """The plan's costs, with what this reversal measured of the loop and of the codec."""
        phases, plan, known = self.metrics.phases, self.plan, dict(self.plan.costs.codecs)
        if plan.codec and self.metrics.ratios:
            known[plan.codec] = replace(known[plan.codec], ratio=self.metrics.mean_ratio)
        passes = plan.schedule.forward_steps / plan.schedule.steps
        forward = phases["forward"] / (plan.steps * passes + plan.every * self.metrics.recomputed)
        backward = phases["backward"] / plan.steps
        return replace(plan.costs, forward=max(forward, 1e-9), backward=backward, codecs=known, assumed=None)

    def explain(self) -> str:
        """Tell why this plan, and set what was predicted beside what was measured."""
        predicted, metrics = self.plan.prediction, self.metrics
        lines = [self.note] if self.note else []
        lines += [self.plan.explain(), "measured against predicted:"]
        rows = {"whole": (metrics.seconds, predicted.seconds)}
        also = {"save": "compress", "restore": "decompress"}
        for phase in ("forward", "backward", "save", "restore", "stall"):
            measured = metrics.phases[phase] + metrics.phases[also.get(phase, "")]
            rows[phase] = (measured, getattr(predicted, phase))
        for name, (measured, foreseen) in rows.items():
            if max(measured, foreseen) > 1e-3 * metrics.seconds:
                lines.append(f"  {name:<9} {seconds_to_text(measured):>9}  predicted {seconds_to_text(foreseen)}")
        for tier, planned in self.plan.peak_bytes.items():
            lines.append(f"  {tier:<9} {to_text(metrics.peak[tier]):>9}  predicted {to_text(planned)}")
        if metrics.ratios and self.plan.codec:
            assumed = self.plan.costs.codecs[self.plan.codec].ratio
            lines.append(
                f"  ratio     {metrics.mean_ratio:9.3g}  predicted {assumed:.3g}; {min(metrics.ratios):.3g} worst"
            )
        if metrics.samples:
            lines.append(
                f"  errors    {max(sample.relative for sample in metrics.samples):9.2g}  of the range at most, "
                f"in bricks of {len(metrics.samples)} sampled steps"
            )
            if self.plan.keep == "states":
                lines.append(
                    "  the codec's bound holds at each save; what was computed from there carries its error on"
                )
        if metrics.spilled:
            lines.append(
                f"  {metrics.spilled} snapshots were moved down and {metrics.recomputed} steps run again, because "
                "encodings were larger than planned: give result.costs to the next reversal"
            )
        return "\n".join(lines)


def reverse(
    forward: Callable[..., Any],
    backward: Callable[[Any, int], None],
    state: Any,
    steps: int,
    *,
    budget: Budget | str | int | None = None,
    schedule: str | Schedule | Any = "auto",
    codec: str | Codec | Sequence[str | Codec] | None = None,
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

    Without a lossy codec, results are bit-equal to keeping every state, whatever the plan.

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
    codec
        One that may be used, or several: "bounded:1e-4", "cast:bfloat16", ..., or "auto:1e-4" for any that keeps this
        error relative to the range. On records its bound is the bound of what backward sees; on states it holds at each
        save and passes through recomputation. Arrays of types that it does not know are kept as they are.
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
    encoders, asked_error = choices(codec)
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
        if unknown := [encoder for encoder in encoders if encoder.name not in costs.codecs]:
            first = advance(fresh(), 0, 1)
            sample, its_layout = (
                (first, layout) if record_layout is None else (_record_of(record, first, every), record_layout)
            )
            arrays = list(arrays_of(sample))
            measured = {one.name: library.measure_codec(its_layout, one, arrays, asked_error) for one in unknown}
            known = {name: cost for name, cost in measured.items() if cost is not None}
            costs = replace(costs, codecs={**costs.codecs, **known})
            encoders = [encoder for encoder in encoders if encoder.name in costs.codecs]
            furthest = 0
        plan = make_plan(
            steps,
            layout.nbytes,
            budget,
            costs=costs,
            schedule=schedule,
            codec=[encoder.name for encoder in encoders],
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
    encoder = next((one for one in encoders if one.name == plan.codec), None)
    if encoder is None and plan.codec is not None:
        encoder = get(plan.codec)
    packing = Packing.of(kept, encoder, library.tier) if encoder is not None else None
    _check_plan(plan, steps, every, kept, packing)

    sampler = None
    if encoder is not None and encoder.lossy:
        sampler = Sampler(state if record is None else first_record, library.describe, plan.schedule.steps)

    def advance_and_sample(current: Any, start: int, stop: int) -> Any:
        if sampler is not None:
            for sampled in sampler.stops(start, stop):
                current = advance(current, start, sampled) if sampled > start else current
                sampler.keep(sampled, _record_of(record, current, sampled * every))
                start = sampled
        return advance(current, start, stop)

    def look(seen: Any, step: int) -> None:
        needed = _record_of(record, seen, step * every) if keeps else seen
        if sampler is not None:
            sampler.see(step, needed)
        backward(needed, step * every)
        advance_bar()

    callbacks = Callbacks(
        forward=advance_and_sample,
        backward=look,
        turn=turn or (lambda final: None),
        snapshot=(lambda s, step: s) if keeps else (lambda s, step: _record_of(record, s, step * every)),
        keeps=keeps,
    )
    kinds = [library.kind_of(array) for array in arrays_of(state if keeps else first_record)]
    operations = plan.operations()
    with _progress(plan, progress) as advance_bar:
        backend = library.backend(kinds, where, synchronous)
        try:
            executor: Executor

            def initial() -> Any:
                return executor.load(list(arrays_of(state))) if keeps else fresh()

            rooms = _rooms(plan, kept, packing)
            if packing is None:
                executor = Executor(backend, kept, plan.tiers, rooms, callbacks)
            else:
                executor = SpillingExecutor(backend, kept, plan.tiers, rooms, callbacks, packing, initial)
            executor.run(operations, plan.schedule.steps, initial())
            backend.finish()
            backend.metrics.samples = sampler.samples() if sampler is not None else []
        finally:
            backend.close()
    _count(backend.metrics, plan, operations, kept.nbytes)
    return Result(plan, backend.metrics, note)


def _rooms(plan: Plan, kept: Layout, packing: Packing | None) -> list[int]:
    """Give the bytes of each tier for snapshots: exactly those of the plan, or some more where sizes are a guess."""
    peak = plan.prediction.peak
    if packing is None:
        return [count * kept.nbytes for count in peak]
    rooms = []
    for tier, count in zip(plan.tiers, peak, strict=True):
        wanted = max(int(MARGIN * count * plan.snapshot_bytes), packing.most)
        if tier == plan.tiers[0]:
            wanted += packing.most  # for the one that is being encoded
        rooms.append(wanted)
    rooms[0] = min(rooms[0], plan.budget[plan.tiers[0]] - staging(plan.keep, kept.nbytes, True, plan.tiers[0]))
    rooms[1:] = [min(wanted, plan.budget[tier]) for wanted, tier in zip(rooms[1:], plan.tiers[1:], strict=True)]
    if plan.tiers[-1] == "disk":
        rooms[-1] = plan.budget["disk"]  # files take only what they need
    return rooms


def _record_of(record: Record | None, state: Any, step: int) -> Any:
    if record is None:
        return state
    if callable(record):
        return record(state, step)
    try:
        return {key: state[key] for key in record} if isinstance(state, dict) else tuple(state[key] for key in record)
    except (KeyError, IndexError, TypeError) as error:
        raise StateError(f"record={record!r} names what the state does not have: {error}") from error


def _check_plan(plan: Plan, steps: int, every: int, kept: Layout, packing: Packing | None) -> None:
    if (plan.steps, plan.every) != (steps, every):
        raise PlanError(
            f"the plan was made for {plan.steps} steps, every {plan.every}; the loop has {steps}, every {every}"
        )
    if packing is not None:
        rooms = _rooms(plan, kept, packing)
        needed = [2 * packing.most, *(packing.most for _ in rooms[1:])]
        for tier, room, least in zip(plan.tiers, rooms, needed, strict=True):
            if room < least:
                raise PlanError(
                    f"a snapshot that does not shrink takes {packing.most} bytes, for which the plan leaves too little "
                    f"of the {tier} budget; make a plan for this state"
                )
        return
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
    fetched = sum(plan.prediction.fetched[:1])
    metrics.misses, metrics.hits = fetched, restores - fetched
    if len(plan.slots) > 1:
        # Against moving every snapshot, and each as it is.
        metrics.avoided["up 1"] = restores * nbytes - metrics.moved["up 1"]
        metrics.avoided["down 1"] = plan.schedule.saves * nbytes - metrics.moved["down 1"]
