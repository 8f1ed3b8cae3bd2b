"""The elastic gradient against finite differences: what it leaves over shrinks with the square of the change."""

import numpy as np
import pytest
from tests.wave.elastic_setups import mixed_shot, random_rock, smooth_rock, surface_shot

import forebay as fb
from forebay.wave import ElasticModel, WaveError, gradient, ricker, simulate

SIZES = {"vp": 40.0, "vs": 40.0, "rho": 40.0}


def moved(model, changes):
    return ElasticModel(*(getattr(model, name) + changes.get(name, 0.0) for name in SIZES), model.grid)


def change_of(model, name, seed=0):
    """Choose a direction that leaves a fluid fluid."""
    values = np.random.default_rng(seed).standard_normal(model.grid.shape) * SIZES[name]
    return np.where(model.vs == 0, 0.0, values)


def misfit(data, observed):
    """Weigh pressures, in pascals, and velocities, in metres per second, alike."""
    scale = np.linalg.norm(observed, axis=0)
    residual = (data.astype(np.float64) - observed) / scale
    return 0.5 * float(np.sum(residual**2)), residual / scale


def check(model, shot, name, **options):
    """See a remainder of second order, with a slope that matters."""
    found = gradient(shot, model, misfit=misfit, dtype=np.float64, budget="400MB", **options)
    change = change_of(model, name)
    slope = float(np.vdot(found.gradient[name], change))

    def misfit_at(size):
        data = simulate(shot, moved(model, {name: size * change}), dt=shot.dt, dtype=np.float64)
        return misfit(data, shot.data)[0]

    left = [abs(misfit_at(size) - found.misfit - size * slope) for size in (0.2, 0.1, 0.05)]
    assert left[0] / left[1] == pytest.approx(4, rel=0.15)
    assert left[1] / left[2] == pytest.approx(4, rel=0.15)
    assert left[2] < 0.5 * abs(0.05 * slope)


BOXES = pytest.mark.parametrize(
    ("shape", "free_surface"),
    [((21, 24), False), ((21, 24), True), pytest.param((12, 13, 14), True, marks=pytest.mark.slow)],
    ids=["open", "free surface", "3-D"],
)


def rough_shot(shape, free_surface):
    """Return a rough model and a shot of all kinds, with data of another one."""
    model = random_rock(shape, absorb=6, free_surface=free_surface)
    kinds = len(shape) + 1
    wavelet = ricker(7.0, mixed_shot(model).dt, 220)[:, None] * np.array([1e-3, *(1.0,) * (kinds - 1)])
    shot = mixed_shot(model, wavelet=wavelet)
    other = moved(model, {each: 0.5 * change_of(model, each, seed=9) for each in SIZES})
    return model, shot.with_data(simulate(shot, other, dt=shot.dt, dtype=np.float64))


@pytest.mark.parametrize("name", SIZES)
@BOXES
def test_remainder_is_of_second_order(shape, free_surface, name):
    model, shot = rough_shot(shape, free_surface)
    check(model, shot, name, dt=shot.dt)


@pytest.mark.slow
@BOXES
def test_gradients_are_central_differences(shape, free_surface):
    """Of all arrays at once, in all cells: also those at the edges, which layers continue."""
    model, shot = rough_shot(shape, free_surface)
    found = gradient(shot, model, misfit=misfit, dtype=np.float64, budget="400MB", dt=shot.dt)
    changes = {name: change_of(model, name) for name in SIZES}
    slope = sum(float(np.vdot(found.gradient[name], change)) for name, change in changes.items())

    def misfit_at(size):
        other = moved(model, {name: size * change for name, change in changes.items()})
        return misfit(simulate(shot, other, dt=shot.dt, dtype=np.float64), shot.data)[0]

    near, far = (misfit_at(size) - misfit_at(-size) for size in (0.003, 0.006))
    assert (8 * near - far) / (12 * 0.003) == pytest.approx(slope, rel=1e-8)


@pytest.mark.slow  # budgets are the engine's; acoustic gradients and elastic images have fast ones
def test_budgets_change_no_bit():
    model = smooth_rock()
    shot = surface_shot(model, samples=120)
    shot = shot.with_data(0.9 * simulate(shot, model))
    everything, tight = (gradient(shot, model, budget=budget) for budget in ("64MB", "1.5MB"))
    assert tight.result.plan.schedule.forward_steps > everything.result.plan.schedule.forward_steps
    for name in SIZES:
        assert np.array_equal(tight.gradient[name], everything.gradient[name])
        assert everything.gradient[name].any()


@pytest.mark.slow
def test_velocities_are_all_that_is_kept():
    model = smooth_rock()
    shot = surface_shot(model, samples=120)
    shot, costs = shot.with_data(0.9 * simulate(shot, model)), fb.Costs(1e-3, 1e-3, 1e9)
    found = gradient(shot, model, budget="64MB", costs=costs)
    assert found.result.plan.keep == "records"
    assert found.result.plan.snapshot_bytes < 2.2 * 4 * np.prod(model.grid.fields(4))


@pytest.mark.slow  # the interval is chosen for acoustic gradients in the same way
def test_fewer_contributions_come_close_while_the_band_allows_it():
    model = smooth_rock()
    shot = surface_shot(model, sends="force z", hears="velocity x")
    shot = shot.with_data(0.9 * simulate(shot, model))
    exact, thinned = (gradient(shot, model, budget="64MB", every=every).gradient for every in (1, 4))
    for name in SIZES:
        assert 0 < np.linalg.norm(thinned[name] - exact[name]) < 0.03 * np.linalg.norm(exact[name])


def test_an_unknown_parameter_is_refused():
    model = smooth_rock()
    shot = surface_shot(model)
    with pytest.raises(WaveError, match="squared slowness"):
        gradient(shot.with_data(np.zeros((shot.samples, 11))), model, parameter="density")
