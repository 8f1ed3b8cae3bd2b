"""The plugin with DASF itself, where that is installed: every class of dataset, and its executors."""

from pathlib import Path

import numpy as np
import pytest

from forebay.dasf import FootprintPlugin
from forebay.footprint.chunks.plan import choose_chunks
from forebay.footprint.estimate import Estimate

pytest.importorskip("dasf")
pytestmark = pytest.mark.slow
SHAPE = (65, 95, 46)
BUDGET = "2MB"


class Known:
    ndim, dtype = 3, np.dtype("float32")

    def predict(self, shape):
        volume = int(np.prod(shape))
        return Estimate(40 * volume, 50 * volume, 0.01, tuple(shape), self.dtype, 1e-7 * volume)


def twice(block):
    return 2 * block


def read(X):  # noqa: N803
    """Hand the array of a dataset on, as pipelines of DASF do."""
    return X._data


@pytest.fixture(scope="module")
def volume():
    return np.random.default_rng(0).standard_normal(SHAPE, dtype="float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, volume):
    folder = tmp_path_factory.mktemp("stored")
    zarr, h5py, xarray = map(pytest.importorskip, ("zarr", "h5py", "xarray"))
    np.save(folder / "f3.npy", volume)
    zarr.open(str(folder / "f3.zarr"), mode="w", shape=SHAPE, chunks=(32,) * 3, dtype="float32")[:] = volume
    with h5py.File(folder / "f3.h5", "w") as opened:
        opened.create_dataset("seismic/f3", data=volume, chunks=(32,) * 3)
    xarray.Dataset({"amplitude": (("iline", "xline", "depth"), volume)}).to_netcdf(folder / "f3.nc")
    (folder / "table.csv").write_text("a,b\n1,2\n")
    return folder


@pytest.fixture(params=["local", "dask"])
def executor(request):
    if request.param == "local":
        yield None
        return
    from dasf.pipeline.executors.dask import DaskPipelineExecutor

    how = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    executor = DaskPipelineExecutor(local=True, cluster_kwargs=how)
    yield executor
    executor.client.cluster.close()
    executor.close()


def datasets(folder: Path):
    from dasf.datasets.base import DatasetArray, DatasetHDF5, DatasetXarray, DatasetZarr

    return {
        "npy": DatasetArray("npy", root=str(folder / "f3.npy")),
        "zarr": DatasetZarr("zarr", root=str(folder / "f3.zarr")),
        "hdf5": DatasetHDF5("hdf5", root=str(folder / "f3.h5"), dataset_path="seismic/f3"),
        "xarray": DatasetXarray("xarray", root=str(folder / "f3.nc"), chunks={"iline": 8}),
    }


@pytest.mark.parametrize("kind", ["npy", "zarr", "hdf5", "xarray"])
def test_a_pipeline_has_its_chunks_and_its_result(kind, folder, volume, executor):
    import zarr
    from dasf.pipeline import Pipeline
    from dasf.transforms import ComputeDaskData, MappedTransform

    if kind == "zarr" and not hasattr(zarr.Array, "info_items"):
        pytest.skip("DASF reads what this Zarr no longer tells")
    if kind == "npy" and executor is None and "itemset" in dir(np.ndarray):
        pytest.skip("DASF reads what NumPy 2.0 to 2.3 list and refuse")
    dataset, transform, computed = datasets(folder)[kind], MappedTransform(twice), ComputeDaskData()
    plugin, pipeline = FootprintPlugin(Known(), BUDGET), Pipeline("twice", executor=executor)
    pipeline.register_plugin(plugin)

    def array(X):  # noqa: N803
        data = dataset._data
        data = data.data if kind == "xarray" else data
        return data if hasattr(data, "dask") else data[:]

    pipeline.add(array, X=dataset).add(transform, X=array).add(computed, X=transform).run()
    assert not any(task.failed for task in plugin.tasks), plugin.table()
    assert len(plugin.tasks) == 4
    np.testing.assert_array_equal(pipeline.get_result_from(computed), 2 * volume)
    stored = (32,) * 3 if kind in ("zarr", "hdf5") else None
    budget = 2_000_000 - (volume.nbytes if kind == "npy" and executor else 0)
    assert plugin.chunks == {kind: choose_chunks(Known(), SHAPE, budget, stored_chunks=stored)}
    if executor is None:
        return
    lazy = dataset._data.data if kind == "xarray" else dataset._data
    assert lazy.chunksize == plugin.chunks[kind]
    measured = {block.name: block.count for block in plugin.blocks()}
    assert measured["MappedTransform.transform"] == lazy.npartitions


def test_tables_and_own_arrays_are_loaded_as_they_are(folder, volume, executor):
    from dasf.datasets.base import DatasetArray, DatasetDataFrame
    from dasf.pipeline import Pipeline

    class Own(DatasetArray):
        def load(self):
            self._data = volume
            return self._data

    table = DatasetDataFrame("table", root=str(folder / "table.csv"), download=False)
    for dataset in (table, Own("own")):
        plugin, pipeline = FootprintPlugin(Known(), BUDGET), Pipeline("load", executor=executor)
        pipeline.register_plugin(plugin)
        pipeline.add(dataset).run()
        assert [task.failed for task in plugin.tasks] == [False] and not plugin.chunks


def test_a_file_that_one_worker_would_load_whole_is_refused_before_it_does(folder):
    from dasf.pipeline import Pipeline
    from dasf.pipeline.executors.dask import DaskPipelineExecutor

    how = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    executor = DaskPipelineExecutor(local=True, cluster_kwargs=how)
    try:
        dataset, plugin = datasets(folder)["npy"], FootprintPlugin(Known(), "1MB")
        pipeline = Pipeline("load", executor=executor)
        pipeline.register_plugin(plugin)
        with pytest.MonkeyPatch.context() as patch:
            errors = []
            patch.setattr(pipeline._logger, "exception", errors.append)
            pipeline.add(dataset).run()
        assert dataset._data is None and "DASF has one worker load whole" in errors[0]
    finally:
        executor.client.cluster.close()
        executor.close()


def test_a_task_handed_to_a_worker_is_measured_there(folder):
    from dasf.pipeline import Pipeline
    from dasf.pipeline.executors.dask import DaskTasksPipelineExecutor

    how = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    executor = DaskTasksPipelineExecutor(local=True, use_gpu=False, cluster_kwargs=how)
    try:
        dataset, plugin = datasets(folder)["npy"], FootprintPlugin(Known(), BUDGET)
        pipeline = Pipeline("load", executor=executor)
        pipeline.register_plugin(plugin)
        pipeline.add(read, X=dataset).run()
        pipeline.get_result_from(read).result()
        assert {block.name for block in plugin.blocks()} <= {"DatasetArray.load", "read"}
        assert all(task.layers for task in plugin.tasks)
    finally:
        executor.client.cluster.close()
        executor.close()
