"""Shots that advance together: each gives the bits that it gives alone, on a CPU and by a GPU's kernels."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave.acoustic.test_gpu import PLACES, Emulated, Real
from tests.wave.elastic_setups import smooth_rock
from tests.wave.setups import random_positions, smooth_model

from forebay.errors import WaveError
from forebay.wave import AcousticModel, Grid, Shot, gradient, migrate, ricker, simulate

SAMPLES, DT = 40, 0.004
WAVELET = ricker(12.0, DT, SAMPLES, delay=0.08) * np.hanning(SAMPLES)
MODELS = {"one model, free surface": (True, False), "a model each": (False, True)}


def survey(*, free_surface=False, own_models=False):
    """Make three shots that differ in all that may: points, their number, wavelets, data and models."""
    model = smooth_model((26, 31), absorb=7, free_surface=free_surface)
    models = [model] * 3
    if own_models:
        grids = [Grid(model.grid.shape, 10.0, 70.0 * number, absorb=7) for number in range(3)]
        models = [AcousticModel(model.velocity * (1 - 0.01 * number), grid) for number, grid in enumerate(grids)]
    shots = []
    for number, own in enumerate(models):
        positions, rng = random_positions(own.grid, 6 + number, seed=number), np.random.default_rng(number)
        data = rng.standard_normal((SAMPLES, 4 + number))
        shots.append(Shot(positions[:2], positions[2:], (1 + number) * WAVELET, DT, data))
    return shots, models


@pytest.fixture(params=["cpu", *PLACES])
def place(request, monkeypatch):
    """Return what moves a model to where waves are computed; one model stays one."""
    moves = {"cpu": lambda: lambda model: model, "emulated": lambda: Emulated(monkeypatch), "gpu": Real}
    move, known = moves[request.param](), {}
    return lambda model: known.setdefault(model, move(model))


@pytest.mark.parametrize(("free_surface", "own_models"), MODELS.values(), ids=MODELS)
def test_images_and_data_are_those_of_shots_alone(place, free_surface, own_models):
    shots, models = survey(free_surface=free_surface, own_models=own_models)
    models = [place(model) for model in models]
    given = models if own_models else models[0]
    heard, found = simulate(shots, given), migrate(shots, given, every=3, budget="64MB")
    for number, (shot, model) in enumerate(zip(shots, models, strict=True)):
        alone = migrate(shot, model, every=3, budget="64MB")
        assert np.array_equal(heard[number], simulate(shot, model)) and heard[number].any()
        assert np.array_equal(found[number].image, alone.image) and alone.image.any()
        assert np.array_equal(found[number].illumination, alone.illumination)
        assert found[number].grid == model.grid


def test_gradients_are_those_of_shots_alone(place):
    shots, models = survey(own_models=True)
    models = [place(model) for model in models]
    found = gradient(shots, models, every=2, budget="64MB")
    for together, shot, model in zip(found, shots, models, strict=True):
        alone = gradient(shot, model, every=2, budget="64MB")
        assert together.misfit == alone.misfit and np.array_equal(together.data, alone.data)
        assert np.array_equal(together.gradient, alone.gradient) and alone.gradient.any()


def test_a_tight_budget_changes_no_bit():
    shots, models = survey()
    kept, tight = (migrate(shots, models[0], every=3, budget=budget) for budget in ("64MB", "300kB"))
    assert all(np.array_equal(one.image, other.image) for one, other in zip(kept, tight, strict=True))
    assert tight[0].result.metrics.recomputed > kept[0].result.metrics.recomputed


def test_conditions_and_watchers_see_an_axis_of_shots():
    shots, models = survey()
    shapes = set()
    simulate(shots, models[0], watch=lambda pressure, step: shapes.add(pressure.shape))
    migrate(
        shots,
        models[0],
        budget="64MB",
        condition=lambda source, receiver, step: shapes.update((source.shape, receiver.shape)),
    )
    assert shapes == {(3, *models[0].grid.shape)}


def test_shots_that_cannot_advance_together_are_refused():
    shots, models = survey()
    model, wide = models[0], Grid((26, 31), 10.0, absorb=8)
    volume = AcousticModel(np.full((9, 9, 9), 2000.0), Grid((9, 9, 9), 10.0))
    deep = replace(shots[0], source=[(40, 40, 40)] * 2, receivers=[(40, 40, 50)] * 4, data=None)
    refused = {
        "no shots|for 0 shots": ([], model),
        "2 models for 3 shots": (shots, [model, model]),
        "different samplings": ([*shots, replace(shots[0], wavelet=np.append(WAVELET, 0), data=None)], model),
        "give one dt": ([shots[0], replace(shots[0], wavelet=ricker(15.0, DT, SAMPLES, delay=0.08))], model),
        "one by one": (shots[:2], [model, AcousticModel(model.velocity, wide)]),
        "two dimensions": ([deep, deep], volume),
        "one shot at a time": ([shots[0]], smooth_rock((26, 31), absorb=7)),
        "give all of them one max_vel": (shots[:2], [model, AcousticModel(1.9 * model.velocity, model.grid)]),
    }
    for reason, (several, media) in refused.items():
        with pytest.raises(WaveError, match=reason):
            simulate(several, media, dt=None if "dt" in reason else 0.0005)
    with pytest.raises(WaveError, match="one every"):
        migrate([shots[0], replace(shots[0], wavelet=WAVELET * np.hanning(SAMPLES) ** 4)], model, dt=0.001, budget="64MB")
    with pytest.raises(WaveError, match="for a shot alone"):
        migrate(shots, model, compare=["raw"], budget="64MB")
