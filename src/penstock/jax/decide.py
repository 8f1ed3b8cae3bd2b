"""Planning a JAX loop: what its steps cost and how much memory their recordings take, once for each shape."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from penstock.codec.auto import choices
from penstock.engine.costing import measured, read_budget, with_codecs
from penstock.engine.layout import Layout
from penstock.engine.library import Library, library_of
from penstock.engine.loop import Loop
from penstock.engine.numpy_arrays import describe
from penstock.engine.recorded import Recording, Request, plan_recorded
from penstock.errors import StateError
from penstock.jax.compiled import Compiled, is_inexact
from penstock.jax.places import Leaves, Places, device_of, free_bytes, is_traced, to_host
from penstock.planner import Costs, Plan
from penstock.schedule import Backward, Forward, Save

SPAN, LONG = 16, 0.02
"""Steps that are timed as one call, and the seconds of a step from which on two are enough."""
REPEATS, ENOUGH = 9, 0.1
"""How often a call is timed, and the seconds after which it is enough."""


@dataclass(frozen=True)
class Course:
    """A plan, and what it tells ahead of time."""

    plan: Plan
    saved: frozenset[int] | None
    """the steps whose states go to the host, all others staying on the device; None where any might"""
    followed: frozenset[int]
    """the starts of recordings after which steps are run forward again"""
    note: str = ""
    """what was decided for the caller"""

    @classmethod
    def of(cls, plan: Plan, note: str = "") -> "Course":
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
class Whole:
    """That a loop is recorded as a whole: its graph fits."""

    times: float
    """how many of them would"""


def host() -> Library:
    """Give what the engine knows of the host, where all snapshots are."""
    return library_of(np.empty(0))


def decide(compiled: Compiled, request: Request, state: Leaves, inputs: Leaves, params: Leaves) -> Course | Whole:
    """Record the loop as a whole where there is room for that; otherwise time the first steps on copies, and plan."""
    budget, note = read_budget(request.budget, host())
    shapes = [np.broadcast_to(np.empty((), leaf.dtype), leaf.shape) for leaf in state]
    request.check_budget(compiled.count, Layout.of(tuple(shapes), describe).nbytes, budget)
    device = device_of((*state, *inputs, *params))
    on_host = device.platform == "cpu"
    sizes = request.sizes(compiled.count)
    graph = graph_bytes(compiled, state, inputs, params) if max(sizes) > 1 or request.asks_for_nothing else 0
    free = None if on_host else free_bytes(device)
    room = budget["host"] if on_host else (free or 0) // 2
    if request.asks_for_nothing and compiled.count * graph <= room:
        return Whole(room / (compiled.count * graph) if graph else float("inf"))
    check_concrete(state, inputs, params)
    encoders, error = choices(request.codec)
    places = Places(state, device)

    def advance(arrays: Leaves, start: int, stop: int) -> tuple[Any, ...]:
        return to_host(compiled.forward(places.put(arrays), start, stop, inputs, params))

    loop = Loop(advance, lambda state, step: None, to_host(state), compiled.count, 1, None)
    costs = request.costs
    if costs is None:
        costs = measured(loop, request.where if "disk" in budget.tiers else None, False)
        costs = _measured(loop, costs, places.put)
    costs = with_codecs(loop, costs, encoders, error)
    if len(sizes) == 1 and request.costs is not None:
        recording = Recording(0, 0.0, costs.backward)
    else:
        lengths = sizes if len(sizes) == 1 else [1, min(4, compiled.count)]
        recording = _recording(compiled, lengths, loop.arrays, places.put, inputs, params)
    plan = plan_recorded(
        compiled.count,
        loop.layout.nbytes,
        budget,
        replace(costs, assumed=None),
        replace(recording, graph_bytes=graph if on_host else 0),
        request,
        codecs=[encoder.name for encoder in encoders if encoder.name in costs.codecs],
        largest=free // 2 // graph if free is not None and graph else None,
    )
    return Course.of(plan, note)


def graph_bytes(compiled: Compiled, state: Leaves, inputs: Leaves, params: Leaves) -> int:
    """Give the bytes that each further step recorded at once takes, from what the compiler says; nothing is run."""
    long = min(4, compiled.count)
    short = max(1, min(2, long - 1))
    if short == long:
        return 0
    sizes = [_temporary_bytes(compiled, length, state, inputs, params) for length in (short, long)]
    return max(0, sizes[1] - sizes[0]) // (long - short)


def _temporary_bytes(compiled: Compiled, length: int, state: Leaves, inputs: Leaves, params: Leaves) -> int:
    shapes = [
        [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type) for leaf in leaves]
        for leaves in (state, inputs, params)
    ]
    outputs = jax.eval_shape(compiled.whole, *shapes)[1]
    given = [leaf for leaf in shapes[0] if is_inexact(leaf)], [leaf for leaf in outputs if is_inexact(leaf)]
    so_far = [leaf for leaf in shapes[1] if is_inexact(leaf)], [leaf for leaf in shapes[2] if is_inexact(leaf)]
    analysis = compiled.back.lower(length, shapes[0], 0, *shapes[1:], given, so_far).compile().memory_analysis()
    return int(analysis.temp_size_in_bytes) if analysis is not None else 0


def _measured(loop: Loop, costs: Costs, put: Callable[[Leaves], Leaves]) -> Costs:
    """Part what a span of steps takes into steps, and what saving and restoring a state take beside its copy.

    After a state was saved or restored a span is run, so each takes a call, and a save brings the state to the host.
    What puts it back is timed with the recordings: there is one for each restore.
    """
    state = loop.fresh()

    def span(length: int) -> None:
        nonlocal state
        state = loop.advance(state, 0, length)  # from the state before: as in the loop, both are there for a moment

    one = _seconds(lambda: span(1))
    length = min(SPAN if one < LONG else 2, loop.steps)
    each, beside = _parted(1, one, length, _seconds(lambda: span(length)))
    beside -= min(beside, _seconds(lambda: jax.block_until_ready(put(state))))
    nbytes = loop.layout.nbytes
    return replace(costs, forward=each, copy=nbytes / (nbytes / costs.copy + beside))


def _recording(
    compiled: Compiled,
    lengths: list[int],
    state: Leaves,
    put: Callable[[Leaves], Leaves],
    inputs: Leaves,
    params: Leaves,
) -> Recording:
    """Time recordings as a reversal runs them: from a state of the host, which is put there while one is under way."""
    there = put(state)
    zeros = [[jnp.zeros_like(leaf) for leaf in leaves if is_inexact(leaf)] for leaves in (there, inputs, params)]
    outputs = jax.eval_shape(compiled.whole, there, inputs, params)[1]
    of_outputs = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in outputs if is_inexact(leaf)]
    del there

    def back(length: int) -> float:
        of_state = zeros[0]
        sums = [jnp.array(leaf) for leaf in zeros[1]], [jnp.array(leaf) for leaf in zeros[2]]  # which are given away

        def once() -> None:
            nonlocal of_state, sums
            leaves = put(state)
            jax.block_until_ready((of_state, sums))
            of_state, *sums = compiled.back(length, leaves, 0, inputs, params, (of_state, of_outputs), tuple(sums))

        taken = _seconds(once)
        jax.block_until_ready((of_state, sums))
        return taken

    short, long = lengths[0], lengths[-1]
    one = back(short)
    each, beside = _parted(short, one, long, back(long) if long > short else one)
    return Recording(0, beside, each)


def _parted(short: int, one: float, long: int, many: float) -> tuple[float, float]:
    """Part the times of a short and a long span into what each step takes, and what comes on top once."""
    if short == long:
        return max(1e-9, one / short), 0.0
    # No measurement is so good that a step costs nothing.
    each = max(1e-9, (many - one) / (long - short), many / (64 * long))
    return each, max(0.0, one - short * each)


def _seconds(call: Callable[[], Any]) -> float:
    """Time a call, after one that compiles what has to be: the median of several where they are short."""
    call()
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken) < ENOUGH:
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return median(taken)


def check_concrete(*several: Leaves) -> None:
    """Refuse leaves that are not there yet."""
    if any(is_traced(leaf) for leaves in several for leaf in leaves):
        raise StateError(
            "a checkpointed loop moves states between compiled spans of steps, which cannot be done inside of jax.jit, "
            "vmap, jacrev or a second derivative: differentiate outside of them (the steps are compiled anyway)"
        )
