"""Receivers that send back undo nothing and lose nothing: the elastic adjoint is the exact transpose of the loop."""

import numpy as np
import pytest
from tests.wave.elastic_setups import mixed_shot, random_rock
from tests.wave.setups import random_positions

from forebay.wave import Adjoint, Elastic, Loop, Shot, largest_dt, ricker, simulate

SHAPES = {"2-D": (31, 34), "3-D": (13, 15, 14)}
CASES = [
    ("2-D", True, np.float64, 1e-12),
    ("2-D", True, np.float32, 1e-5),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("3-D", True, np.float64, 1e-12),
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
        loop.propagator.record(adjoint.back_to(step + 1), loop.sources, arrived[step], still=True)
        loop.propagator.record(adjoint.back_to(step), loop.sources, arrived[step], still=False)
    return arrived


def products(loop):
    """Return both sides of the equation and the norms, with pressures and velocities of about one size."""
    rng = np.random.default_rng(5)
    sizes = np.where([kind == "explosion" for kind in loop.shot.sends], 1e-6, 1.0)
    loop.sent = (rng.standard_normal(loop.sent.shape) * sizes).astype(loop.kernels.dtype)
    shape = loop.shot.samples, len(loop.shot.receivers)
    weights = rng.standard_normal(shape) * np.where([kind == "pressure" for kind in loop.shot.hears], 1e-6, 1.0)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    heard, arrived = loop.data().astype(float), transpose(loop, weights).astype(float)
    columns = np.linalg.norm(heard * weights, axis=0)
    assert columns.min() > 1e-3 * columns.max()  # all receivers say something
    size = np.sqrt(np.sum(np.linalg.norm(heard, axis=0) ** 2 * np.linalg.norm(weights, axis=0) ** 2))
    return np.vdot(heard, weights), np.vdot(loop.sent.astype(float), arrived), size


@pytest.mark.slow
@pytest.mark.parametrize(("axes", "free_surface", "dtype", "tolerance"), CASES)
def test_dot_products_agree(axes, free_surface, dtype, tolerance):
    model = random_rock(SHAPES[axes], free_surface=free_surface)
    shot = mixed_shot(model)
    one, other, size = products(Loop(shot, Elastic(model, shot.dt, dtype=dtype)))
    assert abs(one - other) < tolerance * size
    assert abs(one) > 1e-3 * size


@pytest.mark.slow  # each order compiles all loops anew
@pytest.mark.parametrize("order", [2, 4, 6, 10])
def test_dot_products_agree_at_other_orders(order):
    model = random_rock((17, 20), free_surface=True)
    shot = mixed_shot(model, samples=30)
    one, other, size = products(Loop(shot, Elastic(model, 0.9 * largest_dt(model, order), order, np.float64)))
    assert abs(one - other) < 1e-12 * size


def test_dot_products_agree_through_another_sampling():
    model = random_rock(SHAPES["2-D"])
    shot = mixed_shot(model)
    one, other, size = products(Loop(shot, Elastic(model, 0.37 * shot.dt, dtype=np.float64)))
    assert abs(one - other) < 1e-12 * size


def inside(grid, positions):
    """Move positions so far from the layers that their windows do not reach them: there, space is stretched."""
    low, high = np.add(grid.origin, np.multiply(4, grid.spacing)), np.subtract(grid.end, np.multiply(4, grid.spacing))
    low[0] = grid.origin[0] if grid.free_surface else low[0]
    return np.clip(positions, low, high)


@pytest.mark.parametrize("axes", ["2-D", pytest.param("3-D", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("sends", "hears"), [("explosion", "pressure"), ("force z", "velocity z"), ("force x", "velocity z")]
)
def test_source_and_receiver_may_change_places(axes, sends, hears):
    model = random_rock(SHAPES[axes], free_surface=True)
    here, there = inside(model.grid, random_positions(model.grid, 2, seed=3))
    dt = 0.9 * largest_dt(model)
    back = {"pressure": ("explosion", "pressure"), "velocity z": ("force z", sends.replace("force", "velocity"))}
    turned = back[hears] if sends != "explosion" else ("explosion", "pressure")
    one, other = (
        simulate(Shot(source, receiver, ricker(7.0, dt, 300), dt, sends=kinds[0], hears=kinds[1]), model, dt=dt,
                 dtype=np.float64)
        for source, receiver, kinds in ((here, there, (sends, hears)), (there, here, turned))
    )  # fmt: skip
    assert np.abs(one).max() > 0
    assert np.abs(one - other).max() < 1e-11 * np.abs(one).max()


def test_a_force_is_to_pressure_what_an_explosion_is_to_velocity():
    """The one hears the rate of what the other hears, with the sign of the other direction."""
    model = random_rock(SHAPES["2-D"])
    here, there = random_positions(model.grid, 2, seed=3)
    dt = 0.9 * largest_dt(model)
    wavelet = ricker(7.0, dt, 250)
    pushed = simulate(Shot(here, there, wavelet, dt, sends="force x"), model, dt=dt, dtype=np.float64)
    blown = simulate(Shot(there, here, wavelet, dt, hears="velocity x"), model, dt=dt, dtype=np.float64)
    rate = -np.gradient(blown[:, 0], dt)
    assert np.linalg.norm(rate - pushed[:, 0]) < 0.02 * np.linalg.norm(rate)
