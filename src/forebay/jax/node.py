"""The loop as one operation of JAX: forward to the turn, a wait for the gradients, and back."""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from forebay.engine import Result
from forebay.engine.loop import Trusted
from forebay.engine.recorded import Request
from forebay.engine.reversal import Reversal
from forebay.errors import StateError
from forebay.jax.compiled_step import CompiledStep, is_inexact
from forebay.jax.decision import OnDevice, PlannedLoop, check_concrete, decide
from forebay.jax.devices import Leaves, Places, current_mesh, device_of, is_traced, to_host, where
from forebay.jax.nest import Lengths

_log = logging.getLogger("forebay.jax")


@dataclass(frozen=True)
class CheckpointedCall:
    """One call of `checkpointed`."""

    compiled: CompiledStep
    returns_outputs: bool
    request: Request
    allowed: int | None
    """bytes of an accelerator; None where half of what is free there may be taken"""
    progress: bool | None
    report: Callable[[Result], None] | None

    def differentiable(self) -> Callable[..., Any]:
        """Return the loop as a function of leaves that JAX can differentiate."""
        loop = jax.custom_vjp(self.compiled.whole)
        loop.defvjp(self._forward, self._back)
        differentiable: Callable[..., Any] = loop
        return differentiable

    def _forward(self, state: Leaves, inputs: Leaves, params: Leaves) -> tuple[Any, Any]:
        with current_mesh():
            decided = self._decided(state, inputs, params)
        if isinstance(decided, OnDevice):
            if any(map(is_traced, (*state, *inputs, *params))):
                _when_batched(decided.times)(jax.lax.stop_gradient((state, inputs, params)))
            if not decided.lengths:
                results, pull = jax.vjp(self.compiled.whole, state, inputs, params)
                return results, pull
            with current_mesh():
                results, kept = self.compiled.nested(decided.lengths, state, inputs, params)
            return results, _Nested(decided.lengths, kept, (state, inputs, params))
        check_concrete(state, inputs, params)
        with current_mesh():
            waiting = _Waiting(self, decided, *_run_forward(self, decided, state, inputs, params, True))
        results = waiting.sweep.results
        waiting.sweep.results = ([], [])
        return results, (_WaitingNode(waiting), state, inputs, params)

    def _decided(self, state: Leaves, inputs: Leaves, params: Leaves) -> PlannedLoop | OnDevice:
        leaves = (*state, *inputs, *params)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        loops = _loops_at_once(leaves)
        key: Hashable = (self.request.key(), self.allowed, loops, any(map(is_traced, leaves)), shapes, where(leaves))
        decisions = self.compiled.decisions
        try:
            if (earlier := decisions.get(key)) is not None:
                decided_before: PlannedLoop | OnDevice = earlier
                return decided_before
        except TypeError:  # a schedule of another library
            key = None
        if self.request.plan is not None:
            decided: PlannedLoop | OnDevice = PlannedLoop.of(self.request.plan)
        else:
            decided = decide(self.compiled, self.request, self.allowed, loops, state, inputs, params)
            if isinstance(decided, OnDevice):
                _log.info(decided.explain(self.compiled.count))
        if key is not None:
            decisions[key] = decided
        return decided

    def _back(self, kept: Any, cotangents: tuple[Leaves, Leaves]) -> tuple[list[Any], ...]:
        if isinstance(kept, _Nested):
            _, inputs, params = kept.arguments
            with current_mesh():
                gradients = self.compiled.nested_back(
                    kept.lengths, kept.states, inputs, params, _without_integers(cotangents)
                )
            return _filled(kept.arguments, gradients)
        if not isinstance(kept, tuple):  # of the whole loop
            pulled: tuple[list[Any], ...] = kept(cotangents)
            return pulled
        held, *arguments = kept
        with current_mesh():
            back: tuple[list[Any], ...] = held.waiting.back(arguments, cotangents)
        return back


def _loops_at_once(leaves: Leaves) -> int:
    """Return how many loops vmap runs at once, where it tells by now."""
    counts = [1]
    if not any(map(is_traced, leaves)):
        return 1
    _when_batched(counted=counts.append)(jax.lax.stop_gradient(list(leaves)))
    return counts[-1]


def _when_batched(
    most: float = float("inf"), counted: Callable[[int], None] = lambda loops: None, loops: int = 1
) -> Callable[[Any], Any]:
    """Make a function that vmap tells, now or later, how many loops there are at once, and that refuses too many."""

    @custom_vmap  # type: ignore[untyped-decorator]
    def alone(leaves: Any) -> Any:
        return jnp.zeros(())

    @alone.def_vmap  # type: ignore[untyped-decorator]
    def batched(size: int, is_batched: Any, leaves: Any) -> Any:
        counted(loops * size)
        if loops * size > most:
            raise StateError(
                f"vmap takes the memory of {loops * size} loops at once, which do not fit the budget: differentiate "
                "outside of it, or give the loop a state with one more axis"
            )
        ones = jax.tree.map(lambda leaf, batched: leaf[0] if batched else leaf, leaves, is_batched[0])
        return _when_batched(most, counted, loops * size)(ones), False

    batching: Callable[[Any], Any] = alone
    return batching


def _without_integers(cotangents: tuple[Leaves, Leaves]) -> tuple[list[Any], list[Any]]:
    """Leave the gradients of integers out."""
    of_final, of_outputs = (
        [gradient for gradient in leaves if gradient.dtype != jax.dtypes.float0] for leaves in cotangents
    )
    return of_final, of_outputs


def _filled(arguments: Sequence[Leaves], gradients: Sequence[Leaves]) -> tuple[list[Any], ...]:
    """Put in those of integers again."""
    left = iter([gradient for leaves in gradients for gradient in leaves])
    return tuple(
        [next(left) if is_inexact(leaf) else np.zeros(leaf.shape, jax.dtypes.float0) for leaf in leaves]
        for leaves in arguments
    )


class _Sweep:
    """The two callbacks of a reversal; it does not know the reversal, so that giving up the one frees the other."""

    def __init__(
        self, call: CheckpointedCall, course: PlannedLoop, state: Leaves, inputs: Leaves, params: Leaves, first: bool
    ) -> None:
        self._compiled, self._course = call.compiled, course
        self._outputs: list[Any] | None = None
        self._state, self._inputs, self._params = list(state), inputs, params
        self._places = Places(state, device_of((*state, *inputs, *params)))
        if first and call.returns_outputs:
            shapes = jax.eval_shape(call.compiled.whole, state, inputs, params)[1]
            self._outputs = [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
            # Compiled before the reversal's clock starts.
            arguments = (self._state, self._outputs, 0, call.compiled.count, inputs, params)
            call.compiled.forward_putting_out.lower(*arguments).compile()
        self._last: tuple[Leaves, list[Any]] = ((), [])
        self.results: tuple[list[Any], list[Any]] = ([], [])

    def forward(self, state: Leaves, start: int, stop: int, replay: bool) -> tuple[Any, ...]:
        """Run a span of steps on the device; the new state stays there unless it will be kept."""
        compiled, leaves = self._compiled, self._there(state, start)
        if replay or self._outputs is None:
            leaves = compiled.forward(leaves, start, stop, self._inputs, self._params)
        else:
            leaves, self._outputs = compiled.forward_putting_out(
                leaves, self._outputs, start, stop, self._inputs, self._params
            )
        saved = self._course.saved
        new = to_host(leaves) if saved is None or stop in saved else Trusted(jax.block_until_ready(leaves))
        self._last = new, leaves
        return new

    def _there(self, state: Leaves, start: int) -> list[Any]:
        """Return a state on the device, where it may still be."""
        if start == 0:
            return self._state
        last, leaves = self._last  # whose arrays nobody writes to, in whatever tree they come
        is_last = len(state) == len(last) and all(map(is_, state, last))
        return leaves if is_last else self._places.put(state)

    def turn(self, final: Leaves) -> None:
        """Take the final state over."""
        self.results = self._there(final, self._compiled.count), self._outputs or []
        self._outputs = None

    def start_back(self, of_final: Leaves, of_outputs: Leaves) -> None:
        """Take the gradients to start from, those of integers left out, and compile before the clock goes on."""
        of_state, self._of_outputs = _without_integers((of_final, of_outputs))
        of_inputs, of_params = (
            [jnp.zeros_like(leaf) for leaf in leaves if is_inexact(leaf)] for leaves in (self._inputs, self._params)
        )
        self.gradients = of_state, of_inputs, of_params
        count, every = self._compiled.count, self._course.plan.every
        for length in {every, count % every or every}:
            self._compiled.back.lower((length,), self._state, 0, *self._beside()).compile()

    def _beside(self) -> tuple[Any, ...]:
        """Return what a span is differentiated with beside its state and time."""
        of_state, *summed = self.gradients
        return self._inputs, self._params, (of_state, self._of_outputs), tuple(summed)

    def backward(self, state: Leaves, start: int) -> None:
        """Differentiate a span of steps on the device, while the next snapshot is on its way where that can be."""
        length = min(self._course.plan.every, self._compiled.count - start)
        leaves = self._there(state, start)
        jax.block_until_ready(self.gradients)  # one at a time: each has its graph
        self.gradients = self._compiled.back((length,), leaves, start, *self._beside())
        if start in self._course.followed or start == 0:
            jax.block_until_ready(self.gradients)  # or the steps that follow would seem to take this long too


def _run_forward(
    call: CheckpointedCall, course: PlannedLoop, state: Leaves, inputs: Leaves, params: Leaves, first: bool
) -> tuple[_Sweep, Reversal]:
    sweep = _Sweep(call, course, state, inputs, params, first)
    reversal = call.request.prepare(sweep.forward, to_host(state), call.compiled.count, course.plan, course.note)
    reversal.forward(sweep.turn)
    return sweep, reversal


class _Waiting:
    """A loop at its turn, until its gradients come."""

    def __init__(self, call: CheckpointedCall, course: PlannedLoop, sweep: _Sweep, reversal: Reversal) -> None:
        self._call, self._course, self.sweep = call, course, sweep
        self._reversal: Reversal | None = reversal

    def back(self, arguments: Sequence[Leaves], cotangents: tuple[Leaves, Leaves]) -> tuple[list[Any], ...]:
        """Go back from the turn; where that has been done before, run forward anew first."""
        sweep, reversal = self.sweep, self._reversal
        self._reversal = None
        check_concrete(*arguments, *cotangents)
        if reversal is None:
            state, inputs, params = arguments
            sweep, reversal = _run_forward(self._call, self._course, state, inputs, params, False)
        with reversal:
            sweep.start_back(*cotangents)
            result = reversal.backward(sweep.backward, self._call.progress)
        if self._call.report is not None:
            self._call.report(result)
        return _filled(arguments, sweep.gradients)


class _WaitingNode:
    """Carries what waits through JAX, which takes it for a pytree without leaves."""

    def __init__(self, waiting: _Waiting) -> None:
        self.waiting = waiting


jax.tree_util.register_pytree_node(
    _WaitingNode, lambda held: ((), held.waiting), lambda waiting, _: _WaitingNode(waiting)
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Nested:
    """What a nested loop leaves for the way back."""

    lengths: Lengths = field(metadata={"static": True})
    states: list[list[Any]]
    """the first ones of its outermost segments"""
    arguments: tuple[Leaves, ...]
