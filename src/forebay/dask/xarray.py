"""xarray: ``forebay.chunk`` cuts named arrays and datasets into the chunks that suit a pipeline over them.

Importing this module gives every `xarray.DataArray` and `xarray.Dataset` its ``forebay``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import distributed
import xarray

from forebay.dask.graphs.choose import choose, copied
from forebay.errors import PlanError


@xarray.register_dataarray_accessor("forebay")
@xarray.register_dataset_accessor("forebay")
class NamedChunks:
    """What Forebay does with an array or a dataset of xarray."""

    def __init__(self, named: Any) -> None:
        self._named = named

    def chunk(
        self,
        pipeline: Callable[[Any], Any] | None = None,
        client: distributed.Client | None = None,
        *,
        budget: str | float = "auto",
        whole: Sequence[str] = (),
    ) -> Any:
        """Return it in the chunks in which a pipeline is predicted to be the fastest of those that fit.

        Names, coordinates and attributes stay. All variables of a dataset are cut alike. The other parameters are those
        of `forebay.dask.chunks_for_graph`.

        Parameters
        ----------
        pipeline : callable, optional
            ``pipeline(named)`` makes what will be computed of the array or the dataset in its chunks. Without one, one
            array is assumed to be made of each block.
        whole : sequence of str
            Names of axes that must not be cut.
        """
        return _cut([self._named], pipeline or _copied, client, budget, whole)[0]


def apply_ufunc(
    func: Callable[..., Any],
    *arguments: Any,
    client: distributed.Client | None = None,
    budget: str | float = "auto",
    **options: Any,
) -> Any:
    """Do what `xarray.apply_ufunc` does with ``dask="parallelized"``, in chunks that fit the workers.

    Of those, the chunks are taken in which it is predicted to be the fastest. Axes in ``input_core_dims`` stay whole.

    Parameters
    ----------
    func, *arguments, **options
        As they are given to `xarray.apply_ufunc`.
    client, budget
        As in `forebay.dask.chunks_for_graph`.
    """
    options = {"dask": "parallelized"} | options
    named = [each for each in arguments if isinstance(each, xarray.DataArray | xarray.Dataset)]
    whole = {name for names in options.get("input_core_dims", ()) for name in names}

    def applied(*cut: Any) -> Any:
        left = iter(cut)
        return xarray.apply_ufunc(func, *[next(left) if _is_in(each, named) else each for each in arguments], **options)

    others = [_kind(each) for each in arguments if not _is_in(each, named)]
    return applied(*_cut(named, applied, client, budget, sorted(whole), func, (others, options)))


def _is_in(sought: Any, named: Sequence[Any]) -> bool:
    return any(sought is each for each in named)


def _kind(value: Any) -> Any:
    """Return a value, or what is known of an array without its elements."""
    return (str(value.dtype), tuple(value.shape)) if hasattr(value, "dtype") and hasattr(value, "shape") else value


def _copied(named: Any) -> Any:
    if isinstance(named, xarray.Dataset):
        return named.map(_copied)
    return named.copy(data=copied(named.data)) if named.chunks else named


def _cut(
    named: Sequence[Any],
    pipeline: Callable[..., Any],
    client: distributed.Client | None,
    budget: str | float,
    whole: Sequence[str],
    func: Callable[..., Any] | None = None,
    how: Any = None,
) -> list[Any]:
    """Cut arrays and datasets alike, along the axes of the largest array among them.

    What a pipeline is, other than the arrays, is told by a function and how that is called; else by itself.
    """
    arrays = [(array, each) for each in named for array in _arrays_of(each)]
    largest, owner = max(arrays, key=lambda pair: pair[0].size, default=(None, None))
    if largest is None or not largest.dims:
        raise PlanError("there is no array with axes that chunks could be cut along")
    if absent := set(whole) - {name for array, _ in arrays for name in array.dims}:
        raise PlanError(f"whole={sorted(absent)}: the axes are {', '.join(map(str, largest.dims))}")

    build = _Build(pipeline, tuple(named), largest, owner)
    source = largest.data if largest.chunks else _Unread(largest)
    axes = [largest.get_axis_num(name) for name in whole if name in largest.dims]
    kinds = [(array.name, tuple(array.sizes.items()), str(array.dtype)) for array, _ in arrays]
    identity = func or pipeline, (largest.name, kinds, how)
    chunks = choose(build, source, client, budget, axes, identity, _stored(largest)).chunks
    lengths = dict(zip(largest.dims, chunks, strict=True))
    return [each.chunk({name: lengths[name] for name in each.dims if name in lengths}) for each in named]


def _arrays_of(each: Any) -> list[xarray.DataArray]:
    return list(each.data_vars.values()) if isinstance(each, xarray.Dataset) else [each]


@dataclass(frozen=True, eq=False)
class _Build:
    """Makes what a pipeline makes of named arrays and datasets, from blocks of the largest array among them."""

    pipeline: Callable[..., Any]
    named: tuple[Any, ...]
    largest: xarray.DataArray
    owner: Any
    """which of them the largest is, or is in"""

    def __call__(self, cut: Any) -> Any:
        return self.pipeline(*(_part(each, self.largest, cut, owned=each is self.owner) for each in self.named))


def _part(each: Any, largest: xarray.DataArray, cut: Any, *, owned: bool) -> Any:
    """Return the first elements of an array or a dataset, in the chunks that were cut of the largest array."""
    extents, chunks = (dict(zip(largest.dims, row, strict=True)) for row in (cut.shape, cut.chunks))
    first = {name: slice(length) for name, length in extents.items()}
    lead = largest.isel(first).copy(data=cut)
    if owned and not isinstance(each, xarray.Dataset):
        return lead
    alike = [name for name in each.dims if each.sizes[name] == largest.sizes.get(name)]
    others = each.drop_vars(largest.name) if owned else each
    others = others.isel({name: first[name] for name in alike if name in others.dims})
    part = others.chunk({name: chunks[name] for name in alike if name in others.dims})
    return part.assign({largest.name: lead})[list(each.data_vars)] if owned else part


def _stored(array: xarray.DataArray) -> tuple[int, ...] | None:
    """Return the chunks that an array was read from, as long as it has the axes that it had there."""
    stored = array.encoding.get("chunks") or array.encoding.get("chunksizes")
    return tuple(stored) if stored and len(stored) == array.ndim else None


@dataclass(frozen=True)
class _Unread:
    """An array of xarray that is read where it is cut: asking it for its data would read all of it."""

    array: xarray.DataArray
    name: str = field(default_factory=lambda: uuid4().hex)

    def __dask_tokenize__(self) -> str:
        """Return a name of its own: Dask would read all of the array to make one."""
        return self.name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return int(self.array.ndim)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    @property
    def chunks(self) -> tuple[int, ...] | None:
        return _stored(self.array)

    def corner(self, shape: Sequence[int]) -> "_Unread":
        """Return the first elements, which are sent to a worker: of what is in memory no more than these."""
        return _Unread(self.array[tuple(map(slice, shape))])

    def __getitem__(self, index: Any) -> Any:
        return self.array[index].values
