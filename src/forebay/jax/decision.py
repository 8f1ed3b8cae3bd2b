"""Deciding how a JAX loop is differentiated, once for each shape: on the device, or with states that are moved."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from forebay.engine.array_memory import ArrayMemory, memory_of
from forebay.engine.recorded import Request
from forebay.engine.timing.costing import host_room, less_where_needed, of_all_steps, read_budget, with_unused
from forebay.errors import BudgetError, StateError
from forebay.jax.compiled_step import CompiledStep
from forebay.jax.devices import Leaves, device_of, free_bytes, is_traced
from forebay.jax.fitting import fitted, least_room, sizes_of
from forebay.jax.nest import Lengths, Sizes, choose, counts_to_text, least_bytes, nested_bytes
from forebay.jax.planning import planned
from forebay.machine.packing import in_a_row, snapshot_bytes
from forebay.machine.spec import ArraySpec
from forebay.planner import Plan
from forebay.schedule import Backward, Forward, Save
from forebay.units import Budget, to_text

UNMEASURED = 2
"""Levels up to which a nest is taken unmeasured: moving states would save a fifth of its time at most."""


@dataclass(frozen=True)
class PlannedLoop:
    """A plan, and what it tells ahead of time."""

    plan: Plan
    saved: frozenset[int] | None
    """the steps whose states go to the host, all others staying on the device; None where any might"""
    followed: frozenset[int]
    """the starts of recordings after which steps are run forward again"""
    note: str = ""
    """what was decided for the caller"""

    @classmethod
    def of(cls, plan: Plan, note: str = "") -> "PlannedLoop":
        """Read a plan's actions."""
        saved, followed, last = set(), set(), 0
        for action in plan.schedule:
            if isinstance(action, Save):
                saved.add(action.step * plan.every)
            elif isinstance(action, Backward):
                last = action.step * plan.every
            elif isinstance(action, Forward):
                followed.add(last)
        # Codecs sample the errors of other states too, and may have to run steps again.
        return cls(plan, frozenset(saved) if plan.codec is None else None, frozenset(followed), note)


@dataclass(frozen=True)
class OnDevice:
    """That a loop stays on the device, all of it one computation that JAX differentiates."""

    lengths: Lengths
    """of the segments in which it is nested; none where it is recorded as a whole"""
    nbytes: int
    room: int

    @property
    def times(self) -> float:
        """How many of them there is room for."""
        return self.room / self.nbytes if self.nbytes else float("inf")

    def explain(self, steps: int) -> str:
        """Say how the loop is nested, and what that takes."""
        how = f"as {counts_to_text(steps, self.lengths)}" if self.lengths else "recorded as a whole"
        taken = f"{to_text(self.nbytes)} of the {to_text(self.room)} allowed"
        return f"{steps} steps stay on the device, {how}, each run forward {len(self.lengths) + 1} times: {taken}"


def host() -> ArrayMemory:
    """Return what the engine knows of the host, where all snapshots are."""
    return memory_of(np.empty(0))


def part_budget(budget: Any, leaves: Leaves) -> tuple[int | None, Any]:
    """Part a budget into the bytes of an accelerator, where it names some, and what the engine may take."""
    if not isinstance(budget, Budget) or budget.device is None or device_of(leaves).platform == "cpu":
        return None, budget
    others = budget.tiers != ("device",)
    return budget.device, budget.with_tier("device", None) if others else Budget(host=0)


def decide(
    compiled: CompiledStep,
    request: Request,
    allowed: int | None,
    loops: int,
    state: Leaves,
    inputs: Leaves,
    params: Leaves,
) -> PlannedLoop | OnDevice:
    """Keep a loop on the device where there is room for that; otherwise time the first steps on copies, and plan.

    `allowed` are the bytes of an accelerator, and `loops` are how many vmap runs at once.
    """
    budget, note = read_budget(request.budget, host())
    leaves = (*state, *inputs, *params)
    device = device_of(leaves)
    may_move = device.platform == "cpu" or budget["host"] > 0 or not _may_nest(request)
    nbytes = snapshot_bytes(in_a_row([ArraySpec(leaf.shape, np.dtype(leaf.dtype)).nbytes for leaf in state]))
    check = partial(request.check_budget, compiled.count, nbytes)
    if may_move:
        check(budget)
    needs_graph = max(request.sizes(compiled.count)) > 1 or request.asks_for_nothing
    sizes = sizes_of(compiled, state, inputs, params) if needs_graph else Sizes(0, 0)
    graphs = loops * (sizes.beside + compiled.count * (sizes.graph + sizes.sums)) if device.platform == "cpu" else 0
    usable = of_all_steps(compiled.count, nbytes) + graphs
    budget, note = less_where_needed(budget, note, host_room("host", nbytes), usable, check)
    room = _room(budget, allowed, device)
    is_there = not any(map(is_traced, leaves))
    nest = _on_device(compiled, request, sizes, room or 0, loops, state, inputs, params)
    if nest is not None and (len(nest.lengths) <= UNMEASURED or not is_there or not may_move):
        return nest
    if not may_move:
        needed = _needed(compiled, sizes, loops, state, inputs, params)
        raise BudgetError(
            f"{compiled.count} steps do not fit the device budget of {to_text(room or 0)}: {needed}, "
            "or let states go to the host, with Budget(device=..., host=...)"
        )
    if not is_there and _may_nest(request):
        needed = _needed(compiled, sizes, loops, state, inputs, params)
        _refuse_traced(f", or give it a budget to stay on the device: {needed}")
    check_concrete(state, inputs, params)
    plan, each = planned(compiled, request, budget, sizes.graph, room, device, state, inputs, params)
    if nest is not None and compiled.count * (len(nest.lengths) * each.forward + each.recorded) <= plan.seconds:
        return nest
    return PlannedLoop.of(plan, with_unused(note, request.codec, plan))


def _room(budget: Budget, allowed: int | None, device: Any) -> int | None:
    """Return the bytes of the device that recordings and the states between them may take; None where unknown."""
    if device.platform == "cpu":
        return budget["host"]
    free = free_bytes(device) if allowed is None else None
    return allowed if free is None else free // 2


def _may_nest(request: Request) -> bool:
    return request.asks_for_nothing and request.directory is None


def _on_device(
    compiled: CompiledStep,
    request: Request,
    sizes: Sizes,
    room: int,
    loops: int,
    state: Leaves,
    inputs: Leaves,
    params: Leaves,
) -> OnDevice | None:
    """Record the loop as a whole where that fits, or nested, which the compiler confirms where nothing is traced."""
    steps = compiled.count
    if request.asks_for_nothing and loops * steps * sizes.graph <= room:
        return OnDevice((), steps * sizes.graph, room)
    if not _may_nest(request):
        return None
    if not any(map(is_traced, (*state, *inputs, *params))):
        lengths, taken = fitted(compiled, sizes, room, state, inputs, params)
    elif (lengths := choose(steps, sizes, room // loops)) is not None:
        taken = nested_bytes(steps, lengths, sizes)
    return None if lengths is None else OnDevice(lengths, taken, room)


def _needed(compiled: CompiledStep, sizes: Sizes, loops: int, state: Leaves, inputs: Leaves, params: Leaves) -> str:
    """Say what is enough to keep a loop on the device, to the byte, so that it can be given as it is."""
    if any(map(is_traced, (*state, *inputs, *params))):
        nested = least_bytes(compiled.count, sizes)
    else:
        nested = least_room(compiled, sizes, state, inputs, params)
    nbytes = loops * min(nested, compiled.count * sizes.graph)
    return f"keeping states there takes {nbytes} bytes" + (f" for {loops} loops at once" if loops > 1 else "")


def check_concrete(*groups: Leaves) -> None:
    """Refuse leaves that are not there yet."""
    if any(is_traced(leaf) for leaves in groups for leaf in leaves):
        _refuse_traced("")


def _refuse_traced(instead: str) -> None:
    raise StateError(
        "this checkpointed loop moves states between compiled spans of steps, which cannot be done inside of jax.jit, "
        f"vmap, jacrev or a second derivative: differentiate outside of them (the steps are compiled anyway){instead}"
    )
