"""TTI waves are VTI waves whose axis is turned, and acoustic ones where nothing is anisotropic."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave.setups import random_model, random_positions, random_shot, surface_shot
from tests.wave.tti_setups import random_tilted, smooth_tilted, tilted
from tests.wave.vti_setups import random_shale, smooth_shale

from forebay.wave import (
    TTI,
    Grid,
    Shot,
    TTIModel,
    VTIModel,
    WaveError,
    born,
    gradient,
    largest_dt,
    migrate,
    ricker,
    simulate,
)

SPEED, EPSILON, DELTA = 2000.0, 0.2, 0.08


def relative(one, other):
    return np.linalg.norm(one - other) / np.linalg.norm(other)


def even(grid, *values, tilt, azimuth=None, **options):
    """Make a model of the same rock everywhere."""
    return tilted(VTIModel(*(np.full(grid.shape, value) for value in values), grid, **options), tilt, azimuth)


@pytest.mark.parametrize("shape", [(31, 37), (13, 15, 14)], ids=["2-D", "3-D"])
def test_without_anisotropy_data_are_those_of_an_acoustic_model(shape):
    """To rounding, whatever the tilt, but for the layers, which differ."""
    model = random_model(shape, free_surface=True, absorb=0)
    none, other = np.zeros(shape), random_tilted(shape)
    turned = TTIModel(model.velocity, none, none, model.grid, tilt=other.tilt, azimuth=other.azimuth)
    shot = random_shot(model, wavelet=ricker(10.0, 0.9 * largest_dt(model), 150)[:, None] * np.ones(3))
    options = {"dt": 0.8 * shot.dt, "dtype": np.float64}
    assert largest_dt(turned) == pytest.approx(largest_dt(model))
    assert relative(simulate(shot, turned, **options), simulate(shot, model, **options)) < 1e-13


def test_an_axis_that_does_not_tilt_gives_vti_waves():
    """As far as stencils of first and of second derivatives agree."""
    shale = smooth_shale((50, 60), free_surface=True)
    shot = surface_shot(shale, samples=120, frequency=8.0)
    expected, upside_down = simulate(shot, shale, dtype=np.float64), np.pi
    for tilt in (0.0, upside_down):
        assert relative(simulate(shot, tilted(shale, tilt), dtype=np.float64), expected) < 1e-3


def test_turned_rock_and_shots_give_the_data_of_vti_waves():
    """Around a source in the same rock everywhere but for itself: that is elliptical, and sends no shear waves."""
    grid, angle, dt, middle = Grid((131, 131), 10.0), np.radians(35.0), 0.001, np.array([650.0, 650.0])
    near = np.exp(-((sum((place - 65) ** 2 for place in np.indices(grid.shape)) / 3.0**2) ** 2))
    arrays = [np.full(grid.shape, SPEED), EPSILON + (DELTA - EPSILON) * near, np.full(grid.shape, DELTA)]
    around = np.radians(np.arange(0, 360, 30))
    shale, wavelet = VTIModel(*arrays, grid), ricker(11.0, dt, 320)
    found, expected = (
        simulate(Shot(middle, middle + 320.0 * np.array(sides).T, wavelet, dt), model, dtype=np.float64)
        for model, sides in (
            (tilted(shale, angle), (np.cos(around + angle), np.sin(around + angle))),
            (shale, (np.cos(around), np.sin(around))),
        )
    )
    assert relative(found, expected) < 3e-3


@pytest.mark.parametrize(("axis", "azimuth"), [(2, 0.0), (1, np.pi / 2)])
def test_an_axis_that_lies_is_one_that_stands_with_axes_swapped(axis, azimuth):
    standing = tilted(random_shale((13, 15, 14)), 0.0, 0.0)
    grid = standing.grid
    order = [0, 1, 2]
    order[0], order[axis] = order[axis], order[0]
    shape, spacing, origin = (tuple(np.array(own)[order]) for own in (grid.shape, grid.spacing, grid.origin))
    swapped = Grid(shape, spacing, origin, absorb=grid.absorb)
    arrays = [np.ascontiguousarray(values.transpose(order)) for values in standing.arrays]
    lying = tilted(VTIModel(*arrays, swapped), np.pi / 2, azimuth)
    dt = 0.9 * largest_dt(standing)
    places, wavelet = random_positions(grid, 4), ricker(8.0, dt, int(0.3 / dt))
    found, expected = (
        simulate(Shot(at[:1], at[1:], wavelet, dt), model, dt=dt, dtype=np.float64)
        for at, model in ((places[:, order], lying), (places, standing))
    )
    assert relative(found, expected) < 1e-11


@pytest.mark.parametrize("shape", [(21, 24), pytest.param((12, 11, 13), marks=pytest.mark.slow)], ids=["2-D", "3-D"])
def test_above_a_free_surface_the_axis_is_mirrored(shape):
    """Where it is upright at the surface itself, which no side of it has to itself."""
    half = random_tilted(shape, free_surface=True)
    half.tilt[0] = 0.0
    arrays = [np.concatenate([values[:0:-1], values]) for values in half.arrays]
    tilt, *azimuth = (np.concatenate([sign * v[:0:-1], v]) for sign, v in zip((-1, 1), half.angles, strict=False))
    top = half.grid.origin[0] - (shape[0] - 1) * half.grid.spacing[0]
    grid = Grid(arrays[0].shape, half.grid.spacing, (top, *half.grid.origin[1:]), absorb=half.grid.absorb)
    whole = TTIModel(*arrays, grid, 3300.0, tilt=tilt, azimuth=azimuth[0] if azimuth else None)
    half = replace(half, max_vel=3300.0)
    source, receivers = random_positions(half.grid, 1, 1), random_positions(half.grid, 4, 2)
    above = source * [-1, *[1] * (len(shape) - 1)] + [2 * half.grid.origin[0], *[0] * (len(shape) - 1)]
    dt = 0.7 * largest_dt(whole)
    wavelet = ricker(10.0, dt, int(0.3 / dt))[:, None]
    found = simulate(Shot(source, receivers, wavelet, dt), half, dt=dt, dtype=np.float64)
    pair = Shot(np.concatenate([source, above]), receivers, wavelet * [1.0, -1.0], dt)
    assert relative(found, simulate(pair, whole, dt=dt, dtype=np.float64)) < 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_twenty_points_return_little(free_surface, tilt):
    shape, dt, far = (60, 90), 0.002, 50
    depth, along = np.indices(shape)
    layer = np.searchsorted([20, 40], depth + (along > 45) * 6, side="right")
    layered = ([1500.0, 2100.0, 2900.0], [0.0, 0.1, 0.25], [0.0, -0.1, 0.05], [0.0, 0.6 * tilt, tilt])
    arrays = [np.array(values)[layer] for values in layered]
    shot = Shot((20.0, 400.0), [(20.0, x) for x in range(0, 890, 70)], ricker(11.0, dt, 300), dt)
    around = [(0 if free_surface else far, far), (far, far)]
    origin = [-10.0 * before for before, _ in around]
    larger = Grid(np.add(shape, np.sum(around, axis=1)), 10.0, origin, absorb=40, free_surface=free_surface)
    found, expected = (
        simulate(shot, TTIModel(*own[:3], grid, tilt=own[3]), dt=dt / 2, dtype=np.float64)
        for own, grid in (
            (arrays, Grid(shape, 10.0, free_surface=free_surface)),
            ([np.pad(each, around, mode="edge") for each in arrays], larger),
        )
    )
    assert relative(found, expected) < 3e-3


def loudness_of(model, steps):
    """Return the largest pressure of each tenth of many steps at the largest time step, after some noise."""
    propagator = TTI(model, largest_dt(model))
    state, source = propagator.zeros(), propagator.antenna(random_positions(model.grid, 1))
    sent = np.zeros((steps, 1), np.float32)
    sent[:40, 0] = np.random.default_rng(1).standard_normal(40)
    loudness = []
    for start in range(0, steps, steps // 10):
        state = propagator.advance(state, source, sent, range(start, start + steps // 10))
        loudness.append(float(np.abs(state["p"]).max()))
    return loudness


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "steps", "absorb"), [((24, 30), 20_000, 20), ((24, 30), 20_000, 8), ((12, 14, 13), 4000, 8)]
)
def test_many_steps_in_random_rock_stay_bounded(shape, steps, absorb):
    loudness = loudness_of(random_tilted(shape, absorb=absorb, roughness=1500.0), steps)
    assert max(loudness[1:]) < 2 * loudness[0] and loudness[-1] < 0.5 * loudness[0]


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [0.3, 0.6, 0.8, 1.1, 1.4])
@pytest.mark.parametrize("pair", [(0.2, -0.1), (0.3, 0.0), (0.2, 0.08)])
def test_many_steps_in_layers_across_which_the_axis_leans_stay_bounded(pair, tilt):
    """Where matched layers alone would let shear waves grow by five orders of magnitude in a thousand steps."""
    loudness = loudness_of(even(Grid((30, 34), 10.0), SPEED, *pair, tilt=tilt), 8000)
    assert max(loudness[1:]) < 2 * loudness[0] and loudness[-1] < 0.5 * loudness[0]


@pytest.mark.slow
@pytest.mark.parametrize("absorb", [40, 60, 100])
def test_wide_layers_let_nothing_grow(absorb):
    """Where strains faded as slowly as layers are wide, waves grew a millionfold in one of 60 points."""
    loudness = loudness_of(even(Grid((40, 40), 10.0, absorb=absorb), SPEED, 0.25, 0.0, tilt=np.pi / 4), 4000)
    assert max(loudness[1:]) < 2 * loudness[0] and loudness[-1] < 0.5 * loudness[0]


def fastest_swing(model, dt):
    """Return the largest eigenvalue of a step's second difference, by power iteration without layers."""
    propagator = TTI(model, dt, dtype=np.float64)
    state, silent = propagator.zeros(), propagator.antenna([np.mean([model.grid.origin, model.grid.end], axis=0)])
    rng = np.random.default_rng(3)
    for name in ("p", "r"):
        state[name][propagator.inside] = rng.standard_normal(model.grid.shape)
    size = 0.0
    for _ in range(300):
        for name in ("p", "r"):
            state[f"{name}_old"][:] = 2 * state[name]  # then a step leaves the second difference alone
        before = np.linalg.norm(state["p"])
        state = propagator.advance(state, silent, np.zeros((1, 1)), [0])
        size = np.linalg.norm(state["p"]) / before
        for name in ("p", "r"):
            state[name] /= size
    return size


def test_the_time_step_is_near_the_largest_in_even_rock_and_below_it_elsewhere():
    grid = Grid((30, 40), (10.0, 8.0), absorb=0)
    for pair in ((0.0, 0.0), (EPSILON, DELTA), (0.2, 0.2), (0.3, 0.0), (0.1, -0.15)):
        model = even(grid, SPEED, *pair, tilt=0.6)
        assert 3.1 < fastest_swing(model, largest_dt(model)) < 4.0
    rough = random_tilted((20, 24), absorb=0)
    assert 2.0 < fastest_swing(rough, largest_dt(rough)) < 4.0
    with pytest.raises(WaveError, match="unstable"):
        TTI(model, 1.001 * largest_dt(model))


def test_with_max_vel_the_time_step_follows_from_nothing_else():
    grid = Grid((30, 40), (10.0, 8.0))
    pairs = ((0.0, 0.0), (0.2, 0.1), (-0.1, -0.1))
    steps = {largest_dt(even(grid, SPEED, *pair, tilt=pair[0], max_vel=2500.0)) for pair in pairs}
    assert len(steps) == 1 and steps.pop() <= largest_dt(even(grid, 2500.0 / np.sqrt(1.5), 0.25, 0.0, tilt=0.3))


def test_waves_as_long_as_asked_for_travel_at_their_velocity():
    """Of plane waves at all angles to an axis that lies along the grid, where stencils err most."""
    angles = 2 * np.pi / TTI.points_per_wavelength(8)
    k = np.arange(1, 5)
    first, second = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280]), np.array([8 / 5, -1 / 5, 8 / 315, -1 / 560])
    turns = np.linspace(0, np.pi / 2, 91)
    along, beside = (angles * part for part in (np.cos(turns), np.sin(turns)))
    bent = sum(2 * second @ (1 - np.cos(np.outer(k, way))) for way in (along, beside))
    risen = (2 * first @ np.sin(np.outer(k, along))) ** 2
    for epsilon, delta in ((0.3, 0.3), (0.3, 0.0), (0.3, -0.1), (0.1, 0.1), (0.0, -0.2), (0.2, 0.08)):
        squared = []
        for laplacian, axial in ((bent, risen), (angles**2 + 0 * along, along**2)):
            trace = (1 + 2 * epsilon) * (laplacian - axial) + axial
            slow = 8 * (epsilon - delta) * (laplacian - axial) * axial
            squared.append((trace + np.sqrt(trace**2 - slow)) / 2)
        assert np.abs(np.sqrt(squared[0] / squared[1]) - 1).max() < 0.0055


def test_budgets_change_no_bit_of_image_and_gradient():
    model = smooth_tilted((30, 40), absorb=10)
    shot = surface_shot(model, samples=60)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    options = {"dtype": np.float64}
    kept, tight = (gradient(shot, model, budget=budget, **options) for budget in ("64MB", "600kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    for name in ("velocity", "epsilon", "delta"):
        assert np.array_equal(kept.gradient[name], tight.gradient[name]) and kept.gradient[name].any()
    kept, tight = (migrate(shot, model, budget=budget, **options) for budget in ("64MB", "230kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    assert np.array_equal(kept.image, tight.image) and kept.image.any()


@pytest.mark.slow
def test_single_precision_gives_the_gradients_of_double():
    model = smooth_tilted((30, 40), absorb=10)
    shot = surface_shot(model, samples=80)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    single, double = (gradient(shot, model, budget="64MB", dtype=dtype).gradient for dtype in (np.float32, np.float64))
    for name in ("velocity", "epsilon", "delta"):
        assert relative(single[name], double[name]) < 3e-4


@pytest.mark.slow
def test_an_image_has_what_the_tilt_alone_reflects():
    """At v across the axis and along it everywhere the same: where the axis turns, waves are reflected."""
    grid = Grid((60, 80), 10.0)
    none = np.zeros(grid.shape)
    below = np.arange(60)[:, None] >= 40
    shot = Shot((50.0, 400.0), [(50.0, x) for x in range(0, 800, 20)], ricker(13.0, 0.004, 150), 0.004)
    smooth = VTIModel(none + SPEED, none + 0.2, none + 0.2, grid)
    turned = tilted(smooth, 0.6 * below)
    echo = np.subtract(*(simulate(shot, model, dtype=np.float64) for model in (turned, tilted(smooth, 0.0))))
    image = migrate(shot.with_data(echo), tilted(smooth, 0.0), budget="8MB", dtype=np.float64).clean()
    assert abs(np.abs(image[20:, 25:55]).sum(axis=1).argmax() - 20) <= 2


def test_what_is_no_such_rock_is_refused():
    shale = random_shale((20, 30))
    tilt, wrong = np.zeros((20, 30)), np.zeros((20, 30))
    wrong[3, 4] = np.nan
    for angles, reason in (
        ({"tilt": tilt + 30.0}, r"tilt from 30 to 30, which is not all within 3\.142 of 0: give radians"),
        ({"tilt": wrong}, "tilt must be finite everywhere"),
        ({"tilt": 1j * tilt}, "tilt of type complex128: give real numbers"),
        ({"tilt": tilt > 0}, "tilt of type bool: give real numbers"),
        ({"tilt": tilt[1:]}, r"tilt of shape \(19, 30\) on a grid of shape \(20, 30\)"),
        ({"tilt": 0.3}, "a tilt of type float"),
        ({"tilt": tilt, "azimuth": tilt}, "has none in two dimensions: leave it out"),
    ):
        with pytest.raises(WaveError, match=reason):
            TTIModel(*shale.arrays, shale.grid, **angles)
    deep = random_shale((6, 7, 8))
    with pytest.raises(WaveError, match="azimuth is missing: an axis needs one in three dimensions"):
        TTIModel(*deep.arrays, deep.grid, tilt=np.zeros((6, 7, 8)))
    with pytest.raises(WaveError, match=r"epsilon is up to 0\.1 below delta"):
        TTIModel(tilt + 2000.0, tilt, tilt + 0.1, shale.grid, tilt=tilt)


def test_what_is_not_there_is_refused():
    model = random_tilted((20, 24))
    shot = random_shot(model)
    with pytest.raises(WaveError, match="one shot at a time"):
        simulate([shot, shot], model)
    with pytest.raises(WaveError, match="give an AcousticModel"):
        born(shot, model, 0 * model.velocity)
    with pytest.raises(WaveError, match="'force z' in a TTI model"):
        TTI(model, 1e-4).antenna([(50.0, 50.0)], ["force z"])
    with pytest.raises(WaveError, match=r"4 rows between a free surface .* give more than 4 rows"):
        TTI(random_tilted((4, 20), free_surface=True), 1e-4)
    with pytest.raises(WaveError, match="float16"):
        TTI(model, 1e-4, dtype=np.float16)
