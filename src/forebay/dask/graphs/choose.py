"""The chunks in which a whole graph is predicted to be the fastest, of those in which its workers can hold it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import distributed
import numpy as np

from forebay.dask.graphs.corners import Pipeline, cut_into
from forebay.dask.graphs.forecast import GraphForecast, cluster_of, forecast_of, held_by_workers
from forebay.dask.limits import WorkerLimits, limits_of
from forebay.dask.measuring import unmeasured
from forebay.drawing import Chart
from forebay.drawing.blocks import Blocks
from forebay.drawing.page import Drawn, Facts, TextTable, write_page
from forebay.drawing.tables import preformatted
from forebay.errors import BudgetError
from forebay.units import seconds_to_text, to_bytes, to_text

CLOSE = 0.03
"""Chunks that are predicted to be this close to the fastest are told apart by the tasks that they make, then by what
they need."""
DIVISORS = (2, 4, 6, 9, 14, 24, 48)
"""Parts of what a thread may use that chunks are tried with."""
TRIES = 4
"""Budgets that are tried before one is named."""
BLUR = 2**18
"""Bytes by which tasks that are measured again may need more: pages and what heaps keep."""


@dataclass(frozen=True)
class GraphChunks:
    """The chunks that were chosen for a graph."""

    chunks: tuple[int, ...]
    forecast: GraphForecast
    others: dict[tuple[int, ...], GraphForecast]
    """all that were looked at"""
    shape: tuple[int, ...]
    """of the whole array"""

    def plot(self) -> Chart:
        """Draw what a worker is predicted to hold over time, below bound and budget."""
        return self.forecast.plot()

    def write(self, path: str | Path) -> None:
        """Write a page of HTML: the blocks, the memory over time, and what else was looked at."""
        blocks = Drawn(Blocks(self.shape, self.chunks), "The blocks that the array is cut into; one stands out.")
        memory = Drawn(self.plot(), "What the worker that holds the most is predicted to hold, its process included.")
        sections = [("", (self._facts(), blocks)), ("Memory", (memory,)), ("Looked at", (self._looked_at(),))]
        write_page(path, "Chunks of a graph", self.explain(), sections)

    def _facts(self) -> Facts:
        forecast = self.forecast
        facts = {"chunks": _by(self.chunks), "array": _by(self.shape), "tasks": f"{forecast.tasks:,}"}
        facts |= {"predicted": seconds_to_text(forecast.seconds), "a worker holds": to_text(forecast.bytes)}
        return Facts([*facts.items(), ("at most", to_text(forecast.upper)), ("budget", to_text(forecast.budget))])

    def _looked_at(self) -> TextTable:
        rows = []
        for chunks, each in sorted(self.others.items(), key=lambda pair: pair[1].seconds):
            verdict = "chosen" if chunks == self.chunks else "too large" if each.upper > each.budget else ""
            row = (_by(chunks), f"{each.tasks:,}", seconds_to_text(each.seconds), to_text(each.upper), each.task)
            rows.append((*row, verdict))
        return TextTable(("chunks", "tasks", "predicted", "at most", "while this runs", ""), rows)

    def _repr_html_(self) -> str:
        return preformatted(self.explain()) + Blocks(self.shape, self.chunks).markup + self.plot().markup

    def explain(self) -> str:
        """Return what was chosen, and among what."""
        return f"chunks {_by(self.chunks)}, of {len(self.others)} looked at: {self.forecast.explain()}"


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
        times, also with small corners of the array, which are run on a worker, twice. What it writes, it has to write
        to a scratch target of its own. Results whose size hangs on the data are predicted from those corners.
    array : array
        Anything with shape and dtype; one of Dask's is rechunked, which is counted.
    client : distributed.Client, optional
        Of the cluster; the current one otherwise.
    budget : str or number
        Bytes of one worker for its tasks; "auto" asks the workers.
    whole : sequence of int
        Axes that must not be cut.
    """
    return choose(build, array, client, budget, whole, (build, ()))


@unmeasured()  # of the graphs that are built, none is computed
def choose(
    build: Callable[[Any], Any],
    array: Any,
    client: distributed.Client | None,
    budget: str | float,
    whole: Sequence[int],
    identity: tuple[Callable[..., Any], Any],
    stored: tuple[int, ...] | None = None,
) -> GraphChunks:
    """Choose chunks for a pipeline that is known by a function and by how that is called.

    They are whole chunks as the array is stored, which an array of Dask does not tell by itself.
    """
    client = cluster_of(client)
    limits = limits_of(client)
    room = limits.budget // limits.threads
    if budget != "auto":
        limits = replace(limits, budget=to_bytes(budget))
    uncut = frozenset(axis % array.ndim for axis in whole)
    pipeline = Pipeline(build, array, client, limits, identity, room, uncut, stored)
    found, held = _forecasts(pipeline, limits)
    fitting = _fitting(found)
    if not fitting:
        least = min(found.values(), key=lambda each: each.upper)
        advice = "give workers more memory or fewer threads" if budget == "auto" else _enough(pipeline, found, held)
        raise BudgetError(
            f"none of {len(found)} chunk shapes fits a budget of {to_text(limits.budget)}: the least needs "
            f"{to_text(least.upper - held)} while {least.task} runs; {advice}"
        )
    fastest = min(each.seconds for each in fitting.values())
    close = {chunks: each for chunks, each in fitting.items() if each.seconds <= (1 + CLOSE) * fastest}
    best = min(close, key=lambda chunks: (close[chunks].tasks, close[chunks].upper, chunks))
    return GraphChunks(best, found[best], found, tuple(array.shape))


def _forecasts(pipeline: Pipeline, limits: WorkerLimits) -> tuple[dict[tuple[int, ...], GraphForecast], int]:
    """Return what is predicted of the chunks that are looked at for a budget, and what workers hold before."""
    tried = []
    for chunks in candidates(pipeline.source, limits.budget, limits.threads, pipeline.whole, pipeline.stored):
        graph, cut = pipeline.graph(chunks)
        tried.append((tuple(chunks), graph, pipeline.rates_for(cut.numblocks), pipeline.told(cut)))
    held = held_by_workers(pipeline.client)  # one of them has loaded by now what the tasks need
    return {chunks: forecast_of(graph, rates, told, limits, held) for chunks, graph, rates, told in tried}, held


def _fitting(found: dict[tuple[int, ...], GraphForecast]) -> dict[tuple[int, ...], GraphForecast]:
    return {chunks: each for chunks, each in found.items() if each.upper <= each.budget}


def _enough(pipeline: Pipeline, found: dict[tuple[int, ...], GraphForecast], held: int) -> str:
    """Say which budget would do, once it was tried: other chunks are looked at for it, which may need more."""
    for _ in range(TRIES):
        least = min(each.upper for each in found.values()) - held
        need = to_text(int(1.01 * least) + BLUR)  # the text is rounded
        found, held = _forecasts(pipeline, replace(pipeline.limits, budget=to_bytes(need)))
        if _fitting(found):
            return f'budget="{need}" would do'
    return f"of the budgets up to {need} that were tried, none would do"


def copied(array: Any) -> Any:
    """Return what stands for a pipeline that nobody tells: it makes one array of each block."""
    return array.map_blocks(np.copy, dtype=array.dtype, meta=array._meta)


def chunk(
    array: Any,
    pipeline: Callable[[Any], Any] = copied,
    client: distributed.Client | None = None,
    *,
    budget: str | float = "auto",
    whole: Sequence[int] = (),
) -> Any:
    """Return a Dask array in the chunks in which a pipeline is predicted to be the fastest of those that fit.

    Parameters are those of `chunks_for_graph`. Without a pipeline one is assumed that makes one array of each block.
    """
    return cut_into(array, chunks_for_graph(pipeline, array, client, budget=budget, whole=whole).chunks)


def candidates(
    array: Any, budget: int, threads: int, whole: frozenset[int], stored: tuple[int, ...] | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield chunk shapes to look at: of several sizes, each cut along the first axes, or along all that may be."""
    shape, itemsize, seen = array.shape, array.dtype.itemsize, set()
    stored = stored or getattr(array, "chunks", None)
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


def _by(lengths: Sequence[int]) -> str:
    return "x".join(map(str, lengths))


def _of_size(shape: Sequence[int], elements: int, whole: frozenset[int], axes: Sequence[int] | None) -> tuple[int, ...]:
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
