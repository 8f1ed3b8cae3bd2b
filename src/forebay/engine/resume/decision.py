"""What is decided once for a reversal that survives: which problem it is, its segments, and their plans."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from forebay.checksums import checksum_of
from forebay.codec import get
from forebay.codec.auto import choices
from forebay.engine.layout import Layout
from forebay.engine.result import Result
from forebay.engine.resume.asked import Adjoint, bytes_of
from forebay.errors import BudgetError, DiskError, PlanError
from forebay.planner import Costs, Plan
from forebay.schedule import Foreign, Schedule
from forebay.schedule.names import is_auto, split_name
from forebay.tier.capacity import disk_capacity
from forebay.tier.sectors import SECTOR, whole_sectors
from forebay.units import Budget, to_text

SHARE = 0.03
"""Of the predicted time, what may be spent on keeping progress."""
HISTORY_SHARE = 0.02
"""Of the predicted time, what may be spent on writing the first steps' records, where memory holds all of them."""
FEWEST, MOST = 2, 32
"""Segments: enough that little is lost with one, and not so many that their states fill the disk."""

PROGRESSES = 3
"""Files of progress that there are at once: the last two are whole, and a third is being written."""


class Keeping(NamedTuple):
    """What it takes to keep something, as tried once."""

    segment: float
    """seconds of a state, and twice of what callbacks write"""
    progress_bytes: int
    """of what callbacks write"""
    record: float
    """seconds of what backward needs of a step"""
    record_bytes: int


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
    names = ("record", "schedule", "plan", "costs", "step_costs")
    record, schedule, plan, costs, step_costs = map(options.get, names)
    return {
        "steps": loop.steps,
        "every": loop.every,
        "forward": _name(loop.forward),
        "backward": _name(loop.backward),
        "turn": _name(loop.turn),
        "state": _description(layout),
        "checksum of the first state": first,
        "record": _name(record) if callable(record) else str(record),
        "schedule": str(schedule if schedule is not None else "auto"),
        "codec": [encoder.name for encoder in choices(options.get("codec"))[0]],
        "budget": repr(options.get("budget")),
        "policy": options.get("policy", "min"),
        "slots": options.get("slots"),
        "plan": None if plan is None else checksum_of([plan.to_json().encode()]),
        "costs": None if costs is None else checksum_of([repr((costs, costs.steps)).encode()]),
        "step_costs": None if step_costs is None else checksum_of([repr(list(map(float, step_costs))).encode()]),
        "reversals": options.get("reversals", 1),
        "adjoint": {name: f"{array.dtype}{list(array.shape)}" for name, array in adjoint.items()}
        if isinstance(adjoint, Mapping)
        else "saved by the caller",
    }


def decide(loop: SurvivingLoop, directory: Path, layout: Layout, try_keeping: Callable[[], Keeping]) -> dict[str, Any]:
    """Choose segments, so that keeping progress takes a small share of the time, and plan them.

    The steps below "recorded" have records on the disk, from the start of a segment on none.
    """
    options = {**loop.options, "synchronous": loop.synchronous}
    # What is timed is not the first run: that comes when there is a plan, and its progress is kept.
    forward = loop.forward_from(0, replay=True)
    whole, note = loop.plan(forward, loop.state, loop.steps, **options)
    options |= {"plan": None, "step_costs": None, "schedule": _named(options.get("schedule", "auto"))}
    if loop.options.get("plan") is not None:
        options |= {"codec": options.get("codec") or whole.codec, "policy": whole.policy, "schedule": "auto"}
    nbytes = layout.nbytes + SECTOR
    known = bytes_of(loop.adjoint)
    _most_segments(directory, whole.budget, nbytes, _room_of_progress(known))
    keeping = try_keeping()
    progress_bytes = _room_of_progress(known or keeping.progress_bytes)
    most = _most_segments(directory, whole.budget, nbytes, progress_bytes)
    starts = _starts(loop, max(FEWEST, min(most, int(SHARE * whole.seconds / keeping.segment))), options["schedule"])
    options["budget"] = _beside(whole.budget, len(starts) * nbytes + progress_bytes, nbytes)
    plans, numbers = _plans_of_segments(loop, starts, whole.costs, options)
    if options["budget"] is not whole.budget:
        options |= {"costs": whole.costs, "record": loop.options.get("record")}
        whole = loop.plan(forward, loop.state, loop.steps, **options)[0]
    in_segments = starts[-1] * whole.costs.forward + sum(plans[number].prediction.seconds for number in numbers)
    is_whole = _is_exact(whole) and whole.prediction.seconds < in_segments
    left = disk_capacity(directory).free - progress_bytes - 2 * len(starts) * nbytes
    return {
        "starts": starts,
        "whole": whole.to_json() if is_whole else None,
        "recorded": _recorded(loop, starts, whole, keeping, left) if is_whole else 0,
        "plans": [plan.to_json() for plan in plans],
        "plan numbers": numbers,
        "seconds": whole.seconds,
        "note": note,
    }


def _starts(loop: SurvivingLoop, count: int, schedule: str) -> list[int]:
    """List where segments start: so many of about the same length, or fewer where a schedule needs more steps."""
    coarse = -(-loop.steps // loop.every)
    count = max(1, min(count, coarse // _least(schedule)))
    return [number * coarse // count * loop.every for number in range(count)]


def _recorded(loop: SurvivingLoop, starts: Sequence[int], whole: Plan, keeping: Keeping, left: int) -> int:
    """Return up to which segment's start, or the loop's end, there are seconds and half of a disk to write records."""
    if "disk" in whole.budget.tiers:  # what it has is the plan's
        return 0
    room = left // 2 // whole_sectors(keeping.record_bytes)
    records = min(room, int(HISTORY_SHARE * whole.seconds / keeping.record))
    return max((stop for stop in (*starts, loop.steps) if -(-stop // loop.every) <= records), default=0)


def plan_of_rest(loop: SurvivingLoop, whole: Plan, start: int) -> Plan:
    """Plan the steps from the start of a segment on, as all were planned at first."""
    names = ("codec", "every", "policy", "slots", "reversals", "encode_states", "directory")
    options = {name: loop.options[name] for name in names if name in loop.options}
    if loop.options.get("plan") is not None:
        options |= {"codec": options.get("codec") or whole.codec, "policy": whole.policy}
    else:
        options["schedule"] = loop.options.get("schedule", "auto")
    options |= {"budget": whole.budget, "costs": _costs_between(whole.costs, start, loop.steps)}
    options |= {"record": loop.record_from(start), "synchronous": loop.synchronous}
    return loop.plan(loop.forward_from(start, replay=True), loop.state, loop.steps - start, **options)[0]


def _plans_of_segments(
    loop: SurvivingLoop, starts: Sequence[int], costs: Costs, options: Mapping[str, Any]
) -> tuple[list[Plan], list[int]]:
    """Plan segments, alike ones once; return the plans, and the number of each segment's."""
    plans: dict[Any, Plan] = {}  # by all in which segments can differ
    kinds: list[Any] = []  # of segments
    for start, stop in zip(starts, [*starts[1:], loop.steps], strict=True):
        own = _costs_between(costs, start, stop)
        kinds.append((stop - start, own.forward, own.steps))
        if kinds[-1] not in plans:
            asked = {**options, "costs": own, "record": loop.record_from(start)}
            plans[kinds[-1]] = loop.plan(loop.forward_from(start, replay=True), loop.state, stop - start, **asked)[0]
    return list(plans.values()), list(map(list(plans).index, kinds))


def _is_exact(plan: Plan) -> bool:
    """Tell whether what callbacks see does not depend on where a plan keeps snapshots."""
    return plan.codec is None or not get(plan.codec).lossy


def _room_of_progress(nbytes: int) -> int:
    """Return the bytes on the disk of all progress that is kept at once."""
    return PROGRESSES * (whole_sectors(nbytes) + SECTOR)


def _most_segments(directory: Path, budget: Budget, nbytes: int, progress_bytes: int) -> int:
    """Return how many states may be kept, in half of what progress leaves of a disk and of its budget."""
    free = disk_capacity(directory).free
    allowed = budget["disk"] if "disk" in budget.tiers else free
    least = progress_bytes + 2 * FEWEST * nbytes
    needs = f"the progress of this reversal needs {to_text(least)} ({least} bytes) at least"
    if allowed < least and "disk" in budget.tiers:
        raise BudgetError(f"the disk budget is {to_text(allowed)}, and {needs}: allow that, or keep less in adjoint=")
    if free < least:
        raise DiskError(f"{directory} has {to_text(free)} free, and {needs}: free some, or name a directory elsewhere")
    return min(MOST, (min(free, allowed) - progress_bytes) // 2 // nbytes)


def _costs_between(costs: Costs, start: int, stop: int) -> Costs:
    """Return the costs of the steps of a segment."""
    part = costs.steps[start:stop]
    if not any(part):
        return replace(costs, steps=())
    return replace(costs, steps=part, forward=costs.forward * fmean(part) / fmean(costs.steps) or costs.forward)


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
    return 1 if is_auto(schedule) else max([1, *split_name(schedule)[1]])


def _description(layout: Layout) -> str:
    """Describe a state: its structure, with what is no array in it, and the library, type and order of each array."""
    structure = re.sub(r"0x[0-9a-fA-F]+", "", str(layout.structure))  # addresses, which are others in each process
    leaves = [
        f"{likeness.library.name} {leaf.spec}"
        + (f" with strides {list(leaf.spec.strides)}" if leaf.spec.strides is not None else "")
        + (" on a GPU" if likeness.device is not None else "")
        for leaf, likeness in zip(layout.leaves, layout.likenesses, strict=True)
    ]
    return f"{', '.join(leaves)} in {structure}"


def _name(callback: Any) -> str:
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))
