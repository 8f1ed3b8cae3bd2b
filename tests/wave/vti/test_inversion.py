"""Inversions of VTI models: epsilon never falls below delta, and nothing is searched for that nobody asked for."""

import numpy as np
import pytest
from tests.wave.vti_setups import NAMES, random_shale

from forebay.wave import Grid, Shot, VTIModel, invert, ricker, simulate
from forebay.wave.inversion.unknowns import Unknowns, arrays_of
from forebay.wave.invert import started

SPEED = 2000.0


@pytest.mark.slow
def test_an_inversion_finds_velocity_and_keeps_epsilon_above_delta():
    grid = Grid((30, 50), 10.0, absorb=10)
    velocity, epsilon, delta = (np.full(grid.shape, value) for value in (SPEED, 0.1, 0.1))
    true = velocity.copy(), epsilon.copy()
    true[0][12:18, 14:22], true[1][12:18, 30:38] = 2150.0, 0.18
    lines = [(z, x) for z in (20, 280) for x in range(0, 500, 20)]
    shots = [Shot((20, x), lines, ricker(12, 0.002, 250), 0.002) for x in (100, 250, 400)]
    exact = VTIModel(*true, delta, grid, 2800.0)
    shots = [shot.with_data(simulate(shot, exact, dtype=np.float64)) for shot in shots]
    bounds = {"velocity": (1500.0, 2300.0), "epsilon": (0.0, 0.22)}
    options = {"bounds": bounds, "budget": "64MB", "dtype": np.float64}
    found = invert(shots, VTIModel(velocity, epsilon, delta, grid), iterations=12, **options)
    assert found.misfits[0][-1] < 0.1 * found.misfits[0][0]
    assert found.model.velocity[12:18, 14:22].mean() > 2030.0
    assert (found.model.epsilon >= found.model.delta).all() and np.array_equal(found.model.delta, delta)


def test_slopes_know_where_epsilon_is_lifted_to_delta():
    model, limits = started(random_shale((8, 9)), {"epsilon": (-0.3, 0.5), "delta": (-0.3, 0.5)}, 0.0)
    unknowns, rng = Unknowns(model, limits, None, 0.0, None), np.random.default_rng(4)
    owed = {name: rng.standard_normal(model.grid.shape) for name in NAMES}
    unknowns.scale(owed)
    change = rng.standard_normal(unknowns.size)
    vector = 3.0 * rng.standard_normal(unknowns.size)

    def sum_at(size):
        arrays = arrays_of(unknowns.model_at(vector + size * change))
        return sum(float(np.vdot(owed[name], arrays[name])) for name in NAMES)

    found = unknowns.model_at(vector)
    assert 0.1 < (found.epsilon == found.delta).mean() < 0.9
    slope = (sum_at(1e-6) - sum_at(-1e-6)) / 2e-6
    assert float(np.vdot(unknowns.slope(vector, owed), change)) == pytest.approx(slope, rel=1e-5)


def test_bounds_are_those_of_the_start_and_its_fastest_wave():
    model = random_shale((8, 9))
    start, limits = started(model, (1500.0, 3000.0), 0.0)
    assert limits["epsilon"] == (model.epsilon.min(), model.epsilon.max())
    assert limits["delta"] == (model.delta.min(), model.delta.max())
    assert start.max_vel == pytest.approx(3000.0 * np.sqrt(1 + 2 * model.epsilon.max()), rel=1e-5)
