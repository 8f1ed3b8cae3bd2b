"""Plans for loops that are differentiated by recording: how many steps are recorded at once, and what is kept.

An autograd differentiates a step by running it again and recording what its own backward pass needs: the step's graph.
Recording several steps at once takes their graphs together, but snapshots then lie further apart, and what each
recording costs by itself is shared. So the number of steps is one more thing to plan.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from forebay.codec import Codec
from forebay.codec.auto import choices
from forebay.engine.array_memory import ArrayMemory
from forebay.engine.reversal import Reversal
from forebay.engine.reverse import prepare
from forebay.engine.timing.costing import driver_overhead, read_budget
from forebay.errors import BudgetError, PlanError, SlowerError
from forebay.filesystems import spill_directory
from forebay.planner import Costs, Plan, check_budget
from forebay.planner import plan as make_plan
from forebay.schedule import Schedule
from forebay.schedule.names import is_auto, split_name
from forebay.schedule.segmented import check_count, check_steps
from forebay.units import Budget, to_text


@dataclass(frozen=True)
class Request:
    """What a caller asked for: the arguments that the loops of all autograds have in common."""

    budget: Budget | str | int | None
    schedule: str | Schedule | Any
    codec: str | Codec | Sequence[str | Codec] | None
    chunk: int | None
    plan: Plan | None
    costs: Costs | None
    directory: Path | str | None

    def check(self, steps: int, memory: ArrayMemory) -> None:
        """Refuse what makes no sense, whether or not anything will be differentiated."""
        check_steps(steps)
        if self.chunk is not None:
            check_count(self.chunk, "chunk")
            if self.chunk < 1:
                raise PlanError(f"chunk={self.chunk}: it must be at least 1")
        if self.budget is not None:
            read_budget(self.budget, memory)
        if isinstance(self.schedule, str) and not is_auto(self.schedule):
            split_name(self.schedule)
        choices(self.codec)
        if self.plan is not None and self.chunk is not None and self.plan.every != min(self.chunk, steps):
            raise PlanError(
                f"the plan records {self.plan.every} steps at once, but chunk={self.chunk} was asked for: make another"
            )

    def check_budget(self, steps: int, state_bytes: int, budget: Budget) -> None:
        """Refuse a budget in which no plan works, before anything is run."""
        if self.codec is None:
            check_budget(steps, state_bytes, budget, schedule=self.schedule, every=self.chunk or 1)

    def prepare(self, forward: Callable[..., Any], state: Any, steps: int, plan: Plan, note: str) -> Reversal:
        """Return a reversal that follows a plan."""
        reversal = prepare(
            forward,
            state,
            steps,
            every=plan.every,
            plan=plan,
            budget=self.budget,
            codec=self.codec,
            directory=self.directory,
        )
        reversal.note = note
        return reversal

    @property
    def asks_for_nothing(self) -> bool:
        """That a loop may be recorded as a whole, where there is room for its graph."""
        return is_auto(self.schedule) and self.codec is None and self.chunk is None and self.plan is None

    @property
    def where(self) -> Path:
        """Where the disk tier keeps its files."""
        return Path(self.directory) if self.directory is not None else spill_directory()

    def sizes(self, steps: int) -> list[int]:
        """List the numbers of steps that may be recorded at once; a schedule with numbers counts in single steps."""
        if self.chunk is not None:
            return [min(self.chunk, steps)]
        if not is_auto(self.schedule) and (not isinstance(self.schedule, str) or split_name(self.schedule)[1]):
            return [1]
        return [2**power for power in range(steps.bit_length()) if 2**power < steps or power == 0]

    def key(self) -> tuple[Hashable, ...]:
        """Name it, so that what was decided for it is found again; a foreign schedule is known by itself."""
        names = tuple(encoder.name for encoder in choices(self.codec)[0])
        plan = None if self.plan is None else self.plan.to_json()
        return (self.budget, self.schedule, names, self.chunk, plan, repr(self.costs), str(self.directory))


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
    request: Request,
    *,
    codecs: Sequence[str],
    largest: int | None = None,
) -> Plan:
    """Return the fastest plan over the steps that may be recorded at once; its `every` says how many.

    The graphs of all steps but one come out of the budget of the first tier. One step's graph, like the working state,
    comes on top of it. Where graphs are elsewhere, `largest` says how many the device has room for.
    """
    best: Plan | None = None
    refused: BudgetError | None = None
    tier, chunk = budget.tiers[0], request.chunk
    if largest is not None and chunk is not None and min(chunk, steps) > max(1, largest):
        raise BudgetError(f"chunk={chunk}: the device holds the graphs of {largest} steps; ask for fewer at once")
    for size in reversed(request.sizes(steps)):  # the largest leave the least to search, and are often the fastest
        if largest is not None and size > max(1, largest):
            continue
        graphs = (size - 1) * recording.graph_bytes
        beside = f"the graphs of {size - 1} further steps take {to_text(graphs)} of the {tier} budget"
        if graphs >= budget[tier]:
            refused = BudgetError(f"{beside} of {to_text(budget[tier])}: try a smaller chunk")
            continue
        try:
            best = make_plan(
                steps,
                state_bytes,
                budget.with_tier(tier, budget[tier] - graphs),
                costs=replace(costs, backward=recording.step + recording.overhead / size),
                schedule=request.schedule,
                codec=codecs,
                every=size,
                overhead=driver_overhead(tier, bool(codecs), allowed=budget[tier]),
                below=inf if best is None else best.seconds,
                hurry=True,
            )
        except SlowerError:
            continue
        except BudgetError as error:
            refused = BudgetError(f"{error} ({beside}: try a smaller chunk)") if graphs else error
    if best is None:
        assert refused is not None  # the smallest size is always tried
        raise refused
    return best
