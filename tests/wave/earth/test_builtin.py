"""Built-in models: the sizes that are promised, the same from the same seed, and what their names say in them."""

import importlib

import numpy as np
import pytest
from tests.wave import twins
from tests.wave.emulator import GPP, Emulator

from forebay.errors import WaveError
from forebay.wave.earth import arrays
from forebay.wave.earth.arrays import on_host
from forebay.wave.earth.builtin import BUILTIN, SALT, WATER, make
from forebay.wave.earth.fused import Sheet, Traced, filled, traced
from forebay.wave.earth.smoothing import smooth

X = np.array([[[0.1, 0.7, 2.0], [-0.3, 1.1, 0.5]]])
"""Something that differs from column to column."""


@pytest.mark.parametrize(
    ("name", "shape"),
    [("salt", (310, 676, 676)), ("marmousi3d", (351, 901, 301)), ("large", (500, 500, 500)), ("marmousi", (351, 901))],
)
def test_full_sizes_are_those_of_the_literature(name, shape):
    assert BUILTIN[name].full == shape
    steps = [1000 * length / points for length, points in zip(BUILTIN[name].extent, shape, strict=False)]
    assert np.allclose(steps, steps[0])  # cells are square, or cubes


@pytest.mark.parametrize("name", BUILTIN)
def test_small_ones_have_water_on_top_and_are_the_same_each_time(name):
    shape = tuple(points // 3 for points in BUILTIN[name].small)
    one, again, other = make(name, shape=shape), make(name, shape=shape), make(name, shape=shape, seed=1)
    assert one.values.shape == shape and one.values.dtype == np.float32
    assert (one.values[0] == WATER).all() and one.values.min() == WATER
    assert np.array_equal(one.values, again.values)
    assert (one.values != other.values).mean() > 0.1


@pytest.mark.parametrize("name", BUILTIN)
def test_velocity_grows_with_depth_on_the_whole(name):
    values = make(name, shape=BUILTIN[name].small[:2]).values
    thirds = [part.mean() for part in np.array_split(values, 3)]
    assert thirds[0] < thirds[1] < thirds[2]
    assert values.min() >= 1500 and values.max() < 6000


def test_a_section_is_the_middle_of_its_volume():
    section, volume = make("salt", shape=(62, 136)), make("salt", shape=(62, 136, 136))
    assert np.array_equal(section.values, volume.values[:, :, 68])


@pytest.mark.parametrize("name", ["marmousi", "salt"])
def test_a_coarse_grid_holds_the_same_ground_as_a_fine_one(name):
    fine = make(name, shape=tuple(4 * points for points in BUILTIN[name].small[:2])).values[::4, ::4]
    coarse = make(name, shape=BUILTIN[name].small[:2]).values
    assert np.corrcoef(fine.ravel(), coarse.ravel())[0, 1] > 0.98
    assert (np.abs(fine - coarse) < 0.02 * fine).mean() > 0.75  # but for cells that a boundary crosses


def test_salt_is_one_body_in_the_sediments_with_an_overhang():
    values = make("salt", shape=(155, 338)).values
    salt = values == SALT
    assert 0.1 < salt.mean() < 0.35
    assert not salt[:, :50].any() and not salt[:, -50:].any() and not salt[:20].any()
    widths = salt.sum(axis=1)
    roof, waist, foot = widths[35:55].max(), widths[60:95].min(), widths[105:].max()
    assert waist < 0.7 * roof and waist < 0.7 * foot
    changes = np.abs(np.diff(salt.astype(int), axis=1)).sum(axis=1)
    assert set(changes[60:95]) == {2}  # in and out once


@pytest.mark.parametrize(("start", "dip"), [(2.75, 0.55), (3.79, 0.50), (4.82, 0.45)])
def test_marmousi_has_faults(start, dip):
    values = make("marmousi", size="full").values
    rows = np.arange(70, 170)
    depth = rows / 100  # kilometres, at 10 m a row
    line = np.rint(100 * (start + dip * depth * (1 + 0.25 * depth))).astype(int)

    def change(column):
        return np.abs(values[rows, column + 3] - values[rows, column - 3]).mean()

    beside = max(change(line - away) for away in (20, 30, 40))
    assert change(line) > 1.5 * beside


def test_what_is_not_there_is_refused():
    for options in ({"name": "overthrust"}, {"name": "salt", "size": "huge"}, {"name": "marmousi", "dims": 3}):
        with pytest.raises(WaveError, match=r"take"):
            make(**options)
    with pytest.raises(WaveError, match="two or three axes"):
        make("salt", shape=(10,))


def test_smoothing_keeps_the_time_of_travel():
    values = make("layers", size="full").values
    smoothed = smooth(values, (10.0, 10.0), 60.0)
    assert np.abs(np.diff(smoothed, axis=0)).max() < 0.2 * np.abs(np.diff(values, axis=0)).max()
    times = [(10 / one[20:-20].astype(float)).sum(axis=0) for one in (values, smoothed)]
    assert np.abs(times[0] / times[1] - 1).max() < 0.01
    plain = smooth(values, (10.0, 10.0), 60.0, slowness=False)
    assert plain[100:140].mean() > smoothed[100:140].mean()  # slowness gives slow parts their weight


@pytest.mark.parametrize("place", twins.PLACES)
@pytest.mark.parametrize("name", BUILTIN)
def test_a_gpu_makes_the_same_model(name, place):
    small = BUILTIN[name].small
    shape = tuple(points // (4 if len(small) == 2 else 6) for points in small)
    device = Emulator() if place == "emulated" else importlib.import_module("forebay.wave.kernels.device").Device()
    expected, found = make(name, shape=shape).values, on_host(make(name, shape=shape, device=device).values)
    assert found.dtype == np.float32 and found.shape == shape
    differ = found != expected
    assert differ.mean() < 1e-4
    assert np.abs(found[differ] - expected[differ]).max(initial=0) <= np.spacing(np.float32(2048))


def test_what_no_kernel_is_written_for_is_refused_on_a_gpu():
    depth = Traced(Sheet(), np.arange(3.0))
    for formula, named in ((lambda z: np.tan(z - X), "tan"), (lambda z: np.diff(z), "diff"), (np.add.reduce, "reduce")):
        with pytest.raises(WaveError, match=f"numpy.*{named}"):
            formula(depth)


@pytest.mark.parametrize(
    "formula",
    [
        lambda z: (X - z) ** 2 / 3,
        lambda z: -np.maximum(z - X, 0) / np.inf + 1,
        lambda z: np.interp(z - X, [-1.0, 0.5, 2.0], [1.0, 3.0, 2.0]),
        lambda z: np.interp(z, [-1.0, 0.5, 2.0], [1.0, 3.0, 2.0]) + X,
        lambda z: np.clip(z / 2, 0.25, X) - np.clip(X - z, 0, 1),
    ],
)
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
def test_a_formula_is_worked_out_as_numpy_does(formula):
    depths = np.linspace(-3, 3, 25).reshape(-1, 1, 1)
    sheets = [traced(formula, depths, *X.shape[1:])]
    assert np.array_equal(filled(Emulator(), sheets, (25, 2, 3)), (formula(depths) + 0 * X).astype(np.float32))


@pytest.mark.parametrize("place", twins.PLACES)
@pytest.mark.parametrize(
    ("shape", "dtype", "length"),
    [
        ((9, 14, 5), np.float32, 30.0),
        ((12, 11), np.float64, 4.0),
        ((7, 6, 8), np.float32, 0.0),
        ((6, 5), np.int16, 25.0),
    ],
)
@pytest.mark.parametrize("slowness", [True, False])
def test_a_gpu_smooths_to_the_same_bits(place, shape, dtype, length, slowness):
    values = np.random.default_rng(4).uniform(1500, 4500, shape).astype(dtype)
    device = Emulator() if place == "emulated" else importlib.import_module("forebay.wave.kernels.device").Device()
    spacing = (10.0, 12.5, 4.0)[: len(shape)]
    found = smooth(device.arrays.asarray(values), spacing, length, slowness=slowness, device=device)
    assert found.dtype == dtype
    assert np.array_equal(on_host(found), smooth(values, spacing, length, slowness=slowness))


def test_large_arrays_of_a_gpu_are_copied_into_memory_that_is_there(monkeypatch):
    values, asked = np.arange(24.0).reshape(4, 6), []

    class There:
        __cuda_array_interface__ = None
        shape, dtype, nbytes = values.shape, values.dtype, values.nbytes

        def get(self, out=None):
            asked.append(out is None)
            if out is None:
                return values.copy()
            assert out.flags.c_contiguous and not out.any()
            out[...] = values
            return out

    monkeypatch.setattr(arrays, "computable", lambda array, what: array)
    for large in (values.nbytes + 1, values.nbytes):
        monkeypatch.setattr(arrays, "LARGE", large)
        assert np.array_equal(on_host(There()), values)
    assert asked == [True, False]
