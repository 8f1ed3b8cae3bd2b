"""Gathers are flat where the velocity is right, and bend as rays say where it is not; they add up to the image."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forebay.wave import AcousticModel, Grid, Shot, WaveError, gathers, laplacian_filter, migrate, ricker, simulate
from forebay.wave.gathers import shares

GRID, ROW, SPEED, DT = Grid((81, 201), 10.0, absorb=20), 50, 2000.0, 0.002
DEPTH = 10.0 * ROW - 5.0
"""of the step, which is between two rows"""
DISTANCES = np.arange(0.0, 501.0, 100.0)
PLACE = 100
"""the column that is looked at"""


def medium(speed):
    return AcousticModel(np.full(GRID.shape, speed), GRID, max_vel=2600.0)


@cache
def echoes():
    """Return shots at all distances on both sides, with what a flat reflector sends back."""
    true = np.full(GRID.shape, SPEED)
    true[ROW:] = 2600.0
    receivers, wavelet = [(0.0, x) for x in range(0, 2001, 10)], ricker(18.0, DT, 450)
    shots = [Shot((0.0, 1000.0 + side), receivers, wavelet, DT) for side in (-500.0, -400, -200, 0, 100, 300)]
    models = AcousticModel(true, GRID, max_vel=2600.0), medium(SPEED)
    return [shot.with_data(np.subtract(*(simulate(shot, model) for model in models))) for shot in shots]


def imaged(offset, speed):
    """Return at which distance and depth a ray puts the echo of an offset, migrated at a speed.

    Its time t and slope p are those of the true speed. The source's ray and the receiver's, which leaves at the sine
    p speed, meet where their times add up to t.
    """
    t = np.hypot(offset, 2 * DEPTH) / SPEED
    sine = speed * offset / (SPEED**2 * t)
    length = ((speed * t) ** 2 - offset**2) / (2 * (speed * t - offset * sine))
    return offset - length * sine, length * np.sqrt(1 - sine**2)


def picked(found):
    """Return the depth of the largest value below the surface, between the points, of each distance."""
    depths = []
    for column in found.clean()[:, 25:, PLACE]:
        top = int(column.argmax())
        before, here, after = column[top - 1 : top + 2]
        depths.append(10.0 * (25 + top + 0.5 * (before - after) / (before - 2 * here + after)))
    return np.array(depths)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.95, 1.0, 1.05])
def test_a_gather_is_flat_at_the_true_velocity_and_bends_as_rays_say_at_others(share):
    offsets = np.linspace(0.0, 1400.0, 300)
    places, depths = imaged(offsets, share * SPEED)
    expected = np.interp(DISTANCES, places, depths)
    found = picked(gathers(echoes(), medium(share * SPEED), DISTANCES, zero_phase=True, budget="64MB"))
    assert np.abs(found - expected).max() < 0.6 * GRID.spacing[0]
    bend = expected[-1] - expected[0]
    if share == 1.0:
        assert np.ptp(expected) < 1e-9 and np.ptp(found) < 0.6 * GRID.spacing[0]
    else:
        assert np.sign(found[-1] - found[0]) == np.sign(share - 1.0)
        assert found[-1] - found[0] == pytest.approx(bend, rel=0.15) and abs(bend) > 1.5 * GRID.spacing[0]


@pytest.mark.slow
def test_shade_above_a_sharp_step_is_taken_from_each_distance():
    grid, dt = Grid((91, 121), 10.0, absorb=20), 0.002
    speed = np.full(grid.shape, 2000.0)
    speed[60:] = 3000.0
    uniform = AcousticModel(np.full(grid.shape, 2000.0), grid, max_vel=3000.0)
    stepped = AcousticModel(speed, grid, max_vel=3000.0)
    shot = Shot((20.0, 600.0), [(20.0, x) for x in range(0, 1201, 10)], ricker(15.0, dt, 550), dt)
    shot = shot.with_data(simulate(shot, stepped) - simulate(shot, uniform))
    found = gathers(shot, stepped, [0.0, 100.0, 200.0, 300.0], zero_phase=True, budget="256MB").clean()
    for number, image in enumerate(found):
        lit = [60 + sign * 10 * number for sign in (-1, 1)]  # the columns at this distance
        peak = np.abs(image[55:65, lit]).max()
        assert np.abs(image[25:50]).max() < 0.4 * peak


def small():
    grid = Grid((20, 30), 10.0, absorb=8)
    model = AcousticModel(np.full(grid.shape, 2000.0), grid)
    receivers = [(20.0, x) for x in range(0, 300, 30)]
    shots = [Shot((20.0, x), receivers, ricker(12.0, 0.002, 120), 0.002) for x in (100.0, 150.0)]
    rng = np.random.default_rng(1)
    return [shot.with_data(rng.standard_normal((120, 10))) for shot in shots], model


def test_gathers_add_up_to_the_image():
    shots, model = small()
    found = gathers(shots, model, [0.0, 50.0, 150.0, 400.0], budget="4MB")
    image, light = (
        sum(getattr(migrate(shot, model, budget="4MB"), name) for shot in shots) for name in ("image", "illumination")
    )
    assert found.images.shape == (4, 20, 30) and found.images.dtype == image.dtype
    assert np.allclose(found.images.sum(axis=0), image, atol=1e-5 * np.abs(image).max())
    assert np.allclose(found.illuminations.sum(axis=0), light, atol=1e-5 * light.max())
    filtered = laplacian_filter(image, model.grid, order=8) / 2
    assert np.allclose(found.scattered.sum(axis=0), filtered, atol=1e-5 * np.abs(filtered).max())


def test_a_point_belongs_to_the_distances_beside_it():
    shot = Shot((20.0, 100.0), [(20.0, 0.0)], np.zeros(10), 0.002)
    share = shares(shot, Grid((20, 60), 10.0), np.array([50.0, 150.0]))
    assert np.array_equal(share[:, 10], [1, 0]) and np.allclose(share[:, 20], [0.5, 0.5])
    assert np.array_equal(share[:, 25], [0, 1]) and np.allclose(share[:, 30], [0, 0.5])  # it fades out
    assert np.array_equal(share[:, 40:], np.zeros((2, 20)))
    volume = shares(
        Shot((20.0, 30.0, 40.0), [(20.0, 0.0, 0.0)], np.zeros(10), 0.002), Grid((20, 9, 9), 10.0), np.array([0.0, 50.0])
    )
    assert volume.shape == (2, 9, 9) and volume[1, 3 + 3, 4 + 4] == volume[1, 8, 4] == 1


@pytest.mark.parametrize("distances", [[], [100.0], [0.0, 0.0], [[0.0, 1.0]], [0.0, float("inf")]])
def test_distances_that_tell_nothing_are_refused(distances):
    shots, model = small()
    with pytest.raises(WaveError, match="give two or more, in metres, each above the one before"):
        gathers(shots, model, distances)
    with pytest.raises(WaveError, match="no shots"):
        gathers([], model, [0.0, 100.0])
    with pytest.raises(WaveError, match="one without data"):
        gathers([shots[0], replace(shots[1], data=None)], model, [0.0, 100.0])
