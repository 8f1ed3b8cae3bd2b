"""A user's step as JAX sees it now: its operations on flat leaves, and the constants that it closes over."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from forebay.errors import StateError
from forebay.jax.devices import Leaves, is_traced, placed

CLOSED_OVER = "the step closes over a value that is being differentiated: pass it in params="


@dataclass(frozen=True)
class Trees:
    """How the arguments and results of a step are built."""

    state: Any
    inputs: Any
    """None where there are none"""
    params: Any
    returns_outputs: bool


@dataclass(frozen=True, eq=False)
class TracedStep:
    """A step that was traced without running it; the step itself may change afterwards, this does not."""

    jaxpr: Any
    """from the leaves of state, time, inputs and params to those of the new state and the output"""
    kinds: Hashable
    """of the leaves that it was traced for"""
    text: str
    """its operations, with the numbers in them"""
    constants: Sequence[Any]
    """the arrays in them, as they were"""
    output: Any
    """how the output of a step is built"""

    @property
    def lasts(self) -> bool:
        """That it can be used after the trace in which it was made."""
        return not any(map(is_traced, self.constants))

    def once(self, state: Leaves, t: Any, inputs: Leaves, params: Leaves) -> tuple[list[Any], list[Any]]:
        """Run one step, and return the leaves of the new state and of its output."""
        results = jaxpr_as_fun(self.jaxpr)(*state, t, *inputs, *params)
        leaves = [jnp.asarray(leaf, kind.dtype) for leaf, kind in zip(results, self.jaxpr.out_avals, strict=True)]
        return leaves[: len(state)], leaves[len(state) :]

    def is_like(self, other: "TracedStep") -> bool:
        """Tell whether both do the same with the same constants."""
        pairs = zip(self.constants, other.constants, strict=False)
        alike = self.text == other.text and len(self.constants) == len(other.constants) and self.output == other.output
        return alike and all(_are_equal(constant, other_constant) for constant, other_constant in pairs)


def trace(step: Callable[..., Any], trees: Trees, state: Leaves, inputs: Leaves, params: Leaves) -> TracedStep:
    """Trace a step anew, refusing one that closes over what is differentiated or changes the state's shapes."""
    unflatten, flatten = jax.tree_util.tree_unflatten, jax.tree_util.tree_flatten
    built: list[Any] = []

    def flat(state: Leaves, t: Any, inputs: Leaves, params: Leaves) -> list[Any]:  # made anew: JAX keeps traces
        step_inputs = () if trees.inputs is None else (unflatten(trees.inputs, inputs),)
        new, output = step(unflatten(trees.state, state), t, *step_inputs, *unflatten(trees.params, params)), None
        if trees.returns_outputs:
            if not isinstance(new, tuple) or len(new) != 2:
                raise StateError(f"with outputs=True the step returns (state, output), not a {type(new).__name__}")
            new, output = new
        (leaves, structure), (others, of_output) = flatten(new), flatten(output)
        built[:] = structure, len(leaves), of_output
        return [*leaves, *others]

    slices = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in inputs]
    time = jax.ShapeDtypeStruct((), jnp.int32)
    jaxpr = jax.make_jaxpr(flat)(list(state), time, slices, list(params))
    structure, count, of_output = built
    returned = [(kind.shape, str(kind.dtype)) for kind in jaxpr.out_avals[:count]]
    wanted = [(leaf.shape, str(leaf.dtype)) for leaf in state]
    if structure != trees.state or returned != wanted:
        raise StateError(f"the step returned {structure} of {returned}, but the state is {trees.state} of {wanted}")
    # Arrays of NumPy may be changed later on; those of JAX may not.
    constants = [constant if isinstance(constant, jax.Array) else np.array(constant) for constant in _constants(jaxpr)]
    if any(is_traced(constant) and _has_gradient(constant) for constant in constants):
        raise StateError(CLOSED_OVER)
    kinds = tuple((leaf.shape, str(leaf.dtype), leaf.weak_type) for leaf in (*state, *inputs, *params))
    return TracedStep(jaxpr, kinds, str(jaxpr), constants, of_output)


def _constants(part: Any) -> Iterator[Any]:
    """Find the arrays in a jaxpr, and in those of the functions that are compiled by themselves in it."""
    if isinstance(part, ClosedJaxpr):
        yield from part.consts
        part = part.jaxpr
    if isinstance(part, Jaxpr):
        for equation in part.eqns:
            yield from (value for variable in equation.invars if np.ndim(value := getattr(variable, "val", 0)))
            for inner in equation.params.values():
                yield from _constants(inner)
    elif isinstance(part, tuple | list):
        for inner in part:
            yield from _constants(inner)


def _are_equal(first: Any, second: Any) -> bool:
    """Compare two constants: an array that was made again of the same numbers is the same."""
    if first is second:
        return True
    if first.shape != second.shape or first.dtype != second.dtype or type(first) is not type(second):
        return False
    if isinstance(first, jax.Array):
        if any(is_traced(each) or not each.is_fully_addressable for each in (first, second)):
            return False
        if placed(first) != placed(second):
            return False
        if jnp.issubdtype(first.dtype, jax.dtypes.extended):
            first, second = jax.random.key_data(first), jax.random.key_data(second)
    return np.asarray(first).tobytes() == np.asarray(second).tobytes()


def _has_gradient(tracer: Any) -> bool:
    """Tell whether a tracer follows a gradient: without one it is no longer of the same kind."""
    return type(jax.lax.stop_gradient(tracer)) is not type(tracer)
