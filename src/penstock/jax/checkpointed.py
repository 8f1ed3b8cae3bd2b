"""Differentiating a JAX time loop inside a budget: compiled spans on the device, snapshots kept by the engine."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from penstock.codec import Codec
from penstock.engine import Result
from penstock.errors import PlanError, StateError
from penstock.jax.compiled import Compiled, Leaves, Trees
from penstock.jax.decide import Request
from penstock.jax.node import Call
from penstock.planner import Costs, Plan
from penstock.schedule import Schedule
from penstock.schedule.segmented import check_count, check_steps
from penstock.units import Budget


def checkpointed(
    step: Callable[..., Any],
    state: Any,
    steps: int,
    *,
    params: Any = (),
    inputs: Any = None,
    outputs: bool = False,
    budget: Budget | str | int | None = None,
    schedule: str | Schedule | Any = "auto",
    codec: str | Codec | Sequence[str | Codec] | None = None,
    chunk: int | None = None,
    plan: Plan | None = None,
    costs: Costs | None = None,
    directory: Path | str | None = None,
    progress: bool | None = None,
    report: Callable[[Result], None] | None = None,
) -> Any:
    """Run a time loop that JAX can differentiate, keeping and recomputing states inside a budget.

    Spans of steps run compiled on the device. Between them, states are kept on the host and the disk, so `jax.grad`,
    `jax.vjp` and the like must be called outside of `jax.jit`, unless the graph of the whole loop fits the budget.

    Parameters
    ----------
    step
        ``step(state, t, *params) -> state``, or ``step(state, t, x, *params)`` where there are inputs: a pure function
        that JAX can compile, with `t` a traced integer. It is compiled once for each function object, so define it
        outside of loops that call this again and again.
    state
        The state at step 0: a pytree of arrays. Every step returns one of the same shapes and types.
    steps
        Steps of the loop.
    params
        What every step gets: a tuple or list of pytrees of arrays, or a single pytree.
    inputs
        A pytree of arrays whose first axis is time: each step gets its own slice as `x`.
    outputs
        Whether a step returns ``(state, output)``; all outputs are then returned, stacked along a first axis.
    budget
        Bytes of the host, and of the disk, for snapshots. Where JAX computes on the host, the recordings of all but
        one of the steps that are differentiated at once count too. None takes half of what is free.
    schedule, codec, costs, plan, directory, progress
        As for `penstock.reverse`. A lossy codec's bound holds at each state that is kept, and passes through
        recomputation.
    chunk
        Steps that are differentiated at once; None leaves it to the plan. A schedule with numbers counts in these.
    report
        Called with the result of each backward pass: its plan, metrics and explanation.

    Returns
    -------
    state, or (state, outputs)
        The final state, and the outputs where they were asked for.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> def decay(y, t, rate):
    ...     return y - rate * y
    >>> def total(rate):
    ...     return checkpointed(decay, jnp.ones(3), 100, params=rate, budget="64kB", schedule="revolve:5").sum()
    >>> bool(abs(jax.grad(total)(0.1) + 300 * 0.9**99) < 1e-6)
    True
    """
    check_steps(steps)
    if chunk is not None:
        check_count(chunk, "chunk")
        if chunk < 1:
            raise PlanError(f"chunk={chunk}: it must be at least 1")
    given = tuple(params) if isinstance(params, tuple | list) else (params,)
    parted = [_part(tree, what) for tree, what in ((state, "the state"), (inputs, "inputs"), (given, "params"))]
    if not parted[0][0]:
        raise StateError("the state holds no arrays: give an array, or a pytree of arrays")
    if any(leaf.ndim < 1 or leaf.shape[0] != steps for leaf in parted[1][0]):
        raise StateError(f"inputs must have a first axis of {steps} entries, one a step")
    trees = Trees(parted[0][1], None if inputs is None else parted[1][1], parted[2][1], outputs)
    compiled = _compiled(step, steps, trees)
    output = _checked_output(compiled, *(leaves for leaves, _ in parted))
    request = Request(budget, schedule, codec, chunk, costs, directory)
    call = Call(compiled, request, plan, progress, report)
    final, stacked = call.differentiable()(*(leaves for leaves, _ in parted))
    result = jax.tree_util.tree_unflatten(trees.state, final)
    return (result, jax.tree_util.tree_unflatten(output, stacked)) if outputs else result


@lru_cache(maxsize=64)
def _compiled(step: Callable[..., Any], steps: int, trees: Trees) -> Compiled:
    return Compiled(step, steps, trees)


def _part(tree: Any, what: str) -> tuple[list[Any], Any]:
    """Take a pytree apart, refusing what the engine cannot keep."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    try:
        arrays = [jnp.asarray(leaf) for leaf in leaves]
    except TypeError as error:
        raise StateError(f"{what} holds something that is no array: {error}") from error
    if any(jnp.issubdtype(array.dtype, jax.dtypes.extended) for array in arrays):
        raise StateError(f"{what} holds random keys of the new kind: pass jax.random.key_data(key), and wrap it again")
    return arrays, structure


def _checked_output(compiled: Compiled, state: Leaves, inputs: Leaves, params: Leaves) -> Any:
    """Trace a step without running it, refuse one that changes the state's shapes, and give its output's structure."""
    trees, unflatten = compiled.trees, jax.tree_util.tree_unflatten
    slices = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in inputs]
    given = () if trees.inputs is None else (unflatten(trees.inputs, slices),)
    time = jax.ShapeDtypeStruct((), jnp.int32)
    new = jax.eval_shape(
        compiled.step, unflatten(trees.state, list(state)), time, *given, *unflatten(trees.params, list(params))
    )
    output = None
    if trees.returns_outputs:
        if not isinstance(new, tuple) or len(new) != 2:
            raise StateError(f"with outputs=True the step returns (state, output), not a {type(new).__name__}")
        new, output = new
    leaves, structure = jax.tree_util.tree_flatten(new)
    wanted, found = ([(leaf.shape, str(leaf.dtype)) for leaf in many] for many in (state, leaves))
    if structure != trees.state or found != wanted:
        raise StateError(f"the step returned {structure} of {found}, but the state is {trees.state} of {wanted}")
    return jax.tree_util.tree_structure(output)
