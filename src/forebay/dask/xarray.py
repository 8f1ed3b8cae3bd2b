"""xarray: ``array.forebay.chunk(pipeline)`` cuts a named array into the chunks that suit a pipeline over it.

Importing this module gives every `xarray.DataArray` its ``forebay``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import distributed
import xarray

from forebay.dask.graphs.choose import chunks_for_graph


@xarray.register_dataarray_accessor("forebay")
class NamedChunks:
    """What Forebay does with an array of xarray."""

    def __init__(self, array: xarray.DataArray) -> None:
        self._array = array

    def chunk(
        self,
        pipeline: Callable[[xarray.DataArray], Any],
        client: distributed.Client | None = None,
        *,
        budget: str | float = "auto",
        whole: Sequence[str] = (),
    ) -> xarray.DataArray:
        """Return the array in the chunks in which a pipeline is predicted to be the fastest of those that fit.

        Names and coordinates stay. The other parameters are those of `forebay.dask.chunks_for_graph`.

        Parameters
        ----------
        pipeline : callable
            ``pipeline(array)`` makes what will be computed of the array in its chunks: an array, or a dataset.
        whole : sequence of str
            Names of axes that must not be cut.
        """
        array = self._array

        def build(cut: Any) -> Any:
            named = array.isel({name: slice(length) for name, length in zip(array.dims, cut.shape, strict=True)})
            return pipeline(named.copy(data=cut))

        source = array.data if array.chunks else _Unread(array)
        axes = [array.get_axis_num(name) for name in whole]
        chunks = chunks_for_graph(build, source, client, budget=budget, whole=axes).chunks
        return array.chunk(dict(zip(array.dims, chunks, strict=True)))


@dataclass(frozen=True)
class _Unread:
    """An array of xarray that is read where it is cut: asking it for its data would read all of it."""

    array: xarray.DataArray

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
        stored = self.array.encoding.get("chunks") or self.array.encoding.get("chunksizes")
        return tuple(stored) if stored else None

    def __getitem__(self, index: Any) -> Any:
        return self.array[index].values
