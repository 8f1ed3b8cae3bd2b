"""What tasks need, by their kind: so much, and so much more for each byte that they read."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.dask.graphs.nodes import TaskGraph, share
from forebay.dask.graphs.running import TaskSample
from forebay.dask.graphs.simulate import SizedTask

TELLING = 2**17
"""Bytes that a task must read for its peak to tell what a byte needs: the kernel counts no finer."""


@dataclass(frozen=True)
class Affine:
    """So much, and so much a byte."""

    fixed: float
    slope: float

    def at(self, size: float) -> float:
        """Return what it comes to for so many bytes."""
        return self.fixed + self.slope * size


@dataclass(frozen=True)
class Rates:
    """What tasks of one kind leave, need and take."""

    output: Affine
    peak: Affine
    seconds: Affine
    view: bool

    def numbers(self) -> list[Any]:
        """Return them as plain numbers, to be sent and kept."""
        pairs = ([each.fixed, each.slope] for each in (self.output, self.peak, self.seconds))
        return [*pairs, self.view]

    @classmethod
    def of(cls, numbers: Sequence[Any]) -> "Rates":
        """Return them from what `numbers` gave."""
        output, peak, seconds, view = numbers
        return cls(Affine(*output), Affine(*peak), Affine(*seconds), bool(view))


UNKNOWN = Rates(Affine(0, 1), Affine(0, 1), Affine(0, 1e-9), view=False)
"""Of a kind that was not sampled: it makes one array of what it reads."""
PART = Rates(Affine(0, 1), Affine(0, 0), Affine(0, 0), view=True)
"""Of what cuts a part out of a block, or hands it on."""


def rates_of(samples: Iterable[TaskSample]) -> dict[str, Rates]:
    """Learn what each kind needs from tasks that were run."""
    by_kind: dict[str, list[TaskSample]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.kind].append(sample)
    return {kind: _rates(own) for kind, own in by_kind.items()}


def _rates(samples: Sequence[TaskSample]) -> Rates:
    sizes = [sample.input for sample in samples]
    peaks = [max(sample.peak, 0 if sample.view else sample.output) for sample in samples]
    return Rates(
        output=_affine(sizes, [sample.output for sample in samples]),
        peak=_affine(sizes, peaks),
        seconds=_affine(sizes, [sample.seconds for sample in samples]),
        view=all(sample.view for sample in samples),
    )


def _affine(sizes: Sequence[int], values: Sequence[float]) -> Affine:
    """Draw a line through the medians of the largest and of the smallest; neither end falls below nothing."""
    largest = max(sizes)
    if largest < TELLING:
        return Affine(max(values), 0)
    high = [(size, value) for size, value in zip(sizes, values, strict=True) if size > 0.7 * largest]
    low = [(size, value) for size, value in zip(sizes, values, strict=True) if size < 0.4 * largest]
    size, value = (statistics.median(each) for each in zip(*high, strict=True))
    if not low:
        return Affine(0, value / size)
    small, less = (statistics.median(each) for each in zip(*low, strict=True))
    slope = (value - less) / (size - small)
    fixed = value - slope * size
    if fixed < 0:
        return Affine(0, value / size)
    return Affine(fixed, slope) if slope > 0 else Affine(value, 0)


def source_bytes(graph: TaskGraph, source: Any | None) -> list[int]:
    """Return what each task reads of a source that is no task.

    Where no slices tell, it is one block of the source, of a root. A root that has been joined with what takes axes
    away does not say which: it is taken for one of the largest.
    """
    if source is None:
        return [task.source for task in graph.tasks]
    return [
        task.source or (0 if task.reads else _bytes(_block(source, task.block) or source.chunksize, source))
        for task in graph.tasks
    ]


def sized_tasks(graph: TaskGraph, rates: Mapping[str, Rates], source: Any | None) -> list[SizedTask]:
    """Return the tasks with what they need, from what their kinds need."""
    sized: list[SizedTask] = []
    read_there = source_bytes(graph, source)
    for task, there in zip(graph.tasks, read_there, strict=True):
        unknown = UNKNOWN if task.part is None else PART
        rate = rates.get(task.kind) or rates.get(task.kind.partition(" ")[0], unknown)
        size = there + sum(sized[read].output for read in task.reads)
        shape = _block(source, task.block)
        known = task.part is not None and (shape is not None or not task.part)
        output = size * share(task.part or (), shape or ()) if known else rate.output.at(size)
        peak = max(rate.peak.at(size), 0 if rate.view else output)
        sized.append(SizedTask(task.reads, int(output), int(peak), rate.seconds.at(size), rate.view))
    return sized


def _block(source: Any | None, block: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of a block, where the layer is cut as the source is."""
    if source is None or len(block) != source.ndim:
        return None
    if any(place >= count for place, count in zip(block, source.numblocks, strict=True)):
        return None
    return tuple(lengths[place] for lengths, place in zip(source.chunks, block, strict=True))


def _bytes(shape: tuple[int, ...], source: Any) -> int:
    size: int = source.dtype.itemsize
    for length in shape:
        size *= length
    return size
