"""The loop as one operation of JAX: forward to the turn, a wait for the gradients, and back."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from penstock.engine import Result
from penstock.engine.reversal import Reversal
from penstock.engine.reverse import prepare, shown
from penstock.errors import StateError
from penstock.jax.compiled import Compiled, Leaves, is_inexact
from penstock.jax.decide import Request, check, check_plan, decide, fits_whole, graph_bytes, to_host
from penstock.planner import Plan


class Call:
    """One call of `checkpointed`."""

    def __init__(
        self,
        compiled: Compiled,
        request: Request,
        plan: Plan | None,
        progress: bool | None,
        report: Callable[[Result], None] | None,
    ) -> None:
        self.compiled, self.request, self.plan, self.progress, self.report = compiled, request, plan, progress, report

    def differentiable(self) -> Callable[..., Any]:
        """Give the loop as a function of leaves that JAX can differentiate."""
        loop = jax.custom_vjp(self.compiled.whole)
        loop.defvjp(self._forward, self._back)
        differentiable: Callable[..., Any] = loop
        return differentiable

    def _forward(self, state: Leaves, inputs: Leaves, params: Leaves) -> tuple[Any, Any]:
        compiled, request = self.compiled, self.request
        if self.plan is None:
            check(compiled, request, state)
            shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in (*state, *inputs, *params))
            asked = (request.budget, repr(request.costs), str(request.schedule), repr(request.codec), request.chunk)
            key = (*asked, str(request.directory), shapes)
            decided: Plan | str | None = compiled.plans.get(key)
            if decided is None:
                graph = graph_bytes(compiled, state, inputs, params)
                if fits_whole(compiled, request, graph, state):
                    decided = "whole"
                else:
                    _check_concrete(state, inputs, params)
                    decided = decide(compiled, request, graph, state, inputs, params)
                compiled.plans[key] = decided
            if isinstance(decided, str):
                results, pull = jax.vjp(compiled.whole, state, inputs, params)
                return results, pull
            plan = decided
        else:
            check_plan(self.plan, request.chunk)
            plan = self.plan
        _check_concrete(state, inputs, params)
        waiting = _Waiting(self, plan, *_run_forward(self, plan, state, inputs, params, True))
        results = waiting.sweep.results
        waiting.sweep.results = ([], [])
        return results, (_Held(waiting), state, inputs, params)

    def _back(self, kept: Any, given: tuple[Leaves, Leaves]) -> tuple[list[Any], ...]:
        if not isinstance(kept, tuple):  # of the whole loop
            pulled: tuple[list[Any], ...] = kept(given)
            return pulled
        held, *arguments = kept
        found: tuple[list[Any], ...] = held.waiting.back(arguments, given)
        return found


class _Sweep:
    """The two callbacks of a reversal; it does not know the reversal, so that giving up the one frees the other."""

    def __init__(self, compiled: Compiled, chunk: int, inputs: Leaves, params: Leaves, first: bool) -> None:
        self._compiled, self._chunk, self._inputs, self._params, self._first = compiled, chunk, inputs, params, first
        self._outputs: list[Any] | None = None
        self.results: tuple[list[Any], list[Any]] = ([], [])

    def forward(self, state: Leaves, start: int, stop: int, replay: bool) -> tuple[Any, ...]:
        """Run a span of steps on the device."""
        compiled, leaves = self._compiled, [jnp.array(array) for array in state]
        if replay or not self._first or not compiled.trees.returns_outputs:
            leaves = compiled.forward(leaves, start, stop, self._inputs, self._params)
        else:
            if self._outputs is None:
                shapes = jax.eval_shape(compiled.whole, leaves, self._inputs, self._params)[1]
                self._outputs = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
            leaves, self._outputs = compiled.forward_putting_out(
                leaves, self._outputs, start, stop, self._inputs, self._params
            )
        return to_host(leaves)

    def turn(self, final: Leaves) -> None:
        """Take the final state over."""
        self.results = [jnp.array(array) for array in final], self._outputs or []
        self._outputs = None

    def start_back(self, of_final: Leaves, of_outputs: Leaves) -> None:
        """Take the gradients to start from, those of integers left out."""
        self.of_state = [gradient for gradient in of_final if gradient.dtype != jax.dtypes.float0]
        self._of_outputs = [gradient for gradient in of_outputs if gradient.dtype != jax.dtypes.float0]
        self.of_inputs, self.of_params = (
            [jnp.zeros_like(leaf) for leaf in leaves if is_inexact(leaf)] for leaves in (self._inputs, self._params)
        )

    def backward(self, state: Leaves, start: int) -> None:
        """Differentiate a span of steps on the device, and wait for it: the state is not ours for longer."""
        length = min(self._chunk, self._compiled.count - start)
        self.of_state, self.of_inputs, self.of_params = jax.block_until_ready(
            self._compiled.back(
                length,
                [jnp.array(array) for array in state],
                start,
                self._inputs,
                self._params,
                (self.of_state, self._of_outputs),
                (self.of_inputs, self.of_params),
            )
        )


def _run_forward(
    call: Call, plan: Plan, state: Leaves, inputs: Leaves, params: Leaves, first: bool
) -> tuple[_Sweep, Reversal]:
    sweep = _Sweep(call.compiled, plan.every, inputs, params, first)
    reversal = prepare(
        sweep.forward,
        sweep.backward,
        to_host(state),
        call.compiled.count,
        every=plan.every,
        plan=plan,
        budget=call.request.budget,
        codec=call.request.codec,
        directory=call.request.directory,
    )
    try:
        sweep.turn(reversal.forward())
        reversal.wait()
    except BaseException:
        reversal.give_up()
        raise
    return sweep, reversal


class _Waiting:
    """A loop at its turn, until its gradients come."""

    def __init__(self, call: Call, plan: Plan, sweep: _Sweep, reversal: Reversal) -> None:
        self._call, self._plan, self.sweep = call, plan, sweep
        self._reversal: Reversal | None = reversal

    def back(self, arguments: Sequence[Leaves], given: tuple[Leaves, Leaves]) -> tuple[list[Any], ...]:
        """Go back from the turn; where that has been done before, run forward anew first."""
        sweep, reversal = self.sweep, self._reversal
        self._reversal = None
        _check_concrete(*arguments, *given)
        if reversal is None:
            state, inputs, params = arguments
            sweep, reversal = _run_forward(self._call, self._plan, state, inputs, params, False)
        try:
            reversal.resume()
            sweep.start_back(*given)
            with shown(self._plan, self._call.progress) as tick:
                result = reversal.backward(tick)
        finally:
            reversal.give_up()
        if self._call.report is not None:
            self._call.report(result)
        found = iter([*sweep.of_state, *sweep.of_inputs, *sweep.of_params])
        return tuple(
            [next(found) if is_inexact(leaf) else np.zeros(leaf.shape, jax.dtypes.float0) for leaf in leaves]
            for leaves in arguments
        )


class _Held:
    """Carries what waits through JAX, which takes it for a pytree without leaves."""

    def __init__(self, waiting: _Waiting) -> None:
        self.waiting = waiting


jax.tree_util.register_pytree_node(_Held, lambda held: ((), held.waiting), lambda waiting, _: _Held(waiting))


def _check_concrete(*several: Leaves) -> None:
    if any(isinstance(leaf, jax.core.Tracer) for leaves in several for leaf in leaves):
        raise StateError(
            "a checkpointed loop moves states between compiled spans of steps, which cannot be done inside of jax.jit, "
            "vmap or a second derivative: differentiate outside of them (the steps are compiled anyway)"
        )
