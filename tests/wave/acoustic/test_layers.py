"""Absorbing layers return next to nothing, follow from nothing that waves do not reach, and stay bounded."""

import numpy as np
import pytest
from tests.wave.setups import random_model, random_positions

from forebay.wave import Acoustic, AcousticModel, Grid, Shot, largest_dt, ricker, simulate

REFLECTED = 1e-3
"""What layers of 20 points may add to data, relative to them."""


def faulted(shape):
    """Make dipping layers with a fault, as fast as 3400 m/s."""
    depth, along = np.meshgrid(*(np.arange(points) for points in shape), indexing="ij")
    depth = depth + np.where(along > 0.55 * shape[1] + 0.2 * depth, 8, 0)
    tops, speeds = np.array([20, 38, 55, 75]), np.array([1500.0, 1900.0, 2300.0, 2700.0, 3400.0])
    return speeds[np.searchsorted(tops, depth, side="right")]


def reflected(velocity, shot, dt, absorb, free_surface=False):
    """Compare data with those of a larger model, from whose edges nothing returns in time."""
    far = int(len(shot.wavelet) * shot.dt * velocity.max() / 20.0) + 10
    around = [(0 if free_surface else far, far), *((far, far) for _ in velocity.shape[1:])]
    padded = np.pad(velocity, around, mode="edge")
    origin = [-10.0 * before for before, _ in around]
    models = [
        AcousticModel(velocity, Grid(velocity.shape, 10.0, absorb=absorb, free_surface=free_surface)),
        AcousticModel(padded, Grid(padded.shape, 10.0, origin, absorb=0, free_surface=free_surface)),
    ]
    data, expected = (simulate(shot, model, dt=dt, dtype=np.float64) for model in models)
    return np.linalg.norm(data - expected) / np.linalg.norm(expected)


@pytest.mark.slow
@pytest.mark.parametrize(("frequency", "free_surface"), [(12.0, False), (4.0, True)])
def test_twenty_points_return_less_than_a_thousandth_of_layered_ground(frequency, free_surface):
    velocity, dt = faulted((90, 120)), 0.002
    shot = Shot((20.0, 500.0), [(20.0, x) for x in range(0, 1190, 70)], ricker(frequency, dt, 450), dt)
    assert reflected(velocity, shot, dt / 2, 20, free_surface) < REFLECTED / 10


def test_data_do_not_follow_from_a_cell_that_no_wave_reaches():
    velocity, dt = np.full((60, 400), 2000.0), 0.002
    shot = Shot((200.0, 300.0), [(200.0, 700.0)], ricker(15.0, dt, 200), dt)  # 0.4 s, and the cell is 3 km away
    spot = velocity.copy()
    spot[30, 350] = 4500.0
    grid = Grid(velocity.shape, 10.0)
    one, other = (simulate(shot, AcousticModel(values, grid), dt=dt / 2) for values in (velocity, spot))
    assert np.abs(one - other).max() < 1e-6 * np.abs(one).max() and np.abs(one).max() > 0
    one, other = (simulate(shot, AcousticModel(values, grid, max_vel=4500.0)) for values in (velocity, spot))
    assert np.abs(one - other).max() < 1e-6 * np.abs(one).max()


@pytest.mark.slow
@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_waves_that_graze_a_layer_stay_bounded_and_return_little(free_surface):
    velocity, dt = np.full((30, 300), 2000.0), 0.002
    shot = Shot((260.0, 100.0), [(270.0, x) for x in range(1000, 2801, 300)], ricker(12.0, dt, 750), dt)
    assert reflected(velocity, shot, dt / 2, 20, free_surface) < REFLECTED


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(24, 30), pytest.param((12, 14, 13), marks=pytest.mark.slow)], ids=["2-D", "3-D"])
def test_twenty_thousand_steps_at_the_largest_time_step_stay_bounded(shape):
    model = random_model(shape, absorb=12, roughness=1500.0)
    propagator = Acoustic(model, largest_dt(model))
    state, source = propagator.zeros(), propagator.antenna(random_positions(model.grid, 1))
    sent = np.zeros((20_000, 1), np.float32)
    sent[:40, 0] = np.random.default_rng(1).standard_normal(40)
    loudness = []
    for start in range(0, 20_000, 2000):
        state = propagator.advance(state, source, sent, range(start, start + 2000))
        loudness.append(float(np.abs(state["p"]).max()))
    # Of noise the shortest waves hardly travel: they leave last.
    assert loudness[0] == max(loudness) and loudness[-1] < 0.5 * loudness[0]
