"""The way back is the exact transpose of the loop, and its gradients are the slopes of finite differences."""

import numpy as np
import pytest
from tests.wave.setups import random_shot
from tests.wave.visco_setups import NAMES, moved, random_clay

from forebay.wave import Adjoint, Loop, Visco, ViscoModel, gradient, ricker, simulate

SHAPES = {"2-D": (31, 37), "3-D": (13, 15, 14)}
CASES = [
    ("2-D", True, 8, np.float64, 1e-12),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("2-D", False, 8, np.float64, 1e-12),
            ("3-D", True, 8, np.float64, 1e-12),
            ("3-D", False, 8, np.float64, 1e-12),
            ("2-D", True, 4, np.float64, 1e-12),
            ("3-D", True, 4, np.float64, 1e-12),
            ("2-D", True, 8, np.float32, 1e-5),
        )
    ),
]
"""Axes, whether there is a free surface, order, type and tolerance."""
SIZES = {"velocity": 40.0, "attenuation": 0.004}


@pytest.mark.parametrize(("axes", "free_surface", "order", "dtype", "tolerance"), CASES)
def test_dot_products_agree(axes, free_surface, order, dtype, tolerance):
    model = random_clay(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model)
    loop = Loop(shot, Visco(model, 0.8 * shot.dt, order, dtype))
    rng = np.random.default_rng(5)
    loop.sent, weights = rng.standard_normal(loop.sent.shape).astype(dtype), rng.standard_normal((shot.samples, 5))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), Adjoint(loop, weights).at_sources()
    difference = abs(np.vdot(heard, weights) - np.vdot(loop.sent, arrived))
    assert difference < tolerance * np.linalg.norm(heard) * np.linalg.norm(weights)
    assert np.linalg.norm(heard) > 0.1 * np.linalg.norm(loop.sent)  # both sides of the equation say something


@pytest.mark.parametrize("lossless", [False, True], ids=["clay", "nothing lost yet"])
@pytest.mark.parametrize(
    ("shape", "free_surface"),
    [
        ((21, 24), True),
        pytest.param((21, 24), False, marks=pytest.mark.slow),
        pytest.param((12, 13, 14), True, marks=pytest.mark.slow),
    ],
    ids=["free surface", "open", "3-D"],
)
def test_gradients_are_differences(shape, free_surface, lossless):
    """In all cells: also those at the edges, which layers continue. An attenuation of 0 may only rise."""
    model = random_clay(shape, absorb=6, free_surface=free_surface)
    model = ViscoModel(model.velocity, model.attenuation * (not lossless) + 1e-3, model.grid, model.frequency, 2900.0)
    if lossless:
        model = ViscoModel(model.velocity, 0 * model.velocity, model.grid, model.frequency, 2900.0)
    shot = random_shot(model, samples=220)
    shot = random_shot(model, samples=220, wavelet=ricker(12.0, shot.dt, 220)[:, None] * np.array([1.0, 0.7, -0.4]))
    rng = np.random.default_rng(9)
    other = moved(model, {name: size * rng.random(shape) for name, size in SIZES.items()}, 0.5)
    options = {"dt": 0.9 * shot.dt, "dtype": np.float64}
    shot = shot.with_data(simulate(shot, other, **options))
    found = gradient(shot, model, budget="400MB", **options)

    for name in NAMES:
        change = {name: rng.random(shape) * SIZES[name]}

        def misfit_at(size, change=change):
            return 0.5 * np.sum((simulate(shot, moved(model, change, size), **options) - shot.data) ** 2)

        expected = float(np.vdot(found.gradient[name], change[name]))
        if lossless and name == "attenuation":
            misfits = [misfit_at(0.02 * part) for part in range(5)]
            slope = np.dot([-25.0, 48.0, -36.0, 16.0, -3.0], misfits) / (12 * 0.02)
        else:
            near, far = (misfit_at(size) - misfit_at(-size) for size in (0.01, 0.02))
            slope = (8 * near - far) / (12 * 0.01)
        assert slope == pytest.approx(expected, rel=1e-7)
