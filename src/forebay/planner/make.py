"""Making a plan: the best of what a budget allows, or a refusal that names the smallest budget that works."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NoReturn

import numpy as np

from forebay.errors import BudgetError, PlanError, SlowerError
from forebay.planner.choose import EFFORT, POLICIES, Setting, choose, evaluate
from forebay.planner.costs import Costs, assumed_costs, check_costs, check_number
from forebay.planner.plan import Plan
from forebay.planner.search.bounds import in_last_tier
from forebay.planner.search.candidates import Alternative, candidates
from forebay.planner.settings import Problem, budget_to_fill, check_tiers, reserved, slot_size, worst_size
from forebay.planner.uneven import choose_uneven
from forebay.schedule import Revolve, Schedule, StoreAll, foreign, named
from forebay.schedule.names import CLASSES, FAMILIES, split_name
from forebay.schedule.segmented import Segmented, check_count, check_steps
from forebay.schedule.weighted import summed
from forebay.units import MOST_BYTES, Budget, seconds_to_text, short, to_bytes, to_text

logger = logging.getLogger("forebay.planner")

MOST_LRU_STEPS = 4000
"""Of a loop whose schedule is looked for with the policy "lru": each candidate is run through action by action."""
WAITING, LOOKING, LEAST_EFFORT = 0.1, 1.5e-6, 50_000
"""The share of a loop's own seconds that a run waits for its plan, the seconds to simulate an action, and the actions
that are simulated however short the loop."""
MOST_STEPS = 10**9
"""Calls of backward up to which a plan is found in seconds."""


def plan(
    steps: int,
    state_bytes: int | str,
    budget: Budget | str | int,
    *,
    costs: Costs | None = None,
    machine: str | None = None,
    schedule: str | Schedule | Any = "auto",
    codec: str | Sequence[str] | None = None,
    record_bytes: int | str | None = None,
    every: int = 1,
    policy: str = "min",
    slots: int | None = None,
    reversals: int = 1,
    step_costs: Sequence[float] | None = None,
    below: float = inf,
    overhead: int = 0,
    encode_states: bool = True,
    hurry: bool = False,
) -> Plan:
    """Decide how to reverse a loop inside a budget: the plan of smallest predicted time, or the one asked for.

    Parameters
    ----------
    steps
        steps of the loop
    state_bytes
        of the state that a step starts from, as a number or like "1.13GB"
    budget
        bytes allowed per tier; a bare amount is the device's
    costs
        what was measured; without it, those of `machine` are assumed, and the explanation says so
    machine
        a machine of `MACHINES` that costs can be assumed for: h200 for a device, and laptop for a host, unless told
    schedule
        "auto", a family ("revolve", "uniform", "zcut", "twolevel", "hierarchical", "storeall") whose numbers are
        searched, a whole name such as "revolve:20", a schedule, or any checkpoint_schedules object
    codec
        lossy or lossless codecs that may be used beside none, by name; `costs.codecs` says what each does
    record_bytes
        of what the backward computation needs of a state, where that is less; records may then be kept instead
    every
        steps from one backward computation to the next
    policy
        "min", or "lru" to do as GPUZIP does
    slots
        snapshots in the first tier, where it should be fewer than fit
    reversals
        reversals, such as the shots of a survey, that share the host memory pinned once
    step_costs
        how long each forward step takes, in proportion to the others, where they differ; `costs.forward` is their mean
    below
        seconds of another plan: where none is faster, `SlowerError` is raised, much sooner than the fastest is found
    overhead
        bytes of the first tier that are taken beside snapshots, such as by a driver that gives memory in large pieces;
        a budget of up to 4 MiB is filled nevertheless
    encode_states
        whether codecs may encode states; False leaves them to records, where a bound is that of what backward sees
    hurry
        whether a run waits for the plan: the search then ends after about a tenth of what the steps of all reversals
        take, or after some seconds, with the best it has found, and leaves out schedules on levels where listing them
        would take much of that

    Examples
    --------
    >>> chosen = plan(steps=3751, state_bytes="1.13GB", budget=Budget(device="8GB", host="64GB"), reversals=100)
    >>> print(chosen.schedule, chosen.slots)
    hierarchical:7,54@12.7 (7, 56)
    >>> Plan.from_json(chosen.to_json()) == chosen
    True
    """
    _check_counts(steps, every, reversals=reversals, slots=1 if slots is None else slots, overhead=overhead)
    check_number(below, "below")
    check_costs(costs)
    steps, every, reversals, overhead = int(steps), int(every), int(reversals), int(overhead)
    slots = None if slots is None else int(slots)
    if not isinstance(policy, str) or policy not in POLICIES:
        raise PlanError(f"no policy is called {policy!r:.80}: use one of {', '.join(POLICIES)}")
    for name, value in {"hurry": hurry, "encode_states": encode_states}.items():
        if not isinstance(value, bool | np.bool_):
            raise PlanError(f"{name}={value!r:.80}: give True or False")
    budget = Budget.of(budget)
    state_bytes = to_bytes(state_bytes)
    record_bytes = None if record_bytes is None else to_bytes(record_bytes)
    if state_bytes < 1 or record_bytes == 0:
        raise PlanError("a state and a record have at least one byte")
    if costs is None:
        costs = assumed_costs(machine, state_bytes, budget.tiers[0])
    costs = with_step_costs(costs, step_costs, steps)
    check_tiers(budget, costs)
    codecs = _codecs(codec, costs)
    every = min(every, steps)
    sizes = (steps, every, state_bytes, record_bytes)
    problem = Problem(*sizes, budget, costs, policy, slots, reversals, overhead, encode_states)
    settings = list(problem.settings(codecs))
    if not settings:
        most = max(setting.slots[0] for setting in replace(problem, slots=None).settings(codecs))
        raise BudgetError(f"slots={slots}: the {budget.tiers[0]} budget holds 1 to {most} snapshots")
    roomy = [setting for setting in settings if setting.slots[0] > 0]
    tried, wanted = _wanted(schedule, problem.coarse_steps, summed(costs.steps, every))
    if wanted is None and policy == "lru" and problem.coarse_steps > MOST_LRU_STEPS:
        raise PlanError(
            f"policy='lru' finds schedules for at most {MOST_LRU_STEPS} steps, not {problem.coarse_steps}: name one "
            "with its snapshots, such as 'revolve:20', or take policy='min'"
        )
    others: list[Alternative] = []
    if wanted is not None:
        kept = (setting for setting in roomy if setting.keep == "states")
        possible = (setting for setting in kept if (_known_below(wanted, setting) or 0) <= setting.slots[-1])
        choices = (evaluate(wanted, setting.slots, setting) for setting in possible)
        fitting = (choice for choice in choices if choice.fits)
        best = min(fitting, key=lambda choice: choice.seconds, default=None)
    elif costs.steps:
        best, others = choose_uneven(roomy, tried, summed(costs.steps, every))
    else:
        levels = str(schedule).strip().lower() in ("auto", "hierarchical")
        own_seconds = reversals * steps * (costs.forward + costs.backward)
        effort = min(EFFORT, max(LEAST_EFFORT, own_seconds * WAITING / LOOKING)) if hurry else inf
        best, others = choose(roomy, tried, below, levels=levels, effort=effort)
    schedules = tried if wanted is None else {"states": [wanted]}
    if best is None and (below == inf or _need(problem, codecs, schedules) is not None):
        _refuse(problem, codecs, schedules)
    if best is None or best.seconds >= below:
        raise SlowerError(f"no plan takes less than {seconds_to_text(below)}: ask for any, without below=")
    chosen = Plan.of(problem, best, others)
    logger.info("%d steps in %r: %s of %s, %.3g s", steps, budget, chosen.schedule, chosen.keep, chosen.seconds)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(chosen.explain())
    return chosen


def _check_counts(steps: int, every: int, **others: int) -> None:
    """Refuse numbers of steps and of other things that no plan can be made for; an overhead may be 0."""
    check_steps(steps)
    for name, value in {"every": every, **others}.items():
        least = 0 if name == "overhead" else 1
        check_count(value, name)
        if not least <= value <= MOST_BYTES:
            raise PlanError(f"{name}={short(value)}: it must be at least {least}, and a number that a computer has")
    if -(-int(steps) // int(every)) > MOST_STEPS:
        raise PlanError(
            f"{short(steps)} steps, of which backward is called for each {short(every)}: a plan is made for up to "
            f"{MOST_STEPS:.0e} calls; let every step of the loop do more"
        )


def _codecs(codec: str | Sequence[str] | None, costs: Costs) -> list[str]:
    """Return the names of codecs as a list, refusing those of which nothing is known."""
    if not isinstance(codec, str | Sequence | None):
        raise PlanError(f"codec={codec!r:.80}: give the name of a codec, or a list of names")
    codecs = [codec] if isinstance(codec, str) else list(codec or ())
    for name in codecs:
        if not isinstance(name, str) or name not in costs.codecs:
            raise PlanError(f"nothing is known of codec {name!r:.80}: give its ratio and speed in costs.codecs")
    return codecs


def check_budget(
    steps: int,
    state_bytes: int,
    budget: Budget,
    *,
    record_bytes: int | None = None,
    every: int = 1,
    schedule: str | Schedule | Any = "auto",
) -> None:
    """Refuse a budget that no plan fits into, with the smallest that works, without looking for the best plan.

    Parameters are those of `plan`.
    """
    costs = assumed_costs(None, state_bytes, budget.tiers[0])
    check_tiers(budget, costs)
    problem = Problem(steps, min(every, steps), state_bytes, record_bytes, budget, costs, "min", None, 1)
    tried, wanted = _wanted(schedule, problem.coarse_steps)
    schedules = tried if wanted is None else {"states": [wanted]}
    if _need(problem, (), schedules) is not None:
        _refuse(problem, (), schedules)


def with_step_costs(costs: Costs, step_costs: Sequence[float] | None, steps: int) -> Costs:
    """Add what each step costs, refusing what does not suit the loop; equal steps are the same as none."""
    check_step_costs(step_costs, steps)
    costs = costs if step_costs is None else replace(costs, steps=tuple(map(float, step_costs)))
    check_step_costs(costs.steps or None, steps)
    return replace(costs, steps=()) if costs.steps and max(costs.steps) == min(costs.steps) else costs


def check_step_costs(step_costs: Sequence[float] | str | None, steps: int) -> None:
    """Refuse costs of steps that are not one positive number for each step."""
    if step_costs is None:
        return
    if isinstance(step_costs, str):
        raise PlanError(f"step_costs={step_costs!r}: a plan needs numbers; `reverse` and `prepare` can learn them")
    try:
        numbers = np.asarray(step_costs)
        fits = numbers.ndim == 1 and numbers.dtype.kind in "fiu" and 0 <= numbers.min() <= numbers.max() < 1e30
    except (TypeError, ValueError):
        fits = False
    if not fits or not numbers.any():
        raise PlanError(
            "step_costs are finite numbers, not negative and not all zero: give a list with one for each step"
        )
    if len(numbers) != steps:
        raise PlanError(f"step_costs has {len(numbers)} numbers, but the loop has {steps} steps: give one for each")


def _wanted(
    schedule: str | Schedule | Any, steps: int, costs: Sequence[float] = ()
) -> tuple[dict[str, list[Segmented]], Schedule | None]:
    """Return the schedules to search for states and for records, or the very one that was asked for."""
    everything: list[Segmented] = [StoreAll(steps)]
    if isinstance(schedule, StoreAll):
        schedule = "storeall" if schedule.steps == steps else schedule
    if not isinstance(schedule, str):
        exact = schedule if type(schedule) in CLASSES else foreign(schedule, steps)
        if exact.steps != steps:
            made = f"{exact} was made for {exact.steps} steps"
            raise PlanError(f"{made}, but the loop has {steps} (of `every` steps each)")
        return {}, exact
    if schedule.strip().lower() == "auto":
        return {"states": list(candidates(steps)), "records": everything}, None
    name, numbers = split_name(schedule)
    if name == "storeall":
        return {"states": everything, "records": everything}, None
    if name == "hierarchical" and not numbers:
        return {"states": [Revolve(steps, 1)], "records": []}, None
    if numbers or name in ("hierarchical", "online"):  # one of any levels, the other for a loop of unknown end
        whole = named(schedule, steps, costs)
        if len(numbers) == FAMILIES[name] or name == "hierarchical":
            return {}, whole
    return {"states": list(candidates(steps, name, *numbers)), "records": []}, None


def _refuse(problem: Problem, codecs: Sequence[str], schedules: dict[str, Any]) -> NoReturn:
    """Name the smallest budget that works, of every tier that is too small."""
    budget, missing = problem.budget, {}
    while (need := _need(replace(problem, budget=budget), codecs, schedules)) is not None:
        least, tier, what = need
        if least <= budget[tier]:  # the tier has the room, but not the slots
            raise BudgetError(f"slots={problem.slots} does not hold {what}: give more slots, or none")
        missing[tier] = what
        budget = Budget(**{**{name: budget[name] for name in budget.tiers}, tier: least})
    texts = []
    for tier, what in missing.items():
        has, needs = problem.budget[tier], budget[tier]
        texts.append(f"{what}: {tier} has {to_text(has)} and needs {to_text(needs)} ({needs} bytes) at least")
    raise BudgetError("the budget does not hold " + "; nor ".join(texts))


def _need(problem: Problem, codecs: Sequence[str], schedules: dict[str, Any]) -> tuple[int, str, str] | None:
    """Return the bytes, the tier and the reason of what the easiest way lacks first; None where there is a way."""
    budget, needs = problem.budget, []
    for setting in problem.settings(codecs):
        for schedule in sorted(schedules.get(setting.keep, ()), key=lambda schedule: schedule.peak_snapshots)[:1]:
            tier, raw = len(setting.slots) - 1, problem.raw_bytes(setting.keep)
            cost = problem.costs.codecs[setting.codec] if setting.codec is not None else None
            worst = worst_size(raw, cost)
            if setting.slots[0] < 1:
                least, what = worst, "one snapshot"
            else:
                count = _known_below(schedule, setting)
                if count is None:
                    count = evaluate(schedule, setting.slots, setting).prediction.peak[-1]
                if count <= setting.slots[-1]:
                    return None
                if tier + 1 < len(budget.tiers) and budget[budget.tiers[tier + 1]] < worst:
                    tier, least, what = tier + 1, worst, "one snapshot, so nothing can pass through it"
                else:
                    least, what = count * slot_size(raw, cost), f"the {count} snapshots that {schedule} puts there"
            if tier == 0:
                least += reserved(setting.keep, raw, cost, budget.tiers[0])
                least = budget_to_fill(least, problem.overhead)
            needs.append((least, budget.tiers[tier], what))
    return min(needs or _needs_of_slots(problem, codecs, schedules))


def _known_below(schedule: Schedule, setting: Setting) -> int | None:
    return in_last_tier(schedule, setting.slots, setting.policy)


def _needs_of_slots(
    problem: Problem, codecs: Sequence[str], schedules: dict[str, Any]
) -> Iterator[tuple[int, str, str]]:
    """Yield what holds the slots that were asked for in the first tier, where none of the ways has so many."""
    tier, count = problem.budget.tiers[0], problem.slots or 1
    for keep in ("states", "records"):
        raw = problem.raw_bytes(keep)
        for codec in problem.codings(keep, codecs) if raw and schedules.get(keep) else ():
            cost = problem.costs.codecs[codec] if codec is not None else None
            least = max(count * slot_size(raw, cost), worst_size(raw, cost)) + reserved(keep, raw, cost, tier)
            yield budget_to_fill(least, problem.overhead), tier, f"the {count} snapshots that slots={count} asks for"
