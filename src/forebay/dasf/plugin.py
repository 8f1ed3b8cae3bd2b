"""The plugin of a DASF pipeline: chunks for every dataset before it is loaded, and what every task needed.

DASF calls plugins by the names of their hooks, so nothing of it is imported here::

    plugin = FootprintPlugin(model, budget="4GB", threads=2, halo=(8, 8, 8))
    Pipeline("attributes", executor=executor, callbacks=[plugin]).add(...).run()
    print(plugin.table())
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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


class FootprintPlugin:
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
    Tasks of a Dask executor only build graphs; what is measured of them is that. `forebay.dask` measures chunks.
    """

    def __init__(self, model: Predictor, budget: str | float, datasets: Iterable[Any] = (), **options: Any) -> None:
        self.model = model
        self.budget = to_bytes(budget)
        self.datasets = list(datasets)
        self.options = options
        self.chunks: dict[str, tuple[int, ...]] = {}
        """chosen, by the name of the dataset"""
        self.tasks: list[TaskPeak] = []
        self._gauge: Gauge = host_gauge()
        self._begun: float | None = None

    def on_pipeline_start(self, fn_keys: Sequence[Any]) -> None:
        """Set the chunks of the datasets that are known; the keys of the pipeline's functions do not lead to others."""
        for dataset in self.datasets:
            self.set_chunks(dataset)

    def on_pipeline_end(self) -> None:
        """Do nothing: all is known by then."""

    def on_task_start(self, func: Any, params: Any, name: str) -> None:
        """Set the chunks of a dataset that is about to be loaded, and begin to measure."""
        owner = getattr(func, "__self__", None)
        if _is_dataset(owner) and not any(owner is dataset for dataset in self.datasets):
            self.set_chunks(owner)
        self._gauge.start()
        self._begun = time.perf_counter()

    def on_task_end(self, func: Any, params: Any, name: str, ret: Any) -> None:
        """Keep what the task needed."""
        self._keep(name, params, failed=False)

    def on_task_error(self, func: Any, params: Any, name: str, exception: BaseException) -> None:
        """Keep what the task needed until it failed."""
        self._keep(name, params, failed=True)

    def set_chunks(self, dataset: Any) -> None:
        """Choose the chunks of a dataset, and have it load in them."""
        shape = _shape(dataset)
        if len(shape) != self.model.ndim:
            raise BudgetError(
                f"dataset {_name(dataset)!r} has {len(shape)} axes, the model was learned on {self.model.ndim}: give a "
                "plugin of its own model to each kind of dataset"
            )
        chunks = choose_chunks(self.model, shape, self.budget, **self.options)
        dataset._chunks = chunks
        self.chunks[_name(dataset)] = chunks

    def table(self) -> str:
        """Write the chunks that were set and what the tasks needed, one a line."""
        lines = [f"{name}: chunks {chunks}" for name, chunks in self.chunks.items()]
        for task in self.tasks:
            end = ", failed" if task.failed else ""
            lines.append(f"{task.name}: {to_text(task.bytes)}, {seconds_to_text(task.seconds)}{end}")
        return "\n".join(lines)

    def _keep(self, name: str, params: Any, failed: bool) -> None:
        if self._begun is None:
            return
        seconds, needed = time.perf_counter() - self._begun, self._gauge.stop()
        self._begun = None
        arguments = params.values() if isinstance(params, dict) else ()
        shapes = tuple(tuple(array.shape) for array in arguments if hasattr(array, "shape"))
        self.tasks.append(TaskPeak(name, shapes, needed, seconds, failed))


def _is_dataset(owner: Any) -> bool:
    return owner is not None and hasattr(owner, "_chunks") and hasattr(owner, "load")


def _shape(dataset: Any) -> tuple[int, ...]:
    shape = getattr(dataset, "shape", None)
    if not isinstance(shape, tuple) and hasattr(dataset, "inspect_metadata"):
        shape = dataset.inspect_metadata().get("shape")
    if shape is None:
        raise BudgetError(f"dataset {_name(dataset)!r} does not know its shape before it is loaded: no chunks for it")
    return tuple(int(extent) for extent in shape)


def _name(dataset: Any) -> str:
    return str(getattr(dataset, "_name", type(dataset).__name__))
