"""Born modelling is the derivative of modelling, and the gradient applies its transpose."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave.density_setups import smooth_fluid
from tests.wave.elastic_setups import mixed_shot, random_rock, smooth_rock
from tests.wave.setups import random_positions

from forebay.wave import (
    AcousticModel,
    ElasticModel,
    Grid,
    Shot,
    WaveError,
    born,
    gradient,
    jacobian,
    largest_dt,
    lsrtm,
    ricker,
    simulate,
)

SETUPS = {
    "2-D": ((18, 21), False),
    "2-D free surface": ((18, 21), True),
    "3-D free surface": ((11, 10, 12), True),
}


def setup(shape, free_surface, samples=120):
    grid = Grid(shape, 10.0, absorb=6, free_surface=free_surface)
    velocity = 2000.0 + 300.0 * np.random.default_rng(4).random(shape)
    shot = Shot(random_positions(grid, 2, 1), random_positions(grid, 5, 2), ricker(18.0, 0.002, samples), 0.002)
    return shot, AcousticModel(velocity, grid, max_vel=2500.0)


@pytest.mark.parametrize("parameter", ["velocity", "squared slowness"])
@pytest.mark.parametrize("name", SETUPS)
def test_it_is_the_derivative_of_modelling(name, parameter):
    shot, model = setup(*SETUPS[name])
    change = np.random.default_rng(5).standard_normal(model.grid.shape)
    change *= 1.0 if parameter == "velocity" else 1e-10
    found = born(shot, model, change, parameter=parameter, dtype=np.float64)

    def heard(size):
        moved = model.velocity + size * change
        if parameter == "squared slowness":
            moved = (model.velocity**-2 + size * change) ** -0.5
        return simulate(shot, AcousticModel(moved, model.grid, max_vel=2500.0), dtype=np.float64)

    coarse, fine = ((heard(size) - heard(-size)) / (2 * size) for size in (0.2, 0.1))
    assert np.abs((4 * fine - coarse) / 3 - found).max() < 1e-8 * np.abs(found).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", SETUPS)
def test_the_gradient_applies_its_exact_transpose(name):
    shot, model = setup(*SETUPS[name])
    derivative = jacobian(shot, model, budget="64MB", dtype=np.float64)
    rng = np.random.default_rng(6)
    change, data = rng.standard_normal(derivative.shape[1]), rng.standard_normal(derivative.shape[0])
    there, back = data @ (derivative @ change), (derivative.T @ data) @ change
    assert there == pytest.approx(back, rel=1e-10) and there != 0


def test_an_operator_takes_several_shots_and_composes():
    shot, model = setup((12, 13), False, samples=100)
    other = Shot(random_positions(model.grid, 1, 7), random_positions(model.grid, 3, 8), shot.wavelet, shot.dt)
    derivative, change = (
        jacobian([shot, other], model, dtype=np.float64),
        np.random.default_rng(9).standard_normal(12 * 13),
    )
    one, two = (born(each, model, change.reshape(12, 13), dtype=np.float64) for each in (shot, other))
    assert np.array_equal(derivative @ change, np.concatenate([one.ravel(), two.ravel()]))
    normal = derivative.T @ derivative
    assert change @ (normal @ change) == pytest.approx(np.sum((derivative @ change) ** 2), rel=1e-10)


def test_shots_that_advance_together_scatter_what_each_does_alone():
    shot, model = setup((14, 15), False, samples=100)
    moved = Shot(shot.source + 5.0, shot.receivers[:2], shot.wavelet, shot.dt)
    slower = AcousticModel(0.95 * model.velocity, model.grid, max_vel=2500.0)
    change = np.random.default_rng(2).standard_normal(model.grid.shape)
    for models in (model, [model, slower]):
        both = born([shot, moved], models, change)
        own = models if isinstance(models, list) else [model, model]
        each = [born(alone, medium, change) for alone, medium in zip((shot, moved), own, strict=True)]
        assert all(np.array_equal(one, other) for one, other in zip(both, each, strict=True))


def test_what_cannot_be_modelled_is_refused():
    shot, model = setup((12, 13), False, samples=100)
    with pytest.raises(WaveError, match=r"a change of shape \(3, 4\) of a model of shape \(12, 13\)"):
        born(shot, model, np.zeros((3, 4)))
    for call in (born, jacobian):
        with pytest.raises(WaveError, match="parameter='density': take one of 'velocity', 'squared slowness'"):
            call(shot, model, *[np.zeros((12, 13))][: call is born], parameter="density")
    with pytest.raises(
        WaveError, match="a change of names 'vp' for waves in AcousticModel: give an array of its shape"
    ):
        born(shot, model, {"vp": np.zeros((12, 13))})
    fluid, rock = smooth_fluid((12, 13)), smooth_rock((12, 13))
    for refuse in (born, lsrtm):
        with pytest.raises(WaveError, match="give an AcousticModel"):
            refuse(shot.with_data(np.ones((100, 5))), fluid, *[{"velocity": np.zeros((12, 13))}][: refuse is born])
    for change, said in (
        (np.zeros((12, 13)), "type ndarray"),
        ({"velocity": np.zeros((12, 13))}, "names 'velocity'"),
        ({}, "names"),
    ):
        with pytest.raises(WaveError, match=f"a change of {said}.* give arrays by name, of 'vp', 'vs', 'rho'"):
            born(shot, rock, change)
    with pytest.raises(WaveError, match=r"a change of shape \(3, 4\) of a model of shape \(12, 13\)"):
        born(shot, rock, {"vs": np.zeros((3, 4))})
    with pytest.raises(WaveError, match="parameter='squared slowness' of waves in ElasticModel: leave it out"):
        born(shot, rock, {"vs": np.zeros((12, 13))}, parameter="squared slowness")
    with pytest.raises(WaveError, match="least-squares migration of waves in ElasticModel: give an AcousticModel"):
        lsrtm(shot.with_data(np.ones((100, 5))), rock)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (np.full((12, 13), 1j), "a change of type complex128: give real numbers"),
        (np.full((12, 13), np.nan), "values that are not finite"),
        (np.full((12, 13), -np.inf), "values that are not finite"),
        ([[1.0] * 13] * 12, "a change of type list: give an array of NumPy"),
    ],
)
def test_a_change_that_is_no_array_of_real_numbers_is_refused(change, said):
    shot, model = setup((12, 13), False, samples=100)
    with pytest.raises(WaveError, match=said):
        born(shot, model, change)
    with pytest.raises(WaveError, match=said):
        born(shot, smooth_rock((12, 13)), {"vs": change})


def smooth_pulses(shot):
    """Return what sources send: pulses, of a size with which all kinds of them are heard alike."""
    scale = np.where([kind == "explosion" for kind in shot.sends], 1.0, 1e3)
    return ricker(6.0, shot.dt, shot.samples)[:, None] * scale


def moved_rock(model, change, size):
    """Return rock with its arrays changed, in the layers of the first."""
    arrays = {name: getattr(model, name) + size * change.get(name, 0.0) for name in ("vp", "vs", "rho")}
    return ElasticModel(**arrays, grid=model.grid, max_vel=2600.0)


ROCKS = {"2-D": ((17, 20), False), "2-D free surface": ((17, 20), True), "3-D free surface": ((11, 10, 12), True)}


CHANGED = [
    ("2-D free surface", ("vp", "vs", "rho")),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("2-D", ("vp", "vs", "rho")),
            ("3-D free surface", ("vp", "vs", "rho")),
            ("2-D free surface", ("vp",)),
            ("2-D free surface", ("vs",)),
            ("2-D free surface", ("rho",)),
        )
    ),
]
"""Grids, and which arrays change."""


@pytest.mark.parametrize(("name", "changed"), CHANGED)
def test_that_of_elastic_waves_is_the_derivative_of_modelling(name, changed):
    shape, free_surface = ROCKS[name]
    model = moved_rock(random_rock(shape, free_surface=free_surface), {}, 0.0)  # some of it fluid
    shot = mixed_shot(model, samples=int(0.5 / (0.9 * largest_dt(model))))
    shot = replace(shot, wavelet=smooth_pulses(shot))
    rng, options = np.random.default_rng(5), {"dt": 0.8 * shot.dt, "dtype": np.float64}
    change = {own: rng.standard_normal(shape) for own in changed}
    if "vs" in change:
        change["vs"] *= model.vs > 0  # what is fluid stays it
    found = born(shot, model, change, **options)

    def heard(size):
        return simulate(shot, moved_rock(model, change, size), **options)

    coarse, fine = ((heard(size) - heard(-size)) / (2 * size) for size in (0.2, 0.1))
    expected = (4 * fine - coarse) / 3
    for kind in {*shot.hears}:
        own = [each == kind for each in shot.hears]
        assert np.abs(expected - found)[:, own].max() < 1e-7 * np.abs(found[:, own]).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", ROCKS)
def test_the_gradient_of_elastic_waves_applies_its_exact_transpose(name):
    shape, free_surface = ROCKS[name]
    model = random_rock(shape, free_surface=free_surface)
    shot = mixed_shot(model, samples=int(0.5 / (0.9 * largest_dt(model))))
    derivative = jacobian(
        replace(shot, wavelet=smooth_pulses(shot)), model, dt=0.8 * shot.dt, budget="64MB", dtype=np.float64
    )
    rng, points = np.random.default_rng(6), int(np.prod(shape))
    assert derivative.shape == (shot.samples * len(shot.receivers), 3 * points)
    data = (
        rng.standard_normal((shot.samples, len(shot.receivers)))
        * np.where([own == "pressure" for own in shot.hears], 1e-6, 1.0)
    ).ravel()
    for number in range(3):  # of each array alone
        change = np.zeros((3, points))
        change[number] = rng.standard_normal(points)
        there = data * (derivative @ change.ravel())
        assert there.sum() == pytest.approx((derivative.T @ data) @ change.ravel(), abs=1e-11 * np.abs(there).sum())
        assert np.abs(there).sum() > 0


@pytest.mark.slow
def test_ten_iterations_of_conjugate_gradients_explain_most_of_the_echoes_of_salt():
    z, x = np.meshgrid(np.arange(60), np.arange(90), indexing="ij")
    grid, background = Grid((60, 90), 10.0), 1800.0 + 6.0 * z
    change = np.where((z - 32) ** 2 / 80 + (x - 45) ** 2 / 400 < 1, 300.0, 0.0)
    model = AcousticModel(background, grid, max_vel=2700.0)
    receivers = [(20.0, position) for position in range(0, 891, 20)]
    shots = [Shot((20.0, position), receivers, ricker(14.0, 0.002, 400), 0.002) for position in range(45, 890, 200)]
    shots = [shot.with_data(born(shot, model, change)) for shot in shots]
    seen = []
    watch = lambda change, iteration, residual: seen.append((iteration, residual))  # noqa: E731
    found = lsrtm(shots, model, iterations=10, budget="1GB", watch=watch, progress=False)
    plain = lsrtm(shots, model, iterations=10, budget="1GB", precondition=False, progress=False)
    assert found.residuals[-1] < 0.2 and found.residuals[-1] < plain.residuals[-1]
    assert seen == list(enumerate(found.residuals[1:], 1))
    left = [shot.data - born(shot, model, found.change) for shot in shots]
    norms = [np.linalg.norm(np.concatenate(data)) for data in (left, [shot.data for shot in shots])]
    assert norms[0] / norms[1] == pytest.approx(found.residuals[-1], rel=1e-3)
    edges = [np.diff(image, axis=0)[20:50, 20:70].ravel() for image in (found.change, change)]
    assert np.corrcoef(*edges)[0, 1] > 0.5


def test_least_squares_migration_refuses_what_holds_no_echo():
    shot, model = setup((12, 13), False, samples=100)
    for data, said in ((None, "without data"), (np.zeros((100, 5)), "there is no echo to explain")):
        with pytest.raises(WaveError, match=said):
            lsrtm(Shot(shot.source, shot.receivers, shot.wavelet, shot.dt, data), model)
    with pytest.raises(WaveError, match="iterations=0: give 1 or more"):
        lsrtm(shot.with_data(np.ones((100, 5))), model, iterations=0)


def test_a_gradient_of_least_squares_is_the_transpose_of_the_residual():
    shot, model = setup((12, 13), False, samples=100)
    shot = shot.with_data(0.5 * simulate(shot, model, dtype=np.float64))
    residual = simulate(shot, model, dtype=np.float64) - shot.data
    found = jacobian(shot, model, dtype=np.float64).T @ residual.ravel()
    assert np.allclose(found, gradient(shot, model, dtype=np.float64).gradient.ravel(), rtol=1e-12)
