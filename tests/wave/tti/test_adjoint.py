"""The way back is the exact transpose of the loop, and its gradients are the slopes of finite differences."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave.setups import random_positions, random_shot
from tests.wave.tti_setups import NAMES, moved, random_tilted, transpose

from forebay.wave import TTI, Loop, gradient, largest_dt, ricker, simulate
from forebay.wave.tti import cpu

SHAPES = {"2-D": (31, 37), "3-D": (13, 15, 14)}
CASES = [
    ("2-D", True, 8, np.float64, 1e-12),
    ("3-D", True, 8, np.float64, 1e-12),
    ("2-D", False, 8, np.float64, 1e-12),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("3-D", False, 8, np.float64, 1e-12),
            ("3-D", True, 4, np.float64, 1e-12),
            ("2-D", True, 8, np.float32, 1e-5),
        )
    ),
]
"""Axes, whether there is a free surface, order, type and tolerance."""
SIZES = {"velocity": 40.0, "epsilon": 0.002, "delta": 0.002}


@pytest.mark.parametrize(("axes", "free_surface", "order", "dtype", "tolerance"), CASES)
def test_dot_products_agree(axes, free_surface, order, dtype, tolerance):
    model = random_tilted(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model)
    loop = Loop(shot, TTI(model, 0.8 * shot.dt, order, dtype))
    rng = np.random.default_rng(5)
    loop.sent, weights = rng.standard_normal(loop.sent.shape).astype(dtype), rng.standard_normal((shot.samples, 5))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), transpose(loop, weights)
    difference = abs(np.vdot(heard, weights) - np.vdot(loop.sent, arrived))
    assert difference < tolerance * np.linalg.norm(heard) * np.linalg.norm(weights)
    assert np.linalg.norm(heard) > 0.1 * np.linalg.norm(loop.sent)  # both sides of the equation say something


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(30, 40), (13, 14, 15)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("way", ["advance", "retreat"])
def test_several_threads_give_the_bits_of_one(monkeypatch, way, shape):
    """Sweeps read what other threads write in the one before."""
    model = random_tilted(shape, absorb=8, free_surface=True)
    propagator = TTI(model, 0.8 * largest_dt(model))
    source, sent = propagator.antenna(random_positions(model.grid, 1)), np.ones((6, 1), np.float32)
    rng = np.random.default_rng(2)
    start = {name: rng.standard_normal(values.shape).astype(np.float32) for name, values in propagator.zeros().items()}
    states = []
    for many in (2**30, 1):
        monkeypatch.setattr(cpu, "MANY", many)
        state = {name: values.copy() for name, values in start.items()}
        states.append(getattr(propagator, way)(state, source, sent, range(6)))
    for name, values in states[0].items():
        assert np.array_equal(values, states[1][name])


def change_of(model, name, seed=0):
    return np.random.default_rng(seed).standard_normal(model.grid.shape) * SIZES[name]


@pytest.mark.parametrize(
    ("shape", "free_surface"),
    [
        ((21, 24), True),
        pytest.param((21, 24), False, marks=pytest.mark.slow),
        pytest.param((12, 13, 14), True, marks=pytest.mark.slow),
    ],
    ids=["free surface", "open", "3-D"],
)
def test_gradients_are_central_differences(shape, free_surface):
    """In all cells: also those at the edges, which layers continue."""
    model = random_tilted(shape, absorb=6, free_surface=free_surface)
    model = replace(model, epsilon=model.epsilon + 0.01)  # so that parameters can be moved either way
    dt = random_shot(model).dt
    samples = int(0.25 / dt)
    wavelet = ricker(10.0, dt, samples)[:, None] * np.array([1.0, 0.7, -0.4])
    shot = random_shot(model, samples=samples, wavelet=wavelet)
    other = moved(model, {"velocity": change_of(model, "velocity", 9)}, 0.5)
    options = {"dt": 0.9 * dt, "dtype": np.float64}
    shot = shot.with_data(simulate(shot, other, **options))
    found = gradient(shot, model, budget="400MB", **options)
    assert set(found.gradient) == set(NAMES)  # the axis is held fixed

    for name in NAMES:
        change = {name: change_of(model, name)}

        def misfit_at(size, change=change):
            return 0.5 * np.sum((simulate(shot, moved(model, change, size), **options) - shot.data) ** 2)

        near, far = (misfit_at(size) - misfit_at(-size) for size in (0.01, 0.02))
        slope = float(np.vdot(found.gradient[name], change[name]))
        assert (8 * near - far) / (12 * 0.01) == pytest.approx(slope, rel=1e-8, abs=0)
