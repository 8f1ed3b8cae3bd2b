"""What is decided once for a reversal that survives: which problem it is, its segments, and their plans."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from forebay.codec.auto import choices
from forebay.engine.layout import Layout
from forebay.engine.result import Result
from forebay.engine.resume.files import digest
from forebay.errors import DiskError, PlanError
from forebay.planner import Plan
from forebay.schedule import Foreign, Schedule
from forebay.schedule.names import split_name
from forebay.tier.capacity import disk_capacity
from forebay.units import Budget, to_text

SHARE = 0.03
"""Of the predicted time, what may be spent on keeping progress."""
FEWEST, MOST = 2, 32
"""Segments: enough that little is lost with one, and not so many that their states fill the disk."""

Adjoint = Mapping[str, Any] | tuple[Callable[[BinaryIO], Any], Callable[[BinaryIO], Any]]
"""What the callbacks write: arrays by name, or what saves it into a file and loads it from one."""


@dataclass(frozen=True)
class SurvivingLoop:
    """What a caller of `reverse` described, and what plans and reverses such a loop, or a segment of it."""

    forward: Callable[..., Any]
    backward: Callable[[Any, int], None]
    state: Any
    steps: int
    turn: Callable[[Any], None] | None
    adjoint: Adjoint | None
    options: Mapping[str, Any]
    """those of `reverse`"""
    plan: Callable[..., tuple[Plan, str]]
    """returns the plan of a loop, and what was decided for its caller"""
    reverse: Callable[..., Result]

    @property
    def every(self) -> int:
        """Steps from one backward computation to the next."""
        return min(int(self.options.get("every", 1)), self.steps)

    @property
    def takes_replay(self) -> bool:
        """Whether forward wants to know what it recomputes."""
        return "replay" in inspect.signature(self.forward).parameters

    @property
    def synchronous(self) -> bool:
        """What `reverse` makes of the argument of that name."""
        asked = self.options.get("synchronous")
        return bool(getattr(self.forward, "synchronous", False)) if asked is None else bool(asked)

    def forward_from(self, start: int, replay: bool) -> Callable[..., Any]:
        """Return the forward of a segment, counted from its start; `replay` says that all of it has been run before."""
        if not self.takes_replay:
            return lambda state, first, last: self.forward(state, first + start, last + start)
        before = replay

        def forward(state: Any, first: int, last: int, replay: bool) -> Any:
            return self.forward(state, first + start, last + start, replay=replay or before)

        return forward

    def record_from(self, start: int) -> Any:
        """Return the record of a segment, counted from its start."""
        record = self.options.get("record")
        return (lambda state, step: record(state, step + start)) if callable(record) else record


def problem(loop: SurvivingLoop, layout: Layout, first: str) -> dict[str, Any]:
    """Describe what is reversed and how it was asked for: what has to be the same when it goes on."""
    options, adjoint = loop.options, loop.adjoint
    record, schedule, plan, costs = (options.get(name) for name in ("record", "schedule", "plan", "costs"))
    return {
        "steps": loop.steps,
        "every": loop.every,
        "forward": _name(loop.forward),
        "backward": _name(loop.backward),
        "state": ", ".join(str(leaf.spec) for leaf in layout.leaves),
        "checksum of the first state": first,
        "record": _name(record) if callable(record) else str(record),
        "schedule": str(schedule if schedule is not None else "auto"),
        "codec": [encoder.name for encoder in choices(options.get("codec"))[0]],
        "budget": repr(options.get("budget")),
        "policy": options.get("policy", "min"),
        "slots": options.get("slots"),
        "plan": None if plan is None else digest(plan.to_json().encode()),
        "costs": None if costs is None else digest(repr(costs).encode()),
        "adjoint": {name: f"{array.dtype}{list(array.shape)}" for name, array in adjoint.items()}
        if isinstance(adjoint, Mapping)
        else "saved by the caller",
    }


def decide(
    loop: SurvivingLoop, directory: Path, layout: Layout, seconds_to_keep: Callable[[], float]
) -> dict[str, Any]:
    """Choose segments, so that keeping progress takes a small share of the time, and plan them."""
    options = dict(loop.options)
    whole, note = loop.plan(loop.forward, loop.state, loop.steps, **options)
    options |= {"plan": None, "costs": whole.costs, "schedule": _named(options.get("schedule", "auto"))}
    if loop.options.get("plan") is not None:
        options |= {"codec": options.get("codec") or whole.codec, "policy": whole.policy, "schedule": "auto"}
    coarse = -(-loop.steps // loop.every)
    nbytes = sum(leaf.nbytes for leaf in layout.leaves)
    most = min(MOST, _room(directory, whole.budget) // max(1, nbytes))
    if most < FEWEST:
        raise DiskError(f"{directory} has no room for {FEWEST} states of {to_text(nbytes)}: free or allow some more")
    count = max(FEWEST, min(most, int(SHARE * whole.seconds / seconds_to_keep())))
    count = max(1, min(count, coarse // _least(options["schedule"])))
    starts = [number * coarse // count * loop.every for number in range(count)]
    options["budget"] = _beside(whole.budget, count * nbytes, nbytes)
    plans: dict[int, Plan] = {}
    for start, stop in zip(starts, [*starts[1:], loop.steps], strict=True):
        if stop - start not in plans:
            options["record"] = loop.record_from(start)
            forward = loop.forward_from(start, replay=True)
            plans[stop - start] = loop.plan(forward, loop.state, stop - start, **options)[0]
    return {
        "starts": starts,
        "plans": {steps: plan.to_json() for steps, plan in plans.items()},
        "seconds": whole.seconds,
        "note": note,
    }


def _room(directory: Path, budget: Budget) -> int:
    """Return the bytes that states may take on the disk: half of what is free, and half of a disk budget."""
    free = disk_capacity(directory).free
    return min(free, budget["disk"] if "disk" in budget.tiers else free) // 2


def _beside(budget: Budget, kept: int, nbytes: int) -> Budget:
    """Return what a disk budget leaves beside the states that are kept; no disk where that is next to nothing."""
    if "disk" not in budget.tiers:
        return budget
    left = budget["disk"] - kept
    return budget.with_tier("disk", left if left > 4 * nbytes else None)


def _named(schedule: Any) -> str:
    """Return the name of a schedule, which any number of steps can have."""
    if isinstance(schedule, str):
        return schedule
    if isinstance(schedule, Schedule) and not isinstance(schedule, Foreign):
        return str(schedule)
    raise PlanError("with resume= every segment is reversed by itself: give the schedule by its name")


def _least(schedule: str) -> int:
    """Return the fewest steps that a segment needs for a schedule."""
    numbers = [] if schedule.strip().lower() == "auto" else split_name(schedule)[1]
    return max([1, *numbers])


def _name(callback: Any) -> str:
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))
