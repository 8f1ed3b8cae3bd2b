"""Devito as the oracle: a memory of what pressures bend to, as textbooks write a standard linear solid."""

import os

import numpy as np
import pytest
from tests.wave.visco_setups import random_clay

from forebay.wave import Visco, largest_dt

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

STEPS = 90  # then nothing has come back from the edges, which are not alike


@pytest.mark.slow  # a compiler takes most of the time
@pytest.mark.parametrize("shape", [(150, 160), (64, 66, 68)], ids=["2-D", "3-D"])
def test_pressures_agree_after_many_steps(shape):
    """p_tt = M (1 + T) lap(p) - r, r_t = (M T lap(p) - r) / t, with M the relaxed modulus and T = t_e / t - 1."""
    steps = STEPS if len(shape) == 2 else STEPS // 3
    model = random_clay(shape, absorb=0)
    dt = 0.9 * largest_dt(model)
    extent = tuple((n - 1) * h for n, h in zip(shape, model.grid.spacing, strict=True))
    grid = devito.Grid(shape=shape, extent=extent, dtype=np.float32)
    p = devito.TimeFunction(name="p", grid=grid, time_order=2, space_order=8)
    r, bend = (devito.TimeFunction(name=name, grid=grid, time_order=1, space_order=8) for name in ("r", "bend"))
    relaxed, excess, rate = (devito.Function(name=name, grid=grid, space_order=0) for name in ("m", "excess", "rate"))

    # Relaxation times of Q, which is least at the frequency where the velocity is known: |M| cos(phase / 2)^-2 = v^2.
    w, q = 2 * np.pi * model.frequency, 1 / np.maximum(model.attenuation, 1e-12)
    t = (np.sqrt(1 + 1 / q**2) - 1 / q) / w
    longer = 1 / (w**2 * t)
    modulus = (1 + 1j * w * longer) / (1 + 1j * w * t)
    relaxed.data[:] = dt**2 * model.velocity**2 * (1 / np.sqrt(modulus)).real ** 2
    excess.data[:] = longer / t - 1
    rate.data[:] = np.tan(w * dt / 2) / w / t  # half a step over t, stretched so that w stays w

    step = devito.Operator(
        [
            devito.Eq(bend.forward, relaxed * p.laplace),
            devito.Eq(r.forward, ((1 - rate) * r + rate * excess * (bend.forward + bend)) / (1 + rate)),
            devito.Eq(p.forward, 2 * p - p.backward + (1 + excess) * bend.forward - r.forward),
        ]
    )
    pulse = np.exp(-sum(((place - n / 2) / 3.0) ** 2 for place, n in zip(np.indices(shape), shape, strict=True)))
    p.data[0] = p.data[1] = pulse
    # All has been at rest before: what the pulse bends to begins half a step ago, and the memory with it.
    step.apply(time_m=1, time_M=steps)

    propagator = Visco(model, dt)
    state, inside = propagator.zeros(), propagator.inside
    state["p"][inside] = state["p_old"][inside] = pulse
    silent = propagator.antenna([model.grid.origin])
    state = propagator.advance(state, silent, np.zeros((steps, 1), np.float32), range(steps))
    ours, theirs = propagator.pressure(state), p.data[(steps + 1) % 3]
    assert np.abs(ours).max() > 1e-2  # something still moves
    assert np.linalg.norm(ours - theirs) < 1e-4 * np.linalg.norm(theirs)
