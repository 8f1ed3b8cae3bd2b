"""Shots that advance together: each gives the bits that it gives alone, on a CPU and by a GPU's kernels."""

from dataclasses import replace

import numpy as np
import pytest
from tests.wave.acoustic.test_gpu import Emulated, Real
from tests.wave.elastic_setups import smooth_rock
from tests.wave.setups import random_positions, smooth_model
from tests.wave.twins import PLACES

from forebay.errors import WaveError
from forebay.wave import AcousticModel, Grid, Shot, gradient, migrate, ricker, simulate

SAMPLES, DT, STEP = 32, 0.0028, 0.0014
WAVELET = ricker(9.0, DT, SAMPLES, delay=0.045) * np.hanning(SAMPLES)


def survey(*, own_models=False):
    """Make three shots that differ in all that may: points, their number, wavelets, data and models."""
    models = [smooth_model((24, 31), absorb=6)] * 3
    if own_models:
        grids = [Grid((24, 31), 10.0, 70.0 * number, absorb=6, free_surface=True) for number in range(3)]
        models = [AcousticModel(models[0].velocity * (1 + 0.18 * k), grid) for k, grid in enumerate(grids)]
        assert len({model.layer_velocity for model in models}) == 2
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


@pytest.mark.slow
def test_images_and_data_are_those_of_shots_alone(place):
    shots, models = survey(own_models=True)
    models = [place(model) for model in models]
    heard = simulate(shots, models, dt=STEP)
    found = migrate(shots, models, dt=STEP, every=3, budget="64MB")
    for number, (shot, model) in enumerate(zip(shots, models, strict=True)):
        alone = migrate(shot, model, dt=STEP, every=3, budget="64MB")
        assert np.array_equal(heard[number], simulate(shot, model, dt=STEP)) and heard[number].any()
        assert np.array_equal(found[number].image, alone.image) and alone.image.any()
        assert np.array_equal(found[number].illumination, alone.illumination)
        assert found[number].grid == model.grid


def test_gradients_are_those_of_shots_alone(place):
    shots, models = survey()
    model = place(models[0])
    found = gradient(shots, model, dt=STEP, every=2, budget="64MB")
    for together, shot in zip(found, shots, strict=True):
        alone = gradient(shot, model, dt=STEP, every=2, budget="64MB")
        assert together.misfit == alone.misfit and np.array_equal(together.data, alone.data)
        assert np.array_equal(together.gradient, alone.gradient) and alone.gradient.any()


def test_budgets_change_no_bit_and_conditions_see_an_axis_of_shots():
    shots, models = survey()
    shapes = set()
    simulate(shots, models[0], dt=STEP, watch=lambda pressure, step: shapes.add(pressure.shape))
    kept, tight = (
        migrate(
            shots,
            models[0],
            dt=STEP,
            every=3,
            schedule=schedule,
            budget="64MB",
            condition=lambda source, receiver, step: shapes.update((source.shape, receiver.shape)),
        )
        for schedule in ("storeall", "revolve:4")
    )
    assert all(np.array_equal(one.image, other.image) for one, other in zip(kept, tight, strict=True))
    assert tight[0].result.metrics.advanced > kept[0].result.metrics.advanced
    assert shapes == {(3, *models[0].grid.shape)}


def test_shots_that_cannot_advance_together_are_refused():
    shots, (model, *_) = survey()
    volume = AcousticModel(np.full((9, 9, 9), 2000.0), Grid((9, 9, 9), 10.0))
    deep = replace(shots[0], source=[(40, 40, 40)] * 2, receivers=[(40, 40, 50)] * 4, data=None)
    longer = replace(shots[0], wavelet=np.append(WAVELET, 0), data=None)
    sharper = replace(shots[0], wavelet=WAVELET * np.hanning(SAMPLES))
    other = AcousticModel(model.velocity, Grid((24, 31), 10.0, absorb=8))
    faster = AcousticModel(1.9 * model.velocity, model.grid)
    refused = {
        "for 0 shots": ([], model),
        "2 models for 3 shots": (shots, [model, model]),
        "different samplings": ([*shots, longer], model),
        "one by one": (shots[:2], [model, other]),
        "two dimensions": ([deep, deep], volume),
        "one shot at a time": (shots[:1], smooth_rock((24, 31), absorb=6)),
    }
    for reason, (several, media) in refused.items():
        with pytest.raises(WaveError, match=reason):
            simulate(several, media, dt=0.0005)
    with pytest.raises(WaveError, match="one dt"):
        simulate(shots[:2], [model, faster])
    with pytest.raises(WaveError, match="one every"):
        migrate([shots[0], sharper], model, dt=0.0005, budget="64MB")
    with pytest.raises(WaveError, match="for a shot alone"):
        migrate(shots, model, compare=["raw"], budget="64MB")
