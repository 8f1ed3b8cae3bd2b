"""Waves in a standard linear solid fade and disperse as its modulus says, and are acoustic where nothing is."""

import numpy as np
import pytest
from tests.wave.setups import random_model, random_positions, random_shot, surface_shot
from tests.wave.visco_setups import FREQUENCY, NAMES, random_clay, smooth_clay

from forebay.wave import (
    AcousticModel,
    Grid,
    Shot,
    Visco,
    ViscoModel,
    WaveError,
    born,
    gradient,
    invert,
    largest_dt,
    lsrtm,
    migrate,
    ricker,
    simulate,
)
from forebay.wave.invert import started

SPEED = 2000.0


def relative(one, other):
    return np.linalg.norm(one - other) / np.linalg.norm(other)


def even(grid, q, frequency=FREQUENCY, **options):
    """Make a model of the same rock everywhere."""
    return ViscoModel(np.full(grid.shape, SPEED), np.full(grid.shape, 1 / q), grid, frequency, **options)


@pytest.mark.parametrize(
    ("shape", "free_surface"),
    [((31, 37), True), pytest.param((13, 15, 14), False, marks=pytest.mark.slow)],
    ids=["free surface", "3-D"],
)
def test_where_nothing_is_lost_data_are_those_of_an_acoustic_model(shape, free_surface):
    model = random_model(shape, free_surface=free_surface)
    shot = random_shot(model, wavelet=ricker(10.0, 0.9 * largest_dt(model), 150)[:, None] * np.ones(3))
    options = {"dt": 0.8 * shot.dt, "dtype": np.float64}
    found = simulate(shot, ViscoModel(model.velocity, 0 * model.velocity, model.grid, FREQUENCY), **options)
    assert np.array_equal(found, simulate(shot, model, **options)) and found.any()


def wavenumber(frequencies, q):
    """Return the complex wavenumber of a solid with the relaxation times of Q; time goes as exp(i omega t)."""
    reference, omega = 2 * np.pi * FREQUENCY, 2 * np.pi * frequencies
    short = (np.sqrt(1 + 1 / q**2) - 1 / q) / reference
    long = 1 / (reference**2 * short)

    def slowness(omega):
        return np.sqrt((1 + 1j * omega * short) / (1 + 1j * omega * long))

    return omega / SPEED * slowness(omega) / slowness(reference).real


@pytest.mark.parametrize("q", [15.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_a_wave_fades_and_disperses_as_the_modulus_says(q):
    """The pressure around a point is known, and so is by how much it fades and lags beside one that loses nothing."""
    special = pytest.importorskip("scipy.special")
    dt, samples, grid, distances = 0.001, 900, Grid((61, 131), 10.0), np.array([300.0, 900.0])
    receivers, spectrum = [(303.3, 203.3 + away) for away in distances], 16 * samples
    shot = Shot((303.3, 203.3), receivers, ricker(FREQUENCY, dt, samples), dt)
    frequencies, sent = np.fft.rfftfreq(spectrum, dt)[1:], np.fft.rfft(shot.wavelet, spectrum)[1:, None]
    media = {
        "lossy": (even(grid, q), wavenumber(frequencies, q)),
        "plain": (AcousticModel(np.full(grid.shape, SPEED), grid), 2 * np.pi * frequencies / SPEED),
    }
    ratios = {}
    for name, (model, k) in media.items():
        heard = simulate(shot, model, dt=dt / 2, dtype=np.float64)
        exact = sent * special.hankel2(0, k[:, None] * distances) / 4j
        exact = np.fft.irfft(np.concatenate([np.zeros((1, 2)), exact]), spectrum, axis=0)[:samples]
        assert relative(heard, exact) < 5e-3
        ratios[name] = [
            far / near for near, far in (np.fft.rfft(data, spectrum, axis=0)[1:].T for data in (heard, exact))
        ]
    ours, theirs = (lossy / plain for lossy, plain in zip(ratios["lossy"], ratios["plain"], strict=True))
    for frequency in (7.0, 15.0, 25.0):
        at = np.abs(frequencies - frequency).argmin()
        assert ours[at] == pytest.approx(theirs[at], rel=1e-3)
        assert abs(theirs[at]) < 0.95  # much is lost


@pytest.mark.parametrize("shape", [(21, 24), pytest.param((12, 11, 13), marks=pytest.mark.slow)], ids=["2-D", "3-D"])
def test_a_free_surface_is_a_mirror_that_changes_the_sign(shape):
    half = random_clay(shape, free_surface=True)
    arrays = [np.concatenate([each[:0:-1], each]) for each in (half.velocity, half.attenuation)]
    top = half.grid.origin[0] - (shape[0] - 1) * half.grid.spacing[0]
    grid = Grid(arrays[0].shape, half.grid.spacing, (top, *half.grid.origin[1:]), absorb=half.grid.absorb)
    above, whole = (ViscoModel(*each, FREQUENCY, 2800.0) for each in (
        (half.velocity, half.attenuation, half.grid), (*arrays, grid)))  # fmt: skip
    source, receivers = random_positions(half.grid, 1, 1), random_positions(half.grid, 4, 2)
    image = source * [-1, *[1] * (len(shape) - 1)] + [2 * half.grid.origin[0], *[0] * (len(shape) - 1)]
    dt = 0.7 * largest_dt(whole)
    wavelet = ricker(12.5, dt, 220)[:, None]
    found = simulate(Shot(source, receivers, wavelet, dt), above, dt=dt, dtype=np.float64)
    pair = Shot(np.concatenate([source, image]), receivers, wavelet * [1.0, -1.0], dt)
    assert relative(found, simulate(pair, whole, dt=dt, dtype=np.float64)) < 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_twenty_points_return_less_than_a_thousandth(free_surface):
    shape, dt, far = (60, 90), 0.002, 50
    depth, along = np.indices(shape)
    layer = np.searchsorted([20, 40], depth + (along > 45) * 6, side="right")
    arrays = [np.array(values)[layer] for values in ([1500.0, 2100.0, 2900.0], [0.0, 0.05, 0.02])]
    shot = Shot((20.0, 400.0), [(20.0, x) for x in range(0, 890, 70)], ricker(12.0, dt, 300), dt)
    around = [(0 if free_surface else far, far), (far, far)]
    origin = [-10.0 * before for before, _ in around]
    larger = Grid(np.add(shape, np.sum(around, axis=1)), 10.0, origin, absorb=40, free_surface=free_surface)
    models = (
        ViscoModel(*arrays, Grid(shape, 10.0, free_surface=free_surface), FREQUENCY),
        ViscoModel(*(np.pad(each, around, mode="edge") for each in arrays), larger, FREQUENCY),
    )
    found, expected = (simulate(shot, model, dt=dt / 2, dtype=np.float64) for model in models)
    assert relative(found, expected) < 1e-3


def swings(model, dt):
    """Return the eigenvalues of a step in a closed box."""
    propagator = Visco(model, dt, dtype=np.float64)
    silent, inside, names = propagator.antenna([model.grid.origin]), propagator.inside, ("p", "p_old", "lag")
    columns = []
    for name in names:
        for place in np.ndindex(model.grid.shape):
            state = propagator.zeros()
            state[name][inside][place] = 1.0
            state = propagator.advance(state, silent, np.zeros((1, 1)), [0])
            columns.append(np.concatenate([state[own][inside].ravel() for own in names]))
    return np.linalg.eigvals(np.array(columns).T)


def test_nothing_grows_at_the_largest_time_step_however_rough_the_rock():
    rng = np.random.default_rng(4)
    grid = Grid((5, 6), (10.0, 7.0), absorb=0)
    velocity, attenuation = 1500.0 + 3000.0 * rng.random(grid.shape), rng.choice([0.0, 0.02, 0.3, 0.98], grid.shape)
    for frequency in (3.0, 15.0, 300.0):
        model = ViscoModel(velocity, attenuation, grid, frequency)
        assert np.abs(swings(model, min(largest_dt(model), 0.055 / frequency))).max() < 1 + 1e-7
    clay = ViscoModel(np.full(grid.shape, SPEED), np.full(grid.shape, 0.1), grid, FREQUENCY)
    sizes = np.sort(np.abs(swings(clay, 0.999 * largest_dt(clay))))
    assert 0.9 < sizes[-1] < 1  # all fade


def test_the_time_step_is_that_of_the_fastest_waves():
    grid = Grid((30, 40), (10.0, 8.0), absorb=0)
    model = even(grid, 20.0)
    fast = SPEED * np.sqrt((1 + 1 / 20.0) * 1.0)
    assert model.fastest == pytest.approx(fast, rel=2e-3) and model.slowest < SPEED < model.fastest
    assert largest_dt(model) == pytest.approx(largest_dt(AcousticModel(np.full(grid.shape, model.fastest), grid)))
    with pytest.raises(WaveError, match="unstable"):
        Visco(model, 1.001 * largest_dt(model))
    assert largest_dt(even(grid, 20.0, max_vel=3000.0)) == largest_dt(even(grid, 500.0, max_vel=3000.0))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "steps"), [((24, 30), 20_000), ((12, 14, 13), 4000)], ids=["2-D", "3-D"])
def test_many_steps_at_the_largest_time_step_stay_bounded(shape, steps):
    model = random_clay(shape, absorb=8, roughness=1500.0)
    propagator = Visco(model, largest_dt(model))
    state, source = propagator.zeros(), propagator.antenna(random_positions(model.grid, 1))
    sent = np.zeros((steps, 1), np.float32)
    sent[:40, 0] = np.random.default_rng(1).standard_normal(40)
    loudness = []
    for start in range(0, steps, steps // 10):
        state = propagator.advance(state, source, sent, range(start, start + steps // 10))
        loudness.append(float(np.abs(state["p"]).max()))
    assert loudness[0] == max(loudness) and loudness[-1] < 0.5 * loudness[0]


def test_budgets_change_no_bit_of_image_and_gradient():
    model = smooth_clay((30, 40), absorb=10)
    shot = surface_shot(model, samples=60)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    options = {"dtype": np.float64}
    kept, tight = (gradient(shot, model, budget=budget, **options) for budget in ("64MB", "400kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    for name in NAMES:
        assert np.array_equal(kept.gradient[name], tight.gradient[name]) and kept.gradient[name].any()
    kept, tight = (migrate(shot, model, budget=budget, **options) for budget in ("64MB", "220kB"))
    assert tight.result.plan.schedule.forward_steps > kept.result.plan.schedule.forward_steps
    assert np.array_equal(kept.image, tight.image) and kept.image.any()


@pytest.mark.slow
def test_several_threads_give_the_bits_of_one(monkeypatch):
    from forebay.wave.acoustic import cpu as acoustic
    from forebay.wave.visco import cpu

    model = smooth_clay((30, 40), absorb=10, free_surface=True)
    shot = surface_shot(model, samples=60)
    shot = shot.with_data(0.9 * simulate(shot, model))
    found = []
    for many in (2**30, 1):
        for module in (acoustic, cpu):
            monkeypatch.setattr(module, "MANY", many)
        found.append(gradient(shot, model, budget="64MB").gradient)
    assert all(np.array_equal(found[0][name], found[1][name]) for name in NAMES)


@pytest.mark.slow
def test_single_precision_gives_the_gradients_of_double():
    model = smooth_clay((30, 40), absorb=10)
    shot = surface_shot(model, samples=80)
    shot = shot.with_data(0.9 * simulate(shot, model, dtype=np.float64))
    single, double = (gradient(shot, model, budget="64MB", dtype=dtype).gradient for dtype in (np.float32, np.float64))
    for name in NAMES:
        assert relative(single[name], double[name]) < 1e-4


@pytest.mark.slow
def test_shots_together_have_the_bits_that_they_have_alone():
    clay = smooth_clay((30, 40), absorb=10)
    hard = ViscoModel(clay.velocity, 0.5 * clay.attenuation, clay.grid, 12.0)
    shots = [surface_shot(clay, samples=60, frequency=frequency) for frequency in (12.0, 10.0)]
    options = {"dt": 0.001}
    for models in ([clay, hard], [clay, clay]):
        data = simulate(shots, models, **options)
        for own, shot, model in zip(data, shots, models, strict=True):
            assert np.array_equal(own, simulate(shot, model, **options))
        heard = [shot.with_data(0.9 * own) for shot, own in zip(shots, data, strict=True)]
        together = gradient(heard, models, budget="64MB", **options)
        for own, shot, model in zip(together, heard, models, strict=True):
            alone = gradient(shot, model, budget="64MB", **options)
            assert all(np.array_equal(own.gradient[name], alone.gradient[name]) for name in NAMES)


@pytest.mark.slow
def test_an_image_has_what_attenuation_alone_reflects():
    grid = Grid((60, 80), 10.0)
    none = np.zeros(grid.shape)
    below = np.arange(60)[:, None] >= 40
    shot = Shot((50.0, 400.0), [(50.0, x) for x in range(0, 800, 20)], ricker(15.0, 0.004, 150), 0.004)
    smooth, layered = (ViscoModel(none + SPEED, none + each * below, grid, FREQUENCY) for each in (0.0, 0.2))
    echo = np.subtract(*(simulate(shot, model, dtype=np.float64) for model in (layered, smooth)))
    image = migrate(shot.with_data(echo), smooth, budget="8MB", dtype=np.float64).clean()
    assert abs(np.abs(image[20:, 25:55]).sum(axis=1).argmax() - 20) <= 2


@pytest.mark.slow
def test_an_inversion_finds_velocity_and_attenuation():
    grid = Grid((30, 50), 10.0, absorb=10)
    velocity, attenuation = np.full(grid.shape, SPEED), np.full(grid.shape, 0.01)
    true = velocity.copy(), attenuation.copy()
    true[0][12:18, 14:22], true[1][10:20, 30:40] = 2150.0, 0.1
    lines = [(z, x) for z in (20, 280) for x in range(0, 500, 20)]
    shots = [Shot((20, x), lines, ricker(12, 0.002, 220), 0.002) for x in (100, 250, 400)]
    exact = ViscoModel(*true, grid, FREQUENCY, 2800.0)
    shots = [shot.with_data(simulate(shot, exact, dtype=np.float64)) for shot in shots]
    options = {"bounds": {"velocity": (1600.0, 2500.0), "attenuation": (0.0, 0.15)}, "dtype": np.float64}
    found = invert(shots, ViscoModel(velocity, attenuation, grid, FREQUENCY), iterations=8, budget="64MB", **options)
    assert found.misfits[0][-1] < 0.05 * found.misfits[0][0]
    assert found.model.velocity[12:18, 14:22].mean() > 2070.0
    assert found.model.attenuation[10:20, 30:40].mean() > 0.03
    assert found.model.attenuation[10:20, 8:18].mean() < 0.015 and found.model.frequency == FREQUENCY


def test_bounds_are_those_of_the_slowest_and_the_fastest_wave():
    model = even(Grid((8, 9), 10.0), 50.0)
    start, limits = started(model, (1500.0, 3000.0), 0.0)
    assert limits["attenuation"] == (0.02, 0.02)
    assert start.max_vel == pytest.approx(3000.0 * model.fastest / SPEED, rel=1e-5)
    lossy = even(model.grid, 5.0)
    with pytest.raises(WaveError, match=f"give bounds from {np.ceil(1500 * SPEED / lossy.slowest):.0f} m/s on"):
        started(model, {"attenuation": (0.0, 0.2), "velocity": (1500.0, 3000.0)}, 1500.0)
    for bounds in ((-0.1, 0.2), (0.0, 1.0)):
        with pytest.raises(WaveError, match=r"bounds of attenuation .* give some from 0 to below 1"):
            started(model, {"attenuation": bounds}, 0.0)
    for bounds in ((0.0, np.inf), (0.0, np.nan), ("0.0", "1e99")):
        with pytest.raises(WaveError, match=r"bounds of attenuation .* give some from 0 to below 1"):
            started(model, {"attenuation": bounds}, 0.0)
    for bounds in (0.1, None, (0.0,), (0.0, 0.1, 0.2), ("a", "b"), (0.0, None), (0, 10**400)):
        for name in ("attenuation", "velocity"):
            with pytest.raises(WaveError, match=rf"bounds of {name}: .* is no pair: give the least and the largest"):
                started(model, {name: bounds}, 0.0)


def test_what_is_no_such_rock_is_refused():
    grid = Grid((20, 30), 10.0)
    velocity, q = np.full(grid.shape, SPEED), np.full(grid.shape, 40.0)
    with pytest.raises(WaveError, match=r"attenuation from 40 to 40, where it is 1 / Q: give 1 / q"):
        ViscoModel(velocity, q, grid, FREQUENCY)
    holes = [1 / q for _ in range(3)]
    holes[0][3, 4], holes[1][3, 4], holes[2][3, 4] = -0.01, np.nan, np.inf
    for wrong, reason in (
        *(((velocity, hole), "attenuation from .* give 1 / q") for hole in holes),
        ((velocity * np.nan, 1 / q), "velocity must be finite and above 0"),
        ((velocity, 1 / q[1:]), r"attenuation of shape \(19, 30\) on a grid of shape \(20, 30\)"),
        ((velocity, 0.02), "an array of the attenuation of type float"),
        ((velocity, 1 / q + 0j), "attenuation of type complex128: give real numbers"),
        ((velocity.astype(complex), 1 / q), "velocity of type complex128: give real numbers"),
        ((velocity, (1 / q).astype(str)), "attenuation of type <U32: give real numbers"),
    ):
        with pytest.raises(WaveError, match=reason):
            ViscoModel(*wrong, grid, FREQUENCY)
    for frequency in (0.0, np.nan, np.inf, None, True, np.True_, "15", 1 + 0j, 10**400):
        with pytest.raises(WaveError, match=r"frequency=.*: give that in Hz"):
            ViscoModel(velocity, 1 / q, grid, frequency)
    with pytest.raises(WaveError, match="max_vel=2020"):  # which the fastest waves exceed
        ViscoModel(velocity, 1 / q, grid, FREQUENCY, max_vel=2020.0)
    others = [ViscoModel(velocity, 1 / q, grid, frequency) for frequency in (FREQUENCY, 600.0)]
    with pytest.raises(WaveError, match=r"reference frequency of 600 Hz"):
        Visco.of_batch(others, 0.001, 8, np.float32)


def test_a_reference_frequency_above_what_is_sent_is_held_by_smaller_steps_or_refused():
    grid, dt, freq = Grid((31, 61), 10.0, absorb=10), 0.004, 60.0
    shot = Shot((150.0, 50.0), [(150.0, 550.0)], ricker(6.0, dt, 150), dt)
    plain, lossy = AcousticModel(np.full(grid.shape, SPEED), grid, 3000.0), even(grid, 5.0, freq, max_vel=3000.0)

    def lost(**options):
        """Return how much of what is sent is lost at 6 Hz, as an exponent."""
        heard = (np.fft.rfft(simulate(shot, model, dtype=np.float64, **options)[:, 0]) for model in (lossy, plain))
        through, whole = (abs(spectrum[round(6.0 * dt * 150)]) for spectrum in heard)
        return np.log(whole / through)

    assert lost() == pytest.approx(lost(dt=dt / 16), rel=0.01)
    for work in (
        lambda: simulate(shot, lossy, dt=dt / 4),
        lambda: gradient(shot.with_data(np.ones((150, 1))), lossy, dt=dt / 4),
        lambda: migrate(shot.with_data(np.ones((150, 1))), lossy, dt=dt / 4),
        lambda: Visco(lossy, dt / 4),
    ):
        with pytest.raises(
            WaveError, match=r"more than 1% wrong: take dt of at most 0\.000918\d s, or .* of at most 55\."
        ):
            work()
    with pytest.raises(WaveError, match=r"reference frequency of 1e\+09 Hz"):
        simulate(shot, even(grid, 5.0, 1e9))


def test_what_is_not_there_is_refused():
    model = random_clay((20, 24))
    shot = random_shot(model)
    with pytest.raises(WaveError, match="give an AcousticModel"):
        born(shot, model, 0 * model.velocity)
    with pytest.raises(WaveError, match="give an AcousticModel"):
        lsrtm(shot.with_data(np.ones((60, 5))), model)
    with pytest.raises(WaveError, match="take an ElasticModel"):
        Visco(model, 1e-4).antenna([(50.0, 50.0)], ["force z"])
    with pytest.raises(WaveError, match="images="):
        migrate(shot.with_data(np.zeros((60, 5))), model, images=("velocity",))
    with pytest.raises(WaveError, match=r"4 rows between a free surface .* give more than 4 rows"):
        Visco(random_clay((4, 20), free_surface=True), 1e-4)
    with pytest.raises(WaveError, match="float16"):
        Visco(model, 1e-4, dtype=np.float16)
