"""The way back is the exact transpose of the loop, and its gradients are the slopes of finite differences."""

import numpy as np
import pytest
from tests.wave.density_setups import moved, random_fluid, transpose
from tests.wave.setups import random_shot

from forebay.wave import Density, Loop, gradient, ricker, simulate

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
SIZES = {"velocity": 40.0, "density": 60.0}


@pytest.mark.parametrize(("axes", "free_surface", "order", "dtype", "tolerance"), CASES)
def test_dot_products_agree(axes, free_surface, order, dtype, tolerance):
    model = random_fluid(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model)
    loop = Loop(shot, Density(model, 0.8 * shot.dt, order, dtype))
    rng = np.random.default_rng(5)
    loop.sent, weights = rng.standard_normal(loop.sent.shape).astype(dtype), rng.standard_normal((shot.samples, 5))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), transpose(loop, weights)
    difference = abs(np.vdot(heard, weights) - np.vdot(loop.sent, arrived))
    assert difference < tolerance * np.linalg.norm(heard) * np.linalg.norm(weights)
    assert np.linalg.norm(heard) > 0.1 * np.linalg.norm(loop.sent)  # both sides of the equation say something


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
    model = random_fluid(shape, absorb=6, free_surface=free_surface)
    shot = random_shot(model, samples=220)
    shot = random_shot(model, samples=220, wavelet=ricker(12.0, shot.dt, 220)[:, None] * np.array([1.0, 0.7, -0.4]))
    other = moved(model, {name: change_of(model, name, 9) for name in SIZES}, 0.5)
    options = {"dt": 0.9 * shot.dt, "dtype": np.float64}
    shot = shot.with_data(simulate(shot, other, **options))
    found = gradient(shot, model, budget="400MB", **options)

    for name in SIZES:
        change = {name: change_of(model, name)}

        def misfit_at(size, change=change):
            return 0.5 * np.sum((simulate(shot, moved(model, change, size), **options) - shot.data) ** 2)

        near, far = (misfit_at(size) - misfit_at(-size) for size in (0.01, 0.02))
        slope = float(np.vdot(found.gradient[name], change[name]))
        assert (8 * near - far) / (12 * 0.01) == pytest.approx(slope, rel=1e-8)
