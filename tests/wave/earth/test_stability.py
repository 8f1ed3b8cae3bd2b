"""What cannot give good waves is refused before the first step, with what can; what is accepted stays bounded."""

import re

import numpy as np
import pytest
from tests.wave.setups import random_model, random_shot, smooth_model, surface_shot

from forebay.wave import (
    Acoustic,
    AcousticModel,
    Elastic,
    Grid,
    Loop,
    Shot,
    WaveError,
    gradient,
    highest_frequency,
    largest_dt,
    migrate,
    ricker,
    simulate,
)
from forebay.wave.earth.stability import TOLERANCE, accurate_dt, choose_dt
from forebay.wave.elastic.stencil import first_derivative, staggered_symbol
from forebay.wave.imaging import Sensing
from forebay.wave.kernels.stencil import second_derivative, symbol


def silent_shot():
    shot = surface_shot(smooth_model())
    return shot.with_data(np.zeros((shot.samples, len(shot.receivers))))


def number_after(text, message):
    return float(re.search(text + r" ([0-9.e+-]+)", message).group(1))


@pytest.mark.parametrize("order", [2, 8])
def test_the_largest_time_step_is_the_largest(order):
    grid = Grid((20, 22), (10.0, 9.0), absorb=0)
    model = AcousticModel(np.full(grid.shape, 2000.0), grid)
    largest = largest_dt(model, order)
    with pytest.raises(WaveError, match="unstable"):
        Acoustic(model, 1.0001 * largest, order)
    loudness = []
    for share in (1.0, 1.05):  # a small box does not hold the very worst wave
        propagator = Acoustic(model, largest, order, np.float64)
        propagator.squared[...] *= share**2  # behind the back of the check
        source, state = propagator.antenna((52.0, 61.0)), propagator.zeros()
        for step in range(500):
            state = propagator.step(state, source, np.ones(1) * (step == 0))
        loudness.append(np.abs(state["p"]).max())
    assert loudness[0] < 1e2 and loudness[1] > 1e20


def test_an_unstable_step_is_refused_with_one_that_works():
    model = smooth_model()
    shot = surface_shot(model)
    with pytest.raises(WaveError, match="unstable") as refusal:
        simulate(shot, model, dt=0.004)
    simulate(shot, model, dt=number_after("at most", str(refusal.value)))


def test_a_coarse_grid_is_refused_with_a_spacing_and_a_frequency_that_work():
    shot = Shot((100.0, 200.0), (100.0, 300.0), ricker(15.0, 0.002, 200), 0.002)
    with pytest.raises(WaveError, match="points") as refusal:
        simulate(shot, AcousticModel(np.full((40, 50), 1500.0), Grid((40, 50), 14.0)))
    spacing, frequency = (number_after("at most", text) for text in str(refusal.value).split(", or "))
    simulate(shot, AcousticModel(np.full((60, 60), 1500.0), Grid((60, 60), spacing)))
    slower = Shot(shot.source, shot.receivers, ricker(15.0 * frequency / 42, 0.002, 200), 0.002)
    simulate(slower, AcousticModel(np.full((40, 50), 1500.0), Grid((40, 50), 14.0)))


def test_a_step_too_coarse_for_the_wavelet_is_refused_with_a_step_and_a_frequency_that_work():
    model = AcousticModel(np.full((40, 50), 2000.0), Grid((40, 50), 10.0))
    shot = Shot((100.0, 200.0), (100.0, 300.0), ricker(15.0, 0.002, 200), 0.002)
    assert shot.dt < largest_dt(model)
    with pytest.raises(WaveError, match=r"1\.12% too fast") as refusal:
        simulate(shot, model, dt=0.002)
    dt, frequency = (number_after("at most", text) for text in str(refusal.value).split(", or "))
    simulate(shot, model, dt=dt)
    slower = Shot(shot.source, shot.receivers, ricker(15.0 * frequency / 41.5, 0.002, 300), 0.002)
    simulate(slower, model, dt=0.002)


def test_an_unstable_step_is_refused_with_one_that_is_fine_enough_too():
    model = AcousticModel(np.full((40, 50), 2000.0), Grid((40, 50), 10.0))
    shot = Shot((100.0, 200.0), (100.0, 300.0), ricker(15.0, 0.004, 100), 0.004)
    with pytest.raises(WaveError, match="unstable") as refusal:
        simulate(shot, model, dt=0.004)
    simulate(shot, model, dt=number_after("at most", str(refusal.value)))


@pytest.mark.parametrize("order", [2, 4, 8, 16])
@pytest.mark.parametrize("staggered", [False, True])
def test_waves_of_all_speeds_and_directions_travel_as_fast_as_is_promised(order, staggered):
    """By the dispersion relation of space and time together, on the coarsest grid with the longest step allowed."""
    frequency, spacing = 40.0, 1500.0 / 40.0 / (Elastic if staggered else Acoustic).points_per_wavelength(order)
    dt = accurate_dt(frequency)
    for speed in (1500.0, 2000.0, 4500.0):
        for angle in np.linspace(0, np.pi / 4, 7):
            k = 2 * np.pi * frequency / speed * spacing * np.array([np.cos(angle), np.sin(angle)])
            if staggered:
                squared = np.sum(staggered_symbol(first_derivative(order), k) ** 2)
            else:
                squared = -np.sum(symbol(second_derivative(order), k))
            travelled = 2 / dt * np.arcsin(min(speed * dt / 2 * np.sqrt(squared) / spacing, 1.0))
            # Which leaves out higher orders of dt.
            assert abs(travelled / (2 * np.pi * frequency) - 1) < 1.02 * TOLERANCE


def test_the_step_that_is_chosen_is_stable_and_fine_enough():
    model = smooth_model()
    for frequency in (5.0, 12.0):
        dt = choose_dt(model, 0.004, frequency)
        assert dt <= largest_dt(model) and (2 * np.pi * frequency * dt) ** 2 / 24 <= TOLERANCE
        assert 0.004 / dt == pytest.approx(round(0.004 / dt))
    assert choose_dt(model, 0.004, 50.0) < choose_dt(model, 0.004, 5.0)


def test_higher_orders_need_fewer_points():
    needed = [Acoustic.points_per_wavelength(order) for order in (2, 4, 6, 8, 12, 16)]
    assert needed == sorted(needed, reverse=True) and needed[-1] > 2


def test_a_sampling_too_coarse_for_a_step_is_divided():
    model = smooth_model()
    shot = surface_shot(model)
    assert shot.dt > largest_dt(model)
    with_part, with_half = simulate(shot, model), simulate(shot, model, dt=shot.dt / 8)
    assert with_part.shape == (shot.samples, len(shot.receivers))
    assert np.linalg.norm(with_part - with_half) < 0.05 * np.linalg.norm(with_half)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Grid((10,), 1.0), "two or three axes"),
        (lambda: Grid((10, 10), (1.0, 1.0, 1.0)), "one for each"),
        (lambda: Grid((10, 10), 0.0), "above 0"),
        (lambda: Grid((10, 10), 1.0, absorb=-1), "0 for none"),
        (lambda: AcousticModel(np.ones((9, 10)), Grid((10, 10), 1.0)), "shape"),
        (lambda: AcousticModel(np.full((10, 10), np.nan), Grid((10, 10), 1.0)), "finite"),
        (lambda: AcousticModel(np.zeros((10, 10)), Grid((10, 10), 1.0)), "above 0"),
        (lambda: Acoustic(smooth_model(), 0.001, order=7), "even order"),
        (lambda: Acoustic(smooth_model(), 0.001, dtype=np.float16), "float32 or float64"),
        (lambda: Acoustic(smooth_model(), 0.001).antenna([(0, 1e6)]), "outside"),
        (lambda: Acoustic(smooth_model(), 0.001).antenna([(0, 1, 2)]), "coordinates"),
        (lambda: Acoustic(smooth_model(free_surface=True), 0.001).antenna([(0, 100)]), "free surface"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones((5, 2)), 0.001), "sources"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(5), 0.001, data=np.ones((4, 1))), "samples by receivers"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(5), 0.0), "above 0"),
        (lambda: Shot((0, 0), [(0, 0)], np.array([1.0, np.nan]), 0.001), "finite"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(2), 0.001, data=np.array([[np.inf], [0.0]])), "finite"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(5, complex), 0.001), "wavelet: values of type complex128"),
        (lambda: Shot((0, 0), [(0, 0)], np.ones(5), 0.001, data=np.ones((5, 1), bool)), "data: values of type bool"),
        (lambda: Shot((0, 1j), [(0, 0)], np.ones(5), 0.001), "source: .* expected real numbers"),
        (lambda: migrate(silent_shot(), smooth_model(), every=0), "1 for each step"),
        (lambda: gradient(silent_shot(), smooth_model(), parameter="density"), "squared slowness"),
        (lambda: migrate(surface_shot(smooth_model()), smooth_model()), "with_data"),
        (lambda: gradient(surface_shot(smooth_model()), smooth_model()), "with_data"),
    ],
)
def test_refusals_say_what_to_do(make, words):
    with pytest.raises(WaveError, match=words):
        make()


def test_waves_in_a_closed_box_keep_their_energy():
    model = random_model((30, 34), absorb=0)
    propagator = Acoustic(model, 0.95 * largest_dt(model), dtype=np.float64)
    loop = Loop(random_shot(model), propagator)
    state, silent = propagator.zeros(), np.zeros(3)
    state = propagator.step(state, loop.sources, np.ones(3))
    energies = []
    for step in range(2000):
        before = state["p"].copy()
        state = propagator.step(state, loop.sources, silent)
        if step % 200 == 0:
            strained = np.zeros_like(before)
            sensing = Sensing(strained, state["p"], 1.0)
            propagator.kernels.curvature(sensing, before, propagator.weights, propagator.layers)
            energies.append(np.sum((state["p"] - before) ** 2 / propagator.squared) - strained.sum())
    assert energies[0] > 0
    assert np.ptp(energies) < 1e-9 * energies[0]


@pytest.mark.parametrize("free_surface", [False, True], ids=["open", "free surface"])
def test_waves_in_an_open_box_leave_it(free_surface):
    model = random_model((50, 54), absorb=24, free_surface=free_surface)
    wavelet = np.zeros((6000, 3))
    dt = 0.9 * largest_dt(model)
    wavelet[:200] = ricker(25.0, dt, 200)[:, None]
    loop = Loop(random_shot(model, samples=6000, wavelet=wavelet), Acoustic(model, dt))
    state, loudness = loop.propagator.zeros(), []
    for start in range(0, 6000, 500):
        state = loop.forward(state, start, start + 500)
        loudness.append(np.abs(state["p"]).max())
    heard = np.abs(loop.data()).max()
    assert loudness[3] < 1e-2 * heard
    assert max(loudness[6:]) < loudness[3]
    assert loudness[-1] < 1e-4 * heard


def test_a_ricker_wavelet_that_its_samples_do_not_hold_is_refused_with_what_does():
    with pytest.raises(WaveError, match=r"has waves of up to 110\.6 Hz, and samples of 0\.008 s hold 62\.5: take"):
        ricker(40.0, 0.008, 100)
    for frequency, dt in ((40.0, 0.00452), (22.6, 0.008)):
        assert highest_frequency(ricker(frequency, dt, 200), dt) == pytest.approx(0.5 / dt, rel=0.01)


def test_a_model_of_no_physics_is_refused():
    with pytest.raises(WaveError, match="no physics is registered for a model of type object: take one of Acoustic"):
        largest_dt(object())
