"""Axes that have certain lengths alone, and parameters, as inputs of a model."""

import sys
from functools import partial

import numpy as np
import pytest
from tests.footprint import functions
from tests.footprint.test_learn import Pretend
from typer.testing import CliRunner

from forebay.cli.main import app
from forebay.footprint import FootprintError, FootprintWarning, Model, Sample, learn, load
from forebay.footprint.measure.conditions import Conditions
from forebay.footprint.measure.inputs import InputLayout, InputRecipe
from forebay.footprint.measure.process import Child, Workload
from forebay.footprint.search.search import Search
from forebay.footprint.search.spending import Spending
from forebay.footprint.values import read_values

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells exact peaks")
BATCH = 128 * 1024


class Called(Pretend):
    """Peaks from a formula of lengths and parameters."""

    def measure(self, lengths, seed=0, timeout=None, views=False, parameters=None):
        called = parameters or {}
        self.shapes.append((*lengths, *called.values()))
        peak = max(int(self.peak(*lengths, **called) - self.rng.uniform(0, BATCH)), 0)
        seconds = 1e-8 * np.prod(lengths)
        return Sample(lengths, peak, seconds, None, lengths, "float32", parameters=called, seed=seed)


def search(peak, ndim, samples=20, axes=None, **parameters):
    layout = InputLayout.of(ndim, axes, parameters)
    blank = Model("called", layout, np.dtype("float32"), (), Conditions("pretended", True, BATCH, ""))
    called = Called(peak)
    return Search(called, blank, Spending(samples, 1e18, 0.06, 1, 2**22, 0, None), varied=False).go(), called


WINDOWS = {
    "of each element": lambda a, b, c, size: 4 * a * b * c + 4 * a * b * c * size,
    "around the volume": lambda a, b, c, size: 12 * (a + 2 * size) * (b + 2 * size) * (c + 2 * size),
    "of each line": lambda a, b, c, size: 8 * a * b * c + 800 * a * b * size,
    "squared": lambda a, b, c, size: 2 * a * b * c * size**2,
    "no matter": lambda a, b, c, size: 16 * a * b * c,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "of each line" else pytest.param(name, marks=pytest.mark.slow) for name in WINDOWS]
)
def test_unseen_values_and_shapes_are_foreseen(name):
    peak = WINDOWS[name]
    model, called = search(peak, 3, size=(1, 31))
    assert len(called.shapes) <= 21  # the first warms up
    for shape, size in (((400, 300, 500), 7), ((200, 700, 300), 23), ((350, 350, 350), 31)):
        run, true = model.predict(shape, size=size), peak(*shape, size)
        assert run.bytes == pytest.approx(true, rel=0.05) and true <= run.upper


@pytest.mark.slow
def test_two_parameters_are_told_apart():
    def peak(a, b, size, sigma):
        return 4 * a * b * size + 8 * (a + 8 * sigma) * (b + 8 * sigma)

    model, _ = search(peak, 2, size=(1, 9), sigma=(1.0, 8.0))
    run = model.predict((3000, 2000), size=4, sigma=5.5)
    assert run.bytes == pytest.approx(peak(3000, 2000, 4, 5.5), rel=0.05)


@pytest.mark.slow
def test_channels_are_never_varied_nor_cut_nor_mistaken():
    model, called = search(lambda a, b, c: 40 * a * b * c, 3, axes={2: 3})
    assert {shape[2] for shape in called.shapes} == {3} and "n2 3" in model.explain()
    assert model.predict((3000, 2000, 3)).bytes == pytest.approx(720e6, rel=0.02)
    assert model.chunks((3000, 2000, 3), "20MB")[2] == 3
    with pytest.raises(FootprintError, match="n2 is 4: it was learned for 3"):
        model.predict((3000, 2000, 4))


@pytest.mark.slow
def test_samples_have_legal_lengths_alone():
    _, called = search(lambda a, b: 8 * a * b, 2, axes={0: [16, 32, 64, 128, 256, 512], 1: range(48, 4000, 24)})
    assert all(a & (a - 1) == 0 and b % 24 == 0 and b >= 48 for a, b in called.shapes)
    assert len(set(called.shapes)) > 4


@pytest.mark.slow
def test_parameters_are_asked_for_by_name_and_kept_in_the_file(tmp_path):
    model, _ = search(WINDOWS["of each element"], 3, samples=9, size=(1, 31))
    with pytest.raises(FootprintError, match=r"give the parameters it was learned with, size \(1 to 31\), not none"):
        model.predict((30, 40, 50))
    with pytest.raises(FootprintError, match="size='big' is not a number"):
        model.predict((30, 40, 50), size="big")
    assert model.chunks((300, 400, 500), "50MB", size=2) > model.chunks((300, 400, 500), "50MB", size=20)
    assert model.called_with(size=20).predict((30, 40, 50)) == model.predict((30, 40, 50), size=20)
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json", ndim=3, parameters={"size": (1, 31)})
    assert again == model and again.predict((30, 40, 50), size=8) == model.predict((30, 40, 50), size=8)
    with pytest.raises(FootprintError, match="learned for other parameters"):
        load(tmp_path / "model.json", parameters={"size": (1, 32)})


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"axes": {3: 3}}, "there are axes 0 to 1"),
        ({"axes": {0: 2.5}}, "whole numbers"),
        ({"axes": {0: "three"}}, "give a number, a pair"),
        ({"parameters": {"sigma": None}}, "sigma=None: give a number"),
    ],
)
def test_what_is_no_set_of_values_is_refused(how, says):
    with pytest.raises(FootprintError, match=says):
        learn(functions.double, ndim=2, **how)


def test_values_are_read_as_they_are_written():
    assert read_values((1, 8)).nearest(3.4) == 3 and read_values((1.0, 8)).nearest(3.4) == 3.4
    assert read_values(range(3, 32, 2)).nearest(8.1) in (7, 9) and 8 not in read_values(range(3, 32, 2))
    assert read_values([64, 16, 32]).nearest(1000) == 64 and read_values(5).fixed


@linux
@pytest.mark.slow
def test_a_function_is_called_with_its_parameters():
    model = learn(partial(functions.windowed, fill=1.0), ndim=2, parameters={"size": (1, 9)}, samples=9, seconds=600)
    run = model.predict((2000, 3000), size=5)
    assert run.bytes == pytest.approx(4 * 5 * 6e6, rel=0.05) and run.output_shape == (2000, 3000, 5)


@linux
@pytest.mark.slow
def test_images_and_powers_of_two_just_work():
    with pytest.warns(FootprintWarning, match="where n2 has 3 elements"):
        model = learn(functions.grey, ndim=3, samples=5, seconds=600)
    assert model.predict((3000, 2000, 3)).output_shape == (3000, 2000)
    with pytest.warns(FootprintWarning, match="at powers of two"):
        model = learn(functions.hadamard, ndim=1, samples=5, seconds=600)
    assert model.predict((2**20,)).bytes == pytest.approx(2**22, rel=0.05)


@linux
@pytest.mark.slow
def test_blocks_that_know_their_place_and_numbers_beside_arrays_are_learned():
    assert learn(functions.placed, ndim=2, samples=5, seconds=600).predict((2000, 3000)).bytes > 23e6
    model = learn(functions.scaled, ndim=[2, 0], samples=5, seconds=600)
    assert model.predict([(2000, 3000), ()]).bytes == pytest.approx(24e6, rel=0.05)


@pytest.mark.slow
@linux
def test_the_command_line_takes_keywords_parameters_and_axes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = [
        "footprint",
        "tests.footprint.functions:windowed",
        "--shape",
        "2000,3000",
        "--samples",
        "9",
        "--seconds",
        "600",
    ]
    more = ["--keyword", "size=4", "--keyword", "fill=2.0", "--parameter", "size=1,9", "--axis", "0=16:4096:16"]
    result = CliRunner().invoke(app, [*asked, *more], catch_exceptions=False)
    assert result.exit_code == 0 and "(2000, 3000), size=4:" in result.output
    assert "gives float32 (2000, 3000, 4)" in " ".join(result.output.split())


def filtered(x, sigma):
    """Smooth with a bell."""
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(x, sigma)


def median(x, size):
    """Take medians of odd windows."""
    from scipy.ndimage import median_filter

    return median_filter(x, size)


def zoomed(x, zoom):
    """Change the number of elements."""
    from scipy.ndimage import zoom as resample

    return resample(x, zoom)


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "ndim", "parameters", "unseen"),
    [
        (filtered, 3, {"sigma": (1, 8)}, [((200, 210, 300), 4), ((300, 150, 300), 7)]),
        (filtered, 2, {"sigma": (1.0, 8.0)}, [((3000, 2100), 4.4), ((1500, 4000), 2.3)]),
        (median, 2, {"size": range(3, 12, 2)}, [((1500, 1000), 5), ((1000, 2000), 9)]),
        (zoomed, 2, {"zoom": (0.5, 3.0)}, [((1500, 1700), 2.0), ((1500, 2000), 1.3)]),
    ],
)
def test_one_model_foresees_unseen_values_and_shapes_of_scipy(function, ndim, parameters, unseen):
    pytest.importorskip("scipy")
    model = learn(function, ndim=ndim, parameters=parameters, samples=20, largest=1e6, seconds=600)
    child = Child(Workload(function, InputRecipe(InputLayout.of(ndim), "float32")))
    try:
        child.measure(model.samples[0].lengths, parameters=model.samples[0].parameters)  # warms up
        for shape, value in unseen:
            called = dict.fromkeys(parameters, value)
            peak, run = child.measure(shape, parameters=called).peak, model.predict(shape, **called)
            assert run.bytes == pytest.approx(peak, rel=0.05) and peak <= run.upper
    finally:
        child.close()
