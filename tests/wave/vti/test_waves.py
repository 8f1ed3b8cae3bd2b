"""VTI waves are acoustic ones where nothing is anisotropic, and travel as the books say where something is."""

import numpy as np
import pytest
from tests.wave.setups import random_model, random_positions, random_shot, surface_shot
from tests.wave.vti_setups import random_shale, smooth_shale

from forebay.wave import (
    VTI,
    AcousticModel,
    Grid,
    Shot,
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


def even(grid, *values, **options):
    """Make a model of the same rock everywhere."""
    return VTIModel(*(np.full(grid.shape, value) for value in values), grid, **options)


@pytest.mark.parametrize(
    ("shape", "free_surface"),
    [((31, 37), False), ((31, 37), True), pytest.param((13, 15, 14), True, marks=pytest.mark.slow)],
    ids=["open", "free surface", "3-D"],
)
def test_without_anisotropy_data_are_those_of_an_acoustic_model(shape, free_surface):
    model = random_model(shape, free_surface=free_surface)
    none = np.zeros(shape)
    shot = random_shot(model, wavelet=ricker(10.0, 0.9 * largest_dt(model), 150)[:, None] * np.ones(3))
    options = {"dt": 0.8 * shot.dt, "dtype": np.float64}
    found = simulate(shot, VTIModel(model.velocity, none, none, model.grid), **options)
    assert relative(found, simulate(shot, model, **options)) < 1e-13


def test_elliptical_rock_is_isotropic_rock_with_its_horizontal_axis_compressed():
    """To rounding, on grids without layers; what is sent is spread over wider cells, into a stiffer rock."""
    level = 0.18
    stretch = np.sqrt(1 + 2 * level)
    velocity = random_model((31, 37)).velocity
    wide, narrow = Grid((31, 37), (10.0, 12.0), absorb=0), Grid((31, 37), (10.0, 12.0 / stretch), absorb=0)
    places = random_positions(wide, 5)
    wavelet = ricker(14.0, 0.001, 300)
    found, expected = (
        simulate(Shot(at[:1], at[1:], wavelet, 0.001), model, dtype=np.float64)
        for at, model in (
            (places, VTIModel(velocity, 0 * velocity + level, 0 * velocity + level, wide)),
            (places / [1.0, stretch], AcousticModel(velocity, narrow)),
        )
    )
    assert relative(found, stretch * expected) < 1e-12


def arrivals(data, dt):
    """Return when the first trace comes again in each, in seconds, by the peak of the correlation."""
    times = []
    for trace in data.T:
        lags = np.correlate(trace, data[:, 0], "full")
        peak = int(lags.argmax())
        before, here, after = lags[peak - 1 : peak + 2]
        times.append((peak + 0.5 * (before - after) / (before - 2 * here + after) - len(trace) + 1) * dt)
    return np.array(times)


def test_waves_travel_at_the_velocities_of_thomsen():
    """At v down, at v sqrt(1 + 2 epsilon) across, and their moveout is that of v sqrt(1 + 2 delta).

    The source is in elliptical rock, so that it sends no shear waves.
    """
    dt, grid, middle = 0.001, Grid((131, 131), 10.0), 200.0
    z, x = np.indices(grid.shape) - middle / 10.0
    near = np.exp(-(((z**2 + x**2) / 4.0**2) ** 2))
    epsilon = EPSILON + (DELTA - EPSILON) * np.where(z**2 + x**2 < 9, 1.0, near)
    model = VTIModel(0 * epsilon + SPEED, epsilon, 0 * epsilon + DELTA, grid)
    depth, offsets = 900.0, np.arange(0.0, 360.0, 50.0)
    receivers = [(200.0 + depth, middle + x) for x in offsets] + [(200.0, middle + x) for x in (600.0, 900.0)]
    receivers += [(200.0 + z, middle) for z in (600.0, 900.0)]
    shot = Shot((200.0, middle), receivers, ricker(12.0, dt, 900), dt)
    data = simulate(shot, model, dtype=np.float64)
    moved, across, down = np.split(data, [len(offsets), len(offsets) + 2], axis=1)
    assert 300.0 / arrivals(across, dt)[1] == pytest.approx(SPEED * np.sqrt(1 + 2 * EPSILON), rel=2e-3)
    assert 300.0 / arrivals(down, dt)[1] == pytest.approx(SPEED, rel=2e-3)
    # Alkhalifah and Tsvankin's moveout: hyperbolic near zero offset, and then slower or faster by eta.
    first, moveout, eta = depth / SPEED, SPEED**2 * (1 + 2 * DELTA), (EPSILON - DELTA) / (1 + 2 * DELTA)
    far = 2 * eta * offsets**4 / (moveout * (first**2 * moveout + (1 + 2 * eta) * offsets**2))
    expected = np.sqrt(first**2 + offsets**2 / moveout - far) - first
    assert arrivals(moved, dt) == pytest.approx(expected, abs=0.02 * expected[-1])


@pytest.mark.parametrize("shape", [(21, 24), pytest.param((12, 11, 13), marks=pytest.mark.slow)], ids=["2-D", "3-D"])
def test_a_free_surface_is_a_mirror_that_changes_the_sign(shape):
    half = random_shale(shape, free_surface=True)
    arrays = [np.concatenate([each[:0:-1], each]) for each in half.arrays]
    top = half.grid.origin[0] - (shape[0] - 1) * half.grid.spacing[0]
    grid = Grid(arrays[0].shape, half.grid.spacing, (top, *half.grid.origin[1:]), absorb=half.grid.absorb)
    half, whole = (VTIModel(*each, max_vel=3300.0) for each in ((*half.arrays, half.grid), (*arrays, grid)))
    source, receivers = random_positions(half.grid, 1, 1), random_positions(half.grid, 4, 2)
    above = source * [-1, *[1] * (len(shape) - 1)] + [2 * half.grid.origin[0], *[0] * (len(shape) - 1)]
    dt = 0.7 * largest_dt(whole)
    wavelet = ricker(12.5, dt, 220)[:, None]
    found = simulate(Shot(source, receivers, wavelet, dt), half, dt=dt, dtype=np.float64)
    pair = Shot(np.concatenate([source, above]), receivers, wavelet * [1.0, -1.0], dt)
    assert relative(found, simulate(pair, whole, dt=dt, dtype=np.float64)) < 1e-11


@pytest.mark.slow
@pytest.mark.parametrize(
    "free_surface", [pytest.param(False, marks=pytest.mark.slow), True], ids=["open", "free surface"]
)
def test_twenty_points_return_less_than_a_thousandth(free_surface):
    shape, dt, far = (60, 90), 0.002, 50
    depth, along = np.indices(shape)
    layer = np.searchsorted([20, 40], depth + (along > 45) * 6, side="right")
    layered = ([1500.0, 2100.0, 2900.0], [0.0, 0.1, 0.25], [0.0, -0.1, 0.05])
    arrays = [np.array(values)[layer] for values in layered]
    shot = Shot((20.0, 400.0), [(20.0, x) for x in range(0, 890, 70)], ricker(12.0, dt, 300), dt)
    around = [(0 if free_surface else far, far), (far, far)]
    origin = [-10.0 * before for before, _ in around]
    larger = Grid(np.add(shape, np.sum(around, axis=1)), 10.0, origin, absorb=40, free_surface=free_surface)
    models = (
        VTIModel(*arrays, Grid(shape, 10.0, free_surface=free_surface)),
        VTIModel(*(np.pad(each, around, mode="edge") for each in arrays), larger),
    )
    found, expected = (simulate(shot, model, dt=dt / 2, dtype=np.float64) for model in models)
    assert relative(found, expected) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "steps"), [((24, 30), 20_000), ((12, 14, 13), 4000)], ids=["2-D", "3-D"])
def test_many_steps_at_the_largest_time_step_stay_bounded(shape, steps):
    model = random_shale(shape, absorb=8, roughness=1500.0)
    propagator = VTI(model, largest_dt(model))
    state, source = propagator.zeros(), propagator.antenna(random_positions(model.grid, 1))
    sent = np.zeros((steps, 1), np.float32)
    sent[:40, 0] = np.random.default_rng(1).standard_normal(40)
    loudness = []
    for start in range(0, steps, steps // 10):
        state = propagator.advance(state, source, sent, range(start, start + steps // 10))
        loudness.append(float(np.abs(state["p"]).max()))
    assert max(loudness[1:]) < 2 * loudness[0] and loudness[-1] < 0.5 * loudness[0]


def fastest_swing(model, dt):
    """Return the largest eigenvalue of a step's second difference, by power iteration without layers."""
    propagator = VTI(model, dt, dtype=np.float64)
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


def test_the_time_step_is_the_largest_in_even_rock_and_below_it_elsewhere():
    grid = Grid((30, 40), (10.0, 8.0), absorb=0)
    acoustic = largest_dt(AcousticModel(np.full(grid.shape, SPEED), grid))
    assert largest_dt(even(grid, SPEED, 0.0, 0.0)) == pytest.approx(acoustic)
    model = even(grid, SPEED, EPSILON, DELTA)
    assert fastest_swing(model, largest_dt(model)) == pytest.approx(4.0, rel=0.01)
    rough = random_shale((20, 24), absorb=0)
    assert 2.5 < fastest_swing(rough, largest_dt(rough)) < 4.0
    with pytest.raises(WaveError, match="unstable"):
        VTI(model, 1.001 * largest_dt(model))


def test_with_max_vel_the_time_step_follows_from_nothing_else():
    grid = Grid((30, 40), (10.0, 8.0))
    steps = {largest_dt(even(grid, SPEED, *pair, max_vel=2500.0)) for pair in ((0.0, 0.0), (0.2, 0.1), (-0.1, -0.1))}
    assert len(steps) == 1 and steps.pop() <= largest_dt(even(grid, 2500.0 / np.sqrt(1.5), 0.25, 0.0))


@pytest.mark.parametrize("pair", [(0.2, 0.08), (0.0, -0.2), (0.1, -0.15), (-0.1, -0.2), (0.15, 0.15), (-0.2, -0.2)])
def test_the_slowest_and_the_fastest_wave_are_those_of_all_angles(pair):
    epsilon, delta = pair
    model = even(Grid((4, 5), 10.0), SPEED, *pair)
    a = np.linspace(0.0, 1.0, 20_001)
    trace = 1 + 2 * epsilon * a
    speeds = SPEED * np.sqrt((trace + np.sqrt(trace**2 - 8 * (epsilon - delta) * a * (1 - a))) / 2)
    assert model.slowest == pytest.approx(speeds.min(), rel=1e-8)
    assert model.fastest == pytest.approx(speeds.max(), rel=1e-12)


def test_budgets_change_no_bit_of_image_and_gradient():
    model = smooth_shale((30, 40), absorb=10)
    shot = surface_shot(model, samples=60)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    options = {"dtype": np.float64}
    kept, tight = (gradient(shot, model, budget=budget, **options) for budget in ("64MB", "500kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    for name in ("velocity", "epsilon", "delta"):
        assert np.array_equal(kept.gradient[name], tight.gradient[name]) and kept.gradient[name].any()
    kept, tight = (migrate(shot, model, budget=budget, **options) for budget in ("64MB", "230kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    assert np.array_equal(kept.image, tight.image) and kept.image.any()


@pytest.mark.slow
def test_single_precision_gives_the_gradients_of_double():
    model = smooth_shale((30, 40), absorb=10)
    shot = surface_shot(model, samples=80)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    single, double = (gradient(shot, model, budget="64MB", dtype=dtype).gradient for dtype in (np.float32, np.float64))
    for name in ("velocity", "epsilon", "delta"):
        assert relative(single[name], double[name]) < 1e-4


@pytest.mark.slow
def test_an_image_has_what_anisotropy_alone_reflects():
    """At v everywhere: where epsilon and delta begin, waves that come at an angle are reflected."""
    grid = Grid((60, 80), 10.0)
    none = np.zeros(grid.shape)
    below = np.arange(60)[:, None] >= 40
    shot = Shot((50.0, 400.0), [(50.0, x) for x in range(0, 800, 20)], ricker(15.0, 0.004, 150), 0.004)
    smooth = VTIModel(none + SPEED, none, none, grid)
    layered = VTIModel(none + SPEED, none + 0.3 * below, none + 0.3 * below, grid)
    echo = np.subtract(*(simulate(shot, model, dtype=np.float64) for model in (layered, smooth)))
    image = migrate(shot.with_data(echo), smooth, budget="8MB", dtype=np.float64).clean()
    assert abs(np.abs(image[20:, 25:55]).sum(axis=1).argmax() - 20) <= 2


def test_what_is_no_such_rock_is_refused():
    grid = Grid((20, 30), 10.0)
    velocity, epsilon, delta = (np.full(grid.shape, value) for value in (SPEED, 0.2, 0.1))
    low, lower = delta.copy(), delta.copy()
    low[3, 4], lower[3, 4] = 0.2 + 1e-7, -0.5
    for wrong, reason in (
        ((velocity, epsilon, low), r"epsilon is up to 1e-07 below delta.*numpy.maximum\(epsilon, delta\)"),
        ((velocity, epsilon, lower), r"delta must be finite and above -0\.5 everywhere"),
        ((velocity, epsilon - 0.8, delta), r"epsilon must be finite and above -0\.5"),
        ((velocity, epsilon, delta * np.nan), "delta must be finite"),
        ((-velocity, epsilon, delta), "velocity must be finite and above 0"),
        ((velocity, epsilon[1:], delta), r"epsilon of shape \(19, 30\) on a grid of shape \(20, 30\)"),
        ((velocity, 0.2, delta), "an epsilon of type float"),
    ):
        with pytest.raises(WaveError, match=reason):
            VTIModel(*wrong, grid)
    with pytest.raises(WaveError, match="max_vel=2200"):  # which waves across exceed
        VTIModel(velocity, epsilon, delta, grid, max_vel=2200.0)


def test_what_is_not_there_is_refused():
    model = random_shale((20, 24))
    shot = random_shot(model)
    with pytest.raises(WaveError, match="one shot at a time"):
        simulate([shot, shot], model)
    with pytest.raises(WaveError, match="give an AcousticModel"):
        born(shot, model, 0 * model.velocity)
    with pytest.raises(WaveError, match="take an ElasticModel"):
        VTI(model, 1e-4).antenna([(50.0, 50.0)], ["force z"])
    with pytest.raises(WaveError, match="images="):
        migrate(shot.with_data(np.zeros((60, 5))), model, images=("velocity",))
    with pytest.raises(WaveError, match=r"4 rows between a free surface .* give more than 4 rows"):
        VTI(random_shale((4, 20), free_surface=True), 1e-4)
    with pytest.raises(WaveError, match="float16"):
        VTI(model, 1e-4, dtype=np.float16)
