"""Differentiating a JAX time loop inside a budget: compiled spans on the device, snapshots kept by the engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from penstock.codec import Codec
from penstock.engine import Result
from penstock.engine.recorded import Request
from penstock.errors import StateError
from penstock.jax.compiled import Compiled, Leaves, Trees, compiled_for
from penstock.jax.decide import host
from penstock.jax.node import Call
from penstock.jax.places import is_traced
from penstock.planner import Costs, Plan
from penstock.schedule import Schedule
from penstock.units import Budget

CLOSED_OVER = "the step closes over a value that is being differentiated: pass it in params="


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

    Spans of steps run compiled on the device. Between them, states are kept on the host and the disk, so `jax.grad` and
    `jax.vjp` must be called outside of `jax.jit`, `jax.vmap` and the like, unless the graph of the whole loop fits.

    Parameters
    ----------
    step
        ``step(state, t, *params) -> state``, or ``step(state, t, x, *params)`` where there are inputs: a pure function
        that JAX can compile, with `t` a traced int32. It is compiled once for each function object, so define it
        outside of loops that call this again and again. What is differentiated it gets through its arguments.
    state
        The state at step 0: a pytree of arrays. Every step returns one of the same shapes and types. Results and
        gradients are on the devices of the arguments.
    steps
        Steps of the loop.
    params
        What every step gets: a tuple or list of pytrees of arrays, or a single pytree.
    inputs
        A pytree of arrays whose first axis is time: each step gets its own slice as `x`.
    outputs
        Whether a step returns ``(state, output)``; all outputs are then returned, stacked along a first axis.
    budget
        Bytes of the host, and of the disk, for snapshots. Where JAX computes on the host, the graphs of all but one of
        the steps that are differentiated at once count too; an accelerator gives half of its free memory for them.
        None takes half of what is free on the host.
    schedule, codec, costs, plan, directory, progress
        As for `penstock.reverse`. A lossy codec's bound holds at each state that is kept, and passes through
        recomputation.
    chunk
        Steps that are differentiated at once; None leaves it to the plan. A schedule with numbers counts in these.
    report
        Called with the result of each backward pass: its plan, metrics and explanation. Where the graph of the whole
        loop fits, JAX differentiates it by itself, and nothing is reported.

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
    request = Request(budget, schedule, codec, chunk, plan, costs, directory)
    request.check(steps, host())
    given = tuple(params) if isinstance(params, tuple | list) else (params,)
    parted = [_part(tree, what) for tree, what in ((state, "the state"), (inputs, "inputs"), (given, "params"))]
    if not parted[0][0]:
        raise StateError("the state holds no arrays: give an array, or a pytree of arrays")
    if any(leaf.ndim < 1 or leaf.shape[0] != steps for leaf in parted[1][0]):
        raise StateError(f"inputs must have a first axis of {steps} entries, one a step")
    trees = Trees(parted[0][1], None if inputs is None else parted[1][1], parted[2][1], outputs)
    compiled = compiled_for(step, steps, trees)
    leaves = [leaves for leaves, _ in parted]
    try:
        output = _checked_output(compiled, *leaves)
        final, stacked = Call(step, compiled, request, progress, report).differentiable()(*leaves)
    except jax.errors.UnexpectedTracerError as error:
        raise StateError(CLOSED_OVER) from error
    result = jax.tree_util.tree_unflatten(trees.state, final)
    return (result, jax.tree_util.tree_unflatten(output, stacked)) if outputs else result


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
    kinds = tuple((leaf.shape, str(leaf.dtype), leaf.weak_type) for leaf in (*state, *inputs, *params))
    if kinds in compiled.outputs:
        return compiled.outputs[kinds]
    slices = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in inputs]
    given = () if trees.inputs is None else (unflatten(trees.inputs, slices),)
    time = jax.ShapeDtypeStruct((), jnp.int32)
    traced, new = jax.make_jaxpr(compiled.step, return_shape=True)(
        unflatten(trees.state, list(state)), time, *given, *unflatten(trees.params, list(params))
    )
    if any(is_traced(const) and _has_gradient(const) for const in traced.consts):
        raise StateError(CLOSED_OVER)
    output = None
    if trees.returns_outputs:
        if not isinstance(new, tuple) or len(new) != 2:
            raise StateError(f"with outputs=True the step returns (state, output), not a {type(new).__name__}")
        new, output = new
    leaves, structure = jax.tree_util.tree_flatten(new)
    wanted, found = ([(leaf.shape, str(leaf.dtype)) for leaf in many] for many in (state, leaves))
    if structure != trees.state or found != wanted:
        raise StateError(f"the step returned {structure} of {found}, but the state is {trees.state} of {wanted}")
    compiled.outputs[kinds] = jax.tree_util.tree_structure(output)
    return compiled.outputs[kinds]


def _has_gradient(tracer: Any) -> bool:
    """Tell whether a tracer follows a gradient: without one it is no longer of the same kind."""
    return type(jax.lax.stop_gradient(tracer)) is not type(tracer)
