"""The shape of chunks to cut an array into, so that a function over them stays inside a budget of bytes.

A pure planner: it asks a model for the footprint of a chunk and knows no arrays. What it counts, it counts from above;
where it searches, it may miss a better shape, but it never hands out one whose bound exceeds the budget.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.drawing import Chart
from forebay.drawing.bars import bars_chart
from forebay.drawing.blocks import Blocks
from forebay.drawing.tables import preformatted
from forebay.errors import BudgetError
from forebay.footprint.chunks.ladders import aligned, lengths, nearest, search
from forebay.footprint.chunks.need import ChunkProblem, Need, ceil, is_whole
from forebay.footprint.chunks.predictor import Predictor, Shape, place_of
from forebay.units import UNITS, Budget, seconds_to_text, short, to_bytes, to_text

OVERHEAD = 0.01
"""Seconds that a chunk costs besides its computation, where nobody says otherwise."""
CLOSE = 0.05
"""Plans whose predicted time is this close to the best are told apart by what they read, then by their chunks."""
LARGEST = 2**58
"""What no length and no number of threads is above: with halos, a model can still be asked of it."""
THIN = 8
"""Axes are cut shorter than this, or than half of it at their end, only where nothing else fits: many functions do not
work on slivers."""

PARTS = {"input": "#2b7bba", "bound": "#e3a008", "neighbours": "#7a5fa8", "waiting": "#3d8f5f", "kept": "#8b1e1e"}
"""Colours of what a chunk needs."""


@dataclass(frozen=True)
class ChunkPlan:
    """A chunk shape, and what is predicted of it."""

    chunks: Shape
    tasks: int
    need: Need
    seconds: float
    """of the whole array, on all lanes"""
    reads: float
    """how many chunks a stored one is cut into, on average; 1 where chunks are aligned with it"""
    budget: int
    shape: Shape
    """of the whole array"""

    def plot(self) -> Chart:
        """Draw what one worker needs at once, part by part, beside the budget."""
        most = max(self.budget, self.need.total)
        unit = next((unit for unit in ("TB", "GB", "MB", "kB") if most >= UNITS[unit]), "B")
        series = {name: [count / UNITS[unit], 0.0] for name, count in vars(self.need).items() if count}
        return bars_chart(series | {"budget": [0.0, self.budget / UNITS[unit]]}, ("needs", "may take"), "", unit, PARTS)

    def _repr_html_(self) -> str:
        return preformatted(self.explain()) + Blocks(self.shape, self.chunks).markup + self.plot().markup

    def explain(self) -> str:
        """Return what was chosen and what it needs."""
        shape = "x".join(map(str, self.chunks))
        reading = f", each stored chunk read for {self.reads:.2f} of them" if self.reads > 1 else ""
        return (
            f"{self.tasks} chunks of at most {shape}, {seconds_to_text(self.seconds)} predicted{reading}\n"
            f"needs at most {to_text(self.need.total)} of {to_text(self.budget)}: {self.need}"
        )


def choose_chunks(model: Predictor, shape: Sequence[int], budget: str | float | Budget, **options: Any) -> Shape:
    """Choose the chunk shape; the options are those of `plan_chunks`.

    Examples
    --------
    >>> import numpy as np
    >>> from forebay.footprint.estimate import Estimate
    >>> class Smooth:
    ...     ndim, dtype = 3, np.dtype("float32")
    ...     def predict(self, shape):
    ...         volume = int(np.prod(shape))
    ...         return Estimate(4 * volume, 5 * volume, 0.01, shape, self.dtype, 1e-8 * volume)
    >>> choose_chunks(Smooth(), (651, 951, 462), "500MB", threads=2)
    (55, 951, 462)
    """
    return plan_chunks(model, shape, budget, **options).chunks


def plan_chunks(
    model: Predictor,
    shape: Sequence[int],
    budget: str | float | Budget,
    *,
    threads: int = 1,
    workers: int = 1,
    halo: int | Sequence[int] | None = None,
    padded: bool = True,
    stored_chunks: Sequence[int] | None = None,
    whole: int | Sequence[int] = (),
    waiting: int = 0,
    overhead: float = OVERHEAD,
) -> ChunkPlan:
    """Choose the chunk shape that is predicted to be the fastest of those that fit.

    A worker that runs one chunk a thread needs (chunk with halo + the model's bound + the chunks that the halo is cut
    from) x threads, which must fit the budget. Of the shapes that do, those are looked at whose predicted time is
    close to the best. The one that cuts stored chunks least wins. Among equals it is the one with the fewest contiguous
    runs in all of its chunks: few chunks, long axes.

    Parameters
    ----------
    model : Model
        Has ``predict(shape)``, ``ndim`` and ``dtype``.
    shape : sequence of int
        Of the whole array.
    budget : str, number or Budget
        The bytes of one worker, for instance ``"4GB"``; of a `Budget`, those of the tier where the model's bytes are.
    threads, workers : int
        Chunks in flight in one worker, which share the budget, and the number of workers.
    halo : int or sequence of int, optional
        Elements that a chunk takes from its neighbours, on each side of an axis.
    padded : bool
        Whether chunks at the edge of the array are padded to the full halo.
    stored_chunks : sequence of int, optional
        The chunk shape in which the array is stored.
    whole : int or sequence of int
        Axes that must not be cut; negative ones count from the last.
    waiting : int
        Chunks per thread that were fetched ahead, and as many results not yet handed on.
    overhead : float
        Seconds that a chunk costs besides its computation.

    Raises
    ------
    BudgetError
        Where no shape fits; the message names the smallest budget that works.
    """
    if any(not is_whole(count) or count < 1 for count in (threads, workers)):
        raise BudgetError(f"threads={threads} and workers={workers}: both must be whole numbers of at least 1")
    if not is_whole(waiting) or waiting < 0 or not overhead >= 0:
        raise BudgetError(f"waiting={waiting} and overhead={overhead}: a whole number and seconds, neither negative")
    if not isinstance(shape, Iterable):
        raise BudgetError(f"shape {short(shape)}: give a tuple of lengths, one for each axis")
    if any(not is_whole(extent) for extent in shape):
        raise BudgetError(f"shape {tuple(shape)}: give whole numbers; Dask's compute_chunk_sizes() finds unknown ones")
    extents = tuple(int(extent) for extent in shape)
    if len(extents) != model.ndim:
        raise BudgetError(f"shape {tuple(shape)} has {len(extents)} axes, the model was learned on {model.ndim}")
    if max(*extents, threads, workers, waiting) > LARGEST:
        raise BudgetError(f"shape {short(shape)}: no computer has arrays, threads or workers above 2**58")
    if min(extents) < 1:
        raise BudgetError(f"shape {tuple(shape)} has an axis without elements: there is nothing to cut")
    uncut = _axes(whole, len(extents))
    problem = ChunkProblem(
        model=model,
        shape=extents,
        budget=budget[place_of(model)] if isinstance(budget, Budget) else to_bytes(budget),
        threads=int(threads),
        lanes=int(threads * workers),
        halo=_per_axis(halo, len(extents), "halo", least=0),
        padded=padded,
        stored=None if stored_chunks is None else _per_axis(stored_chunks, len(extents), "stored_chunks", least=1),
        waiting=int(waiting),
        overhead=overhead,
    )
    for least in (THIN, 1):
        ladders = [
            [extent] if axis in uncut else lengths(extent, problem.halo[axis], least)
            for axis, extent in enumerate(extents)
        ]
        smallest = problem.smallest(ladders)
        if problem.fits(smallest):
            search(problem.fits, problem.seconds, ladders, [smallest])
            if problem.stored is not None:
                along = list(zip(ladders, problem.stored, problem.halo, strict=True))
                problem.assess(tuple(nearest(*axis, least) for axis in along))  # as they are, where they fit
                search(problem.fits, problem.seconds, [aligned(*axis, least) for axis in along])
        for chunks in _in_order(problem):
            need = problem.worst(chunks)
            if need.total <= problem.budget:
                tasks = math.prod(map(ceil, extents, chunks))
                seconds, reads = problem.seconds(chunks), problem.reads(chunks)
                return ChunkPlan(chunks, tasks, need, seconds, reads, problem.budget, extents)
    raise BudgetError(_refusal(problem, smallest))


def _in_order(problem: ChunkProblem) -> list[Shape]:
    """List the shapes that fit, best first: those close to the fastest by what they cut, all others by their time."""
    fitting = problem.fitting()
    fastest = min(fitting.values(), default=0.0)

    def rank(chunks: Shape) -> tuple[Any, ...]:
        seconds = fitting[chunks]
        if seconds > (1 + CLOSE) * fastest:
            return 1, seconds, chunks
        tasks = math.prod(map(ceil, problem.shape, chunks))
        return 0, round(problem.reads(chunks), 1), tasks * _runs(chunks, problem.shape), seconds, chunks

    return sorted(fitting, key=rank)


def _runs(chunks: Shape, shape: Shape) -> int:
    """Count the contiguous runs that a chunk has in a row-major array."""
    run = 1
    for length, extent in zip(reversed(chunks), reversed(shape), strict=True):
        run *= length
        if length < extent:
            break
    return math.prod(chunks) // run


def _refusal(problem: ChunkProblem, smallest: Shape) -> str:
    need = problem.worst(smallest)
    each = f" with {problem.threads} chunks in flight" if problem.threads > 1 else ""
    return (
        f"budget {to_text(problem.budget)} is too small: the smallest chunks {smallest} of {problem.shape} need "
        f"{need.total} bytes{each} ({need}); the smallest budget that works is {need.total} ({to_text(need.total)})"
        + ("; fewer threads need less" if problem.threads > 1 else "")
    )


def _axes(whole: int | Sequence[int], ndim: int) -> set[int]:
    axes = (whole,) if not isinstance(whole, Iterable) else tuple(whole)
    if any(not is_whole(axis) or not -ndim <= axis < ndim for axis in axes):
        raise BudgetError(f"whole={whole}: an array of {ndim} axes has axes 0 to {ndim - 1}")
    return {int(axis) % ndim for axis in axes}


def _per_axis(value: int | Sequence[int] | None, ndim: int, name: str, least: int) -> Shape:
    widths = tuple(value) if isinstance(value, Iterable) else (0 if value is None else value,) * ndim
    if len(widths) != ndim or any(not is_whole(width) or not least <= width <= LARGEST for width in widths):
        raise BudgetError(
            f"{name}={short(value)}: give one whole number of at least {least} for each of the {ndim} axes"
        )
    return tuple(map(int, widths))
