"""Operators: what they apply is modelling, their transposes are exact, and others' operators compose with them."""

import numpy as np
import pytest
from tests.wave.density_setups import random_fluid
from tests.wave.elastic_setups import mixed_shot, random_rock
from tests.wave.setups import random_model, random_positions, random_shot
from tests.wave.tti_setups import random_tilted
from tests.wave.visco_setups import random_clay
from tests.wave.vti_setups import random_shale

from forebay.wave import AcousticModel, Grid, Shot, WaveError, jacobian, modelling, ricker

MODELS = {
    "acoustic": random_model,
    "variable density": random_fluid,
    "VTI": random_shale,
    "TTI": random_tilted,
    "viscoacoustic": random_clay,
    "elastic": random_rock,
}


@pytest.mark.parametrize("free_surface", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "acoustic")) for kind in MODELS]
)
def test_modelling_of_every_physics_has_its_exact_transpose(kind, free_surface):
    model = MODELS[kind]((17, 20), free_surface=free_surface)
    shot = (mixed_shot if kind == "elastic" else random_shot)(model, samples=20)
    coarse = Shot(shot.source, shot.receivers, shot.wavelet, 3.3 * shot.dt, sends=shot.sends, hears=shot.hears)
    rng, sizes = np.random.default_rng(5), np.where([sort == "pressure" for sort in shot.hears], 1e-6, 1.0)
    for own, dt in ((shot, shot.dt), (coarse, 3.3 * shot.dt / 4)):  # at the sampling of the steps, and four times it
        sending = modelling(own, model, dt=dt, dtype=np.float64)
        wavelet, data = rng.standard_normal(sending.shape[1]), rng.standard_normal((20, len(sizes))) * sizes
        there = data.ravel() * (sending @ wavelet)
        assert there.sum() == pytest.approx((sending.T @ data.ravel()) @ wavelet, abs=1e-12 * np.abs(there).sum())
        assert np.abs(there).sum() > 0


def test_a_wavelet_that_sources_share_is_owed_their_sum():
    model = random_model((17, 20))
    places = random_positions(model.grid, 3, 1), random_positions(model.grid, 2, 2)
    one, other = (Shot(*places, np.zeros(shape), 0.002) for shape in (40, (40, 3)))
    shared, apart = (modelling(shot, model, dtype=np.float64) for shot in (one, other))
    assert shared.shape == (80, 40) and apart.shape == (80, 120)
    data = np.random.default_rng(4).standard_normal(80)
    assert np.allclose(shared.T @ data, (apart.T @ data).reshape(40, 3).sum(axis=1), rtol=1e-12, atol=0)


def test_shots_follow_one_another():
    model = random_model((17, 20))
    shots = [random_shot(model, sources=count, samples=30, wavelet=np.zeros((30, count))) for count in (1, 2)]
    both, wavelets = modelling(shots, model), np.random.default_rng(4).standard_normal(30 * 3)
    one, two = (modelling(shot, model) for shot in shots)
    assert np.array_equal(both @ wavelets, np.concatenate([one @ wavelets[:30], two @ wavelets[30:]]))
    data = both @ wavelets
    assert np.array_equal(both.T @ data, np.concatenate([one.T @ data[:150], two.T @ data[150:]]))


def test_an_operator_of_no_shots_is_refused():
    for operator in (modelling, jacobian):
        with pytest.raises(WaveError, match="no shots"):
            operator([], random_model((17, 20)))


def test_an_operator_of_several_models_is_refused():
    model = random_model((17, 20))
    for operator in (modelling, jacobian):
        with pytest.raises(WaveError, match="several models: an operator is of one"):
            operator([random_shot(model)], [model])


def test_a_jacobian_of_waves_that_are_not_scattered_is_refused_when_it_is_made():
    for model in (random_fluid((17, 20)), random_shale((17, 20)), random_clay((17, 20))):
        with pytest.raises(WaveError, match="give an AcousticModel or an ElasticModel"):
            jacobian(random_shot(model), model)
    rock = random_rock((17, 20))
    with pytest.raises(WaveError, match="parameter='squared slowness' of waves in ElasticModel"):
        jacobian(mixed_shot(rock, samples=20), rock, parameter="squared slowness")


@pytest.mark.slow
def test_they_compose_with_operators_of_scipy_and_pylops():
    pylops = pytest.importorskip("pylops")
    from scipy.sparse.linalg import lsqr

    grid = Grid((14, 16), 10.0, absorb=6)
    model = AcousticModel(np.full(grid.shape, 2000.0), grid, max_vel=2500.0)
    shot = Shot((20.0, 70.0), [(20.0, x) for x in range(0, 160, 20)], ricker(15.0, 0.002, 100), 0.002)
    sending = modelling(shot, model, dtype=np.float64)
    scattering = jacobian(shot, model, dtype=np.float64, budget="8MB")
    smoothing = pylops.Smoothing2D([3, 3], dims=grid.shape)
    composed = pylops.aslinearoperator(scattering) @ smoothing
    assert pylops.utils.dottest(composed, rtol=1e-10)
    change = np.random.default_rng(2).standard_normal(composed.shape[1])
    assert np.allclose(composed @ change, scattering @ (smoothing @ change), rtol=1e-12)
    stacked = pylops.VStack([pylops.aslinearoperator(sending), 0.1 * pylops.Identity(sending.shape[1])])
    assert pylops.utils.dottest(stacked, rtol=1e-10)
    # What was sent is found from what was heard, by SciPy's solver.
    found = lsqr(sending, sending @ shot.wavelet, iter_lim=100, atol=1e-10, btol=1e-10)[0]
    assert np.linalg.norm(found[:80] - shot.wavelet[:80]) < 0.05 * np.linalg.norm(shot.wavelet)
