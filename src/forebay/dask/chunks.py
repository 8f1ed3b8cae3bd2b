"""Functions over the chunks of Dask arrays, in chunks that the workers can hold."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import dask.config
import distributed
from dask.array.overlap import coerce_boundary, coerce_depth
from dask.utils import has_keyword

from forebay.dask.call import ChunkedCall
from forebay.dask.learning import model_on_workers
from forebay.dask.limits import limits_of
from forebay.dask.measuring import Observation, observations_of
from forebay.dask.tightening import tighten
from forebay.errors import BudgetError, PlanError
from forebay.footprint.chunks.need import is_whole
from forebay.footprint.chunks.plan import plan_chunks
from forebay.footprint.chunks.predictor import Predictor, place_of
from forebay.footprint.measure.process import name_of
from forebay.footprint.reach import find_reach
from forebay.footprint.registry import key_of, model_of
from forebay.units import Budget, to_bytes

WAITING = 1
"""Chunks that a worker fetches ahead of each thread; as many results wait to be handed on."""


def chunks_for(
    func: Callable[..., Any],
    array: Any,
    client: distributed.Client | None = None,
    *,
    budget: str | float | Budget = "auto",
    model: Predictor | str | Path | None = None,
    depth: Any = None,
    boundary: Any = None,
    whole: Sequence[int] = (),
    **options: Any,
) -> tuple[int, ...]:
    """Choose the chunks of an array in which a function over them fits the workers.

    Parameters
    ----------
    func : callable
        Takes a chunk and returns an array.
    array : array
        Anything with shape and dtype: a Dask array, a Zarr array, a NumPy array.
    client : distributed.Client, optional
        Of the cluster; the current one where there is one, else this process.
    budget : str, number or Budget
        Bytes of one worker; "auto" asks the workers. Of a function on a device, bytes of the device.
    model : Model or path, optional
        What is known of the function; a path is loaded, or learned and saved. Learned for this process otherwise.
    depth, boundary :
        As in `dask.array.map_overlap`. ``depth="auto"`` finds it, and further whole axes, by running the function on
        small arrays, and refuses a function whose blocks do not give what the whole gives.
    whole : sequence of int
        Axes that must not be cut.
    **options :
        For the function.
    """
    if _is_indivisible((array,)):
        return tuple(array.shape)
    depth, whole = _reach(func, (array,), depth, whole, options)
    return _prepare(func, (array,), client, budget, model, depth, boundary, whole, options).plan.chunks


def map_blocks(
    func: Callable[..., Any],
    *arrays: Any,
    budget: str | float | Budget = "auto",
    model: Predictor | str | Path | None = None,
    client: distributed.Client | None = None,
    whole: Sequence[int] = (),
    measure: bool = True,
    **options: Any,
) -> Any:
    """Do what `dask.array.map_blocks` does, in chunks that fit the workers.

    The arrays are rechunked alike, dtype and chunks of the result come from the model, and chunks are measured while
    they run, so that the next call knows more. Other parameters are those of `chunks_for` and of Dask's ``map_blocks``.

    Parameters
    ----------
    measure : bool
        Whether chunks are measured while they run. On a cluster, those with a ``name=`` of the caller's never are.
    """
    if _is_indivisible(arrays):
        return da.map_blocks(func, *map(da.asarray, arrays), **options)
    passed, own = _split(options, da.map_blocks)
    dropped = passed.get("drop_axis", ())
    whole = (*whole, *((dropped,) if is_whole(dropped) else dropped or ()))  # Dask puts all blocks along them together
    call = _prepare(func, arrays, client, budget, model, None, None, whole, own)
    cut = call.cut(arrays)
    call.check_axes(cut[0], passed)
    described = call.described(cut[0]) | passed
    function = call.run(measure, described)
    with call.annotated():
        return da.map_blocks(function, *cut, **described | own)


def map_overlap(
    func: Callable[..., Any],
    *arrays: Any,
    depth: Any = None,
    boundary: Any = None,
    trim: bool = True,
    align_arrays: bool = True,
    allow_rechunk: bool = True,
    budget: str | float | Budget = "auto",
    model: Predictor | str | Path | None = None,
    client: distributed.Client | None = None,
    whole: Sequence[int] = (),
    measure: bool = True,
    **options: Any,
) -> Any:
    """Do what `dask.array.map_overlap` does, in chunks that fit the workers with their halos and neighbours.

    Parameters are those of `chunks_for` and `map_blocks`, and those of Dask's ``map_overlap``.
    """
    if _is_indivisible(arrays):
        return da.map_blocks(func, *map(da.asarray, arrays), **options)
    passed, own = _split(options, da.map_blocks)
    depth, whole = _reach(func, arrays, depth, whole, own)
    call = _prepare(func, arrays, client, budget, model, depth, boundary, whole, own)
    cut = call.cut(arrays)
    if trim:
        call.check_shape()
    passed = call.described(cut[0], halo=True) | passed
    function = call.run(measure, passed)
    passed |= {"align_arrays": align_arrays, "allow_rechunk": allow_rechunk, "trim": trim}
    with call.annotated():
        return da.map_overlap(function, *cut, depth=depth, boundary=boundary, **passed | own)


def observed(
    func: Callable[..., Any], *arrays: Any, client: distributed.Client | None = None, **options: Any
) -> list[Observation]:
    """List what chunks needed so far under a function, each time one ran alone in its process.

    Parameters
    ----------
    func, *arrays, **options :
        As they were given to `map_blocks` or `map_overlap`.
    client : distributed.Client, optional
        Of the cluster on which they ran.
    """
    client, keys = client or _current_client(), set()
    for mapper in (map_blocks, map_overlap):
        _, own = _split(options, mapper)
        _, own = _split(own, da.map_blocks)
        keys.add(key_of(func, arrays, own))
    return [observation for key in sorted(keys) for observation in observations_of(key, client)]


def _prepare(
    func: Callable[..., Any],
    arrays: tuple[Any, ...],
    client: distributed.Client | None,
    budget: str | float | Budget,
    model: Predictor | str | Path | None,
    depth: Any,
    boundary: Any,
    whole: Sequence[int],
    options: dict[str, Any],
) -> ChunkedCall:
    if not arrays:
        raise BudgetError("give at least one array to cut into chunks")
    for place, array in enumerate(arrays):
        _check_array(array, place)
    array = arrays[0]
    if any(other.shape != array.shape for other in arrays):
        raise BudgetError(
            f"arrays of shapes {[other.shape for other in arrays]} cannot be cut alike: broadcast them first"
        )
    client = client or _current_client()
    halo, padded = _halo(array.ndim, depth, boundary, len(arrays))
    key = key_of(func, arrays, options)
    smallest, on_one_block = 2 * max(halo) + 1, _of_one_block(func, arrays, options)
    limits = limits_of(client, func)  # first: a cluster without workers would never learn
    if client is not None and (model is None or isinstance(model, str | Path)):
        path = None if model is None else Path(model).resolve()
        alone = partial(on_one_block, **options) if options else on_one_block
        model = model_on_workers(client, alone, arrays, path, key, smallest)
    footprint = model_of(on_one_block, arrays, model, options, key, smallest)
    on_device = place_of(footprint) == "device"
    if not on_device:
        footprint = tighten(footprint, observations_of(key, client))
    elif budget == "auto":
        raise BudgetError(
            f"{name_of(func)} works on a device, whose memory the workers do not tell: give budget=, "
            "the bytes of it that one worker may use"
        )
    host = limits.budget
    if budget == "auto" and not host:
        raise BudgetError("this process holds more than 60% of the memory already: release some of it, or give budget=")
    if budget != "auto":
        own = budget["device" if on_device else "host"] if isinstance(budget, Budget) else to_bytes(budget)
        limits = replace(limits, budget=own)
        host = host if on_device else own
    plan = plan_chunks(
        footprint,
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
    return ChunkedCall(func, key, footprint, limits, plan, on_device, host, client)


def _reach(
    func: Callable[..., Any], arrays: tuple[Any, ...], depth: Any, whole: Sequence[int], options: dict[str, Any]
) -> tuple[Any, Sequence[int]]:
    """Return depth and whole axes, found where they are asked for."""
    if not isinstance(depth, str):
        return depth, whole
    if depth != "auto" or len(arrays) != 1:
        raise PlanError(f"depth={depth!r}: give numbers of elements, or 'auto' with one array")
    _check_array(arrays[0], 0)
    reach = find_reach(partial(_of_one_block(func, arrays, options), **options), arrays[0].ndim, str(arrays[0].dtype))
    return dict(enumerate(reach.halo)), tuple({*whole, *reach.whole})


def _is_indivisible(arrays: tuple[Any, ...]) -> bool:
    """Return whether all are arrays of no axes, or without elements: these run as they are, and need no budget."""
    shapes = [getattr(array, "shape", None) for array in arrays]
    return bool(shapes) and all(shape is not None and (not shape or 0 in shape) for shape in shapes)


def _of_one_block(func: Callable[..., Any], arrays: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
    """Return the function as Dask calls it on arrays of one block each, where it asks which block it is given."""
    info: dict[int | None, dict[str, Any]] = {
        place: {
            "shape": tuple(array.shape),
            "num-chunks": (1,) * array.ndim,
            "array-location": [(0, extent) for extent in array.shape],
            "chunk-location": (0,) * array.ndim,
        }
        for place, array in enumerate(arrays)
    }
    result = info[0] | {"chunk-shape": tuple(arrays[0].shape), "dtype": arrays[0].dtype}
    told = {"block_id": (0,) * arrays[0].ndim, "block_info": info | {None: result}}
    asked = {name: value for name, value in told.items() if name not in options and has_keyword(func, name)}
    return partial(func, **asked) if asked else func


def _check_array(array: Any, place: int) -> None:
    """Refuse what cannot be cut, in the words of the caller: Dask would take it, and the model would know nothing."""
    if not all(hasattr(array, name) for name in ("shape", "dtype", "ndim")):
        raise PlanError(
            f"argument {place} is a {type(array).__name__}, not an array to cut into chunks: "
            "give it to the function by keyword"
        )
    if any(math.isnan(extent) for extent in array.shape):
        raise PlanError(f"argument {place} has chunks of unknown sizes: call its compute_chunk_sizes() first")


def _halo(ndim: int, depth: Any, boundary: Any, arrays: int) -> tuple[tuple[int, ...], bool]:
    """Read depth and boundary as Dask does: the wider side of each axis, of any array, and whether edges are padded."""
    # Dask would cut fractions off.
    if not all(width is None or (is_whole(width) and width >= 0) for width in _numbers(depth)):
        raise PlanError(f"depth={depth}: give a whole number of elements, 0 or more, for each axis")
    depths = [coerce_depth(ndim, widths) for widths in (depth if isinstance(depth, list) else [depth] * arrays)]
    edges = [coerce_boundary(ndim, edge) for edge in (boundary if isinstance(boundary, list) else [boundary] * arrays)]
    if len(depths) != arrays or len(edges) != arrays:
        raise PlanError(f"lists of depths and boundaries need one for each of {arrays} arrays")
    halo = [0] * ndim
    padded = False
    for widths, edge in zip(depths, edges, strict=True):
        for axis, width in widths.items():
            sides = width if isinstance(width, tuple) else (width,)
            halo[axis] = max(halo[axis], *map(int, sides))
            padded = padded or (any(sides) and edge.get(axis, "none") != "none")
    return tuple(halo), padded


def _numbers(depth: Any) -> Iterator[Any]:
    """Yield all numbers of a depth: lists, tuples and dicts hold further ones."""
    if isinstance(depth, dict):
        depth = tuple(depth.values())
    if not isinstance(depth, list | tuple):
        yield depth
        return
    for each in depth:
        yield from _numbers(each)


def _stored(array: Any) -> tuple[int, ...] | None:
    """Return the chunks that an array has, where it is cut at all."""
    chunks = getattr(array, "chunksize", None) or getattr(array, "chunks", None)
    if chunks is None or not all(isinstance(length, int) for length in chunks):
        return None
    return tuple(chunks) if any(length < extent for length, extent in zip(chunks, array.shape, strict=True)) else None


def _split(options: dict[str, Any], function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those that a function of Dask's accepts and those of the user's function."""
    accepted = set(inspect.signature(function).parameters) - {"func", "args", "arrays", "kwargs", "options"}
    return (
        {name: value for name, value in options.items() if name in accepted},
        {name: value for name, value in options.items() if name not in accepted},
    )


def _current_client() -> distributed.Client | None:
    """Return the client that computes, unless Dask is configured to compute in this process."""
    if dask.config.get("scheduler", None) not in (None, "dask.distributed", "distributed"):
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None
