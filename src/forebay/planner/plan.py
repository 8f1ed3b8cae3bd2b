"""Plans: how a reversal fits into a budget, decided before anything runs."""

from math import isclose
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer, model_validator

from forebay.errors import PlanError
from forebay.metrics import Span
from forebay.planner.choose import POLICIES, Alternative, operations_of
from forebay.planner.costs import Costs
from forebay.planner.operations import Operation
from forebay.planner.settings import Problem, snapshot_size
from forebay.planner.simulate import Prediction, simulate
from forebay.schedule import Foreign, Schedule, named
from forebay.units import Budget


class Plan(BaseModel):
    """A schedule with its tiers, slots, policy and codec, and what the simulation predicts of it.

    Plans are made by `plan`, written by `to_json` as parameters (not actions) and read by `from_json`.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

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

    def operations(self) -> list[Operation]:
        """List the schedule's actions merged with every movement between tiers."""
        return operations_of(self.schedule, self.slots, self.policy)

    def timeline(self) -> list[Span]:
        """Simulate the plan and list what happens when, on the computation and on each link."""
        spans: list[Span] = []
        operations = self.operations()
        problem = Problem(
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
        work = problem.work(self.keep, self.codec, len(self.slots))
        simulate(operations, (*self.slots[:-1], len(operations)), work, spans)
        return spans

    def explain(self) -> str:
        """Tell in a few lines what was chosen, what else there was, where the time goes and what it takes."""
        from forebay.planner.explain import explain  # it reads plans

        return explain(self)

    @field_serializer("schedule")
    def _write_schedule(self, schedule: Schedule) -> Any:
        # A foreign schedule has no parameters but its actions.
        return {schedule.name: schedule.to_text()} if isinstance(schedule, Foreign) else str(schedule)

    @field_serializer("budget")
    def _write_budget(self, budget: Budget) -> dict[str, int]:
        return {tier: budget[tier] for tier in budget.tiers}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = dict(data)
            if isinstance(data.get("schedule"), str):
                data["schedule"] = named(data["schedule"], -(-data["steps"] // data["every"]))
            elif isinstance(data.get("schedule"), dict):
                ((name, actions),) = data["schedule"].items()
                data["schedule"] = Foreign.from_text(-(-data["steps"] // data["every"]), actions, name)
            if isinstance(data.get("budget"), dict):
                data["budget"] = Budget(**data["budget"])
        return data

    @model_validator(mode="after")
    def _check(self) -> "Plan":
        codec = None
        if self.codec is not None:
            if self.codec not in self.costs.codecs:
                raise ValueError("codec: the costs do not know it")
            codec = self.costs.codecs[self.codec]
        raw = self.state_bytes if self.keep == "states" else self.record_bytes
        peak = self.prediction.peak
        facts = {
            "policy": self.policy in POLICIES,
            "keep": self.keep in ("states", "records") and raw is not None,
            "every": 1 <= self.every <= self.steps,
            "reversals": self.reversals >= 1,
            "schedule": self.schedule.steps == -(-self.steps // self.every) and self._runs_forward_as_predicted(),
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
            raise ValueError(f"{', '.join(wrong)} cannot be as said")
        return self

    def _runs_forward_as_predicted(self) -> bool:
        steps = self.schedule.forward_steps * self.steps / self.schedule.steps
        return isclose(self.prediction.forward, steps * self.costs.forward, rel_tol=1e-6)

    def to_json(self, path: Path | str | None = None) -> str:
        """Write the plan as JSON, into a file where one is named."""
        text = self.model_dump_json(indent=2)
        if path is not None:
            Path(path).write_text(text + "\n")
        return text

    @classmethod
    def from_json(cls, source: Path | str) -> "Plan":
        """Read a plan from JSON text or from a file."""
        try:
            text = source if isinstance(source, str) and source.lstrip().startswith("{") else Path(source).read_text()
            return cls.model_validate_json(text)
        except ValidationError as error:
            where = {str(part["loc"][0]) if part["loc"] else part["msg"] for part in error.errors()}
            raise PlanError(f"this is not a plan that Forebay wrote: look at {', '.join(sorted(where))}") from error
        except OSError as error:
            raise PlanError(f"no plan can be read from {source!r}: {error.strerror}") from error
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
            raise PlanError(f"this is not a plan that Forebay wrote: {error!r}") from error
