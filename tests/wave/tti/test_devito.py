"""Devito as the oracle: both stresses, each of a second order in time, with rotated derivatives written out."""

import os

import numpy as np
import pytest
from tests.wave.tti_setups import random_tilted

from forebay.wave import TTI, largest_dt

os.environ.setdefault("DEVITO_LOGGING", "ERROR")
devito = pytest.importorskip("devito")

STEPS = 60  # then nothing has come back from the edges, which are not alike


@pytest.mark.slow  # a compiler takes most of the time
@pytest.mark.parametrize("shape", [(150, 160), (64, 66, 68)], ids=["2-D", "3-D"])
def test_stresses_agree_after_many_steps(shape):
    steps = STEPS if len(shape) == 2 else STEPS // 3
    model = random_tilted(shape, absorb=0)
    dt = 0.9 * largest_dt(model)
    extent = tuple((n - 1) * h for n, h in zip(shape, model.grid.spacing, strict=True))
    grid = devito.Grid(shape=shape, extent=extent, dtype=np.float32)
    p, q = (devito.TimeFunction(name=name, grid=grid, time_order=2, space_order=8) for name in "pq")
    squared, wide, slant = (devito.Function(name=name, grid=grid, space_order=0) for name in ("m", "wide", "slant"))
    squared.data[:], wide.data[:] = (dt * model.velocity) ** 2, 1 + 2 * model.epsilon
    slant.data[:] = np.sqrt(1 + 2 * model.delta)
    tilted = [devito.Function(name=f"n{along.name}", grid=grid, space_order=8) for along in grid.dimensions]
    for part, values in zip(tilted, model.axis, strict=True):
        part.data[:] = values
    rise_p, rise_q = (devito.Function(name=f"rise_{name}", grid=grid, space_order=8) for name in "pq")

    def rising(field):
        return sum(part * getattr(field, f"d{along.name}") for part, along in zip(tilted, grid.dimensions, strict=True))

    def along_axis(rise):
        terms = zip(tilted, grid.dimensions, strict=True)
        return sum(getattr(part * rise, f"d{along.name}") for part, along in terms)

    bend, plunge = p.laplace - along_axis(rise_p), along_axis(rise_q)
    step = devito.Operator(
        [
            devito.Eq(rise_p, rising(p)),
            devito.Eq(rise_q, rising(q)),
            devito.Eq(p.forward, 2 * p - p.backward + squared * (wide * bend + slant * plunge)),
            devito.Eq(q.forward, 2 * q - q.backward + squared * (slant * bend + plunge)),
        ]
    )

    # A pulse of the strain across the axis, which both stresses answer to.
    pulse = np.exp(-sum(((place - n / 2) / 3.0) ** 2 for place, n in zip(np.indices(shape), shape, strict=True)))
    for before in (0, 1):
        p.data[before], q.data[before] = squared.data * wide.data * pulse, squared.data * slant.data * pulse
    step.apply(time_m=1, time_M=steps)

    propagator = TTI(model, dt)
    state, inside = propagator.zeros(), propagator.inside
    state["p"][inside] = state["p_old"][inside] = squared.data * wide.data * pulse
    silent = propagator.antenna([model.grid.origin])
    state = propagator.advance(state, silent, np.zeros((steps, 1), np.float32), range(steps))
    axial = propagator.share * state["p"] + propagator.excess * state["r"]
    for field, ours in ((p, propagator.pressure(state)), (q, axial[inside])):
        theirs = field.data[(steps + 1) % 3]
        assert np.abs(ours).max() > 1e-2  # something still moves
        assert np.linalg.norm(ours - theirs) < 1e-4 * np.linalg.norm(theirs)
