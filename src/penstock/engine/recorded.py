"""Plans for loops that are differentiated by recording: how many steps are recorded at once, and what is kept.

An autograd differentiates a step by running it again and recording what its own backward pass needs: the step's graph.
Recording several steps at once takes their graphs together, but snapshots then lie further apart, and what each
recording costs by itself is shared. So the number of steps is one more thing to plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import BudgetError
from penstock.planner import Costs, Plan
from penstock.planner import plan as make_plan
from penstock.schedule import Schedule
from penstock.schedule.names import split_name
from penstock.units import Budget


@dataclass(frozen=True)
class Recording:
    """What it takes to record steps and to go back through them."""

    graph_bytes: int
    """bytes that each further step recorded at once takes"""
    overhead: float
    """seconds that a recording takes, however many steps it has"""
    step: float
    """seconds for each of its steps: forward once, and backward"""


def plan_recorded(
    steps: int,
    state_bytes: int,
    budget: Budget,
    costs: Costs,
    recording: Recording,
    *,
    schedule: str | Schedule | Any,
    codecs: Sequence[str],
    chunk: int | None,
    largest: int | None = None,
) -> Plan:
    """Give the fastest plan over the steps that may be recorded at once; its `every` says how many.

    The graphs of all steps but one come out of the budget of the first tier. One step's graph, like the working state,
    comes on top of it. `chunk` asks for so many steps at once, `largest` for no more.
    """
    best: Plan | None = None
    refused: BudgetError | None = None
    for size in [min(chunk, steps)] if chunk else _sizes(steps, schedule):
        if largest is not None and size > max(1, largest):
            break
        left = budget[budget.tiers[0]] - (size - 1) * recording.graph_bytes
        if left < 1:
            if chunk is None:
                break
            left = 1
        seconds = recording.step + recording.overhead / size
        try:
            found = make_plan(
                steps,
                state_bytes,
                budget.with_tier(budget.tiers[0], left),
                costs=replace(costs, backward=seconds),
                schedule=schedule,
                codec=codecs,
                every=size,
            )
        except BudgetError as error:
            refused = refused or error
            continue
        if best is None or found.seconds < best.seconds:
            best = found
    if best is None:
        beside = f" (beside the graphs of {chunk} steps recorded at once: try a smaller chunk)"
        raise BudgetError(f"{refused}{beside if chunk and chunk > 1 else ''}")
    return best


def _sizes(steps: int, schedule: str | Schedule | Any) -> list[int]:
    """List the numbers of steps that are tried; a schedule with numbers of its own counts in single steps."""
    if not isinstance(schedule, str) or (schedule.strip().lower() != "auto" and split_name(schedule)[1]):
        return [1]
    return [2**power for power in range(steps.bit_length()) if 2**power < steps or power == 0]
