"""Waves in variable density are acoustic ones where it is constant, and reflect as the books say where it is not."""

import math

import numpy as np
import pytest
from tests.wave.density_setups import random_fluid, smooth_fluid
from tests.wave.setups import random_positions, random_shot, surface_shot

from forebay.wave import (
    AcousticModel,
    Density,
    DensityModel,
    Grid,
    Shot,
    WaveError,
    born,
    gradient,
    invert,
    largest_dt,
    migrate,
    ricker,
    simulate,
)
from forebay.wave.elastic.stencil import first_derivative

SPEED = 2000.0


def relative(one, other):
    return np.linalg.norm(one - other) / np.linalg.norm(other)


def test_constant_density_gives_the_data_of_an_acoustic_model():
    """Not to the bit: the difference of fluxes is a stencil of 15 points, and the acoustic one has 9.

    Both are of order 8, and at 5.6 points a wavelength of the highest frequency they differ by 1e-5.
    """
    shape = (61, 81)
    shot = Shot((205.0, 300.0), [(105.0, x) for x in range(100, 710, 60)], ricker(12.0, 0.002, 250), 0.002)
    for surface in (False, True):
        grid = Grid(shape, 10.0, free_surface=surface)
        velocity = SPEED + 3.0 * np.arange(61.0)[:, None] + np.zeros(shape)
        same = simulate(shot, AcousticModel(velocity, grid), dt=0.001, dtype=np.float64)
        ours = simulate(shot, DensityModel(velocity, np.full(shape, 1700.0), grid), dt=0.001, dtype=np.float64)
        assert 0 < relative(ours, same) < 1e-4


def test_only_the_ratios_of_densities_count():
    model = random_fluid((25, 30))
    shot = random_shot(model, wavelet=ricker(14.0, 0.9 * largest_dt(model), 160)[:, None] * np.ones(3))
    heavy = DensityModel(model.velocity, 4 * model.density, model.grid)
    one, other = (simulate(shot, each, dt=0.5 * shot.dt, dtype=np.float64) for each in (model, heavy))
    assert np.array_equal(one, other) and one.any()


def test_a_step_of_density_alone_reflects_the_same_part_at_every_angle():
    """At one velocity, (rho_2 - rho_1) / (rho_2 + rho_1) of the wave of a mirrored source, wherever it is heard.

    Steps between points are right to second order: of waves twice as long, a quarter of the error is left.
    """
    grid = Grid((90, 120), 10.0)
    density = np.where(np.arange(90)[:, None] < 60, 1000.0, 2500.0) + np.zeros(grid.shape)
    receivers, wavelet = [(100.0, x) for x in range(200, 1100, 100)], ricker(5.0, 0.002, 450)
    shot = Shot((150.0, 300.0), receivers, wavelet, 0.002)
    velocity = np.full(grid.shape, SPEED)
    one, plain = (
        simulate(shot, DensityModel(velocity, rho, grid), dtype=np.float64) for rho in (density, 0 * density + 1000.0)
    )
    deep = Grid((130, 120), 10.0)  # the step is half a point above row 60
    mirrored = Shot((2 * 595.0 - 150.0, 300.0), receivers, wavelet, 0.002)
    image = simulate(mirrored, AcousticModel(np.full(deep.shape, SPEED), deep), dtype=np.float64)
    assert relative(one - plain, 1500.0 / 3500.0 * image) < 3e-3


@pytest.mark.parametrize("shape", [(21, 24), pytest.param((12, 11, 13), marks=pytest.mark.slow)], ids=["2-D", "3-D"])
def test_a_free_surface_is_a_mirror_that_changes_the_sign(shape):
    half = random_fluid(shape, free_surface=True)
    arrays = [np.concatenate([each[:0:-1], each]) for each in (half.velocity, half.density)]
    top = half.grid.origin[0] - (shape[0] - 1) * half.grid.spacing[0]
    grid = Grid(arrays[0].shape, half.grid.spacing, (top, *half.grid.origin[1:]), absorb=half.grid.absorb)
    half, whole = (DensityModel(*each, max_vel=2600.0) for each in (
        (half.velocity, half.density, half.grid), (*arrays, grid)))  # fmt: skip
    source, receivers = random_positions(half.grid, 1, 1), random_positions(half.grid, 4, 2)
    above = source * [-1, *[1] * (len(shape) - 1)] + [2 * half.grid.origin[0], *[0] * (len(shape) - 1)]
    dt = 0.7 * largest_dt(whole)
    wavelet = ricker(14.0, dt, 200)[:, None]
    one = simulate(Shot(source, receivers, wavelet, dt), half, dt=dt, dtype=np.float64)
    pair = Shot(np.concatenate([source, above]), receivers, wavelet * [1.0, -1.0], dt)
    assert relative(one, simulate(pair, whole, dt=dt, dtype=np.float64)) < 1e-11


@pytest.mark.slow
@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_twenty_points_return_less_than_a_thousandth(free_surface):
    shape, dt, far = (60, 90), 0.002, 50
    depth, along = np.indices(shape)
    layer = np.searchsorted([20, 40], depth + (along > 45) * 6, side="right")
    velocity, density = np.array([1500.0, 2100.0, 2900.0])[layer], np.array([1000.0, 1900.0, 2300.0])[layer]
    shot = Shot((20.0, 400.0), [(20.0, x) for x in range(0, 890, 70)], ricker(12.0, dt, 300), dt)
    around = [(0 if free_surface else far, far), (far, far)]
    origin = [-10.0 * before for before, _ in around]
    larger = Grid(np.add(shape, np.sum(around, axis=1)), 10.0, origin, absorb=40, free_surface=free_surface)
    models = (
        DensityModel(velocity, density, Grid(shape, 10.0, free_surface=free_surface)),
        DensityModel(*(np.pad(each, around, mode="edge") for each in (velocity, density)), larger),
    )
    found, expected = (simulate(shot, model, dt=dt / 2, dtype=np.float64) for model in models)
    assert relative(found, expected) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(24, 30), (12, 14, 13)], ids=["2-D", "3-D"])
def test_twenty_thousand_steps_at_the_largest_time_step_stay_bounded(shape):
    model = random_fluid(shape, absorb=12, roughness=1500.0)
    propagator = Density(model, largest_dt(model))
    state, source = propagator.zeros(), propagator.antenna(random_positions(model.grid, 1))
    sent = np.zeros((20_000, 1), np.float32)
    sent[:40, 0] = np.random.default_rng(1).standard_normal(40)
    loudness = []
    for start in range(0, 20_000, 2000):
        state = propagator.advance(state, source, sent, range(start, start + 2000))
        loudness.append(float(np.abs(state["p"]).max()))
    assert loudness[0] == max(loudness) and loudness[-1] < 0.5 * loudness[0]


def test_the_time_step_is_the_largest_in_constant_density_and_below_it_elsewhere():
    grid, slope = Grid((30, 40), (10.0, 8.0)), 2 * np.abs(first_derivative(8)).sum()
    velocity = np.full(grid.shape, SPEED)
    largest = 2 / (SPEED * slope * math.hypot(1 / 10.0, 1 / 8.0))
    assert largest_dt(DensityModel(velocity, 0 * velocity + 2.0, grid)) == pytest.approx(largest)
    assert largest_dt(DensityModel(velocity, 0 * velocity + 2.0, grid, max_vel=4000.0)) == pytest.approx(largest / 2)
    rough = 1000.0 + 2000.0 * np.random.default_rng(0).random(grid.shape)
    assert 0.6 * largest < largest_dt(DensityModel(velocity, rough, grid)) < 0.95 * largest
    with pytest.raises(WaveError, match="unstable"):
        Density(DensityModel(velocity, rough, grid), largest)


@pytest.mark.slow
def test_budgets_change_no_bit_of_image_and_gradient():
    model = smooth_fluid((30, 40), absorb=10)
    shot = surface_shot(model, samples=60)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    options = {"dtype": np.float64}
    kept, tight = (gradient(shot, model, budget=budget, **options) for budget in ("64MB", "400kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    for name in ("velocity", "density"):
        assert np.array_equal(kept.gradient[name], tight.gradient[name]) and kept.gradient[name].any()
    kept, tight = (migrate(shot, model, budget=budget, **options) for budget in ("64MB", "250kB"))
    assert np.array_equal(kept.image, tight.image) and kept.image.any()


@pytest.mark.slow
def test_an_image_has_what_a_density_alone_reflects():
    grid = Grid((60, 80), 10.0)
    velocity, light = np.full(grid.shape, SPEED), np.full(grid.shape, 1000.0)
    heavy = np.where(np.arange(60)[:, None] < 40, light, 2.0 * light)
    shot = Shot((50.0, 400.0), [(50.0, x) for x in range(0, 800, 20)], ricker(15.0, 0.004, 150), 0.004)
    smooth = DensityModel(velocity, light, grid)
    both = (simulate(shot, each, dtype=np.float64) for each in (DensityModel(velocity, heavy, grid), smooth))
    echo = np.subtract(*both)
    image = migrate(shot.with_data(echo), smooth, budget="8MB", dtype=np.float64).clean()
    assert abs(np.abs(image[20:, 40]).argmax() - 20) <= 2


@pytest.mark.slow
def test_an_inversion_finds_both_arrays():
    grid = Grid((30, 50), 10.0, absorb=10)
    velocity, density = np.full(grid.shape, SPEED), np.full(grid.shape, 1500.0)
    true = velocity.copy(), density.copy()
    true[0][12:18, 14:22], true[1][12:18, 30:38] = 2150.0, 1900.0
    lines = [(z, x) for z in (20, 280) for x in range(0, 500, 20)]
    shots = [Shot((20, x), lines, ricker(12, 0.002, 250), 0.002) for x in (100, 250, 400)]
    shots = [shot.with_data(simulate(shot, DensityModel(*true, grid, 2500.0), dtype=np.float64)) for shot in shots]
    start, bounds = DensityModel(velocity, density, grid), {"velocity": (1500.0, 2500.0), "density": (1000.0, 2500.0)}
    found = invert(shots, start, iterations=12, bounds=bounds, budget="64MB", dtype=np.float64)
    assert found.misfits[0][-1] < 0.1 * found.misfits[0][0]
    assert found.model.velocity[12:18, 14:22].mean() > 2030.0
    assert found.model.density[12:18, 30:38].mean() > 1530.0


def test_what_is_no_fluid_is_refused():
    grid = Grid((20, 30), 10.0)
    velocity, density = np.full(grid.shape, SPEED), np.full(grid.shape, 1000.0)
    hole = density.copy()
    hole[3, 4] = 0.0
    for wrong, reason in (
        ((velocity, hole), "density must be finite and above 0"),
        ((velocity, density * np.nan), "density must be finite and above 0"),
        ((-velocity, density), "velocity must be finite and above 0"),
        ((velocity, density[1:]), r"density of shape \(19, 30\) on a grid of shape \(20, 30\)"),
        ((velocity[:, 1:], density), "velocity of shape"),
        ((velocity, 1000.0), "a density of type float"),
    ):
        with pytest.raises(WaveError, match=reason):
            DensityModel(*wrong, grid)
    with pytest.raises(WaveError, match="max_vel=1500"):
        DensityModel(velocity, density, grid, max_vel=1500.0)


def test_what_is_not_there_is_refused():
    model = random_fluid((20, 24))
    shot = random_shot(model)
    with pytest.raises(WaveError, match="one shot at a time"):
        simulate([shot, shot], model)
    with pytest.raises(WaveError, match="give an AcousticModel"):
        born(shot, model, 0 * model.velocity)
    with pytest.raises(WaveError, match="take an ElasticModel"):
        Density(model, 1e-4).antenna([(50.0, 50.0)], ["force z"])
    with pytest.raises(WaveError, match="images="):
        migrate(shot.with_data(np.zeros((60, 5))), model, images=("velocity",))
    with pytest.raises(WaveError, match=r"4 rows between a free surface .* give more than 4 rows"):
        Density(random_fluid((4, 20), free_surface=True), 1e-4)
    with pytest.raises(WaveError, match="float16"):
        Density(model, 1e-4, dtype=np.float16)
