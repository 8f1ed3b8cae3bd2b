"""The inverse-scattering condition is what it is defined as, and takes the shade above a sharp step out of an image."""

from collections import deque

import numpy as np
import pytest

from forebay.wave import (
    AcousticModel,
    Grid,
    Shot,
    inverse_scattering,
    laplacian_filter,
    migrate,
    normalise,
    ricker,
    simulate,
)


def echo(model, smooth, shot, **options):
    """Return the shot with what a model sends back beyond a smooth one."""
    return shot.with_data(simulate(shot, model, **options) - simulate(shot, smooth, **options))


@pytest.mark.slow
def test_it_is_the_sum_that_defines_it():
    grid, dt = Grid((81, 101), 10.0, absorb=20), 0.001
    depth = np.arange(81)[:, None] + np.zeros(grid.shape)
    speed = 1800.0 + 8.0 * depth  # it varies
    smooth = AcousticModel(speed, grid, max_vel=3000.0)
    stepped = AcousticModel(np.where(depth < 55, speed, 1.2 * speed), grid, max_vel=3000.0)
    shot = Shot((20.0, 500.0), [(20.0, x) for x in range(0, 1001, 20)], ricker(8.0, dt, 1100), dt)
    waves, total = deque(maxlen=3), np.zeros(grid.shape)

    def condition(source, receiver, step):
        waves.append(np.array([source, receiver], np.float64))
        if len(waves) == 3:
            rates = (waves[2] - waves[0]) / (2 * dt)
            slopes = np.array([np.gradient(wave, 10.0) for wave in waves[1]])
            total[:] += dt * (rates.prod(axis=0) / stepped.velocity**2 - slopes.prod(axis=0).sum(axis=0))

    # The image is made in the model that has the step, where the waves' own echoes make shade.
    found = migrate(echo(stepped, smooth, shot, dt=dt), stepped, dt=dt, every=1, condition=condition, budget="1GB")
    inside = (slice(10, 75), slice(15, 86))  # away from what sends and hears, where waves are made
    expected = total[inside]
    alike = laplacian_filter(found.image, grid, order=8)[inside] / 2
    assert np.linalg.norm(alike - expected) < 0.015 * np.linalg.norm(expected)
    even = normalise(laplacian_filter(found.image, grid, order=8) / 2, found.illumination)
    assert np.array_equal(found.inverse_scattering(), even)
    assert np.array_equal(inverse_scattering(found.image, found.illumination, grid), even)


@pytest.mark.parametrize("points", [4, 6, 10])
def test_it_weighs_waves_of_all_lengths_alike(points):
    # Waves of one frequency against each other make an image of twice their wavenumber k; of which it takes 2 k^2.
    grid, k = Grid((60, 40), 10.0), 2 * np.pi / (10.0 * points)
    image = np.cos(2 * k * 10.0 * np.arange(60))[:, None] + np.zeros(grid.shape)
    found = inverse_scattering(image, np.ones(grid.shape), grid)[10:50, 10:30]
    assert np.abs(found / (2 * k**2) - image[10:50, 10:30]).max() < {4: 0.35, 6: 0.05, 10: 0.002}[points]


@pytest.mark.slow
def test_it_takes_the_shade_above_a_sharp_step_away():
    grid, dt = Grid((91, 121), 10.0, absorb=20), 0.002
    speed = np.full(grid.shape, 2000.0)
    speed[60:] = 3000.0
    uniform = AcousticModel(np.full(grid.shape, 2000.0), grid, max_vel=3000.0)
    stepped = AcousticModel(speed, grid, max_vel=3000.0)
    wavelet, receivers = ricker(15.0, dt, 550), [(20.0, x) for x in range(0, 1201, 10)]
    images = {"plain": 0.0, "filtered": 0.0, "scattering": 0.0}
    for x in (300.0, 500.0, 700.0, 900.0):
        shot = echo(stepped, uniform, Shot((20.0, x), receivers, wavelet, dt))
        found = migrate(shot, stepped, zero_phase=True, budget="256MB")
        images["plain"] += normalise(found.image, found.illumination)
        images["filtered"] += found.clean()
        images["scattering"] += found.inverse_scattering()
    noise = {}
    for name, image in images.items():
        peak = np.abs(image[55:65, 30:91]).max(axis=0)
        noise[name] = float(np.sqrt(np.mean((image[25:50, 30:91] / peak) ** 2)))
    assert noise["plain"] > 0.1
    assert noise["scattering"] < noise["plain"] / 5
    assert noise["scattering"] < noise["filtered"]
