"""The chunks in which a whole graph is predicted to be the fastest, of those in which its workers can hold it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import distributed

from forebay.dask.graphs.corners import Pipeline
from forebay.dask.graphs.forecast import GraphForecast, forecast_of, held_by_workers
from forebay.dask.limits import limits_of
from forebay.errors import BudgetError
from forebay.units import to_bytes, to_text

CLOSE = 0.03
"""Chunks that are predicted to be this close to the fastest are told apart by the tasks that they make, then by what
they need."""
DIVISORS = (2, 4, 6, 9, 14, 24, 48)
"""Parts of what a thread may use that chunks are tried with."""


@dataclass(frozen=True)
class GraphChunks:
    """The chunks that were chosen for a graph."""

    chunks: tuple[int, ...]
    forecast: GraphForecast
    others: dict[tuple[int, ...], GraphForecast]
    """all that were looked at"""

    def explain(self) -> str:
        """Return what was chosen, and among what."""
        shape = "x".join(map(str, self.chunks))
        return f"chunks {shape}, of {len(self.others)} looked at: {self.forecast.explain()}"


def chunks_for_graph(
    build: Callable[[Any], Any],
    array: Any,
    client: distributed.Client | None = None,
    *,
    budget: str | float = "auto",
    whole: Sequence[int] = (),
) -> GraphChunks:
    """Choose the chunks of an array in which a whole pipeline is predicted to be the fastest of those that fit.

    Parameters
    ----------
    build : callable
        ``build(array)`` makes the collection of the array in its chunks, as it will be computed. It is called several
        times, also with small corners of the array, which are run on a worker.
    array : array
        Anything with shape and dtype; one of Dask's is rechunked, which is counted.
    client : distributed.Client, optional
        Of the cluster; the current one otherwise.
    budget : str or number
        Bytes of one worker for its tasks; "auto" asks the workers.
    whole : sequence of int
        Axes that must not be cut.
    """
    client = client or distributed.get_client()
    limits = limits_of(client)
    available = limits.budget if budget == "auto" else to_bytes(budget)
    pipeline = Pipeline(build, array, client)
    held, found = held_by_workers(client), {}
    for chunks in candidates(array, available, limits.threads, {axis % array.ndim for axis in whole}):
        graph, cut = pipeline.graph(chunks)
        rates = pipeline.rates_for(cut.numblocks)
        found[tuple(chunks)] = forecast_of(graph, rates, pipeline.told(cut), limits, held)
    fitting = {chunks: each for chunks, each in found.items() if each.upper - held <= available}
    if not fitting:
        least = min(found.values(), key=lambda each: each.upper)
        raise BudgetError(
            f"none of {len(found)} chunk shapes fits a budget of {to_text(available)}: the least needs "
            f"{to_text(least.upper - held)} while {least.task} runs. Give workers more memory or fewer threads"
        )
    fastest = min(each.seconds for each in fitting.values())
    close = {chunks: each for chunks, each in fitting.items() if each.seconds <= (1 + CLOSE) * fastest}
    best = min(close, key=lambda chunks: (close[chunks].tasks, close[chunks].upper, chunks))
    return GraphChunks(best, found[best], found)


def candidates(array: Any, budget: int, threads: int, whole: set[int]) -> Iterator[tuple[int, ...]]:
    """Yield chunk shapes to look at: of several sizes, each cut along the first axes, or along all that may be."""
    shape, itemsize, seen = array.shape, array.dtype.itemsize, set()
    stored = getattr(array, "chunks", None)
    stored = stored if stored and all(isinstance(length, int) for length in stored) else None
    for divisor in DIVISORS:
        elements = max(1, budget // (divisor * threads * itemsize))
        for axes in (range(len(shape)), None):
            chunks = _of_size(shape, elements, whole, axes)
            if stored is not None:
                chunks = tuple(
                    min(extent, max(1, length // step) * step) if axis not in whole and length < extent else length
                    for axis, (extent, length, step) in enumerate(zip(shape, chunks, stored, strict=True))
                )
            if chunks not in seen:
                seen.add(chunks)
                yield chunks


def _of_size(shape: Sequence[int], elements: int, whole: set[int], axes: Sequence[int] | None) -> tuple[int, ...]:
    """Cut a shape evenly until a chunk has so many elements: the given axes in turn, or always the longest."""
    parts = [1] * len(shape)

    def chunks() -> tuple[int, ...]:
        return tuple(-(-extent // count) for extent, count in zip(shape, parts, strict=True))

    while math.prod(chunks()) > elements:
        free = [axis for axis, length in enumerate(chunks()) if axis not in whole and length > 8]
        if not free:
            break
        axis = free[0] if axes is not None else max(free, key=lambda each: chunks()[each])
        parts[axis] += 1
    return chunks()
