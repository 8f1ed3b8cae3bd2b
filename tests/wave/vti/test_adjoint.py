"""The way back is the exact transpose of the loop, and its gradients are the slopes of finite differences."""

import numpy as np
import pytest
from tests.wave.setups import random_positions, random_shot
from tests.wave.vti_setups import NAMES, moved, random_shale, transpose

from forebay.wave import VTI, Loop, VTIModel, gradient, largest_dt, ricker, simulate
from forebay.wave.vti import cpu

SHAPES = {"2-D": (31, 37), "3-D": (13, 15, 14)}
CASES = [
    ("2-D", False, 8, np.float64, 1e-12),
    ("2-D", True, 8, np.float64, 1e-12),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("3-D", True, 8, np.float64, 1e-12),
            ("3-D", False, 8, np.float64, 1e-12),
            ("2-D", True, 4, np.float64, 1e-12),
            ("3-D", True, 4, np.float64, 1e-12),
            ("2-D", True, 8, np.float32, 1e-5),
        )
    ),
]
"""Axes, whether there is a free surface, order, type and tolerance."""
SIZES = {"velocity": 40.0, "epsilon": 0.002, "delta": 0.002}


@pytest.mark.parametrize(("axes", "free_surface", "order", "dtype", "tolerance"), CASES)
def test_dot_products_agree(axes, free_surface, order, dtype, tolerance):
    model = random_shale(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model)
    loop = Loop(shot, VTI(model, 0.8 * shot.dt, order, dtype))
    rng = np.random.default_rng(5)
    loop.sent, weights = rng.standard_normal(loop.sent.shape).astype(dtype), rng.standard_normal((shot.samples, 5))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), transpose(loop, weights)
    difference = abs(np.vdot(heard, weights) - np.vdot(loop.sent, arrived))
    assert difference < tolerance * np.linalg.norm(heard) * np.linalg.norm(weights)
    assert np.linalg.norm(heard) > 0.1 * np.linalg.norm(loop.sent)  # both sides of the equation say something


def test_several_threads_give_the_bits_of_one(monkeypatch):
    """On the way back layers read what other threads write before."""
    model = random_shale((30, 40), absorb=8, free_surface=True)
    propagator = VTI(model, 0.8 * largest_dt(model))
    source, sent = propagator.antenna(random_positions(model.grid, 1)), np.ones((6, 1), np.float32)
    rng = np.random.default_rng(2)
    start = {name: rng.standard_normal(values.shape).astype(np.float32) for name, values in propagator.zeros().items()}
    states = []
    for many in (2**30, 1):
        monkeypatch.setattr(cpu, "MANY", many)
        state = {name: values.copy() for name, values in start.items()}
        states.append(propagator.retreat(state, source, sent, range(6)))
    for name, values in states[0].items():
        assert np.array_equal(values, states[1][name])


def change_of(model, name, seed=0):
    return np.random.default_rng(seed).standard_normal(model.grid.shape) * SIZES[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "free_surface"),
    [((21, 24), False), ((21, 24), True), pytest.param((12, 13, 14), True, marks=pytest.mark.slow)],
    ids=["open", "free surface", "3-D"],
)
def test_gradients_are_central_differences(shape, free_surface):
    """In all cells: also those at the edges, which layers continue."""
    model = random_shale(shape, absorb=6, free_surface=free_surface)
    # So that parameters can be moved either way: elliptical rock is told apart in the test below.
    model = VTIModel(model.velocity, model.epsilon + 0.01, model.delta, model.grid)
    shot = random_shot(model, samples=220)
    shot = random_shot(model, samples=220, wavelet=ricker(12.0, shot.dt, 220)[:, None] * np.array([1.0, 0.7, -0.4]))
    other = moved(model, {"velocity": change_of(model, "velocity", 9)}, 0.5)
    options = {"dt": 0.9 * shot.dt, "dtype": np.float64}
    shot = shot.with_data(simulate(shot, other, **options))
    found = gradient(shot, model, budget="400MB", **options)

    for name in NAMES:
        change = {name: change_of(model, name)}

        def misfit_at(size, change=change):
            return 0.5 * np.sum((simulate(shot, moved(model, change, size), **options) - shot.data) ** 2)

        near, far = (misfit_at(size) - misfit_at(-size) for size in (0.01, 0.02))
        slope = float(np.vdot(found.gradient[name], change[name]))
        assert (8 * near - far) / (12 * 0.01) == pytest.approx(slope, rel=1e-8)


@pytest.mark.parametrize("level", [0.0, 0.12], ids=["isotropic", "elliptical"])
def test_gradients_of_elliptical_rock_are_one_sided_differences(level):
    """Where epsilon = delta stresses alone do not tell strains, and neither may epsilon fall nor delta rise."""
    model = random_shale((21, 24), absorb=6)
    model = VTIModel(model.velocity, 0 * model.delta + level, 0 * model.delta + level, model.grid)
    shot = random_shot(model, samples=160)
    shot = random_shot(model, samples=160, wavelet=ricker(14.0, shot.dt, 160)[:, None] * np.array([1.0, 0.7, -0.4]))
    options = {"dt": 0.7 * shot.dt, "dtype": np.float64}
    faster = moved(model, {"velocity": change_of(model, "velocity", 9)}, 0.5)
    shot = shot.with_data(simulate(shot, faster, **options))
    found = gradient(shot, model, budget="400MB", **options)

    for name, sign in (("epsilon", 1.0), ("delta", -1.0)):
        change = {name: sign * np.abs(change_of(model, name))}
        misfits = [
            0.5 * np.sum((simulate(shot, moved(model, change, size), **options) - shot.data) ** 2)
            for size in 0.004 * np.arange(5)
        ]
        slope = np.dot([-25.0, 48.0, -36.0, 16.0, -3.0], misfits) / (12 * 0.004)
        assert slope == pytest.approx(float(np.vdot(found.gradient[name], change[name])), rel=1e-5)
