"""Plans: how a reversal fits into a budget, decided before anything runs."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError, field_serializer, model_validator

from penstock.errors import BudgetError, PlanError
from penstock.metrics import Span
from penstock.planner.choose import (
    POLICIES,
    Alternative,
    Choice,
    Setting,
    candidates,
    choose,
    evaluate,
    fits,
    operations_of,
)
from penstock.planner.costs import CodecCost, Costs, assumed_costs
from penstock.planner.operations import Operation
from penstock.planner.simulate import Prediction, Work, simulate
from penstock.schedule import Foreign, Schedule, StoreAll, foreign, named
from penstock.schedule.names import FAMILIES, split_name
from penstock.schedule.segmented import Segmented, check_steps
from penstock.units import Budget, to_bytes, to_text


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
        codec = self.costs.codecs[self.codec] if self.codec else None
        raw = self.state_bytes if self.keep == "states" else self.record_bytes or 0
        operations = self.operations()
        slots = (*self.slots[:-1], len(operations))
        simulate(operations, slots, work_of(self.costs, self.tiers, self.every, self.keep, raw, codec), spans)
        return spans

    def explain(self) -> str:
        """Tell in a few lines what was chosen, what else there was, where the time goes and what it takes."""
        from penstock.planner.explain import explain  # it reads plans

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

    def to_json(self, path: Path | str | None = None) -> str:
        """Write the plan as JSON, into a file where one is named."""
        text = self.model_dump_json(indent=2)
        if path is not None:
            Path(path).write_text(text + "\n")
        return text

    @classmethod
    def from_json(cls, source: Path | str) -> "Plan":
        """Read a plan from JSON text or from a file."""
        text = source if isinstance(source, str) and source.lstrip().startswith("{") else Path(source).read_text()
        try:
            return cls.model_validate_json(text)
        except (ValidationError, KeyError, TypeError) as error:
            raise PlanError(f"this is not a plan that Penstock wrote: {error}") from error


def plan(
    steps: int,
    state_bytes: int | str,
    budget: Budget | str | int,
    *,
    costs: Costs | None = None,
    machine: str = "h200",
    schedule: str | Schedule | Any = "auto",
    codec: str | Sequence[str] | None = None,
    record_bytes: int | str | None = None,
    every: int = 1,
    policy: str = "min",
    slots: int | None = None,
    reversals: int = 1,
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
        a machine that costs can be assumed for: h200, v100 or laptop
    schedule
        "auto", a family ("revolve", "uniform", "zcut", "twolevel", "storeall") whose numbers are searched, a whole
        name such as "revolve:20", a schedule, or any checkpoint_schedules object
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

    Examples
    --------
    >>> chosen = plan(steps=3751, state_bytes="1.13GB", budget=Budget(device="8GB", host="64GB"), reversals=100)
    >>> print(chosen.schedule, chosen.slots)
    twolevel:70,6 (7, 56)
    >>> Plan.from_json(chosen.to_json()) == chosen
    True
    """
    check_steps(steps)
    if every < 1 or reversals < 1:
        raise PlanError(f"every={every} and reversals={reversals} must be at least 1")
    if policy not in POLICIES:
        raise PlanError(f"no policy is called {policy!r}: use one of {', '.join(POLICIES)}")
    budget = Budget.of(budget)
    state_bytes = to_bytes(state_bytes)
    sizes = {"states": state_bytes} | ({"records": to_bytes(record_bytes)} if record_bytes is not None else {})
    if min(sizes.values()) < 1:
        raise PlanError("a state and a record have at least one byte")
    if costs is None:
        costs = assumed_costs(machine, state_bytes, budget.tiers[0])
    _check_tiers(budget, costs)
    coarse_steps = -(-steps // every)
    tried, wanted = _wanted(schedule, coarse_steps)
    settings = []
    for keep, raw in sizes.items():
        for name in (None, *([codec] if isinstance(codec, str) else codec or ())):
            known = costs.codecs.get(name) if name else None
            if name and known is None:
                raise PlanError(f"nothing is known of codec {name!r}: give its ratio and speed in costs.codecs")
            settings.append(_setting(budget, costs, every, keep, raw, name, known, policy, slots, reversals))
    roomy = [setting for setting in settings if setting.slots[0] > 0]
    if not roomy:
        least = min(settings, key=lambda setting: setting.snapshot_bytes)
        _refuse(budget, budget.tiers[0], least.snapshot_bytes, "one snapshot")
    best: Choice | None
    others: list[Alternative] = []
    if wanted is not None:
        choices = [evaluate(wanted, setting.slots, setting) for setting in roomy if setting.keep == "states"]
        fitting = [choice for choice in choices if fits(choice)]
        best = min(fitting, key=lambda choice: choice.seconds, default=None)
    else:
        everything: list[Segmented] = [StoreAll(coarse_steps)] if schedule in ("auto", "storeall") else []
        best, others = choose(roomy, {"states": tried, "records": everything})
    if best is None:
        _refuse_all(budget, roomy, [wanted] if wanted is not None else tried)
    return Plan(
        steps=steps,
        every=every,
        state_bytes=state_bytes,
        record_bytes=sizes.get("records"),
        keep=best.setting.keep,
        snapshot_bytes=best.setting.snapshot_bytes,
        schedule=best.schedule,
        policy=policy,
        codec=best.setting.codec,
        reversals=reversals,
        budget=budget,
        slots=best.slots,
        costs=costs,
        seconds=best.seconds,
        prediction=best.prediction,
        alternatives=tuple(others),
    )


def work_of(costs: Costs, tiers: Sequence[str], every: int, keep: str, raw_bytes: int, codec: CodecCost | None) -> Work:
    """Turn bytes a second into seconds a snapshot and a (coarse) step."""
    links = [link for link in (costs.host if "device" in tiers else None, costs.disk) if link is not None]
    moved = snapshot_size(raw_bytes, codec)
    links = links[: len(tiers) - 1]
    copy = raw_bytes / costs.copy
    encode, decode = (raw_bytes / codec.encode, raw_bytes / codec.decode) if codec else (copy, copy)
    # At its last use a raw snapshot becomes the working state by a swap; a record is read where it lies.
    take = decode if codec else 0.0
    return Work(
        forward=every * costs.forward,
        backward=every * costs.backward,
        save=encode,
        restore=decode if codec or keep == "states" else 0.0,
        take=take,
        up=tuple(moved / link.up for link in links),
        down=tuple(moved / link.down for link in links),
    )


def snapshot_size(raw_bytes: int, codec: CodecCost | None) -> int:
    """Give the bytes of a snapshot as it is kept, rounded up."""
    return max(1, -int(-raw_bytes // codec.ratio)) if codec else raw_bytes


def _setting(
    budget: Budget,
    costs: Costs,
    every: int,
    keep: str,
    raw_bytes: int,
    codec: str | None,
    known: CodecCost | None,
    policy: str,
    slots: int | None,
    reversals: int,
) -> Setting:
    size = snapshot_size(raw_bytes, known)
    room = [budget[tier] // size for tier in budget.tiers]
    if keep == "records":
        room[0] -= 1  # one record is being read where it lies while all the slots may be in use
    if slots is not None:
        if not 1 <= slots <= max(room[0], 1):
            raise BudgetError(f"slots={slots}: the {budget.tiers[0]} budget holds 1 to {room[0]} snapshots")
        room[0] = slots
    if min(room) < 1:  # a tier without room cannot be passed through
        room = room[: max(1, next(number for number, count in enumerate(room) if count < 1))]
    pinned = budget.tiers[0] == "device" and len(room) > 1
    pin = costs.pin * size / reversals if pinned else 0.0
    work = work_of(costs, budget.tiers[: len(room)], every, keep, raw_bytes, known)
    return Setting(keep, codec, size, work, tuple(room), pin, policy)


def _wanted(schedule: str | Schedule | Any, steps: int) -> tuple[list[Segmented], Schedule | None]:
    """Give the schedules to search, or the very one that was asked for."""
    if not isinstance(schedule, str):
        one = schedule if isinstance(schedule, Schedule) else foreign(schedule, steps)
        if one.steps != steps:
            raise PlanError(f"{one} was made for {one.steps} steps, but the loop has {steps} (of `every` steps each)")
        return [], one
    if schedule == "auto":
        return list(candidates(steps)), None
    name, numbers = split_name(schedule)
    if len(numbers) == FAMILIES[name] and name != "storeall":
        return [], named(schedule, steps)
    if numbers:
        named(schedule, steps)  # checks the interval
    return list(candidates(steps, name, *numbers)), None


def _check_tiers(budget: Budget, costs: Costs) -> None:
    tiers = budget.tiers
    if tiers[0] == "disk":
        raise BudgetError("a budget of disk alone: name the bytes of the host too, where the loop computes")
    if tiers == ("device", "disk"):
        raise BudgetError("between device and disk everything passes through the host: give it a budget too")
    for upper, lower in pairwise(tiers):
        if getattr(costs, lower) is None:
            raise PlanError(
                f"the costs do not say what the link from {upper} to {lower} carries: give {lower}=Link(...)"
            )


def _refuse(budget: Budget, tier: str, least: int, what: str) -> NoReturn:
    raise BudgetError(
        f"the budget does not hold {what}: {tier} has {to_text(budget[tier])} and needs {to_text(least)} "
        f"({least} bytes) at least"
    )


def _refuse_all(budget: Budget, settings: list[Setting], schedules: Sequence[Schedule]) -> NoReturn:
    """Say what the smallest budget is that works."""
    setting = min(settings, key=lambda setting: setting.snapshot_bytes)
    schedule = min(schedules, key=lambda schedule: schedule.peak_snapshots)
    peak = evaluate(schedule, setting.slots, setting).prediction.peak[-1]
    tier = budget.tiers[len(setting.slots) - 1]
    _refuse(budget, tier, peak * setting.snapshot_bytes, f"the {peak} snapshots that {schedule} puts there")
