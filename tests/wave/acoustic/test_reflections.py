"""Absorbing layers against a model so large that nothing comes back from where they would be."""

import numpy as np
import pytest

from forebay.wave import (
    AcousticModel,
    Grid,
    Shot,
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


@pytest.mark.slow
def test_wider_layers_return_less():
    levels = [reflection(absorb, 0) for absorb in (5, 10, 20, 40)]
    assert levels == sorted(levels, reverse=True)
    assert levels[1] < -60 and levels[2] < -90


def test_waves_along_the_layer_are_not_disturbed_much():
    small, large = (Grid((points, 101), SPACING, absorb=20) for points in (31, 131))
    shot = Shot((200.0, 100.0), (200.0, 900.0), ricker(FREQUENCY, 0.001, 650), 0.001)
    beside, free = (simulate(shot, AcousticModel(np.full(grid.shape, SPEED), grid)) for grid in (small, large))
    assert decibels(beside - free, free) < -60
