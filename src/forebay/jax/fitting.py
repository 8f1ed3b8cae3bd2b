"""What a loop takes on the device, as the compiler says before anything is run, and a nest of it that fits."""

from dataclasses import replace
from typing import Any

import jax

from forebay.jax.compiled_step import CompiledStep, is_inexact
from forebay.jax.devices import Leaves, placed
from forebay.jax.nest import Lengths, Sizes, choose, least_bytes, nested_bytes

TRIES = 4
"""How many nests are compiled before the loop is found not to fit."""


def sizes_of(compiled: CompiledStep, state: Leaves, inputs: Leaves, params: Leaves) -> Sizes:
    """Return the bytes of a state, of each recorded step, and beside, as the compiler says; nothing is run."""
    long = min(4, compiled.count)
    short = max(1, min(2, long - 1))
    span_bytes = [_span_bytes(compiled, length, state, inputs, params) for length in (short, long) if short < long]
    graph = max(0, span_bytes[1] - span_bytes[0]) // (long - short) if span_bytes else 0
    beside = max(0, span_bytes[0] - short * graph) if span_bytes else 0
    return Sizes(_bytes_of(state), graph, _bytes_of([leaf for leaf in params if is_inexact(leaf)]), beside)


def _span_bytes(compiled: CompiledStep, length: int, state: Leaves, inputs: Leaves, params: Leaves) -> int:
    shapes = [_structs(leaves) for leaves in (state, inputs, params)]
    outputs = jax.eval_shape(compiled.whole, *shapes)[1]
    cotangents = [leaf for leaf in shapes[0] if is_inexact(leaf)], [leaf for leaf in outputs if is_inexact(leaf)]
    so_far = [leaf for leaf in shapes[1] if is_inexact(leaf)], [leaf for leaf in shapes[2] if is_inexact(leaf)]
    return (
        _temporary_bytes(compiled.back.lower((length,), shapes[0], 0, *shapes[1:], cotangents, so_far).compile()) or 0
    )


def fitted(
    compiled: CompiledStep, sizes: Sizes, room: int, state: Leaves, inputs: Leaves, params: Leaves
) -> tuple[Lengths | None, int]:
    """Find a nest for which the compiler takes no more than the room, and its bytes.

    Where none is found it is None, with the bytes of the smallest that was tried.
    """
    steps = compiled.count
    tried: list[int] = []
    for _ in range(TRIES):
        lengths = choose(steps, sizes, room)
        if lengths is None:
            break
        foreseen = nested_bytes(steps, lengths, sizes)
        taken = _compiled_bytes(compiled, lengths, state, inputs, params) or foreseen
        if taken <= room:
            return lengths, taken
        tried.append(taken)
        sizes = replace(sizes, beside=sizes.beside + taken - foreseen)  # which the next will take too
    return None, min(tried, default=0)


def least_room(compiled: CompiledStep, sizes: Sizes, state: Leaves, inputs: Leaves, params: Leaves) -> int:
    """Find the smallest room for a nest: what is foreseen, or what the compiler says of it instead."""
    room = least_bytes(compiled.count, sizes)
    while True:  # there is one nest of each number of levels: it ends with the largest at the latest
        lengths, taken = fitted(compiled, sizes, room, state, inputs, params)
        if lengths is not None or taken <= room:
            return room
        room = taken


def _compiled_bytes(
    compiled: CompiledStep, lengths: Lengths, state: Leaves, inputs: Leaves, params: Leaves
) -> int | None:
    """Compile a nest as it will be called, and return what it takes beside arguments and results, where known."""
    forward = compiled.nested.lower(lengths, state, inputs, params).compile()
    shapes = jax.eval_shape(lambda *leaves: compiled.nested(lengths, *leaves), state, inputs, params)
    if any(placed(leaf) is not None for leaf in (*state, *inputs, *params)):
        shapes = jax.tree.map(_put, shapes, forward.output_shardings)
    (final, outputs), kept = shapes
    cotangents = [leaf for leaf in final if is_inexact(leaf)], [leaf for leaf in outputs if is_inexact(leaf)]
    backward = compiled.nested_back.lower(lengths, kept, inputs, params, cotangents).compile()
    temporary = [_temporary_bytes(executable) for executable in (forward, backward)]
    if None in temporary:
        return None
    return max(nbytes for nbytes in temporary if nbytes is not None) + _bytes_of(jax.tree.leaves(kept))


def _put(leaf: Any, sharding: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def _temporary_bytes(executable: Any) -> int | None:
    """Return what the compiler takes beside arguments and results; None where it does not say."""
    analysis = executable.memory_analysis()
    return None if analysis is None else int(analysis.temp_size_in_bytes)


def _structs(leaves: Leaves) -> list[Any]:
    return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type) for leaf in leaves]


def _bytes_of(leaves: Leaves) -> int:
    return sum(int(leaf.size) * int(leaf.dtype.itemsize) for leaf in leaves)
