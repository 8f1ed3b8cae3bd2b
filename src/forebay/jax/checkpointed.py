"""Differentiating a JAX time loop inside a budget: nested on the device, or in spans with snapshots of the engine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from forebay.codec import Codec
from forebay.engine import Result
from forebay.engine.recorded import Request
from forebay.errors import StateError
from forebay.jax.compiled_step import compiled_for
from forebay.jax.decision import host, part_budget
from forebay.jax.node import CheckpointedCall
from forebay.jax.traced_step import CLOSED_OVER, Trees, trace
from forebay.planner import Costs, Plan
from forebay.schedule import Schedule
from forebay.units import Budget


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

    Where the graph of the whole loop fits the memory of the device, the loop stays there as one compiled computation.
    So it does where scans in scans fit that keep a few states each; both only where nothing else was asked for. Such a
    loop works inside of `jax.jit`, `jax.vmap` and the like too. Otherwise spans of steps run compiled on the device,
    and between them states are kept on the host and the disk. `jax.grad` and `jax.vjp` must then be called outside of
    those.

    Parameters
    ----------
    step
        ``step(state, t, *params) -> state``, or ``step(state, t, x, *params)`` where there are inputs: a pure function
        that JAX can compile, with `t` a traced int32. It is traced in every call, and compiled once for each function
        object and the constants that it uses. So define it outside of loops that call this again and again. Pass what
        changes, and what is differentiated, as arguments.
    state
        The state at step 0: a pytree of arrays. Every step returns one of the same shapes and types. Results and
        gradients are on the devices of the arguments.
    steps
        Steps of the loop.
    params
        What every step gets: a tuple or list of pytrees of arrays, or a single pytree, as a named tuple is.
    inputs
        A pytree of arrays whose first axis is time: each step gets its own slice as `x`.
    outputs
        Whether a step returns ``(state, output)``; all outputs are then returned, stacked along a first axis.
    budget
        Bytes for what is kept: ``Budget(device=..., host=..., disk=...)``; a bare amount is that of the host. On an
        accelerator, `device` is for the states and graphs that stay there. These are all that the computation takes
        beside its arguments and results. Where it is not named, it is half of what is free. Without `host`, nothing is
        moved.
        Where JAX computes on the host, `host` plays that role too, and there is no `device`. None takes half of what is
        free on the host. While states are moved, one step's graph comes on top.
    schedule, codec, costs, plan, directory, progress
        As for `forebay.reverse`. A lossy codec's bound holds at each state that is kept, and passes through
        recomputation. With another schedule than "auto", a codec, a plan or a directory, states are moved.
    chunk
        Steps that are differentiated at once; None leaves it to the plan. A schedule with numbers counts in these.
    report
        Called with the result of each backward pass: its plan, metrics and explanation. A loop that stays on the device
        is differentiated by JAX itself, and nothing is reported; how it is nested is logged once, at level INFO, by the
        logger ``forebay.jax``.

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
    arguments = tuple(params) if _is_argument_list(params) else (params,)
    parted = [
        _flattened(tree, what) for tree, what in ((state, "the state"), (inputs, "inputs"), (arguments, "params"))
    ]
    leaves = [leaves for leaves, _ in parted]
    allowed, rest = part_budget(budget, [leaf for group in leaves for leaf in group])
    request = Request(rest, schedule, codec, chunk, plan, costs, directory)
    request.check(steps, host())
    if not parted[0][0]:
        raise StateError("the state holds no arrays: give an array, or a pytree of arrays")
    if any(leaf.ndim < 1 or leaf.shape[0] != steps for leaf in parted[1][0]):
        raise StateError(f"inputs must have a first axis of {steps} entries, one a step")
    trees = Trees(parted[0][1], None if inputs is None else parted[1][1], parted[2][1], outputs)
    try:
        traced = trace(step, trees, *leaves)
        compiled = compiled_for(step, steps, trees, traced)
        final, stacked = CheckpointedCall(compiled, outputs, request, allowed, progress, report).differentiable()(
            *leaves
        )
    except jax.errors.UnexpectedTracerError as error:
        raise StateError(CLOSED_OVER) from error
    result = jax.tree_util.tree_unflatten(trees.state, final)
    return (result, jax.tree_util.tree_unflatten(traced.output, stacked)) if outputs else result


def _is_argument_list(params: Any) -> bool:
    """Tell whether there is one argument for each entry; a named tuple is a tree with names, and so one argument."""
    return isinstance(params, tuple | list) and not hasattr(params, "_fields")


def _flattened(tree: Any, what: str) -> tuple[list[Any], Any]:
    """Take a pytree apart, refusing what the engine cannot keep."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    try:
        arrays = [jnp.asarray(leaf) for leaf in leaves]
    except TypeError as error:
        raise StateError(f"{what} holds something that is no array: {error}") from error
    if any(jnp.issubdtype(array.dtype, jax.dtypes.extended) for array in arrays):
        raise StateError(f"{what} holds random keys of the new kind: pass jax.random.key_data(key), and wrap it again")
    return arrays, structure
