"""Functions over the blocks of Dask arrays, in chunks that the workers can hold."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import dask.config
import distributed
from dask.array.overlap import coerce_boundary, coerce_depth
from dask.base import annotate

from penstock.dask.limits import Limits, limits_of
from penstock.dask.measuring import Measured, Observation, observations_of, tighten
from penstock.errors import BudgetError, PlanError
from penstock.footprint.chunks import ChunkPlan, plan_chunks
from penstock.footprint.known import key_of, model_of
from penstock.footprint.need import Model
from penstock.units import to_bytes, to_text

WAITING = 1
"""Blocks that a worker fetches ahead of each thread; as many results wait to be handed on."""


def chunks_for(
    func: Callable[..., Any],
    array: Any,
    client: distributed.Client | None = None,
    *,
    budget: str | float = "auto",
    model: Model | str | Path | None = None,
    depth: Any = None,
    boundary: Any = None,
    whole: Sequence[int] = (),
    **options: Any,
) -> tuple[int, ...]:
    """Choose the chunks in which a function over the blocks of an array fits the workers.

    Parameters
    ----------
    func : callable
        Takes a block and gives an array.
    array : array
        Anything with shape and dtype: a Dask array, a Zarr array, a NumPy array.
    client : distributed.Client, optional
        Of the cluster; the current one where there is one, else this process.
    budget : str or number
        Bytes of one worker; "auto" asks the workers.
    model : Model or path, optional
        What is known of the function; a path is loaded, or learned and saved. Learned for this process otherwise.
    depth, boundary :
        As in `dask.array.map_overlap`.
    whole : sequence of int
        Axes that must not be cut.
    **options :
        For the function.
    """
    return _prepare(func, (array,), client, budget, model, depth, boundary, whole, options).plan.chunks


def map_blocks(
    func: Callable[..., Any],
    *arrays: Any,
    budget: str | float = "auto",
    model: Model | str | Path | None = None,
    client: distributed.Client | None = None,
    whole: Sequence[int] = (),
    measure: bool = True,
    **options: Any,
) -> Any:
    """Do what `dask.array.map_blocks` does, in chunks that fit the workers.

    The arrays are rechunked alike, dtype and chunks of the result come from the model, and blocks are measured while
    they run, so that the next call knows more. Other parameters are those of `chunks_for` and of Dask's ``map_blocks``.

    Parameters
    ----------
    measure : bool
        Whether blocks are measured while they run.
    """
    passed, own = _split(options, da.map_blocks)
    job = _prepare(func, arrays, client, budget, model, None, None, whole, own)
    cut = [job.cut(array) for array in arrays]
    with job.annotated():
        return da.map_blocks(job.run(measure), *cut, **job.described(cut[0]) | passed | own)


def map_overlap(
    func: Callable[..., Any],
    array: Any,
    depth: Any = None,
    boundary: Any = None,
    trim: bool = True,
    budget: str | float = "auto",
    model: Model | str | Path | None = None,
    client: distributed.Client | None = None,
    whole: Sequence[int] = (),
    measure: bool = True,
    **options: Any,
) -> Any:
    """Do what `dask.array.map_overlap` does, in chunks that fit the workers with their halos and neighbours.

    Parameters are those of `chunks_for` and `map_blocks`, and those of Dask's ``map_overlap``.
    """
    passed, own = _split(options, da.map_blocks)
    job = _prepare(func, (array,), client, budget, model, depth, boundary, whole, own)
    cut = job.cut(array)
    if trim:
        job.keeps_shape()
    passed = job.described(cut, halo=True) | passed
    with job.annotated():
        return da.map_overlap(job.run(measure), cut, depth=depth, boundary=boundary, trim=trim, **passed, **own)


def observed(
    func: Callable[..., Any], *arrays: Any, client: distributed.Client | None = None, **options: Any
) -> list[Observation]:
    """List what blocks of a function needed so far, each time one ran alone in its process.

    Parameters
    ----------
    func, *arrays, **options :
        As they were given to `map_blocks` or `map_overlap`.
    client : distributed.Client, optional
        Of the cluster on which they ran.
    """
    return observations_of(key_of(func, arrays, options), client or _current_client())


@dataclass(frozen=True)
class _Job:
    """A function, what is known of it, and the chunks that were chosen."""

    func: Callable[..., Any]
    key: str
    model: Model
    limits: Limits
    plan: ChunkPlan
    on_device: bool

    def run(self, measure: bool) -> Callable[..., Any]:
        return Measured(self.func, self.key) if measure and not self.on_device else self.func

    def described(self, array: Any, halo: bool = False) -> dict[str, Any]:
        """Say what the blocks of the result are, so that Dask need not try the function on arrays of no size."""
        estimate = self.model.predict(self.plan.chunks)
        if estimate.output_dtype is None or estimate.output_shape is None or len(estimate.output_shape) != array.ndim:
            return {}
        found: dict[str, Any] = {"dtype": estimate.output_dtype, "meta": array._meta.astype(estimate.output_dtype)}
        if not halo and estimate.output_shape != self.plan.chunks:
            found["chunks"] = tuple(
                tuple(self._output(axis, length) for length in row) for axis, row in enumerate(array.chunks)
            )
        return found

    def _output(self, axis: int, length: int) -> int:
        block = (*self.plan.chunks[:axis], length, *self.plan.chunks[axis + 1 :])
        shape = self.model.predict(block).output_shape
        assert shape is not None
        return shape[axis]

    def keeps_shape(self) -> None:
        """Make sure that blocks come out as they went in: Dask cuts the halo off without looking."""
        given = self.model.predict(self.plan.chunks).output_shape
        if given is not None and given != self.plan.chunks:
            raise PlanError(
                f"{self.key.rpartition('-')[0]} makes {given} of a block of {self.plan.chunks}, and its halo is cut "
                "off: pad the result to the shape of the block, or give trim=False"
            )

    def cut(self, array: Any) -> Any:
        """Cut an array that is none of Dask's, or rechunk it once it is sure that a worker can hold its chunks."""
        if not isinstance(array, da.Array):
            return da.from_array(array, chunks=self.plan.chunks)
        size = math.prod(array.chunksize) * array.dtype.itemsize
        if size > self.limits.budget:
            raise BudgetError(
                f"the array has chunks {array.chunksize} of {to_text(size)}, and a worker has "
                f"{to_text(self.limits.budget)} for its tasks: open it with the chunks that chunks_for() gives"
            )
        return array.rechunk(self.plan.chunks)

    @contextmanager
    def annotated(self) -> Iterator[None]:
        """Have tasks carry the bytes that they need, where workers declare what they have."""
        if self.limits.declared is None:
            yield
            return
        # Dask's fusion of single tasks drops what tasks carry; that of whole layers, which matters more, keeps it.
        dask.config.set({"optimization.fuse.active": False})
        need = (self.plan.need.input + self.plan.need.bound) // self.limits.threads
        # A task that asks for more than any worker has would wait for ever: with all of it, it runs alone.
        with annotate(resources={"memory": min(need, self.limits.declared)}):
            yield


def _prepare(
    func: Callable[..., Any],
    arrays: tuple[Any, ...],
    client: distributed.Client | None,
    budget: str | float,
    model: Model | str | Path | None,
    depth: Any,
    boundary: Any,
    whole: Sequence[int],
    options: dict[str, Any],
) -> _Job:
    if not arrays:
        raise BudgetError("give at least one array to cut into blocks")
    array = arrays[0]
    if any(other.shape != array.shape for other in arrays):
        raise BudgetError(
            f"arrays of shapes {[other.shape for other in arrays]} cannot be cut alike: broadcast them first"
        )
    client = client or _current_client()
    halo, padded = _halo(array.ndim, depth, boundary)
    key = key_of(func, arrays, options)
    known = model_of(func, arrays, model, options, key, smallest=2 * max(halo) + 1)
    on_device = getattr(known, "place", "host") == "device"
    if not on_device:
        known = tighten(known, observations_of(key, client))
    limits = limits_of(client, func)
    if budget != "auto":
        limits = Limits(to_bytes(budget), limits.threads, limits.workers, limits.declared)
    plan = plan_chunks(
        known,
        array.shape,
        limits.budget,
        threads=limits.threads,
        workers=limits.workers,
        halo=halo,
        padded=padded,
        stored_chunks=_stored(array),
        whole=whole,
        waiting=WAITING,
    )
    return _Job(func, key, known, limits, plan, on_device)


def _halo(ndim: int, depth: Any, boundary: Any) -> tuple[tuple[int, ...], bool]:
    """Read depth and boundary as Dask does: the wider side of each axis, and whether edges are padded."""
    if not depth:
        return (0,) * ndim, False
    depths, edges = coerce_depth(ndim, depth), coerce_boundary(ndim, boundary)
    halo = tuple(max(value) if isinstance(value, tuple) else int(value) for _, value in sorted(depths.items()))
    return halo, any(halo[axis] and edges.get(axis, "none") != "none" for axis in range(ndim))


def _stored(array: Any) -> tuple[int, ...] | None:
    """Give the chunks that an array has, where it is cut at all."""
    chunks = getattr(array, "chunksize", None) or getattr(array, "chunks", None)
    if chunks is None or not all(isinstance(length, int) for length in chunks):
        return None
    return tuple(chunks) if any(length < extent for length, extent in zip(chunks, array.shape, strict=True)) else None


def _split(options: dict[str, Any], function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell what is Dask's from what is the user's function's."""
    known = set(inspect.signature(function).parameters) - {"func", "args", "kwargs"}
    return (
        {name: value for name, value in options.items() if name in known},
        {name: value for name, value in options.items() if name not in known},
    )


def _current_client() -> distributed.Client | None:
    try:
        return distributed.get_client()
    except ValueError:
        return None
