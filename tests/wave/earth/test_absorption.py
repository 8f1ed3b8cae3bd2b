"""Absorbing layers against a model so large that nothing comes back from where they would be."""

import re
import warnings

import numpy as np
import pytest

from forebay.wave import (
    AcousticModel,
    ElasticModel,
    Grid,
    Shot,
    WaveWarning,
    absorbing_points,
    lowest_frequency,
    ricker,
    simulate,
)

SPEED, SPACING, FREQUENCY = 2000.0, 10.0, 17.0
WAVELENGTH = SPEED / FREQUENCY / SPACING


def decibels(part, whole):
    return 20 * np.log10(np.abs(part).max() / np.abs(whole).max())


def reflection(absorb, axis, *, dt=0.001, shape=(61, 61)):
    """Measure what comes back from one side, at normal incidence, where the wave enters the layer."""
    far = [30 * SPACING, 30 * SPACING]
    far[axis] = (shape[axis] - 1) * SPACING
    source = [30 * SPACING, 30 * SPACING]
    source[axis] = 5 * SPACING
    shot = Shot(source, far, ricker(FREQUENCY, dt, 1000), dt)
    larger = list(shape)
    larger[axis] += 120  # an echo from beyond arrives after the record's end
    small, large = (
        simulate(shot, AcousticModel(np.full(points, SPEED), Grid(points, SPACING, absorb=absorb)), dtype=np.float64)
        for points in (shape, tuple(larger))
    )
    return decibels(small - large, large)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_layer_of_a_wavelength_returns_less_than_a_thousandth(axis):
    assert reflection(round(WAVELENGTH), axis) < -60


def test_wider_layers_return_less():
    levels = [reflection(absorb, 0) for absorb in (5, 10, 20, 40)]
    assert levels == sorted(levels, reverse=True)
    assert levels[1] < -60 and levels[2] < -90


def test_waves_along_the_layer_are_not_disturbed_much():
    small, large = (Grid((points, 101), SPACING, absorb=20) for points in (31, 131))
    shot = Shot((200.0, 100.0), (200.0, 900.0), ricker(FREQUENCY, 0.001, 650), 0.001)
    beside, free = (simulate(shot, AcousticModel(np.full(grid.shape, SPEED), grid)) for grid in (small, large))
    assert decibels(beside - free, free) < -60


def elastic(grid):
    return ElasticModel(*(np.full(grid.shape, value, np.float32) for value in (SPEED, SPEED / 1.75, 2200.0)), grid)


def returned(medium, wavelet, dt, absorb, *, ndim=2, depth=45, aside=60, kinds=("explosion", "pressure")):
    """Measure what the lower side returns to a point at its layer, below a source at the top."""
    more = int(len(wavelet) * dt * SPEED / SPACING / 2) + 8  # beyond which nothing comes back in time
    beside, middle = (2 * aside + 1,) * (ndim - 1), (aside * SPACING,) * (ndim - 1)
    shot = Shot((4 * SPACING, *middle), ((depth - 1) * SPACING, *middle), wavelet, dt, sends=kinds[0], hears=kinds[1])
    small, large = (
        simulate(shot, medium(Grid((rows, *beside), SPACING, absorb=absorb))) for rows in (depth, depth + more)
    )
    return decibels(small - large, large)


@pytest.mark.parametrize(
    ("kinds", "aside"),
    [
        pytest.param(("explosion", "pressure"), 60, marks=pytest.mark.slow, id="pressure"),  # by several threads
        pytest.param(("force x", "velocity x"), 30, id="shear"),
    ],
)
def test_elastic_layers_as_wide_as_the_wavelet_needs_return_less_than_a_hundredth(kinds, aside):
    wavelet = ricker(5.0, 0.002, 700)
    needed = absorbing_points(elastic(Grid((9, 9), SPACING)), wavelet, 0.002)
    assert returned(elastic, wavelet, 0.002, needed, depth=40, aside=aside, kinds=kinds) < -40


def test_a_layer_need_not_be_wider_than_a_wave_can_return_from():
    medium, bump = elastic(Grid((9, 9), SPACING)), np.exp(-(np.linspace(-4, 4, 100) ** 2))
    assert lowest_frequency(bump, 0.002) == 0
    assert absorbing_points(medium, bump, 0.002) == np.ceil(0.1 * SPEED / SPACING)
    assert absorbing_points(medium, 0 * bump, 0.002) == 0


def test_layers_too_thin_are_warned_about_with_a_number_that_is_enough():
    shot = Shot((50.0, 50.0), (50.0, 90.0), ricker(5.0, 0.002, 700), 0.002)
    with pytest.warns(WaveWarning, match="absorb of at least") as told:
        simulate(shot, elastic(Grid((20, 20), SPACING)))
    assert told[0].filename == __file__
    enough = int(re.search(r"at least (\d+)", str(told[0].message)).group(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", WaveWarning)
        simulate(shot, elastic(Grid((20, 20), SPACING, absorb=enough)))
        simulate(shot, elastic(Grid((20, 20), SPACING, absorb=0)))  # a closed box is wanted
