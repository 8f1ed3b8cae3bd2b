"""Plans: how a reversal fits into a budget, decided before anything runs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from forebay.drawing import Chart
from forebay.drawing.tables import preformatted
from forebay.errors import ForebayError, PlanError
from forebay.files import text_of
from forebay.metrics import Span
from forebay.planner.choose import POLICIES, Choice, operations_of
from forebay.planner.costs import Costs
from forebay.planner.drawn.timeline import run_chart
from forebay.planner.operations import Operation
from forebay.planner.search.candidates import Alternative
from forebay.planner.settings import Problem, snapshot_size
from forebay.planner.simulate import BOUNDLESS, Prediction, simulate
from forebay.schedule import Foreign, Forward, Hierarchical, Schedule, named
from forebay.schedule.segmented import Segmented
from forebay.schedule.weighted import summed
from forebay.units import Budget, seconds_to_text, to_text

MOST_SHOWN, MOST_DRAWN = 500, 20_000
"""Actions of a plan that a notebook draws unasked, since it keeps them with the cell, and that are drawn at all."""

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A schedule with its tiers, slots, policy and codec, and what the simulation predicts of it.

    Plans are made by `plan`, written by `to_json` as parameters (not actions) and read by `from_json`.
    """

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True, "extra": "forbid"}

    steps: int
    """steps of the loop"""
    every: int
    """steps between two backward computations: the schedule counts in steps of so many"""
    state_bytes: int
    record_bytes: int | None
    keep: str
    """what the snapshots are of: states or records"""
    snapshot_bytes: int
    """of one snapshot as it is kept, so after the codec"""
    schedule: Schedule
    policy: str
    codec: str | None
    reversals: int
    """reversals that share what is pinned once"""
    budget: Budget
    slots: tuple[int, ...]
    """slots of each of the budget's tiers that the plan may use"""
    costs: Costs
    seconds: float
    """predicted for the whole reversal, pinning counted in"""
    prediction: Prediction
    alternatives: tuple[Alternative, ...]
    """the best of each other kind that was tried, fastest first"""

    @classmethod
    def of(cls, problem: Problem, choice: Choice, alternatives: Sequence[Alternative] = ()) -> "Plan":
        """Return the plan that a choice makes of a problem."""
        setting = choice.setting
        return cls(
            steps=problem.steps,
            every=problem.every,
            state_bytes=problem.state_bytes,
            record_bytes=problem.record_bytes,
            keep=setting.keep,
            snapshot_bytes=setting.snapshot_bytes,
            schedule=choice.schedule,
            policy=problem.policy,
            codec=setting.codec,
            reversals=problem.reversals,
            budget=problem.budget,
            slots=choice.slots,
            costs=problem.costs,
            seconds=choice.seconds,
            prediction=choice.prediction,
            alternatives=tuple(alternatives),
        )

    def __repr__(self) -> str:
        slots = ", ".join(f"{tier} {count}" for tier, count in zip(self.tiers, self.slots, strict=True))
        codec = f", {self.codec:.60}" if self.codec else ""
        return (
            f"Plan({self.steps} steps, {to_text(self.state_bytes)} a state: {self.schedule!s:.80} of {self.keep}"
            f"{codec}, policy {self.policy}, slots {slots}; {seconds_to_text(self.seconds)} predicted)"
        )

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that the plan may use, fastest first."""
        return self.budget.tiers[: len(self.slots)]

    @property
    def peak_bytes(self) -> dict[str, int]:
        """Bytes of snapshots in each tier, at most."""
        return {tier: peak * self.snapshot_bytes for tier, peak in zip(self.tiers, self.prediction.peak, strict=True)}

    @property
    def pinning(self) -> float:
        """Seconds of pinning host memory that fall on one reversal."""
        return self.seconds - self.prediction.seconds

    def __iter__(self) -> Iterator[Operation]:
        """Yield the schedule's actions merged with every movement between tiers; they are not kept in a list."""
        return iter(operations_of(self.schedule, self.slots, self.policy))

    def operations(self) -> list[Operation]:
        """List the schedule's actions merged with every movement between tiers."""
        return list(self)

    def timeline(self) -> list[Span]:
        """Simulate the plan and list what happens when, on the computation and on each link."""
        spans: list[Span] = []
        work = self._problem().work(self.keep, self.codec, len(self.slots))
        simulate(self, (*self.slots[:-1], BOUNDLESS), work, spans)
        return spans

    def _problem(self) -> Problem:
        return Problem(
            self.steps,
            self.every,
            self.state_bytes,
            self.record_bytes,
            self.budget,
            self.costs,
            self.policy,
            None,
            self.reversals,
        )

    def explain(self) -> str:
        """Return a few lines: what was chosen, where the time goes, what it takes, and what else there was."""
        return "\n".join(_lines(self))

    def plot(self) -> Chart:
        """Draw the predicted steps, lanes and memory; notebooks show the chart, and its `write` makes a file of it."""
        return run_chart(self, self.timeline())

    def _repr_html_(self) -> str:
        drawn = self.plot().markup if len(self.schedule) <= MOST_SHOWN else ""
        return preformatted(self.explain()) + drawn

    def __post_init__(self) -> None:
        codec = None
        if self.codec is not None:
            if self.codec not in self.costs.codecs:
                raise PlanError("codec: the costs do not know it")
            codec = self.costs.codecs[self.codec]
        raw = self.state_bytes if self.keep == "states" else self.record_bytes
        peak = self.prediction.peak
        facts = {
            "policy": self.policy in POLICIES,
            "keep": self.keep in ("states", "records") and raw is not None,
            "every": 1 <= self.every <= self.steps,
            "reversals": self.reversals >= 1,
            "schedule": self.schedule.steps == -(-self.steps // max(1, self.every))
            and self._runs_forward_as_predicted(),
            "snapshot_bytes": self.snapshot_bytes == snapshot_size(raw or 0, codec) > 0,
            "slots": 1 <= len(self.slots) == len(peak) <= len(self.budget.tiers) and min(self.slots) >= 1,
            "seconds": self.seconds >= self.prediction.seconds > 0,
        }
        wrong = [name for name, holds in facts.items() if not holds]
        if not wrong:
            used = zip(self.tiers, self.slots, peak, strict=True)
            wrong = [
                tier for tier, most, count in used if count > most or count * self.snapshot_bytes > self.budget[tier]
            ]
        if wrong:
            raise PlanError(f"{', '.join(wrong)} cannot be as said")

    def _runs_forward_as_predicted(self) -> bool:
        seconds = self.schedule.forward_steps * self.steps / self.schedule.steps * self.costs.forward
        if reach := self._problem().reach():
            forwards = (action for action in self.schedule if isinstance(action, Forward))
            seconds = sum(reach[action.stop] - reach[action.start] for action in forwards)
        return isclose(self.prediction.forward, seconds, rel_tol=1e-6)

    def to_json(self, path: Path | str | None = None) -> str:
        """Write the plan as JSON, into a file where one is named."""
        from pydantic_core import to_json  # it takes its time to load

        budget = {tier: self.budget[tier] for tier in self.budget.tiers}
        schedule: Any = str(self.schedule)
        if isinstance(self.schedule, Foreign):  # it has no parameters but its actions
            schedule = {self.schedule.name: self.schedule.to_text()}
        text = to_json(vars(self) | {"schedule": schedule, "budget": budget}, indent=2, fallback=dict).decode()
        if path is not None:
            Path(path).write_text(text + "\n")
        return text

    @classmethod
    def from_json(cls, source: Path | str) -> "Plan":
        """Read a plan from JSON text or from a file."""
        from pydantic import ValidationError

        try:
            text = source if isinstance(source, str) and source.lstrip().startswith("{") else text_of(Path(source))
            data = json.loads(text)
            json.dumps(data, ensure_ascii=False).encode()  # refuses halves of characters, which cannot be written again
            return _adapter().validate_python(_with_objects(data))
        except ValidationError as error:
            where = {str(part["loc"][0]) if part["loc"] else part["msg"] for part in error.errors()}
            raise PlanError(f"this is not a plan that Forebay wrote: look at {', '.join(sorted(where))}") from error
        except OSError as error:
            raise PlanError(f"no plan can be read from {source!r}: {error.strerror}") from error
        except (ForebayError, ValueError) as error:
            raise PlanError(f"this is not a plan that Forebay wrote: {error!s:.300}") from error
        except Exception as error:  # JSON can say anything, nested as deep as it likes
            raise PlanError(f"this is not a plan that Forebay wrote: {error!r:.300}") from error


@cache
def _adapter() -> "TypeAdapter[Plan]":
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)


def _with_objects(data: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON says of the schedule and of the budget by the things themselves."""
    data = dict(data)
    if isinstance(data.get("schedule"), str):
        costs = summed(data.get("costs", {}).get("steps", ()), data["every"])
        data["schedule"] = named(data["schedule"], -(-data["steps"] // data["every"]), costs)
    elif isinstance(data.get("schedule"), dict):
        ((name, actions),) = data["schedule"].items()
        data["schedule"] = Foreign.from_text(-(-data["steps"] // data["every"]), actions, name)
    if isinstance(data.get("budget"), dict):
        data["budget"] = Budget(**data["budget"])
    return data


def _lines(plan: Plan) -> Iterator[str]:
    """Yield what was chosen, where the time goes, the peak bytes of each tier, and what else there was."""
    predicted, costs = plan.prediction, plan.costs
    source = f"assumed for {costs.assumed}" if costs.assumed else "measured" if costs.measured else "as given"
    yield (
        f"{plan.steps} steps, {to_text(plan.state_bytes)} a state, {plan.budget!r}; costs {source}: "
        f"forward {seconds_to_text(costs.forward)}, backward {seconds_to_text(costs.backward)} a step"
    )
    yield f"plan      {_what(plan)}: {seconds_to_text(plan.seconds)}"
    yield f"time      {_shares(plan)}"
    yield (
        f"          forward runs {_passes(plan):.2f} times over the loop; "
        f"keeping everything at no cost would take {seconds_to_text(_least(plan))}"
    )
    for number, (tier, peak) in enumerate(plan.peak_bytes.items()):
        if not peak:
            yield f"{tier:<9} not used"
            continue
        slots = f"{predicted.peak[number]} of {plan.slots[number]} slots"
        yield f"{tier:<9} {slots}, {to_text(peak)} of {to_text(plan.budget[tier])}"
        if number:
            up, down = predicted.fetched[number - 1], predicted.stored[number - 1]
            busy = predicted.link_seconds[number - 1] / predicted.seconds
            yield f"          {up} snapshots come up and {down} go down; the link is busy {busy:.0%} of the time"
    for other in plan.alternatives[:1]:
        more, least = other.seconds / plan.seconds, "" if other.exact else "at least "
        yield f"runner-up {other.name}: {least}{seconds_to_text(other.seconds)} ({more:.2f} times)"


def _what(plan: Plan) -> str:
    kept = "records" if plan.keep == "records" else "states"
    codec = f", {plan.codec} ({plan.costs.codecs[plan.codec].ratio:.3g} times smaller)" if plan.codec else ""
    every = f", counted in {plan.every} steps" if plan.every > 1 else ""
    return f"{plan.schedule} ({_meaning(plan.schedule)}{every}) of {kept}, policy {plan.policy}{codec}"


def _meaning(schedule: Schedule) -> str:
    if isinstance(schedule, Hierarchical):
        first, *further = schedule.levels
        levels = [f"{level.snapshots} at a price of {level.price:g} steps" for level in further]
        return ", and ".join([f"{first.snapshots} snapshots at no price", *levels])
    if not isinstance(schedule, Segmented):
        return f"{schedule.peak_snapshots} snapshots"
    if schedule.interval == 1:
        return "every step kept"
    if schedule.majors == 1:
        return f"{schedule.peak_snapshots} snapshots"
    inner = "all" if schedule.inner >= schedule.interval - 2 else schedule.inner
    return f"a snapshot every {schedule.interval} steps" + (f", {inner} inside a segment" if schedule.inner else "")


def _passes(plan: Plan) -> float:
    return plan.schedule.forward_steps / plan.schedule.steps


def _least(plan: Plan) -> float:
    return plan.steps * (plan.costs.forward + plan.costs.backward)


def _shares(plan: Plan) -> str:
    predicted = plan.prediction
    parts = {name: getattr(predicted, name) for name in ("forward", "backward", "save", "restore", "stall")}
    parts |= {"beside transfers": predicted.slowed, "host": predicted.host}
    shared = f" (its share of {plan.reversals} reversals)" if plan.reversals > 1 else ""
    parts["pinning" + shared] = plan.pinning
    return ", ".join(f"{name} {seconds_to_text(part)}" for name, part in parts.items() if part > 5e-4 * plan.seconds)
