"""Named arrays and datasets of xarray, cut for a pipeline."""

from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

xarray = pytest.importorskip("xarray")
pytest.importorskip("distributed")

import forebay.dask.xarray  # noqa: E402
from forebay.errors import PlanError  # noqa: E402


def anomaly(named):
    return named - named.mean("depth")


def volume(shape=(96, 80, 64)):
    values = np.random.default_rng(0).standard_normal(shape, dtype="float32")
    coordinates = {"iline": np.arange(100, 100 + shape[0]), "depth": np.linspace(0, 1, shape[2])}
    return xarray.DataArray(values, coordinates, ("iline", "xline", "depth"), name="amplitude", attrs={"unit": "m"})


def survey():
    amplitude = volume((160, 160, 64))
    horizon = amplitude.isel(depth=0, drop=True).astype("float64")
    return xarray.Dataset({"horizon": horizon, "amplitude": amplitude, "shots": ("shot", np.arange(5))}, attrs={"n": 3})


@pytest.mark.slow
def test_a_named_array_is_cut_and_keeps_its_names_and_coordinates(client):
    named = volume()
    cut = named.forebay.chunk(anomaly, client, budget="3MB", whole=("depth",))
    assert cut.identical(named) and cut.name == "amplitude"
    assert len(cut.chunks[0]) > 1 and len(cut.chunks[2]) == 1
    np.testing.assert_allclose(anomaly(cut).compute(), anomaly(named), atol=1e-6)


@pytest.mark.slow
def test_what_is_in_a_file_is_read_where_it_is_cut(client, tmp_path):
    pytest.importorskip("zarr")
    values = np.ones((64, 64, 64), "float32")
    data = xarray.Dataset({"amplitude": (("iline", "xline", "depth"), values)})
    data.to_zarr(tmp_path / "f3", encoding={"amplitude": {"chunks": (16, 32, 64)}})
    named = xarray.open_zarr(tmp_path / "f3", chunks=None)["amplitude"]
    assert not named.variable._in_memory
    cut = named.forebay.chunk(anomaly, client, budget="3MB", whole=("depth",))
    assert not named.variable._in_memory  # nothing of it was read into this process
    assert cut.chunks[0][0] % 16 == 0 and float(anomaly(cut).max()) == 0
    again = xarray.open_zarr(tmp_path / "f3").forebay.chunk(client=client, budget="2MB")
    again.to_zarr(tmp_path / "copy")  # xarray refuses chunks that would share one of the file
    assert again.amplitude.data.npartitions > 1 and again.identical(data)


@pytest.mark.slow
def test_the_variables_of_a_dataset_are_cut_alike_and_it_stays_as_it_was(client):
    data = survey()

    def below_the_horizon(cut):
        return (cut.amplitude * cut.horizon).sum("depth")

    cut = data.forebay.chunk(below_the_horizon, client, budget="15MB", whole=("depth",))
    assert cut.identical(data) and list(cut) == list(data)
    assert len(cut.amplitude.chunks[0]) > 1 and len(cut.amplitude.chunks[2]) == 1
    assert cut.horizon.chunks == cut.amplitude.chunks[:2]
    np.testing.assert_allclose(below_the_horizon(cut).compute(), below_the_horizon(data), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_budget_is_enough(client):
    cut = survey().forebay.chunk(client=client, budget="10MB")
    assert cut.identical(survey()) and cut.amplitude.data.npartitions > 1
    assert 2 * 2 * cut.amplitude.data.blocks[0, 0, 0].nbytes <= 10e6  # a block and its copy on each of two threads


@pytest.mark.slow
def test_a_function_over_core_axes_runs_in_chunks_that_leave_these_whole(client):
    named, weights = volume(), xarray.DataArray(np.linspace(0, 1, 64), dims="depth")

    def weighted(block, along, power):
        assert block.shape[-1] == along.shape[-1] == 64  # a corner has all of the axis
        return (block * along**power).sum(axis=-1)

    how = {"input_core_dims": [["depth"], ["depth"]], "kwargs": {"power": 2}, "output_dtypes": ["float64"]}
    ours = forebay.dask.xarray.apply_ufunc(weighted, named, weights, client=client, budget="6MB", **how)
    assert ours.chunks is not None and ours.data.npartitions > 1
    xarray.testing.assert_allclose(ours.compute(), xarray.apply_ufunc(weighted, named, weights, **how))


@pytest.mark.slow
def test_arrays_are_no_part_of_what_a_function_is_known_by(client, monkeypatch):
    pickled = []

    def dumps(value):
        pickled.append(len(cloudpickle.dumps(value)))
        return cloudpickle.dumps(value)

    named = volume()
    monkeypatch.setattr("forebay.dask.graphs.corners.cloudpickle", SimpleNamespace(dumps=dumps))
    how = {"input_core_dims": [["depth"]], "output_dtypes": ["float32"]}
    forebay.dask.xarray.apply_ufunc(lambda block: block.sum(axis=-1), named, client=client, budget="6MB", **how)
    assert pickled and max(pickled) < named.nbytes / 10


@pytest.mark.slow
def test_a_pipeline_that_fails_on_corners_is_told_why(client):
    other = volume().data
    with pytest.raises(PlanError, match=r"fails on a corner of .*: where it uses another array of that size"):
        volume().drop_vars(["iline", "depth"]).forebay.chunk(lambda cut: cut + other, client, budget="3MB")


def test_what_cannot_be_cut_is_told(client):
    with pytest.raises(PlanError, match="no array with axes"):
        xarray.Dataset({"a": 3.0}).forebay.chunk(client=client, budget="1MB")
    with pytest.raises(PlanError, match=r"whole=\['time'\]: the axes are iline, xline, depth"):
        volume().forebay.chunk(client=client, budget="1MB", whole=("time",))
