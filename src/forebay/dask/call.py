"""A function over chunks, once those are chosen: how arrays are cut, and what Dask is told of the result."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.config
import distributed
from dask.base import annotate
from dask.utils import funcname

from forebay.dask.limits import WorkerLimits
from forebay.dask.measuring import LocalFunction, WatchedCall, digest_of, measuring
from forebay.dask.plugin import watch
from forebay.errors import BudgetError, PlanError
from forebay.footprint.chunks.need import ceil
from forebay.footprint.chunks.plan import ChunkPlan
from forebay.footprint.chunks.predictor import Predictor
from forebay.footprint.errors import FootprintWarning
from forebay.footprint.measure.process import name_of
from forebay.units import to_text


@dataclass(frozen=True)
class ChunkedCall:
    """A function, what is known of it, and the chunks that were chosen."""

    func: Callable[..., Any]
    key: str
    model: Predictor
    limits: WorkerLimits
    plan: ChunkPlan
    on_device: bool
    host: int
    """bytes that a worker has on the host, whatever the chunks need on a device"""
    client: distributed.Client | None

    def run(self, measure: bool, named: dict[str, Any]) -> Callable[..., Any]:
        """Return what Dask is to run: the function, which workers measure; elsewhere one that measures it.

        Parameters
        ----------
        measure
            whether it is measured at all
        named
            the options of Dask's that name tasks, to which is added what workers know them by
        """
        if not measure or self.on_device or not measuring():
            return self.func
        need = self.plan.need
        room = (need.bound + self.plan.budget - need.total) // self.limits.threads
        watched = WatchedCall(digest_of(self.key), room)
        if self.client is None:
            return LocalFunction(self.func, watched)
        if not named.get("name"):  # one of the caller's own Dask takes as it is: there is no place for the mark
            named["token"] = f"{named.get('token') or funcname(self.func)}{watched.mark}"
            watch(self.client, watched, name_of(self.func))
        return self.func

    def described(self, array: Any, halo: bool = False) -> dict[str, Any]:
        """Describe the chunks of the result, so that Dask need not try the function on arrays of no size."""
        estimate = self.model.predict(self.plan.chunks)
        if estimate.output_dtype is None or estimate.output_shape is None or len(estimate.output_shape) != array.ndim:
            return {}
        described: dict[str, Any] = {"dtype": estimate.output_dtype, "meta": array._meta.astype(estimate.output_dtype)}
        if not halo and estimate.output_shape != self.plan.chunks:
            described["chunks"] = tuple(
                tuple(self._output(axis, length) for length in row) for axis, row in enumerate(array.chunks)
            )
        return described

    def _output(self, axis: int, length: int) -> int:
        chunk = (*self.plan.chunks[:axis], length, *self.plan.chunks[axis + 1 :])
        shape = self.model.predict(chunk).output_shape
        assert shape is not None
        return shape[axis]

    def check_axes(self, array: Any, options: Mapping[str, Any]) -> None:
        """Raise unless chunks come out with the axes they had, or Dask is told what becomes of those."""
        output = self.model.predict(self.plan.chunks).output_shape
        if (
            output is not None
            and len(output) != array.ndim
            and not {"drop_axis", "new_axis", "chunks"} & options.keys()
        ):
            raise PlanError(
                f"{self.key.rpartition('-')[0]} makes {output} of a chunk of {self.plan.chunks}: say which axes go "
                "or come by drop_axis= or new_axis=, as to Dask's map_blocks"
            )

    def check_shape(self) -> None:
        """Raise unless chunks come out as they went in: Dask cuts the halo off without looking."""
        output = self.model.predict(self.plan.chunks).output_shape
        if output is not None and output != self.plan.chunks:
            raise PlanError(
                f"{self.key.rpartition('-')[0]} makes {output} of a chunk of {self.plan.chunks}, and its halo is cut "
                "off: pad the result to the shape of the chunk, or give trim=False"
            )

    def cut(self, arrays: Sequence[Any]) -> list[Any]:
        """Cut arrays that are none of Dask's, and rechunk others where a worker can hold what that takes."""
        cut = [
            array.rechunk(self.plan.chunks)
            if isinstance(array, da.Array)
            else da.from_array(array, chunks=self.plan.chunks)
            for array in arrays
        ]
        # By name: an array that is given twice is held once.
        anew = {
            array.name: array
            for array, result in zip(arrays, cut, strict=True)
            if isinstance(array, da.Array) and array.chunks != result.chunks
        }
        need = sum(map(self._rechunking, anew.values()))
        if need > self.host:
            worst = max(anew.values(), key=self._rechunking)
            size = math.prod(worst.chunksize) * worst.dtype.itemsize
            raise BudgetError(
                f"the array has chunks {worst.chunksize} of {to_text(size)}; to cut it into {self.plan.chunks}, a "
                f"worker with {self.limits.threads} threads holds {to_text(need)} and has {to_text(self.host)}: "
                "open it with the chunks that chunks_for() gives, or with smaller ones of that shape"
            )
        return cut

    def _rechunking(self, array: Any) -> int:
        """Count what a worker holds while it cuts an array anew: pieces of a chunk keep all of it alive.

        That is a chunk on every thread, or all chunks that a new one is put together from, and the new one.
        """
        source, touched = math.prod(array.chunksize), 1
        for extent, length, stored in zip(array.shape, self.plan.chunks, array.chunksize, strict=True):
            # Chunks begin at multiples of the divisor within a stored chunk; the latest of them reaches farthest.
            touched *= min(extent, ceil(stored - math.gcd(length, stored) + length, stored) * stored)
        held = max(self.limits.threads * source, touched) + math.prod(self.plan.chunks)
        return int(held * array.dtype.itemsize)

    @contextmanager
    def annotated(self) -> Iterator[None]:
        """Have tasks carry the bytes that they need, where workers declare what they have."""
        if self.limits.declared is None:
            yield
            return
        need = (self.plan.need.input + self.plan.need.bound) // self.limits.threads
        fused = dask.config.get("optimization.fuse.active", None) is not False
        if fused and self.limits.threads * need > self.limits.declared:
            warnings.warn(
                f"tasks of {self.key.rpartition('-')[0]} need {to_text(need)} each, of which a worker with "
                f"{self.limits.threads} threads declares {to_text(self.limits.declared)}: Dask keeps them apart only "
                "where it does not fuse tasks, so compute the result inside "
                "dask.config.set({'optimization.fuse.active': False}), or give a smaller budget=",
                FootprintWarning,
                stacklevel=4,
            )
        # A task that asks for more than any worker has would wait for ever: with all of it, it runs alone.
        with annotate(resources={"memory": min(need, self.limits.declared)}):
            yield
