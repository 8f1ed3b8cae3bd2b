"""The plugin of a DASF pipeline: chunks for every dataset before it is loaded, and what every task needed.

It is one of DASF's own, and may be registered or given as a callback::

    pipeline = Pipeline("attributes", executor=executor)
    plugin = FootprintPlugin(model, budget="4GB", threads=2, halo=(8, 8, 8))
    pipeline.register_plugin(plugin)
    pipeline.add(...).run()
    print(plugin.table())
"""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.dasf.compat import (
    PipelinePlugin,
    StoredArray,
    datasets_of,
    is_dataset,
    lazy_layers,
    shape_of,
    stored_array,
)
from forebay.errors import BudgetError
from forebay.footprint.chunks.plan import choose_chunks
from forebay.footprint.chunks.predictor import Predictor
from forebay.footprint.measure.gauge import Gauge, host_gauge
from forebay.units import seconds_to_text, to_bytes, to_text


@dataclass(frozen=True)
class TaskPeak:
    """What one task of a pipeline needed."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    """of the arrays that it was given"""
    bytes: int
    """the peak above what the process held before"""
    seconds: float
    failed: bool = False
    layers: frozenset[str] = frozenset()
    """of the graph that it has built: the bytes are those of building it, and `blocks` tells what running it needs"""


@dataclass(frozen=True)
class BlockPeaks:
    """What the blocks of one task needed on Dask's workers."""

    name: str
    """of the task; of the last one, where Dask has fused several"""
    count: int
    """blocks that ran alone in their processes"""
    bytes: int
    """the highest peak of any"""
    seconds: float
    """of all of them"""


class FootprintPlugin(PipelinePlugin):  # type: ignore[misc]
    """Sets ``chunks`` on the datasets of a pipeline, and measures its tasks.

    Parameters
    ----------
    model : Model
        The footprint of what runs over the datasets: a model, or a `forebay.footprint.Graph` of all operators.
    budget : str or number
        Bytes of one worker.
    datasets : iterable, optional
        Set at the start of the pipeline; all others are set right before they are loaded.
    **options :
        Those of `forebay.footprint.plan_chunks`: threads, halo, whole, ...

    Notes
    -----
    With Dask, tasks only build graphs, or are handed to a worker. Where workers run blocks and tasks, they measure each
    that runs alone in its process, and `blocks` tells the highest peak of every task.
    """

    def __init__(self, model: Predictor, budget: str | float, datasets: Iterable[Any] = (), **options: Any) -> None:
        self.model = model
        self.budget = to_bytes(budget)
        self.datasets = list(datasets)
        self.options = options
        self.chunks: dict[str, tuple[int, ...]] = {}
        """chosen, by the name of the dataset"""
        self.left: dict[str, str] = {}
        """why the chunks of a dataset were left as they are, by its name"""
        self.tasks: list[TaskPeak] = []
        self._gauge: Gauge = host_gauge()
        self._begun: float | None = None
        self._returned: dict[int, tuple[int, ...]] = {}
        """shapes of what tasks have returned, by the object whose method a task is"""
        self._client: Any = None

    def on_pipeline_start(self, fn_keys: Sequence[Any]) -> None:
        """Set the chunks of the datasets that are known; the keys of the pipeline's functions do not lead to others."""
        if "distributed" in sys.modules:  # otherwise there is no cluster
            from forebay.dasf.blocks import watch_blocks

            self._client = watch_blocks()
        for dataset in self.datasets:
            self.set_chunks(dataset)

    def on_pipeline_end(self) -> None:
        """Do nothing: all is known by then."""

    def on_task_start(self, func: Any, params: Any, name: str) -> None:
        """Set the chunks of a dataset that is about to be loaded, and begin to measure."""
        owner = getattr(func, "__self__", None)
        for dataset in datasets_of(owner):
            if not any(dataset is given for given in self.datasets):
                self._set_or_leave(dataset)
        self._gauge.start()
        self._begun = time.perf_counter()

    def on_task_end(self, func: Any, params: Any, name: str, ret: Any) -> None:
        """Keep what the task needed."""
        self._keep(name, params, failed=False, layers=lazy_layers(ret))
        owner = getattr(func, "__self__", func)
        shape = shape_of(owner if ret is None else ret)  # some datasets load, and return nothing
        if shape is not None:
            self._returned[id(owner)] = shape

    def on_task_error(self, func: Any, params: Any, name: str, exception: BaseException) -> None:
        """Keep what the task needed until it failed."""
        self._keep(name, params, failed=True)

    def set_chunks(self, dataset: Any) -> None:
        """Choose the chunks of a dataset, and have it load in them."""
        stored = stored_array(dataset)
        if stored is None:
            raise BudgetError(f"dataset {_name(dataset)!r} is no array whose shape is known before it is loaded")
        if len(stored.shape) != self.model.ndim:
            raise BudgetError(
                f"dataset {_name(dataset)!r} has {self._other_axes(stored)}: give a plugin of its own model to each "
                "kind of dataset"
            )
        self._set(dataset, stored)

    def _set_or_leave(self, dataset: Any) -> None:
        """Set the chunks of a dataset that the pipeline brought along; one that the model does not fit stays."""
        stored = stored_array(dataset)
        if stored is None:  # a table, which has no chunks of arrays
            return
        if len(stored.shape) == self.model.ndim:
            self._set(dataset, stored)
        else:
            self.left[_name(dataset)] = self._other_axes(stored)

    def _set(self, dataset: Any, stored: StoredArray) -> None:
        in_one = stored.in_one if self._client is not None else 0
        if in_one >= self.budget:
            raise BudgetError(
                f"dataset {_name(dataset)!r} is a file of NumPy, which DASF has one worker load whole: its "
                f"{to_text(in_one)} exceed the budget of {to_text(self.budget)}. Store it as Zarr, in chunks"
            )
        options = {"stored_chunks": stored.stored_chunks} | self.options
        chunks = choose_chunks(self.model, stored.shape, self.budget - in_one, **options)
        dataset._chunks = stored.chunks(chunks)
        self.chunks[_name(dataset)] = chunks

    def _other_axes(self, stored: StoredArray) -> str:
        return f"{len(stored.shape)} axes, the model was learned on {self.model.ndim}"

    def table(self) -> str:
        """Write the chunks that were set and what the tasks needed, one a line."""
        lines = [f"{name}: chunks {chunks}" for name, chunks in self.chunks.items()]
        lines += [f"{name}: left as it is, {reason}" for name, reason in self.left.items()]
        for task in self.tasks:
            end = ", failed" if task.failed else " to hand it on" if task.layers else ""
            lines.append(f"{task.name}: {to_text(task.bytes)}, {seconds_to_text(task.seconds)}{end}")
        for block in self.blocks():
            most, seconds = to_text(block.bytes), seconds_to_text(block.seconds)
            lines.append(f"{block.name}: {block.count} blocks of at most {most}, {seconds}")
        return "\n".join(lines)

    def blocks(self) -> list[BlockPeaks]:
        """List what blocks of the tasks needed so far, on the workers of the cluster that the pipeline ran with."""
        if self._client is None:
            return []
        from forebay.dasf.blocks import blocks_of

        tasks = {layer: task.name for task in reversed(self.tasks) for layer in task.layers}
        found: dict[str, BlockPeaks] = {}
        for block in blocks_of(self._client):
            name = tasks.get(block["layer"])
            if name is None:  # of another graph, or what puts results together
                continue
            so_far = found.get(name, BlockPeaks(name, 0, 0, 0.0))
            most, seconds = max(so_far.bytes, block["bytes"]), so_far.seconds + block["seconds"]
            found[name] = BlockPeaks(name, so_far.count + 1, most, seconds)
        return list(found.values())

    def _keep(self, name: str, params: Any, failed: bool, layers: Iterable[str] = ()) -> None:
        if self._begun is None:
            return
        seconds, needed = time.perf_counter() - self._begun, self._gauge.stop()
        self._begun = None
        arguments = params.values() if isinstance(params, dict) else ()
        # What a task is given are the tasks before it, by their functions or by the objects that these belong to.
        owners = (getattr(given, "__self__", given) for given in arguments)
        shapes = tuple(shape for owner in owners if (shape := self._returned.get(id(owner)) or _plain(owner)))
        self.tasks.append(TaskPeak(name, shapes, needed, seconds, failed, frozenset(layers)))


def _name(dataset: Any) -> str:
    return str(getattr(dataset, "_name", type(dataset).__name__))


def _plain(given: Any) -> tuple[int, ...] | None:
    """Return the shape of an array that was given as it is."""
    return None if is_dataset(given) else shape_of(given)
