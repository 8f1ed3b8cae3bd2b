"""A user's step compiled into what the engine needs: spans of steps run forward, and spans differentiated."""

import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from forebay.jax.devices import Leaves
from forebay.jax.nest import Lengths, segments
from forebay.jax.traced_step import TracedStep, Trees

Differentiated = tuple[list[Any], list[Any], list[Any]]
"""Gradients of the state before a span, of all inputs so far, and of the parameters so far."""


def is_inexact(leaf: Any) -> bool:
    """Tell whether a leaf can have a gradient."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


class CompiledStep:
    """The functions made of a step as it was traced, each compiled when it is first called."""

    def __init__(self, traced: TracedStep, count: int) -> None:
        self.traced, self.once, self.count = traced, traced.once, count
        self.decisions: dict[Hashable, Any] = {}
        """what was decided for loops of this step, by what that depends on"""
        self.forward = jax.jit(self._forward)
        self.forward_putting_out = jax.jit(self._forward_putting_out, donate_argnums=1)
        self.back = jax.jit(self._back, static_argnums=0, donate_argnums=6)
        self.whole = jax.jit(partial(self.scan, self.count, 0))
        self.nested = jax.jit(self._nested, static_argnums=0)
        self.nested_back = jax.jit(self._nested_back, static_argnums=0)

    def _forward(self, state: Leaves, start: Any, stop: Any, inputs: Leaves, params: Leaves) -> list[Any]:
        def body(t: Any, state: Leaves) -> Leaves:
            return self.once(state, t, [_at(x, t) for x in inputs], params)[0]

        return list(lax.fori_loop(_time(start), _time(stop), body, list(state)))

    def _forward_putting_out(
        self, state: Leaves, outputs: Leaves, start: Any, stop: Any, inputs: Leaves, params: Leaves
    ) -> tuple[list[Any], list[Any]]:
        def body(t: Any, carried: tuple[Leaves, Leaves]) -> tuple[Leaves, Leaves]:
            new, output = self.once(carried[0], t, [_at(x, t) for x in inputs], params)
            pairs = zip(carried[1], output, strict=True)
            return new, [lax.dynamic_update_index_in_dim(whole, output, t, 0) for whole, output in pairs]

        state, outputs = lax.fori_loop(_time(start), _time(stop), body, (list(state), list(outputs)))
        return list(state), list(outputs)

    def scan(
        self, length: int, start: Any, state: Leaves, inputs: Leaves, params: Leaves
    ) -> tuple[list[Any], list[Any]]:
        """Run a span in a way that can be differentiated; `inputs` are those of its steps."""

        def body(state: Leaves, now: tuple[Any, Leaves]) -> tuple[Leaves, Leaves]:
            return self.once(state, *now, params)

        times = _time(start) + jnp.arange(length, dtype=jnp.int32)
        state, outputs = lax.scan(body, list(state), (times, list(inputs)))
        return list(state), list(outputs)

    def _segment(
        self, lengths: Lengths, start: Any, state: Leaves, inputs: Leaves, params: Leaves
    ) -> tuple[list[Any], list[Any]]:
        """Run a span that, differentiated, keeps the first states of its segments alone, level by level."""
        if len(lengths) == 1:
            return self.scan(lengths[0], start, state, inputs, params)
        each, count = lengths[1], lengths[0] // lengths[1]

        def body(state: Leaves, now: tuple[Any, Leaves]) -> tuple[list[Any], list[Any]]:
            return self._segment(lengths[1:], now[0], state, now[1], params)

        starts = _time(start) + each * jnp.arange(count, dtype=jnp.int32)
        folded = [x.reshape(count, each, *x.shape[1:]) for x in inputs]
        # Its barriers are not needed inside of a scan, and yet XLA made steps of them that were 6 % faster on a GPU.
        state, outputs = lax.scan(jax.checkpoint(body), list(state), (starts, folded))
        return list(state), [x.reshape(lengths[0], *x.shape[2:]) for x in outputs]

    def _nested(
        self, lengths: Lengths, state: Leaves, inputs: Leaves, params: Leaves
    ) -> tuple[tuple[list[Any], list[Any]], list[list[Any]]]:
        """Run the whole loop, and keep the first states of the outermost segments."""
        kinds = self.traced.jaxpr.out_avals[len(state) :]
        carried = list(state), [jnp.zeros((self.count, *kind.shape), kind.dtype) for kind in kinds]
        kept = []
        for starts, inner in self._outermost(lengths):

            def body(carried: Any, start: Any, inner: Lengths = inner) -> Any:
                state, outputs = carried
                slices = [lax.dynamic_slice_in_dim(x, start, inner[0]) for x in inputs]
                new, segment_outputs = self._segment(inner, start, state, slices, params)
                pairs = zip(outputs, segment_outputs, strict=True)
                return (
                    new,
                    [lax.dynamic_update_slice_in_dim(whole, output, start, 0) for whole, output in pairs],
                ), state

            carried, first = lax.scan(body, carried, starts)
            kept.append(first)
        return carried, kept

    def _nested_back(
        self,
        lengths: Lengths,
        kept: Sequence[Leaves],
        inputs: Leaves,
        params: Leaves,
        cotangents: tuple[Leaves, Leaves],
    ) -> Differentiated:
        """Differentiate the whole loop from what was kept of it, with cotangents of its final state and outputs."""
        zeros = [[jnp.zeros_like(leaf) for leaf in leaves if is_inexact(leaf)] for leaves in (inputs, params)]
        carried: Differentiated = list(cotangents[0]), zeros[0], zeros[1]
        for (starts, inner), first in zip(reversed(self._outermost(lengths)), reversed(kept), strict=True):

            def body(carried: Differentiated, now: Any, inner: Lengths = inner) -> tuple[Differentiated, None]:
                start, state = now
                of_state, of_inputs, of_params = carried
                so_far = of_inputs, of_params
                return self._back(inner, state, start, inputs, params, (of_state, cotangents[1]), so_far), None

            carried, _ = lax.scan(body, carried, (starts, first), reverse=True)
        return carried

    def _outermost(self, lengths: Lengths) -> list[tuple[Any, Lengths]]:
        """List where the outermost segments start, and the lengths in them."""
        outermost, start = [], 0
        for count, inner in segments(self.count, lengths):
            outermost.append((start + inner[0] * jnp.arange(count, dtype=jnp.int32), inner))
            start += count * inner[0]
        return outermost

    def _back(
        self,
        lengths: Lengths,
        state: Leaves,
        start: Any,
        inputs: Leaves,
        params: Leaves,
        cotangents: tuple[Leaves, Leaves],
        so_far: tuple[Leaves, Leaves],
    ) -> Differentiated:
        """Differentiate a span of steps.

        `cotangents` are gradients of the state after it and of all outputs, `so_far` those of all inputs and of
        parameters.
        """
        start, length = _time(start), lengths[0]
        slices = [lax.dynamic_slice_in_dim(x, start, length) for x in inputs]

        def span(state: Leaves, slices: Leaves, params: Leaves) -> tuple[list[Any], list[Any]]:
            final, outputs = self._segment(lengths, start, state, slices, params)
            return [leaf for leaf in final if is_inexact(leaf)], [leaf for leaf in outputs if is_inexact(leaf)]

        _, pull = jax.vjp(*_freed(span, (state, slices, params)))
        of_outputs = [lax.dynamic_slice_in_dim(gradient, start, length) for gradient in cotangents[1]]
        of_state, of_slices, of_params = pull((list(cotangents[0]), of_outputs))
        of_inputs = [
            lax.dynamic_update_slice_in_dim(whole, gradient, start, 0)
            for whole, gradient in zip(so_far[0], of_slices, strict=True)
        ]
        sums = [whole + gradient for whole, gradient in zip(so_far[1], of_params, strict=True)]
        return list(of_state), of_inputs, sums


def _time(step: Any) -> Any:
    """Cast a step's number to the type that it has in every span: with x64, JAX would take others here and there."""
    return jnp.asarray(step, jnp.int32)


def _at(array: Any, index: Any) -> Any:
    return lax.dynamic_index_in_dim(array, index, 0, keepdims=False)


def _freed(span: Callable[..., Any], arguments: Sequence[Leaves]) -> tuple[Any, ...]:
    """Make a function of those arguments alone that can have gradients, and return it with them."""

    def of_inexact(*groups: Leaves) -> Any:
        filled = []
        for leaves, inexact in zip(arguments, groups, strict=True):
            left = iter(inexact)
            filled.append([next(left) if is_inexact(leaf) else leaf for leaf in leaves])
        return span(*filled)

    return of_inexact, *([leaf for leaf in leaves if is_inexact(leaf)] for leaves in arguments)


_compiled: dict[int, tuple["weakref.ref[Any]", dict[Hashable, CompiledStep]]] = {}


def compiled_for(step: Callable[..., Any], count: int, trees: Trees, traced: TracedStep) -> CompiledStep:
    """Return what was compiled of a step before, where it still does the same; it is kept as long as the step lives.

    For a method that is as long as its object lives.
    """
    owner, part = (step.__self__, step.__func__) if isinstance(step, types.MethodType) else (step, None)
    key, address = (part, count, trees, traced.kinds), id(owner)
    try:
        hash((step if part is None else part, key))
        refer = weakref.ref(owner, lambda _: _compiled.pop(address, None))
    except TypeError:  # nothing tells when it is gone
        return CompiledStep(traced, count)
    if not traced.lasts:
        return CompiledStep(traced, count)
    _, versions = _compiled.setdefault(address, (refer, {}))
    if key not in versions or not versions[key].traced.is_like(traced):
        versions[key] = CompiledStep(traced, count)
    return versions[key]
