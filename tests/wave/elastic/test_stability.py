"""Elastic waves keep their energy in a closed box and lose it through layers; what cannot give good ones is refused."""

import re

import numpy as np
import pytest
from tests.wave.elastic_setups import mixed_shot, random_rock, smooth_rock, surface_shot, uniform

from forebay.wave import (
    Acoustic,
    AcousticModel,
    Elastic,
    ElasticModel,
    Grid,
    Loop,
    Shot,
    WaveError,
    largest_dt,
    ricker,
    simulate,
)
from forebay.wave.elastic.medium import averaged
from forebay.wave.elastic.stencil import along_depth, first_derivative, steepest

F = 14.0


def number_after(text, message):
    return float(re.search(text + r" ([0-9.e+-]+)", message).group(1))


def decibels(part, whole):
    return 20 * np.log10(np.abs(part).max() / np.abs(whole).max())


def energy(propagator, before, after):
    """Return what a step keeps: kinetic energy, and that of stresses one step apart, by the rows' weights."""
    ndim, dt = propagator.model.grid.ndim, propagator.dt
    whole, half = (rows.reshape(-1, *(1,) * (ndim - 1)) for rows in propagator.rows)
    total = 0.0
    for name in propagator.velocities:
        weight = half if name == "vz" else whole
        total += np.sum(weight * after[name] ** 2 / propagator.medium["b" + name[1:]])
    lam, mu = propagator.medium["lam"], propagator.medium["mu"]
    normal = propagator.stresses[:ndim]
    pairs = [(before[name], after[name]) for name in normal]
    along = np.full(lam.shape, ndim)
    if propagator.model.grid.free_surface:
        along[propagator.halo] = ndim - 1
    trace = sum(one for one, _ in pairs) * sum(other for _, other in pairs) / along
    inner = sum(one * other for one, other in pairs)
    total += np.sum(whole * (trace / (along * lam + 2 * mu) + (inner - trace) / (2 * mu)))
    for name in propagator.stresses[ndim:]:
        weight = half if name[1] == "z" else whole
        total += np.sum(weight * before[name] * after[name] / propagator.medium["m" + name[1:]])
    return total / dt


@pytest.mark.parametrize("free_surface", [False, True], ids=["closed", "free surface"])
@pytest.mark.parametrize("shape", [(24, 28), (10, 11, 12)], ids=["2-D", "3-D"])
def test_waves_in_a_closed_box_keep_their_energy(shape, free_surface):
    model = random_rock(shape, absorb=0, free_surface=free_surface, fluid=False)
    propagator = Elastic(model, largest_dt(model), dtype=np.float64)  # at the very limit
    loop = Loop(mixed_shot(model), Elastic(model, propagator.dt, dtype=np.float64))
    state = propagator.step(propagator.zeros(), loop.sources, np.array([1e-6, *(1.0,) * len(shape)]))
    energies, silent = [], np.zeros(len(shape) + 1)
    for step in range(2000 if len(shape) == 2 else 400):
        before = {name: values.copy() for name, values in state.items()} if step % 100 == 0 else None
        state = propagator.step(state, loop.sources, silent)
        if before is not None:
            energies.append(energy(propagator, before, state))
    assert energies[0] > 0
    assert np.ptp(energies) < 1e-9 * energies[0]


@pytest.mark.parametrize("free_surface", [False, True])
def test_max_vel_lowers_the_time_step_and_models_below_it_share_one(free_surface):
    grid = Grid((20, 22), 10.0, absorb=6, free_surface=free_surface)
    slow, fast = uniform(grid), uniform(grid, vp=4000.0)
    bound = [ElasticModel(*model.arrays, grid, max_vel=4500.0) for model in (slow, fast)]
    assert largest_dt(bound[0]) == pytest.approx(largest_dt(slow) * 3000.0 / 4500.0)
    assert largest_dt(bound[0]) == pytest.approx(largest_dt(bound[1]))
    rough = random_rock((20, 22), free_surface=free_surface)
    twice = ElasticModel(*rough.arrays, rough.grid, max_vel=2 * rough.fastest)
    assert largest_dt(twice) == pytest.approx(largest_dt(rough) / 2)  # contrasts of density count all the same
    assert Elastic(slow, 0.0016).dt == 0.0016
    with pytest.raises(WaveError, match=r"unstable .* at 4500 m/s"):
        Elastic(bound[0], 0.0016)


@pytest.mark.slow
@pytest.mark.parametrize("fluid", [pytest.param(False, marks=pytest.mark.slow), True], ids=["rock", "soaked rock"])
@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_waves_in_an_open_box_leave_it(free_surface, fluid):
    model = random_rock((40, 44), absorb=20, free_surface=free_surface, fluid=fluid)
    dt, samples = 0.9 * largest_dt(model), 5000
    wavelet = np.zeros((samples, 3))
    wavelet[:400] = ricker(8.0, dt, 400)[:, None] * np.array([1e-6, 1.0, 1.0])
    loop = Loop(mixed_shot(model, wavelet=wavelet), Elastic(model, dt))
    state, loudness = loop.propagator.zeros(), []
    for start in range(0, samples, 500):
        state = loop.forward(state, start, start + 500)
        loudness.append(max(np.abs(state[name]).max() for name in ("vz", "vx")))
    heard = np.abs(loop.heard[:, 1:3]).max()
    if fluid:  # pores hold waves back
        assert loudness[-1] < 0.1 * heard
    else:
        assert loudness[3] < 3e-3 * heard
        assert max(loudness[6:]) < loudness[3]
        assert loudness[-1] < 1e-4 * heard


def test_the_largest_time_step_is_the_largest():
    model = uniform(Grid((20, 22), (10.0, 9.0), absorb=0))
    largest = largest_dt(model)
    with pytest.raises(WaveError, match="unstable"):
        Elastic(model, 1.0001 * largest)
    loudness = []
    for share in (1.0, 1.05):  # a small box does not hold the very worst wave
        propagator = Elastic(model, largest, dtype=np.float64)
        for values in propagator.medium.values():
            values *= share  # behind the back of the check
        source, state = propagator.antenna((52.0, 61.0), ["explosion"]), propagator.zeros()
        for step in range(500):
            state = propagator.step(state, source, np.ones(1) * (step == 0))
        loudness.append(np.abs(state["tzz"]).max())
    assert loudness[0] * 1e15 < loudness[1]


def reflection(sends, hears, absorb, axis):
    """Measure what comes back from one side, at normal incidence, where the wave enters the layer."""
    spot, far, shape = [300.0, 300.0], [300.0, 300.0], [61, 61]
    spot[axis], far[axis] = 50.0, 600.0
    shape[1 - axis] += 120  # the other sides are far away
    origin = [0.0, 0.0]
    origin[1 - axis] = -600.0
    slowest = 3000.0 if sends == "explosion" else 1700.0
    seconds = (550 + 2 * absorb * 10.0) / slowest + 3 / F  # until all of it is back from the layer's end
    return difference(Grid(shape, 10.0, origin, absorb=absorb), axis, 120, seconds, spot, far, sends, hears)


def difference(grid, axis, more, seconds, spot, far, sends="explosion", hears="pressure"):
    """Compare what is heard with what is heard where a side is further away."""
    larger = list(grid.shape)
    larger[axis] += more
    dt = 0.0012
    shot = Shot(spot, far, ricker(F, dt, int(seconds / dt)), dt, sends=sends, hears=hears)
    beyond = Grid(larger, grid.spacing, grid.origin, absorb=grid.absorb)
    here, without = simulate(shot, uniform(grid)), simulate(shot, uniform(beyond))
    return decibels(here - without, without)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("axis", "wave"),
    [
        (0, "pressure"),
        (1, "shear"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, "pressure"), (0, "shear"))),
    ],
)
def test_a_layer_returns_less_than_a_thousandth(axis, wave):
    kinds = ("explosion", "pressure") if wave == "pressure" else (f"force {'xz'[axis]}", f"velocity {'xz'[axis]}")
    assert reflection(*kinds, 20, axis) < -60


@pytest.mark.slow
def test_a_layer_returns_less_than_a_thousandth_in_three_dimensions():
    grid = Grid((21, 26, 21), 10.0, absorb=20)
    assert difference(grid, 1, 50, 0.47, (100.0, 50.0, 100.0), (100.0, 250.0, 100.0)) < -60


@pytest.mark.slow
def test_wider_layers_return_less():
    levels = [reflection("explosion", "pressure", absorb, 0) for absorb in (0, 5, 10, 20, 30)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > -20


@pytest.mark.parametrize("order", [2, 4, 6, 8, 12])
def test_derivatives_at_a_free_surface_are_transposes_and_exact_for_polynomials(order):
    radius, rows = order // 2, 40
    depth = along_depth(order, rows, 0)
    forward, backward = np.zeros((2, rows, rows))
    for row in range(rows):
        for k in range(order):
            if 0 <= (column := row + k - radius + 1) < rows:
                forward[row, column] = depth.forward[row, k]
            if 0 <= (column := row + k - radius) < rows:
                backward[row, column] = depth.backward[row, k]
    assert np.abs(depth.whole[:, None] * backward + (depth.half[:, None] * forward).T).max() < 1e-12
    assert depth.whole.min() > 0 and depth.half.min() > 0
    assert steepest(order, True) == pytest.approx(steepest(order, False), rel=1e-3)
    z, inside = np.arange(rows + 0.0), slice(0, rows - order)
    for power in range(3 if order >= 8 else 2):
        slope, slope_between = (power * at ** max(power - 1, 0) for at in (z, z + 0.5))
        assert np.allclose((forward @ z**power)[inside], slope_between[inside], atol=1e-10)
        start = 1 if power == 0 else 0  # at the surface itself it vanishes
        assert np.allclose(
            (backward @ (z + 0.5) ** power)[start : rows - order], slope[start : rows - order], atol=1e-10
        )


def test_staggered_coefficients_differentiate_polynomials_exactly():
    for order in (2, 4, 8, 12):
        c, half = first_derivative(order), np.arange(order // 2) + 0.5
        for power in range(1, order, 2):
            assert 2 * np.sum(c * half**power) == pytest.approx(float(power == 1), abs=1e-9 * half[-1] ** power)


def test_shear_ends_where_a_fluid_begins():
    grid = Grid((10, 12), 10.0)
    vs = np.full(grid.shape, 1000.0)
    vs[:5] = 0
    medium = averaged(ElasticModel(np.full(grid.shape, 2000.0), vs, np.full(grid.shape, 2000.0), grid), 4)
    rows = medium["mzx"][24:34, 30]
    assert not rows[:5].any() and rows[5:].min() == pytest.approx(2e9)


def test_a_coarse_grid_and_an_unstable_step_are_refused_with_what_works():
    model = smooth_rock()
    shot = surface_shot(model)
    with pytest.raises(WaveError, match="unstable") as refusal:
        simulate(shot, model, dt=0.003)
    simulate(shot, model, dt=number_after("at most", str(refusal.value)))
    quick = surface_shot(model, frequency=20.0)
    with pytest.raises(WaveError, match="1400 m/s") as refusal:
        simulate(quick, model)
    _, frequency = (number_after("at most", text) for text in str(refusal.value).split(", or "))
    simulate(surface_shot(model, frequency=20.0 * frequency / 56), model)
    assert Elastic.points_per_wavelength(8) < Acoustic.points_per_wavelength(8)


def arrays(**changes):
    return [np.full((10, 10), {"vp": 2e3, "vs": 1e3, "rho": 2e3, **changes}[name]) for name in ("vp", "vs", "rho")]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ElasticModel(np.ones((9, 10)), *arrays()[1:], Grid((10, 10), 1.0)), "vp of shape"),
        (lambda: ElasticModel(*arrays(rho=0.0), Grid((10, 10), 1.0)), "rho must be finite and above 0"),
        (lambda: ElasticModel(*arrays(vs=-1.0), Grid((10, 10), 1.0)), "not below 0"),
        (lambda: ElasticModel(*arrays(vs=np.nan), Grid((10, 10), 1.0)), "finite"),
        (lambda: ElasticModel(*arrays(vs=2e3), Grid((10, 10), 1.0)), "of vp"),
        (lambda: Elastic(smooth_rock(), 0.001, order=7), "even order"),
        (lambda: Elastic(smooth_rock(), 0.001, dtype=np.float16), "float32 or float64"),
        (lambda: Elastic(smooth_rock(), 0.001).antenna([(10, 10)], ["force y"]), "axes are z, x"),
        (lambda: Elastic(smooth_rock(), 0.001).antenna([(0, 1e6)], ["explosion"]), "outside"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(5), 0.001, sends="push"), "'force z'"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(5), 0.001, hears=["pressure"] * 2), "each of the 1"),
        (
            lambda: simulate(
                Shot((50.0, 50.0), [(50.0, 90.0)], ricker(8.0, 0.001, 500), 0.001, hears="velocity z"),
                AcousticModel(np.full((20, 20), 2000.0), Grid((20, 20), 10.0)),
            ),
            "take an ElasticModel",
        ),
    ],
)
def test_refusals_say_what_to_do(make, words):
    with pytest.raises(WaveError, match=words):
        make()
