"""Reversing a time loop inside a budget: the calls that plan, measure and run it, at once or in two phases."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

from forebay.codec import Codec, get
from forebay.codec.auto import choices
from forebay.engine.array_memory import ArrayMemory
from forebay.engine.loop import Record, TimeLoop, check_functions
from forebay.engine.online import FOREVER, EndWatch, LearningReversal, OnlineReversal
from forebay.engine.result import Result
from forebay.engine.resume import Adjoint, SurvivingLoop, reverse_in_segments
from forebay.engine.reversal import MakeMachine, Reversal, Setup
from forebay.engine.spilling import SnapshotCoding, check_plan, rooms_of
from forebay.engine.timing.costing import (
    Rehearsal,
    check_host,
    costs_of,
    driver_overhead,
    plan_for,
    there_is,
    with_unused,
)
from forebay.errors import DiskError, PlanError
from forebay.filesystems import spill_directory
from forebay.planner import Costs, Plan
from forebay.planner.costs import check_costs
from forebay.planner.settings import Problem
from forebay.schedule import Schedule
from forebay.schedule.segmented import check_steps
from forebay.units import Budget

UNKNOWN_END = "the number of steps: leave it out where the loop says when it is over"
UNKNOWN_COSTS = "what steps cost: leave it out with step_costs='learn', or give result.costs of another reversal"


class Options(TypedDict, total=False):
    """The keyword arguments of `prepare`, which says what they are: `reverse` hands them on."""

    budget: Budget | str | int | None
    schedule: str | Schedule | Any
    codec: str | Codec | Sequence[str | Codec] | None
    record: Record | None
    every: int
    plan: Plan | None
    costs: Costs | None
    step_costs: Sequence[float] | str | None
    policy: str
    slots: int | None
    reversals: int
    encode_states: bool
    synchronous: bool | None
    directory: Path | str | None
    signature: Hashable | None
    rehearse: Rehearsal | None
    encoded: bool


def reverse(
    forward: Callable[..., Any],
    backward: Callable[[Any, int], None],
    state: Any,
    steps: int | None,
    *,
    turn: Callable[[Any], None] | None = None,
    progress: bool | None = None,
    resume: Path | str | None = None,
    adjoint: Adjoint | None = None,
    **options: Unpack[Options],
) -> Result:
    """Run a time loop forward and then backward, keeping and recomputing states inside a budget.

    Without a lossy codec, results are bit-equal to keeping every state, whatever the plan.

    Parameters
    ----------
    forward, state, steps
        The loop: ``forward(state, start, stop) -> state``, the state at step 0, and its steps; see `prepare`.
    backward
        ``backward(state_or_record, step)`` is called once a step, from the last to the first, with the state before
        that step, or its record; read-only, and valid during the call.
    turn
        ``turn(final_state)``, called once before the first backward computation.
    progress
        Whether to show progress; None shows it for long reversals on a terminal.
    resume
        A directory for this reversal alone, in which its progress is kept: after the process has died, however it did,
        the same call goes on from there. The directory is empty again when `reverse` returns.
    adjoint
        What the callbacks write, and progress has to hold with `resume`: arrays by name, which are written in place; or
        ``(save, load)``, each called with an open binary file.
    **options
        As for `prepare`: `budget`, `schedule`, `codec`, `record`, `every`, `plan`, `costs`, `step_costs`, `policy`,
        `slots`, `reversals`, `encode_states`, `synchronous`, `directory`, `signature`, `rehearse`, `encoded`.

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
    check_functions(backward=backward, **{} if turn is None else {"turn": turn})
    if resume is not None:
        if steps is None:
            raise PlanError(f"resume= needs {UNKNOWN_END}")
        if _learns(options.get("step_costs")):
            raise PlanError(f"resume= needs {UNKNOWN_COSTS}")
        check_steps(steps)
        loop = SurvivingLoop(forward, backward, state, steps, turn, adjoint, options, _plan_of, reverse)
        return reverse_in_segments(resume, loop, progress)
    if adjoint is not None:
        raise PlanError("adjoint= says what progress has to hold: name its directory with resume=, or leave it out")
    with prepare(forward, state, steps, **options) as reversal:
        reversal.forward(turn)
        return reversal.backward(backward, progress)


def _plan_of(forward: Callable[..., Any], state: Any, steps: int, **options: Unpack[Options]) -> tuple[Plan, str]:
    """Return the plan of a loop, and what was decided for its caller."""
    with prepare(forward, state, steps, **options) as reversal:
        return reversal.plan, reversal.note


def prepare(
    forward: Callable[..., Any],
    state: Any,
    steps: int | None,
    *,
    budget: Budget | str | int | None = None,
    schedule: str | Schedule | Any = "auto",
    codec: str | Codec | Sequence[str | Codec] | None = None,
    record: Record | None = None,
    every: int = 1,
    plan: Plan | None = None,
    costs: Costs | None = None,
    step_costs: Sequence[float] | str | None = None,
    policy: str = "min",
    slots: int | None = None,
    reversals: int = 1,
    encode_states: bool = True,
    synchronous: bool | None = None,
    directory: Path | str | None = None,
    signature: Hashable | None = None,
    rehearse: Rehearsal | None = None,
    encoded: bool = False,
) -> Reversal:
    """Plan a reversal in two phases: `forward` of what is returned runs to the turn, its `backward` comes back later.

    Nothing is run but what has to be timed, and no memory is taken before `forward`.

    Parameters
    ----------
    forward
        ``forward(state, start, stop) -> state`` advances several steps. It owns its input and may overwrite it,
        depends on nothing else, and is called again for the same steps. Where it takes ``replay``, it is told whether
        it recomputes.
    state
        The state at step 0, left untouched: a tuple, list, dict or dataclass of arrays, all in one memory, or what
        `register_state` was told of. Dense arrays keep their order in memory. With gaps they are gathered once on the
        host, and refused on a GPU.
    steps
        Steps of the loop. None where nobody knows before `forward` says that it is over, by returning
        ``Ended(state, steps)``; it may be asked for steps beyond that. Then the state says what the next step is, all
        slots of the budget are used, and a plan comes about at the turn.
    budget
        Bytes for snapshots, per tier; a bare amount is that of the tier in which the arrays are. The working state
        comes on top. None takes half of what is free.
    schedule, policy, slots, reversals, encode_states
        As for `plan`.
    codec
        One that may be used, or several: "bounded:1e-4", "cast:bfloat16", ..., or "auto:1e-4" for any that keeps this
        error relative to the range. On records its bound is the bound of what backward sees; on states it holds at each
        save and passes through recomputation. Arrays of types that it does not know are kept as they are.
    record
        What backward needs of a state, where that is less: keys of the state (or indices), or ``record(state, step)``.
    every
        Steps from one backward computation to the next, which then covers them all.
    plan, costs
        Known from before. A plan decides what `schedule`, `policy`, `slots`, `costs` and `codec` otherwise do, and is
        refused where it does not agree with a budget or codec given beside it. Without either, forward and links are
        timed on the first steps, which are run again afterwards.
    step_costs
        How long each forward step takes, in proportion to the others, where they differ: cheap steps are then repeated
        rather than dear ones. "learn" times them in the first sweep, and makes a plan at the turn; ``result.costs``
        then holds what they cost, for reversals to come.
    synchronous
        On a GPU, callbacks are called with the engine's stream current in CuPy and torch and may return before their
        work has ended. With this, the engine waits before each call and takes the return as completion, which suits
        callbacks that launch on streams of their own. None asks ``forward.synchronous``, which the doors of other
        libraries set; without it, it is False.
    directory
        Where the disk tier keeps its file. None takes the directory for temporary files or, where that is memory, one
        on a disk. What is spilled into memory counts as memory.
    signature
        What the seconds of a step follow from, beside the arrays of its state: the name of the loop and its parameters,
        say. Loops of the same signature are timed and planned once in a process, until `forget_costs`. Without it a
        loop is timed each time, and links and disk once.
    rehearse
        ``rehearse()`` makes arrays and returns what runs one backward computation on them, which is timed on the host:
        `backward` itself has effects, and is not. Without it, backward is taken to cost what forward does.
    encoded
        Whether `backward` is given records that a codec has as they are kept: `forebay.codec.Encoded` in the place of
        arrays. Others, of which some may be in any run, come as arrays.

    Examples
    --------
    >>> import numpy as np
    >>> def double(state, start, stop):
    ...     return (state[0] * 2.0 ** (stop - start),)
    >>> with prepare(double, (np.ones(3),), steps=10, budget="64kB", schedule="revolve:3") as reversal:
    ...     final = float(reversal.forward()[0][0])
    ...     seen = []
    ...     result = reversal.backward(lambda state, step: seen.append(float(state[0][0])))
    >>> final, seen[:3]
    (1024.0, [512.0, 256.0, 128.0])
    """
    check_functions(forward=forward, **{} if rehearse is None else {"rehearse": rehearse})
    check_costs(costs)
    if not isinstance(plan, Plan | None):
        raise PlanError(f"plan={plan!r:.80}: give what plan(...) or Plan.from_json(...) returned")
    if not isinstance(directory, str | PathLike | None):
        raise DiskError(f"directory={directory!r:.80}: give the path of a folder")
    synchronous = bool(getattr(forward, "synchronous", False)) if synchronous is None else synchronous
    where = Path(directory) if directory is not None else spill_directory()
    learns = _learns(step_costs)
    signature = signature if costs is None and step_costs is None else None  # what is given is kept by who gives it
    if steps is None or learns:
        unknown = UNKNOWN_END if steps is None else UNKNOWN_COSTS
        known: dict[str, object] = {"plan": plan, "policy": None if policy == "min" else policy}
        known |= {"step_costs": step_costs} if steps is None else {"codec": codec}
        if given := [name for name, value in known.items() if value is not None]:
            raise PlanError(f"{given[0]}= needs {unknown}")
        watch = EndWatch(forward)
        loop = TimeLoop(watch if steps is None else forward, state, FOREVER if steps is None else steps, every, record)
        budget, note = there_is(budget, loop, steps)
        encoders, error = choices(codec)
        costs = costs_of(loop, costs, budget, where, synchronous, None, (encoders, error), signature, rehearse)
        overhead = driver_overhead(loop.memory.tier, bool(encoders), loop.allocations, budget[loop.memory.tier])
        nbytes, every = loop.layout.nbytes, loop.every
        problem = Problem(steps or every, every, nbytes, None, budget, costs, policy, slots, reversals, overhead)
        machine = partial(loop.memory.machine, where, synchronous)
        if steps is None:
            return OnlineReversal(watch, loop, problem, schedule, machine, note, encoders)
        return LearningReversal(loop, problem, schedule, machine, note)
    assert not isinstance(step_costs, str)
    check_steps(steps)
    loop = TimeLoop(forward, state, steps, every, record, encoded)
    encoders, error = choices(codec)
    note, taken = "", (loop.memory.tier, bool(encoders), loop.allocations)
    if plan is not None:
        _check_agreement(plan, budget, encoders, loop.memory)
        first = plan.tiers[0]  # which is that of the arrays, or is refused below
        overhead = driver_overhead(*taken, plan.budget[first])
        check_host(plan, loop)
    else:
        budget, note = there_is(budget, loop, steps)
        overhead = driver_overhead(*taken, budget[loop.memory.tier])
        costs = costs_of(loop, costs, budget, where, synchronous, step_costs, (encoders, error), signature, rehearse)
        plan = plan_for(
            costs,
            signature,
            steps=steps,
            state_bytes=loop.layout.nbytes,
            budget=budget,
            step_costs=step_costs,
            schedule=schedule,
            codec=tuple(encoder.name for encoder in encoders if encoder.name in costs.codecs),
            record_bytes=loop.record_layout.nbytes if loop.record_layout else None,
            every=loop.every,
            policy=policy,
            slots=slots,
            reversals=reversals,
            overhead=overhead,
            encode_states=encode_states,
        )
        note = with_unused(note, codec, plan)
    machine = partial(loop.memory.machine, where, synchronous)
    return _planned(plan, loop, encoders, machine, overhead, note)


def _planned(
    plan: Plan, loop: TimeLoop, encoders: Sequence[Codec], machine: MakeMachine, overhead: int, note: str
) -> Reversal:
    """Return the reversal that carries a plan out, refusing a plan that the loop has no room for."""
    keeps = plan.keep == "states"
    kept = loop.layout if keeps else loop.record_layout
    if kept is None:
        raise PlanError("the plan keeps records: say what they are with record=")
    encoder = next((encoder for encoder in encoders if encoder.name == plan.codec), None)
    if encoder is None and plan.codec is not None:
        encoder = get(plan.codec)
    with loop.memory.current():
        coding = None if encoder is None else SnapshotCoding.of(plan, loop, kept, encoder)
    packing = None if coding is None else coding.packing
    rooms = rooms_of(plan, kept, packing, overhead)
    check_plan(plan, loop, kept, packing, rooms)
    setup = Setup(loop, keeps, kept, coding, plan.tiers, rooms, machine)
    return Reversal(setup, plan, lossy=encoder is not None and encoder.lossy, note=note)


def _learns(step_costs: Sequence[float] | str | None) -> bool:
    """Tell whether a first sweep is to find out what steps cost."""
    if isinstance(step_costs, str) and step_costs != "learn":
        raise PlanError(f"step_costs={step_costs!r}: give a number for each step, or 'learn'")
    return isinstance(step_costs, str)


def _check_agreement(
    plan: Plan, budget: Budget | str | int | None, encoders: Sequence[Codec], memory: ArrayMemory
) -> None:
    """Refuse a plan that takes more, or keeps less exactly, than what was asked for beside it."""
    if budget is not None:
        allowed = Budget.of(budget, first=memory.tier)
        for tier in plan.tiers:
            if tier not in allowed.tiers or allowed[tier] < plan.budget[tier]:
                raise PlanError(f"the plan was made for {plan.budget!r}, which is more than {allowed!r}: make another")
    if plan.codec is not None and encoders and plan.codec not in [encoder.name for encoder in encoders]:
        asked = ", ".join(encoder.name for encoder in encoders)
        raise PlanError(f"the plan uses {plan.codec}, but {asked} was asked for: make another")
