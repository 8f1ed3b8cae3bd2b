"""Devito as the oracle: the same equation from another hand, compiled by another compiler."""

import os
from itertools import chain

import numpy as np
import pytest
from tests.wave.setups import random_model, random_shot

from forebay.wave import Acoustic, largest_dt
from forebay.wave.kernels.stencil import second_derivative

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

STEPS = 200  # then most of the pulse has gone through the layers


def layers_of(propagator, u, axis):
    """Return the equations of what the layers of an axis remember, and what they change."""
    along, spacing = u.space_dimensions[axis], propagator.model.grid.spacing[axis]
    points, c = u.grid.shape[axis], second_derivative(propagator.order)
    coefficients = np.zeros((4, points))
    for side in propagator.layers.sides:
        if side.axis == axis:
            start = side.start - propagator.halo
            coefficients[:, start : start + side.count] = side.coefficients
    a, b, half_a, half_b = (
        devito.Function(name=f"{name}{axis}", grid=u.grid, dimensions=(along,), shape=(points,), space_order=0)
        for name in ("a", "b", "half_a", "half_b")
    )
    for function, values in zip((a, b, half_a, half_b), coefficients, strict=True):
        function.data[:] = values
    psi, zeta = (
        devito.TimeFunction(name=f"{name}{axis}", grid=u.grid, time_order=1, space_order=2) for name in ("psi", "zeta")
    )

    def beside(field, steps):
        return field.subs(along, along + steps * along.spacing)

    flow = sum(c[j:].sum() * (beside(u, j - 1) - beside(u, -j)) for j in range(1, len(c)))
    shift = beside(psi.forward, 1) - psi.forward
    equations = [
        devito.Eq(psi.forward, half_b * psi + half_a * flow),
        devito.Eq(zeta.forward, b * zeta + a * (spacing**2 * getattr(u, f"d{along.name}2") + shift)),
    ]
    return equations, (shift + zeta.forward) / spacing**2


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(60, 70), pytest.param((40, 44, 42), marks=pytest.mark.slow)], ids=["2-D", "3-D"])
def test_fields_agree_after_many_steps(shape):
    model = random_model(shape, absorb=10, roughness=900.0)
    propagator = Acoustic(model, 0.9 * largest_dt(model))
    fields, halo = model.grid.fields(propagator.halo), propagator.halo
    inner = (slice(halo, -halo),) * len(shape)
    computed = tuple(points - 2 * halo for points in fields)

    grid = devito.Grid(
        shape=computed,
        extent=tuple((n - 1) * h for n, h in zip(computed, model.grid.spacing, strict=True)),
        dtype=np.float32,
    )
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=8)
    squared = devito.Function(name="squared", grid=grid, space_order=0)
    squared.data[:] = propagator.squared[inner]
    remembered, changes = zip(*(layers_of(propagator, u, axis) for axis in range(len(shape))), strict=True)
    lap = u.laplace + sum(changes)
    step = devito.Operator([*chain(*remembered), devito.Eq(u.forward, 2 * u - u.backward + squared * lap)])

    distance = sum(
        ((place - points / 3) / 4.0) ** 2 for place, points in zip(np.indices(computed), computed, strict=True)
    )
    pulse = np.exp(-distance).astype(np.float32)
    u.data[0] = u.data[1] = u.data[2] = pulse
    step.apply(time_m=1, time_M=STEPS)

    state = propagator.zeros()
    state["p"][inner] = state["p_old"][inner] = pulse
    silent = propagator.antenna(random_shot(model).source)
    for _ in range(STEPS):
        state = propagator.step(state, silent, np.zeros(3, np.float32))

    theirs, ours = u.data[(STEPS + 1) % 3], state["p"][inner]
    assert np.abs(ours).max() > 1e-3  # something still moves
    assert np.linalg.norm(ours - theirs) < 1e-4 * np.linalg.norm(theirs)
