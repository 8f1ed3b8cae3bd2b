"""Deepwave's gradients inside a budget are its own, in a tenth of the memory."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

deepwave = pytest.importorskip("deepwave")

import deepwave_inside_a_budget as inside  # noqa: E402 - of the examples

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="what a process takes at most is asked of Linux")
@pytest.mark.parametrize("kind", ["scalar", "elastic"])
def test_gradients_are_deepwaves_own_in_a_tenth_of_the_memory(kind):
    data, apart, own, within = inside.beside(kind)
    assert data[0].keys() == data[1].keys() and all(np.array_equal(data[0][name], data[1][name]) for name in data[0])
    assert apart < 1e-5  # sums of float32 in another order
    assert within < own / 10 and own > 100e6


def test_a_time_step_at_which_deepwave_resamples_is_refused():
    propagator, models, amplitudes, options = inside.shot("scalar", 40, 240)
    own = propagator(*models, **amplitudes, **options).receivers["u"]
    within = inside.heard_inside("1MB", propagator, models, amplitudes, 12, **options)["u"]
    assert np.array_equal(own.numpy(), within.numpy()) and own.any()
    with pytest.raises(ValueError, match=r"dt=0.004: .* take a dt below its CFL limit"):
        inside.heard_inside("1MB", propagator, models, amplitudes, 12, **options | {"dt": 0.004})


def test_the_page_shows_the_function_of_the_example():
    source = inspect.getsource(inside.heard_inside)
    assert source in PAGE.read_text()
    statements = [line for line in source.splitlines() if line.strip() and '"""' not in line]
    assert len(statements) <= 15
