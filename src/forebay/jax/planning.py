"""Planning a JAX loop whose states are moved: what its steps cost, and what is kept on the host and the disk."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from forebay.codec.auto import choices
from forebay.engine.loop import TimeLoop
from forebay.engine.recorded import Recording, Request, plan_recorded
from forebay.engine.timing.costing import measured, with_codecs
from forebay.jax.compiled_step import CompiledStep, is_inexact
from forebay.jax.devices import Leaves, Places, to_host
from forebay.planner import Costs, Plan
from forebay.units import Budget

SPAN, LONG = 16, 0.02
"""Steps that are timed as one call, and the seconds of a step from which on two are enough."""
REPEATS, ENOUGH = 9, 0.1
"""How often a call is timed, and the seconds after which it is enough."""


class StepSeconds(NamedTuple):
    """Seconds of a step."""

    forward: float
    recorded: float
    """forward once, and backward"""


def planned(
    compiled: CompiledStep,
    request: Request,
    budget: Budget,
    graph: int,
    room: int | None,
    device: Any,
    state: Leaves,
    inputs: Leaves,
    params: Leaves,
) -> tuple[Plan, StepSeconds]:
    """Time the first steps on copies, and plan what is kept on the host and the disk."""
    on_host = device.platform == "cpu"
    encoders, error = choices(request.codec)
    places = Places(state, device)

    def advance(arrays: Leaves, start: int, stop: int) -> tuple[Any, ...]:
        return to_host(compiled.forward(places.put(arrays), start, stop, inputs, params))

    loop = TimeLoop(advance, to_host(state), compiled.count, 1, None)
    costs = request.costs
    if costs is None:
        costs = measured(loop, budget, request.where, False)
        costs = _measured(loop, costs, places.put)
    costs = with_codecs(loop, costs, encoders, error)
    sizes = request.sizes(compiled.count)
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
        largest=room // graph if room is not None and not on_host and graph else None,
    )
    return plan, StepSeconds(costs.forward, recording.step)


def _measured(loop: TimeLoop, costs: Costs, put: Callable[[Leaves], Leaves]) -> Costs:
    """Part what a span of steps takes into steps, and what saving and restoring a state take beside its copy.

    After a state was saved or restored a span is run, so each takes a call, and a save brings the state to the host.
    What puts it back is timed with the recordings: there is one for each restore.
    """
    state = loop.fresh()

    def span(length: int) -> None:
        nonlocal state
        state = loop.advance(state, 0, length)  # from the state before: as in the loop, both are there for a moment

    step_seconds = _seconds(lambda: span(1))
    length = min(SPAN if step_seconds < LONG else 2, loop.steps)
    each, beside = _parted(1, step_seconds, length, _seconds(lambda: span(length)))
    beside -= min(beside, _seconds(lambda: jax.block_until_ready(put(state))))
    nbytes = loop.layout.nbytes
    return replace(costs, forward=each, copy=nbytes / (nbytes / costs.copy + beside))


def _recording(
    compiled: CompiledStep,
    lengths: list[int],
    state: Leaves,
    put: Callable[[Leaves], Leaves],
    inputs: Leaves,
    params: Leaves,
) -> Recording:
    """Time recordings as a reversal runs them: from a state of the host, which is put there while one is under way."""
    on_device = put(state)
    zeros = [[jnp.zeros_like(leaf) for leaf in leaves if is_inexact(leaf)] for leaves in (on_device, inputs, params)]
    outputs = jax.eval_shape(compiled.whole, on_device, inputs, params)[1]
    of_outputs = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in outputs if is_inexact(leaf)]
    del on_device

    def back(length: int) -> float:
        of_state = zeros[0]
        sums = [jnp.array(leaf) for leaf in zeros[1]], [jnp.array(leaf) for leaf in zeros[2]]  # which are given away

        def once() -> None:
            nonlocal of_state, sums
            leaves = put(state)
            jax.block_until_ready((of_state, sums))
            of_state, *sums = compiled.back((length,), leaves, 0, inputs, params, (of_state, of_outputs), tuple(sums))

        taken = _seconds(once)
        jax.block_until_ready((of_state, sums))
        return taken

    short, long = lengths[0], lengths[-1]
    short_seconds = back(short)
    each, beside = _parted(short, short_seconds, long, back(long) if long > short else short_seconds)
    return Recording(0, beside, each)


def _parted(short: int, short_seconds: float, long: int, long_seconds: float) -> tuple[float, float]:
    """Part the times of a short and a long span into what each step takes, and what comes on top once."""
    if short == long:
        return max(1e-9, short_seconds / short), 0.0
    # No measurement is so good that a step costs nothing.
    each = max(1e-9, (long_seconds - short_seconds) / (long - short), long_seconds / (64 * long))
    return each, max(0.0, short_seconds - short * each)


def _seconds(call: Callable[[], Any]) -> float:
    """Time a call, after one that compiles what has to be: the median of several where they are short."""
    call()
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken) < ENOUGH:
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return median(taken)
