"""Devito as the oracle: velocities and pressure on its staggered grid, averaged by our rule, give the same pressure."""

import os

import numpy as np
import pytest
from tests.wave.density_setups import random_fluid

from forebay.wave import Density, largest_dt

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

STEPS = 90  # then nothing has come back from the edges, which are not alike


@pytest.mark.slow  # a compiler takes most of the time
@pytest.mark.parametrize("shape", [(150, 160), (64, 66, 68)], ids=["2-D", "3-D"])
def test_pressures_agree_after_many_steps(shape):
    steps = STEPS if len(shape) == 2 else STEPS // 3
    model = random_fluid(shape, absorb=0)
    dt = 0.9 * largest_dt(model)
    grid = devito.Grid(
        shape=shape,
        extent=tuple((n - 1) * h for n, h in zip(shape, model.grid.spacing, strict=True)),
        dtype=np.float32,
    )
    p = devito.TimeFunction(name="p", grid=grid, time_order=1, space_order=8, staggered=devito.NODE)
    bulk = devito.Function(name="bulk", grid=grid, space_order=0)
    bulk.data[:] = dt * model.density * model.velocity**2
    equations, spread = [], 0
    for axis, along in enumerate(grid.dimensions):
        v = devito.TimeFunction(name=f"v{axis}", grid=grid, time_order=1, space_order=8, staggered=along)
        light = devito.Function(name=f"b{axis}", grid=grid, space_order=0, staggered=along)
        rho = np.moveaxis(model.density, axis, 0)
        mean = np.concatenate([(rho[1:] + rho[:-1]) / 2, rho[-1:]])
        light.data[:] = dt / np.moveaxis(mean, 0, axis)
        slope = f"d{along.name}"
        equations.append(devito.Eq(v.forward, v + light * getattr(p, slope)))
        spread += getattr(v.forward, slope)
    step = devito.Operator([*equations, devito.Eq(p.forward, p + bulk * spread)])

    pulse = np.exp(-sum(((place - n / 2) / 3.0) ** 2 for place, n in zip(np.indices(shape), shape, strict=True)))
    p.data[0] = pulse
    step.apply(time_m=0, time_M=steps - 1)

    propagator = Density(model, dt)
    state, inside = propagator.zeros(), propagator.inside
    state["p"][inside] = state["p_old"][inside] = pulse
    silent = propagator.antenna([model.grid.origin])
    state = propagator.advance(state, silent, np.zeros((steps, 1), np.float32), range(steps))
    theirs, ours = p.data[steps % 2], propagator.pressure(state)
    assert np.abs(ours).max() > 1e-2  # something still moves
    assert np.linalg.norm(ours - theirs) < 1e-4 * np.linalg.norm(theirs)
