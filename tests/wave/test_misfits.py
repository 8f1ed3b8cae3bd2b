"""Misfits: exact derivatives, and what each is made for."""

import numpy as np
import pytest

from forebay.errors import WaveError
from forebay.wave.inversion.misfits import MISFITS, misfit_of


def traces(seed, shape=(60, 4)):
    noise = np.random.default_rng(seed).standard_normal(shape)
    return np.apply_along_axis(lambda trace: np.convolve(trace, np.hanning(9), "same"), 0, noise)


@pytest.mark.parametrize("samples", [59, 60])
@pytest.mark.parametrize("name", MISFITS)
def test_derivatives_are_exact(name, samples):
    data, observed, change = (traces(seed, (samples, 4)) for seed in range(3))
    value, slope = MISFITS[name](data, observed)
    size = 1e-5
    moved = (MISFITS[name](data + size * change, observed)[0] - MISFITS[name](data - size * change, observed)[0]) / 2
    assert np.vdot(slope, change) == pytest.approx(moved / size, rel=1e-6) and value > 0


@pytest.mark.parametrize("name", MISFITS)
def test_nothing_is_left_where_data_are_as_observed(name):
    observed = traces(1)
    value, slope = MISFITS[name](observed.astype(np.float32), observed.astype(np.float32))
    other, _ = MISFITS[name](-observed[::-1], observed)
    assert value == pytest.approx(0, abs=1e-9 * other) and np.abs(slope).max() < 1e-6 * max(1, other)


@pytest.mark.parametrize("name", MISFITS)
def test_silence_is_no_trouble(name):
    observed, nothing = traces(1), np.zeros((60, 4))
    for data, seen in ((nothing, observed), (observed, nothing), (nothing, nothing)):
        value, slope = MISFITS[name](data, seen)
        assert np.isfinite(value) and np.isfinite(slope).all() and slope.shape == (60, 4)


def test_transport_still_pulls_where_least_squares_do_not():
    time = np.arange(300.0)

    def pulse(late):
        return np.exp(-(((time - 80 - late) / 8) ** 2))[:, None]

    costs = {name: [MISFITS[name](pulse(late), pulse(0))[0] for late in (40, 80, 120)] for name in MISFITS}
    assert np.ptp(costs["least squares"]) < 1e-3 * costs["least squares"][0]
    assert costs["transport"][2] > 1.3 * costs["transport"][1] > 2 * costs["transport"][0]


def test_an_unknown_misfit_is_refused_and_ones_own_is_taken():
    with pytest.raises(WaveError, match="misfit='l1': take one of 'least squares', 'correlation'"):
        misfit_of("l1")
    assert misfit_of(np.hypot) is np.hypot
