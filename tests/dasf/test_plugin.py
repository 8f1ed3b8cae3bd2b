"""The plugin of DASF pipelines, driven as DASF drives it; DASF itself is not needed."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from forebay.dasf import FootprintPlugin
from forebay.errors import BudgetError
from forebay.footprint.chunks.plan import choose_chunks
from forebay.footprint.estimate import Estimate

F3 = (651, 951, 462)


@dataclass
class Known:
    ndim: int = 3
    dtype: np.dtype = np.dtype("float32")  # noqa: RUF009

    def predict(self, shape):
        volume = int(np.prod(shape))
        return Estimate(40 * volume, 50 * volume, 0.01, tuple(shape), self.dtype, 1e-7 * volume)


class Dataset:
    """Knows its shape before it is loaded, and keeps its chunks as DASF's do."""

    def __init__(self, name, shape):
        self._name, self.shape, self._chunks = name, shape, "auto"

    def load(self):
        return np.zeros(tuple(min(10, n) for n in self.shape), "float32")


class Pipeline:
    """Calls the hooks in DASF's order."""

    def __init__(self, callbacks):
        self.callbacks, self.tasks = callbacks, []

    def add(self, func, name, **params):
        self.tasks.append((func, params, name))

    def run(self):
        for plugin in self.callbacks:
            plugin.on_pipeline_start([hash(func) for func, _, _ in self.tasks])
        for func, params, name in self.tasks:
            for plugin in self.callbacks:
                plugin.on_task_start(func, params, name)
            try:
                result = func(**params)
            except Exception as error:
                for plugin in self.callbacks:
                    plugin.on_task_error(func, params, name, error)
                break
            for plugin in self.callbacks:
                plugin.on_task_end(func, params, name, result)
        for plugin in self.callbacks:
            plugin.on_pipeline_end()


def test_every_dataset_has_its_chunks_before_it_is_loaded():
    at_load = []

    class Watched(Dataset):
        def load(self):
            at_load.append(self._chunks)
            return super().load()

    given, found = Watched("given", F3), Watched("found", (300, 301, 302))
    plugin = FootprintPlugin(Known(), "2GB", datasets=[given], threads=2, halo=(8, 8, 8))
    pipeline = Pipeline([plugin])
    pipeline.add(given.load, "given.load")
    pipeline.add(found.load, "found.load")
    pipeline.run()
    options = {"threads": 2, "halo": (8, 8, 8)}
    wanted = [choose_chunks(Known(), shape, "2GB", **options) for shape in (F3, (300, 301, 302))]
    assert at_load == wanted
    assert list(plugin.chunks.values()) == wanted


def test_given_datasets_are_set_at_the_start_of_the_pipeline():
    dataset = Dataset("f3", F3)
    FootprintPlugin(Known(), "2GB", datasets=[dataset]).on_pipeline_start([])
    assert dataset._chunks == choose_chunks(Known(), F3, "2GB")


def test_tasks_are_measured():
    plugin = FootprintPlugin(Known(), "2GB")
    pipeline = Pipeline([plugin])
    pipeline.add(lambda array: np.ones(20_000_000, "uint8"), "Large.transform", array=np.zeros((2, 3)))
    pipeline.run()
    (task,) = plugin.tasks
    assert (task.name, task.shapes, task.failed) == ("Large.transform", ((2, 3),), False)
    assert task.bytes >= 20_000_000
    assert "Large.transform: " in plugin.table()


def test_a_task_that_fails_is_kept_too():
    plugin = FootprintPlugin(Known(), "2GB")
    pipeline = Pipeline([plugin])
    pipeline.add(lambda: 1 / 0, "Broken.fit")
    pipeline.run()
    assert [task.failed for task in plugin.tasks] == [True]
    assert plugin.table().endswith(", failed")


def test_a_dataset_of_other_axes_is_refused():
    with pytest.raises(BudgetError, match="'flat' has 2 axes"):
        FootprintPlugin(Known(), "2GB").set_chunks(Dataset("flat", (10, 10)))


def test_the_hooks_are_those_that_dasf_calls():
    hooks = ("on_pipeline_start", "on_pipeline_end", "on_task_start", "on_task_end", "on_task_error")
    assert all(callable(getattr(FootprintPlugin, hook)) for hook in hooks)


def test_neither_dasf_nor_dask_nor_cubed_is_imported():
    names = ("dasf", "dask", "distributed", "cubed")
    code = f"import sys, forebay, forebay.dasf; print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
