"""The plugin of DASF pipelines, driven as DASF drives it; DASF itself is not needed."""

import json
import subprocess
import sys
import types
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
    # Above 32 MiB no allocator hands out pages that were in memory before.
    pipeline.add(lambda array: np.ones(40_000_000, "uint8"), "Large.transform", array=np.zeros((2, 3)))
    pipeline.run()
    (task,) = plugin.tasks
    assert (task.name, task.shapes, task.failed) == ("Large.transform", ((2, 3),), False)
    assert task.bytes == pytest.approx(40_000_000, rel=0.05)
    assert "Large.transform: " in plugin.table()


class LikeZarr(Dataset):
    """Asks its array whether it is true, as DASF's dataset of Zarr does once it is loaded."""

    def __init__(self, name, root):
        self._name, self._root_file, self._data, self._chunks = name, str(root), None, None

    @property
    def shape(self):
        return self._data.shape if self._data else ()

    def load(self):
        self._data = np.zeros((4, 5, 6), "float32")
        return self


class Attribute:
    def transform(self, X):  # noqa: N803
        return X


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_of_either_format_is_chunked_and_its_tasks_are_told_with_their_shapes(tmp_path, zarr_format):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "f3", shape=F3, chunks=(64,) * 3, dtype="float32", zarr_format=zarr_format)
    dataset, attribute, plugin = LikeZarr("f3", tmp_path / "f3"), Attribute(), FootprintPlugin(Known(), "2GB")
    plugin.on_pipeline_start([])
    for task, params in ((dataset.load, None), (attribute.transform, {"X": dataset})):
        plugin.on_task_start(task, params, task.__qualname__)
        plugin.on_task_end(task, params, task.__qualname__, task(**({"X": dataset} if params else {})))
    assert dataset._chunks == choose_chunks(Known(), F3, "2GB", stored_chunks=(64,) * 3)
    assert [task.shapes for task in plugin.tasks] == [(), ((4, 5, 6),)]


def test_xarray_is_chunked_by_the_names_of_its_axes(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("scipy")
    shape = (65, 95, 46)
    dims = ("iline", "xline", "depth")
    xarray.Dataset({"amplitude": (dims, np.zeros(shape, "float32"))}).to_netcdf(tmp_path / "f3.nc", engine="scipy")
    dataset = LikeZarr("f3", tmp_path / "f3.nc")
    dataset._data_var = "amplitude"
    FootprintPlugin(Known(), "2MB").set_chunks(dataset)
    assert dataset._chunks == dict(zip(dims, choose_chunks(Known(), shape, "2MB"), strict=True))


def test_hdf5_is_chunked_by_the_array_at_its_path(tmp_path, monkeypatch):
    class File(dict):
        def __init__(self, root, mode):
            super().__init__({"a/b": types.SimpleNamespace(shape=F3)})

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=File))
    dataset = LikeZarr("f3", tmp_path / "f3.h5")
    dataset._dataset_path = "a/b"
    FootprintPlugin(Known(), "2GB").set_chunks(dataset)
    assert dataset._chunks == choose_chunks(Known(), F3, "2GB")


def test_tables_are_left_as_they_are(tmp_path):
    table, plugin = LikeZarr("table", tmp_path / "table.parquet"), FootprintPlugin(Known(), "2GB")
    plugin.on_task_start(table.load, None, "load")
    assert table._chunks is None and not plugin.chunks
    with pytest.raises(BudgetError, match="no array whose shape is known"):
        plugin.set_chunks(table)


REGISTERED = """
import sys, types

class PipelinePlugin:
    pass

names = ("dasf", "dasf.pipeline", "dasf.pipeline.pipeline")
sys.modules |= {name: types.ModuleType(name) for name in names}
sys.modules["dasf.pipeline.pipeline"].PipelinePlugin = PipelinePlugin  # its packages do not name it
from forebay.dasf import FootprintPlugin

print(issubclass(FootprintPlugin, PipelinePlugin))
"""


def test_where_dasf_is_it_is_a_plugin_that_register_plugin_takes_for_one():
    run = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"


ON_DASK = """
import json
import dask.array as da
import distributed
import numpy as np
from forebay.dasf import FootprintPlugin

def work(block):
    return block + np.ones(2_000_000).sum()

if __name__ == "__main__":
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster),
    ):
        plugin = FootprintPlugin(None, "1GB")
        plugin.on_pipeline_start([])
        plugin.on_task_start(work, None, "Attribute.transform")
        result = da.zeros((8, 8), chunks=4).map_blocks(work, dtype=float)
        plugin.on_task_end(work, None, "Attribute.transform", result)
        result.compute()
        print(json.dumps([[block.name, block.count, block.bytes] for block in plugin.blocks()]))
        print(plugin.tasks[0].layers != frozenset(), "to hand it on" in plugin.table())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks")
def test_blocks_are_measured_on_the_workers_that_run_them(tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "script.py").write_text(ON_DASK)
    run = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    blocks, told = run.stdout.splitlines()
    ((name, count, peak),) = json.loads(blocks)
    assert (name, count) == ("Attribute.transform", 4) and 15.8e6 <= peak < 40e6
    assert told == "True True"


BESIDE_DASK_DOOR = """
import sys
import types
import dask.array as da
import distributed
import numpy as np
import forebay.dask
from forebay.dasf.blocks import BlockGauge, blocks_of
from forebay.footprint.estimate import Estimate

def large(block):
    return block + np.ones(6_000_000).sum()

class Known:
    ndim, dtype = 2, np.dtype("float64")

    def predict(self, shape):
        volume = int(np.prod(shape))
        return Estimate(8 * volume, 12 * volume, 0.01, tuple(shape), self.dtype, 1e-7 * volume)

if __name__ == "__main__":
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(BlockGauge())
        begun = da.zeros((8, 8), chunks=8).map_blocks(large, dtype=float)
        result = forebay.dask.map_blocks(np.negative, begun, model=Known(), budget="2GB")
        result.compute()
        print([block["bytes"] for block in blocks_of(client)])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks")
def test_blocks_that_the_dask_door_measures_too_keep_their_peaks(tmp_path):
    """Both forget the process's peak: the second in the midst of a task that Dask has fused."""
    pytest.importorskip("distributed")
    (tmp_path / "script.py").write_text(BESIDE_DASK_DOOR)
    run = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert max(json.loads(run.stdout)) >= 47e6


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


def test_without_dasf_the_door_opens_and_imports_neither_dask_nor_cubed():
    names = ("dasf", "dask", "distributed", "cubed")
    code = "import sys; sys.modules['dasf'] = None; import forebay, forebay.dasf; "
    code += f"del sys.modules['dasf']; print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


class Ignorant(Dataset):
    """Raises when it is asked for its shape before it is loaded, as tables and own arrays of DASF do."""

    def __init__(self, name):
        self._name, self._data, self._root_file, self._chunks = name, None, None, "auto"

    @property
    def shape(self):
        raise Exception("Data is not loaded yet")

    def load(self):
        self._data = np.zeros((4, 5, 6), "float32")
        return self


def test_what_does_not_know_its_shape_is_loaded_as_it_is():
    dataset, plugin = Ignorant("own"), FootprintPlugin(Known(), "2GB")
    pipeline = Pipeline([plugin])
    pipeline.add(dataset.load, "Ignorant.load")
    pipeline.run()
    assert dataset._chunks == "auto" and not plugin.chunks
    assert [(task.name, task.failed) for task in plugin.tasks] == [("Ignorant.load", False)]


def test_a_dataset_of_other_axes_that_comes_along_is_left_as_it_is_and_told():
    flat, plugin = Dataset("flat", (10, 10)), FootprintPlugin(Known(), "2GB")
    pipeline = Pipeline([plugin])
    pipeline.add(flat.load, "Dataset.load")
    pipeline.run()
    assert flat._chunks == "auto"
    assert "flat: left as it is, 2 axes, the model was learned on 3" in plugin.table()


def test_data_and_labels_that_are_loaded_together_are_both_chunked():
    labeled = Ignorant("labeled")
    labeled._train, labeled._val = Dataset("data", F3), Dataset("labels", F3)
    plugin = FootprintPlugin(Known(), "2GB")
    pipeline = Pipeline([plugin])
    pipeline.add(labeled.load, "Labeled.load")
    pipeline.run()
    wanted = choose_chunks(Known(), F3, "2GB")
    assert (labeled._train._chunks, labeled._val._chunks) == (wanted, wanted)


def test_chunks_cut_stored_ones_as_little_as_they_can(tmp_path):
    zarr = pytest.importorskip("zarr")
    stored = (50, 100, 462)
    zarr.create_array(tmp_path / "f3", shape=F3, chunks=stored, dtype="float32")
    dataset, plugin = LikeZarr("f3", tmp_path / "f3"), FootprintPlugin(Known(), "1GB")
    plugin.set_chunks(dataset)
    assert dataset._chunks == choose_chunks(Known(), F3, "1GB", stored_chunks=stored)
    assert dataset._chunks != choose_chunks(Known(), F3, "1GB")


def test_a_task_that_is_handed_to_a_worker_is_known_by_its_future():
    plugin = FootprintPlugin(Known(), "2GB")
    future = types.SimpleNamespace(key="load-1", client=None)
    plugin.on_task_start(Dataset("f3", F3).load, None, "Dataset.load")
    plugin.on_task_end(None, None, "Dataset.load", future)
    assert plugin.tasks[0].layers == {"load-1"} and plugin.table().endswith("to hand it on")
