"""Named arrays of xarray, cut for a pipeline."""

import numpy as np
import pytest

xarray = pytest.importorskip("xarray")
pytest.importorskip("distributed")

import forebay.dask.xarray  # noqa: E402, F401


def anomaly(named):
    return named - named.mean("depth")


@pytest.mark.slow
def test_a_named_array_is_cut_and_keeps_its_names_and_coordinates(client):
    values = np.random.default_rng(0).standard_normal((96, 80, 64), dtype="float32")
    coordinates = {"iline": np.arange(100, 196), "depth": np.linspace(0, 1, 64)}
    named = xarray.DataArray(values, coordinates, ("iline", "xline", "depth"), name="amplitude")
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
    cut = named.forebay.chunk(anomaly, client, budget="3MB", whole=("depth",))
    assert cut.chunks[0][0] % 16 == 0 and float(anomaly(cut).max()) == 0
