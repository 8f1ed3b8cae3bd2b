"""Where a library of the extra wave is missing, an error names both; nothing asks for one that it does not need."""

import sys

import numpy as np
import pytest
from tests.wave.elastic_setups import mixed_shot, random_rock
from tests.wave.setups import random_model, random_shot

from forebay.errors import WaveError
from forebay.wave import Resampler, simulate
from forebay.wave.earth.smoothing import smooth

NO_NUMBA = "^computing waves needs numba: install Forebay with its extra wave$"


@pytest.fixture
def without_numba(monkeypatch):
    """Forget Numba and all loops that were compiled with it."""
    for name in list(sys.modules):
        if name.startswith("forebay.wave.kernels.") or (".cpu" in name and name.startswith("forebay.wave.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)


@pytest.mark.parametrize(("make", "shot"), [(random_model, random_shot), (random_rock, mixed_shot)])
def test_waves_without_numba_are_refused_by_its_name_and_extra(without_numba, make, shot):
    model = make((31, 37))
    with pytest.raises(WaveError, match=NO_NUMBA):
        simulate(shot(model, samples=1000), model)


def test_resampling_without_numba_is_refused_alike(without_numba):
    with pytest.raises(WaveError, match=NO_NUMBA):
        Resampler(10, 0.004, 20, 0.002)(np.ones((10, 2)))


def test_smoothing_without_scipy_is_refused_by_its_name_and_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    with pytest.raises(WaveError, match=r"^smoothing a model needs scipy: install Forebay with its extra wave$"):
        smooth(np.ones((5, 5)), (10.0, 10.0), 20.0)


def test_lists_are_smoothed_like_arrays():
    values = np.linspace(2000.0, 3000.0, 30).reshape(5, 6)
    assert np.array_equal(smooth(values.tolist(), (10.0, 10.0), 20.0), smooth(values, (10.0, 10.0), 20.0))
