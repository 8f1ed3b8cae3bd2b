"""Devito as the oracle: the same equation from another hand, compiled by another compiler."""

import os

import numpy as np
import pytest
from tests.wave.setups import random_model, random_shot

from forebay.wave import Acoustic, largest_dt

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

STEPS = 500


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
    squared, g = (devito.Function(name=name, grid=grid, space_order=0) for name in ("squared", "g"))
    squared.data[:] = propagator.squared[inner]
    g.data[:] = np.prod(np.meshgrid(*propagator.damping, indexing="ij"), axis=0)[inner]
    step = devito.Operator([devito.Eq(u.forward, g * (2 * u - g * u.backward + squared * u.laplace))])

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
