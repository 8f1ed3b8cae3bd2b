"""Receivers that send back undo nothing and lose nothing: the adjoint is the exact transpose of the loop."""

import numpy as np
import pytest
from tests.wave.setups import random_model, random_positions, random_shot

from forebay.errors import WaveError
from forebay.wave import Acoustic, Adjoint, Loop, Shot, largest_dt, ricker, simulate

SHAPES = {"2-D": (31, 34), "3-D": (17, 19, 18)}
CASES = [
    ("2-D", True, np.float64, 1e-12),
    ("2-D", True, np.float32, 1e-5),
    ("3-D", True, np.float64, 1e-12),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("2-D", False, np.float64, 1e-12),
            ("2-D", False, np.float32, 1e-5),
            ("3-D", True, np.float32, 1e-5),
            ("3-D", False, np.float64, 1e-12),
            ("3-D", False, np.float32, 1e-5),
        )
    ),
]
"""Axes, whether there is a free surface, type and tolerance."""


def transpose(loop, data):
    """Return what arrives at the sources of what the receivers sent."""
    adjoint, arrived = Adjoint(loop, data), np.zeros_like(loop.sent)
    for step in reversed(range(loop.steps)):
        adjoint.back_to(step + 1)
        loop.propagator.record(adjoint.state, loop.sources, arrived[step])
    return arrived


@pytest.mark.parametrize(("axes", "free_surface", "dtype", "tolerance"), CASES)
def test_dot_products_agree(axes, free_surface, dtype, tolerance):
    model = random_model(SHAPES[axes], free_surface=free_surface)
    shot = random_shot(model)
    loop = Loop(shot, Acoustic(model, shot.dt, dtype=dtype))
    rng = np.random.default_rng(5)
    loop.sent, weights = rng.standard_normal(loop.sent.shape).astype(dtype), rng.standard_normal(loop.heard.shape)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), transpose(loop, weights).astype(float)
    assert abs(np.vdot(heard, weights) - np.vdot(loop.sent, arrived)) < tolerance * np.linalg.norm(
        heard
    ) * np.linalg.norm(weights)
    assert np.linalg.norm(heard) > 0.1 * np.linalg.norm(loop.sent)  # both sides of the equation say something


@pytest.mark.parametrize("rows", [4, 5])
def test_layers_that_a_free_surface_is_mirrored_in_are_refused(rows):
    model = random_model((rows, 20), free_surface=True)
    shot = random_shot(model)
    if rows == 4:
        with pytest.raises(WaveError, match=r"4 rows between a free surface .* order 8: give more than 4 rows"):
            Acoustic(model, shot.dt)
        return
    loop = Loop(shot, Acoustic(model, shot.dt, dtype=np.float64))
    rng = np.random.default_rng(5)
    loop.sent, weights = rng.standard_normal(loop.sent.shape), rng.standard_normal(loop.heard.shape)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    assert np.vdot(loop.data(), weights) == pytest.approx(np.vdot(loop.sent, transpose(loop, weights)), rel=1e-11)


def test_back_to_returns_the_pressure():
    model = random_model(SHAPES["2-D"])
    shot = random_shot(model)
    loop = Loop(shot, Acoustic(model, shot.dt))
    adjoint = Adjoint(loop, np.random.default_rng(7).standard_normal(loop.heard.shape))
    pressure = adjoint.back_to(loop.steps - 3)
    assert pressure is adjoint.state["p"] and np.abs(pressure).max() > 0
    assert np.array_equal(pressure[loop.propagator.inside], loop.pressure(adjoint.state))


def test_dot_products_agree_through_another_sampling():
    model = random_model(SHAPES["2-D"])
    shot = random_shot(model)
    loop = Loop(shot, Acoustic(model, 0.37 * shot.dt, dtype=np.float64))
    rng = np.random.default_rng(6)
    loop.sent, weights = rng.standard_normal(loop.sent.shape), rng.standard_normal((shot.samples, 5))
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data(), transpose(loop, weights)
    assert np.vdot(heard, weights) == pytest.approx(np.vdot(loop.sent, arrived), rel=1e-11)


@pytest.mark.parametrize(("axes", "absorb", "tolerance"), [("2-D", 0, 1e-12), ("3-D", 0, 1e-12), ("2-D", 20, 1e-5)])
def test_source_and_receiver_may_change_places(axes, absorb, tolerance):
    """Of layers the transpose is another discretisation, so what they let return is all that may differ."""
    model = random_model(SHAPES[axes], free_surface=True, absorb=absorb)
    here, there = random_positions(model.grid, 2, seed=3)
    dt = 0.9 * largest_dt(model)
    wavelet = ricker(9.0, dt, 150)
    one, other = (
        simulate(Shot(source, receiver, wavelet, dt), model, dt=dt, dtype=np.float64)
        for source, receiver in ((here, there), (there, here))
    )
    assert np.abs(one - other).max() < tolerance * np.abs(one).max()
