"""Functions over the chunks of Cubed arrays, with what they need told to Cubed before anything runs.

Cubed counts the chunks that a task reads and writes, and the copies that storage makes of them; what the function needs
besides is ``extra_projected_mem``, which its users otherwise work out by hand.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from cubed.array.overlap import map_overlap as cubed_map_overlap
from cubed.core.ops import map_blocks as cubed_map_blocks
from cubed.primitive.memory import get_buffer_copies

from forebay.errors import BudgetError
from forebay.footprint.chunks.need import is_whole
from forebay.footprint.chunks.plan import plan_chunks
from forebay.footprint.chunks.predictor import Predictor, input_bytes, output_bytes
from forebay.footprint.estimate import Estimate
from forebay.footprint.registry import key_of, model_of

Shape = tuple[int, ...]


def extra_projected_mem(model: Predictor, chunks: Sequence[int], halo: Sequence[int] | None = None) -> int:
    """Return what a function needs beyond the chunk it reads and the chunk it writes.

    Parameters
    ----------
    model : Model
        Of the function.
    chunks : sequence of int
        The shape of a chunk.
    halo : sequence of int, optional
        Elements that a chunk takes from its neighbours, on each side of an axis.
    """
    shape = _with_halo(tuple(chunks), halo)
    estimate = model.predict(shape)
    assembled = 0 if halo is None else input_bytes(model, shape)
    output = 0 if estimate.output_shape is None else output_bytes(estimate)
    return assembled + max(0, estimate.upper - output)


def chunks_for(
    func: Callable[..., Any],
    array: Any,
    *,
    model: Predictor | str | Path | None = None,
    halo: int | Sequence[int] | None = None,
    whole: Sequence[int] = (),
    **options: Any,
) -> Shape:
    """Choose the chunks in which Cubed's projected memory stays within what its spec allows.

    Parameters
    ----------
    func : callable
        Takes a chunk and returns an array.
    array : cubed.Array
        What it is to run over.
    model : Model or path, optional
        What is known of the function; a path is loaded, or learned and saved. Learned for this process otherwise.
    halo : int or sequence of int, optional
        Elements that a chunk takes from its neighbours, on each side of an axis.
    whole : sequence of int
        Axes that must not be cut.
    **options :
        For the function.
    """
    learned = model_of(func, (array,), model, options, key_of(func, (array,), options), smallest=1)
    copies = get_buffer_copies(array.spec)
    budget = array.spec.allowed_mem - array.spec.reserved_mem
    if budget <= 0:
        raise BudgetError("the spec allows no more memory than it reserves: give Spec(allowed_mem=...) more than that")
    stored = array.chunksize if any(np.array(array.chunksize) < array.shape) else None
    return plan_chunks(
        _WithStorageCopies(learned, copies.read, copies.write),
        array.shape,
        budget,
        halo=halo,
        stored_chunks=stored,
        whole=whole,
    ).chunks


def map_blocks(
    func: Callable[..., Any],
    *arrays: Any,
    model: Predictor | str | Path | None = None,
    dtype: Any = None,
    **options: Any,
) -> Any:
    """Do what `cubed.map_blocks` does, with ``extra_projected_mem`` and the dtype filled in from the model.

    Where a task would need more than is allowed, Cubed says so when the plan is made, before anything runs.

    Parameters
    ----------
    func : callable
        Takes chunks and returns one.
    *arrays : cubed.Array
        What it runs over.
    model : Model or path, optional
        As in `chunks_for`.
    dtype : dtype, optional
        Of the result, where the model does not know it.
    **options :
        For Cubed's ``map_blocks``, and for the function.
    """
    theirs = {"chunks", "drop_axis", "new_axis", "spec"}
    own = {name: value for name, value in options.items() if name not in theirs}
    learned = model_of(func, arrays, model, own, key_of(func, arrays, own), smallest=1)
    chunks = arrays[0].chunksize
    return cubed_map_blocks(
        func,
        *arrays,
        dtype=dtype or learned.predict(chunks).output_dtype,
        extra_projected_mem=extra_projected_mem(learned, chunks),
        **options,
    )


def map_overlap(
    func: Callable[..., Any],
    array: Any,
    *,
    depth: int | Sequence[int],
    model: Predictor | str | Path | None = None,
    dtype: Any = None,
    boundary: Any = 0,
    **options: Any,
) -> Any:
    """Do what `cubed.map_overlap` does, with ``extra_projected_mem`` filled in from the model.

    The function is given chunks with halos and trims them itself, as Cubed asks of it.
    """
    halo = tuple(depth) if isinstance(depth, Iterable) else (depth,) * array.ndim
    if not all(is_whole(width) and width >= 0 for width in halo):
        raise BudgetError(f"depth={depth}: give a whole number of elements, 0 or more, for each axis")
    learned = model_of(func, (array,), model, options, key_of(func, (array,), options), smallest=2 * max(halo) + 1)
    return cubed_map_overlap(
        func,
        array,
        dtype=dtype or learned.predict(_with_halo(array.chunksize, halo)).output_dtype,
        chunks=array.chunks,
        depth=dict(enumerate(halo)),
        boundary=boundary,
        trim=False,
        extra_projected_mem=extra_projected_mem(learned, array.chunksize, halo),
        **options,
    )


@dataclass(frozen=True)
class _WithStorageCopies:
    """A model that also counts the copies which storage makes of what is read and written."""

    model: Predictor
    read: int
    write: int

    @property
    def ndim(self) -> int:
        return self.model.ndim

    @property
    def dtype(self) -> Any:
        return self.model.dtype

    def input_bytes(self, shape: Shape) -> int:
        return input_bytes(self.model, shape)

    def predict(self, shape: Shape, /) -> Estimate:
        estimate = self.model.predict(shape)
        copies = self.read * input_bytes(self.model, shape) + self.write * output_bytes(estimate)
        return replace(estimate, upper=estimate.upper + copies)


def _with_halo(chunks: Shape, halo: Sequence[int] | None) -> Shape:
    pairs = zip(chunks, halo or (0,) * len(chunks), strict=True)
    return tuple(length + 2 * width for length, width in pairs)
