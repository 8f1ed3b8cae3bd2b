"""The examples: the image is the same whatever is kept, and the same on a device."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import forebay as fb

pytest.importorskip("devito")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Devito runs on a CPU"),
    pytest.mark.filterwarnings("ignore::sympy.utilities.exceptions.SymPyDeprecationWarning"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_acoustic_images_are_the_same_whatever_is_kept():
    migrate = example("devito_acoustic_rtm").migrate
    kept, _ = migrate(shape=(81, 71), steps=150, budget="40MB", schedule="storeall")
    image, result = migrate(shape=(81, 71), steps=150, budget="1MB", schedule="revolve:5")
    assert np.abs(kept).max() > 1  # an echo has come back, and not only rounding
    assert np.array_equal(image, kept)
    assert result.plan.schedule == fb.Revolve(150, 5)


@pytest.mark.slow
def test_elastic_images_are_the_same_whatever_is_kept():
    migrate = example("devito_elastic_rtm").migrate
    kept, _ = migrate(shape=(33, 31), steps=60, budget="40MB", schedule="storeall")
    image, _ = migrate(shape=(33, 31), steps=60, budget="1MB", schedule="revolve:3")
    assert np.abs(kept).max() > 0
    assert np.array_equal(image, kept)


@pytest.mark.slow
def test_the_elastic_image_of_a_device_is_that_of_the_host(request):
    migrate = example("devito_elastic_rtm").migrate
    host, _ = migrate(shape=(33, 31), steps=60, budget="1MB", schedule="revolve:3")
    device = request.getfixturevalue("device")
    device.begin()
    image, _ = migrate(shape=(33, 31), steps=60, budget="1MB", schedule="revolve:3")
    assert np.abs(host).max() > 0
    np.testing.assert_allclose(image, host, rtol=1e-4, atol=1e-4 * np.abs(host).max())
    fields = device.diary.count("associate")
    # Every field once up; the receivers home and the residual up at the turn; what was written home at the end.
    assert device.diary.count("up") == fields + 2  # and the residual's coordinates with it
    assert device.associated == 0
