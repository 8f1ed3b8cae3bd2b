"""The gradient against finite differences: what it leaves over of the misfit shrinks with the square of the change."""

import numpy as np
import pytest
from tests.wave import inversion_setups
from tests.wave.density_setups import smooth_fluid
from tests.wave.elastic_setups import smooth_rock
from tests.wave.setups import random_positions, smooth_model, surface_shot
from tests.wave.visco_setups import smooth_clay
from tests.wave.vti_setups import smooth_shale

import forebay as fb
from forebay.wave import AcousticModel, Shot, WaveError, gradient, ricker, simulate
from forebay.wave.gradient import least_squares


def observed(model, shot, **options):
    faster = AcousticModel(model.velocity * 0.97, model.grid, model.max_vel)
    return shot.with_data(simulate(shot, faster, **options))


def change_of(model, seed=0):
    """Choose a direction that leaves the largest velocity, and with it the time step, as they are."""
    values = np.random.default_rng(seed).standard_normal(model.grid.shape) * 20.0
    return np.where(model.velocity > 0.99 * model.fastest, 0.0, values)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "free_surface"), [((18, 21), False), ((12, 11, 13), True)], ids=["2-D", "3-D"])
def test_slopes_are_those_of_central_differences(shape, free_surface):
    grid = fb.wave.Grid(shape, 10.0, absorb=7, free_surface=free_surface)
    velocity = 2000.0 + 300.0 * np.random.default_rng(4).random(shape)
    shot = Shot(random_positions(grid, 2, 1), random_positions(grid, 5, 2), ricker(18.0, 0.002, 150), 0.002)
    shot = observed(AcousticModel(velocity, grid, max_vel=2500.0), shot, dtype=np.float64)
    change = np.random.default_rng(5).standard_normal(shape)

    def misfit_at(size):
        moved = AcousticModel(velocity + size * change, grid, max_vel=2500.0)
        return 0.5 * np.sum((simulate(shot, moved, dtype=np.float64) - shot.data) ** 2)

    found = gradient(shot, AcousticModel(velocity, grid, max_vel=2500.0), dtype=np.float64, budget="64MB")
    coarse, fine = ((misfit_at(size) - misfit_at(-size)) / (2 * size) for size in (0.2, 0.1))
    slope = (4 * fine - coarse) / 3  # of fourth order
    assert np.vdot(found.gradient, change) == pytest.approx(slope, rel=1e-8)


def remainders(shot, model, change, found, misfit_at):
    slope = float(np.vdot(found.gradient, change))
    return [abs(misfit_at(size) - found.misfit - size * slope) for size in (0.2, 0.1, 0.05)]


@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_remainder_is_of_second_order(free_surface):
    model = smooth_model(free_surface=free_surface)
    shot = observed(model, surface_shot(model), dtype=np.float64)
    found = gradient(shot, model, dtype=np.float64, budget="64MB")
    change = change_of(model)

    def misfit_at(size):
        moved = AcousticModel(model.velocity + size * change, model.grid)
        return 0.5 * np.sum((simulate(shot, moved, dtype=np.float64) - shot.data) ** 2)

    left = remainders(shot, model, change, found, misfit_at)
    assert left[0] / left[1] == pytest.approx(4, rel=0.1)
    assert left[1] / left[2] == pytest.approx(4, rel=0.1)


@pytest.mark.slow
def test_remainder_is_of_second_order_in_space_for_squared_slowness_and_a_misfit_of_ones_own():
    grid = fb.wave.Grid((16, 18, 17), 10.0, absorb=6)
    model = AcousticModel(2000.0 + 10.0 * np.arange(16.0)[:, None, None] + np.zeros(grid.shape), grid)
    shot = Shot(random_positions(grid, 2, 1), random_positions(grid, 4, 2), ricker(18.0, 0.002, 120), 0.002)
    shot = observed(model, shot, dtype=np.float64)

    def correlation(data, seen):
        return -(float(np.vdot(data, seen)) ** 3), -3 * np.vdot(data, seen) ** 2 * seen

    found = gradient(shot, model, misfit=correlation, parameter="squared slowness", dtype=np.float64, budget="64MB")
    change = -2 * change_of(model) / model.velocity**3

    def misfit_at(size):
        moved = AcousticModel((model.velocity**-2 + size * change) ** -0.5, grid)
        return correlation(simulate(shot, moved, dtype=np.float64), shot.data)[0]

    left = remainders(shot, model, change, found, misfit_at)
    assert left[0] / left[1] == pytest.approx(4, rel=0.1)
    assert left[1] / left[2] == pytest.approx(4, rel=0.1)


def test_budgets_change_no_bit():
    model = smooth_model()
    shot = observed(model, surface_shot(model, samples=80))
    everything = gradient(shot, model, budget="64MB", schedule="storeall")
    tight = gradient(shot, model, budget="1100kB")
    assert tight.result.plan.schedule.forward_steps > everything.result.plan.schedule.forward_steps
    assert np.array_equal(tight.gradient, everything.gradient)
    assert np.array_equal(tight.data, everything.data)
    assert tight.misfit == everything.misfit


def test_fewer_contributions_come_close_while_the_band_allows_it():
    model = smooth_model()
    shot = observed(model, surface_shot(model))
    exact, thinned = (gradient(shot, model, budget="64MB", every=every).gradient for every in (1, 4))
    assert 0 < np.linalg.norm(thinned - exact) < 0.02 * np.linalg.norm(exact)


def test_it_is_the_residual_that_is_sent_back():
    model = smooth_model()
    shot = surface_shot(model)
    shot = shot.with_data(simulate(shot, model))
    found = gradient(shot, model, budget="64MB")
    assert found.misfit == 0 and not found.gradient.any()


def test_shots_that_advance_together_may_each_have_a_misfit_of_its_own():
    shots, model = inversion_setups.shots(2), inversion_setups.start()
    misfits = [least_squares, lambda data, observed: least_squares(2 * data, observed)]
    together = gradient(shots, model, misfit=misfits, budget="64MB")
    alone = [gradient(shot, model, misfit=misfit, budget="64MB") for shot, misfit in zip(shots, misfits, strict=True)]
    assert [owed.misfit for owed in together] == [owed.misfit for owed in alone]
    assert all(np.array_equal(a.gradient, b.gradient) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("make", [smooth_rock, smooth_fluid, smooth_shale, smooth_clay])
def test_a_parameter_that_is_not_honoured_is_refused(make):
    model = make()
    shot = surface_shot(model)
    shot = shot.with_data(np.zeros((shot.samples, len(shot.receivers))))
    with pytest.raises(WaveError, match=r"parameter='squared slowness' of waves in .*Model: leave it out, .* by name"):
        gradient(shot, model, parameter="squared slowness", budget="8MB")
