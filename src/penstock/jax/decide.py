"""Planning a JAX loop: what its steps cost and how much memory their recordings take, once for each shape."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from penstock.codec import Codec
from penstock.codec.auto import choices
from penstock.engine.costing import measured, read_budget, with_codecs
from penstock.engine.layout import Layout
from penstock.engine.library import library_of
from penstock.engine.loop import Loop
from penstock.engine.numpy_arrays import describe
from penstock.engine.recorded import Recording, plan_recorded
from penstock.errors import PlanError
from penstock.jax.compiled import Compiled, Leaves, is_inexact
from penstock.planner import Costs, Plan
from penstock.planner import plan as make_plan
from penstock.units import Budget

SPAN = 16
"""Steps that are timed as one call: calling takes time of its own, which a step of the loop does not."""


@dataclass(frozen=True)
class Request:
    """What a caller asked for."""

    budget: Budget | str | int | None
    schedule: Any
    codec: str | Codec | Sequence[str | Codec] | None
    chunk: int | None
    costs: Costs | None
    directory: Path | str | None


def graph_bytes(compiled: Compiled, state: Leaves, inputs: Leaves, params: Leaves) -> int:
    """Give the bytes that each further step recorded at once takes, from what the compiler says; nothing is run."""
    short, long = min(2, compiled.count), min(4, compiled.count)
    if short == long:
        return 0
    sizes = [_temporary_bytes(compiled, length, state, inputs, params) for length in (short, long)]
    return max(0, sizes[1] - sizes[0]) // (long - short)


def _temporary_bytes(compiled: Compiled, length: int, state: Leaves, inputs: Leaves, params: Leaves) -> int:
    shapes = [[jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves] for leaves in (state, inputs, params)]
    outputs = jax.eval_shape(compiled.whole, *shapes)[1]
    given = [leaf for leaf in shapes[0] if is_inexact(leaf)], [leaf for leaf in outputs if is_inexact(leaf)]
    so_far = [leaf for leaf in shapes[1] if is_inexact(leaf)], [leaf for leaf in shapes[2] if is_inexact(leaf)]
    start = jax.ShapeDtypeStruct((), jnp.int32)
    analysis = compiled.back.lower(length, shapes[0], start, *shapes[1:], given, so_far).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes) if analysis is not None else 0


def fits_whole(compiled: Compiled, request: Request, graph: int, state: Leaves) -> bool:
    """Tell whether the graph of the whole loop fits the budget, so that nothing has to be recomputed."""
    if request.schedule != "auto" or request.codec is not None or request.chunk is not None:
        return False
    budget, _ = read_budget(request.budget, library_of(np.empty(0)))
    return compiled.count * graph <= budget["host"]


def check(compiled: Compiled, request: Request, state: Leaves) -> None:
    """Refuse a budget that cannot work, before anything runs."""
    budget, _ = read_budget(request.budget, library_of(np.empty(0)))
    shapes = [np.broadcast_to(np.empty((), leaf.dtype), leaf.shape) for leaf in state]
    nbytes = Layout.of(tuple(shapes), describe).nbytes
    choices(request.codec)
    if request.codec is None:
        smallest = request.schedule if request.schedule != "auto" else "revolve:1"
        make_plan(compiled.count, nbytes, budget, schedule=smallest, every=request.chunk or 1)


def decide(compiled: Compiled, request: Request, graph: int, state: Leaves, inputs: Leaves, params: Leaves) -> Plan:
    """Time the first steps on copies, and plan."""
    encoders, error = choices(request.codec)

    def advance(arrays: Leaves, start: int, stop: int) -> tuple[Any, ...]:
        return to_host(compiled.forward([jnp.array(array) for array in arrays], start, stop, inputs, params))

    loop = Loop(advance, lambda state, step: None, to_host(state), compiled.count, 1, None)
    budget, _ = read_budget(request.budget, loop.library)
    where = Path(request.directory) if request.directory is not None else Path(tempfile.gettempdir())
    costs = request.costs or measured(loop, where if "disk" in budget.tiers else None, False)
    if request.costs is None:
        span = min(SPAN, compiled.count)
        costs = replace(costs, forward=max(1e-9, _seconds(lambda: advance(loop.fresh(), 0, span)) / span))
    costs = with_codecs(loop, costs, encoders, error)
    device = next(iter(state[0].devices()))
    outside = device.platform != "cpu"
    recording = _recording(compiled, 0 if outside else graph, state, inputs, params)
    return plan_recorded(
        compiled.count,
        loop.layout.nbytes,
        budget,
        replace(costs, assumed=None),
        recording,
        schedule=request.schedule,
        codecs=[encoder.name for encoder in encoders if encoder.name in costs.codecs],
        chunk=request.chunk,
        largest=_largest(device, graph) if outside else None,
    )


def _recording(compiled: Compiled, graph: int, state: Leaves, inputs: Leaves, params: Leaves) -> Recording:
    short, long = 1, min(4, compiled.count)
    zeros = [[jnp.zeros_like(leaf) for leaf in leaves if is_inexact(leaf)] for leaves in (state, inputs, params)]
    outputs = jax.eval_shape(compiled.whole, state, inputs, params)[1]
    given = zeros[0], [jnp.zeros(leaf.shape, leaf.dtype) for leaf in outputs if is_inexact(leaf)]

    def back(length: int) -> None:
        so_far = [jnp.array(leaf) for leaf in zeros[1]], [jnp.array(leaf) for leaf in zeros[2]]
        jax.block_until_ready(compiled.back(length, state, 0, inputs, params, given, so_far))

    one, several = (_seconds(lambda length=length: back(length)) for length in (short, long))  # type: ignore[misc]
    each = max((several - one) / (long - short), several / (2 * long)) if long > short else one
    return Recording(graph, max(0.0, one - each), each)


def _largest(device: Any, graph: int) -> int | None:
    """Give the steps whose graphs take half of what is free on an accelerator."""
    stats = device.memory_stats() or {}
    free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)
    return int(free // 2 // graph) if graph and free > 0 else None


def to_host(leaves: Leaves) -> tuple[Any, ...]:
    """Give arrays to the engine, once they are computed."""
    return tuple(np.asarray(leaf) for leaf in leaves)


def check_plan(plan: Plan, chunk: int | None) -> None:
    """Refuse a plan that records other numbers of steps than asked for."""
    if chunk is not None and plan.every != chunk:
        raise PlanError(f"the plan records {plan.every} steps at once, but chunk={chunk} was asked for: make another")


def _seconds(call: Callable[[], Any]) -> float:
    call()  # compiles what has to be
    start = perf_counter()
    call()
    return perf_counter() - start
