"""Elastic migration: reflectors come out where they are, and the same bits for every budget."""

import numpy as np
import pytest
from tests.wave.elastic_setups import surface_shot, uniform

import forebay as fb
from forebay.wave import AcousticModel, ElasticModel, Grid, Shot, WaveError, migrate, ricker, simulate

DEPTH = 34
GRID = Grid((60, 80), 10.0, absorb=30)


def layered(model):
    """Make a copy in which everything is faster and heavier below `DEPTH`."""
    values = [getattr(model, name).copy() for name in ("vp", "vs", "rho")]
    for one in values:
        one[DEPTH:] *= 1.15
    return ElasticModel(*values, model.grid)


def echo(shot, model):
    return shot.with_data(simulate(shot, layered(model)) - simulate(shot, model))


@pytest.fixture(scope="module")
def model():
    return uniform(GRID)


@pytest.fixture(scope="module", params=[pytest.param("pressure", marks=pytest.mark.slow), "velocity z"])
def shot(request, model):
    return echo(surface_shot(model, hears=request.param, frequency=13.0), model)


@pytest.fixture(scope="module")
def exact(shot, model):
    return migrate(shot, model, every=1, images=("pp", "velocity"), budget="64MB", schedule="storeall")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pp", "velocity"])
def test_the_reflector_is_imaged_where_it_is(exact, name):
    image, light = exact.images[name]
    clean = fb.wave.laplacian_filter(fb.wave.normalise(image, light), GRID)
    depths = np.abs(clean)[20:50, 30:40].argmax(axis=0) + 20
    assert np.abs(depths - DEPTH).max() <= 1


def test_the_first_image_is_the_image(exact):
    assert exact.image is exact.images["pp"][0] and exact.illumination is exact.images["pp"][1]
    assert exact.images["velocity"][1].min() >= 0


def test_an_image_has_the_sign_of_the_reflection(exact):
    """Pressure comes back with its sign, motion with the other, for it runs the other way."""
    pressure, motion = (exact.images[name][0][DEPTH - 1 : DEPTH + 2, 30:40] for name in ("pp", "velocity"))
    assert (pressure > 0).all() and (motion < 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"budget": "2MB"}, marks=pytest.mark.slow),
        {"budget": fb.Budget(host="1.2MB", disk="40MB")},
        pytest.param({"budget": "8MB", "codec": "lossless"}, marks=pytest.mark.slow),
    ],
    ids=["tight", "disk", "lossless"],
)
def test_budgets_change_no_bit(shot, model, options, tmp_path):
    kept, found = (
        migrate(shot, model, every=3, images=("velocity", "pp"), directory=tmp_path, **each)
        for each in ({"budget": "64MB", "schedule": "storeall"}, options)
    )
    for name in ("pp", "velocity"):
        for one, other in zip(found.images[name], kept.images[name], strict=True):
            assert np.array_equal(one, other)
    assert found.image is found.images["velocity"][0]


def test_the_default_interval_follows_from_the_band_and_hardly_shows(shot, model, exact):
    found = migrate(shot, model, budget="64MB")
    assert found.every > 2 and list(found.images) == ["pp"]
    assert np.abs(found.image - exact.image).sum() < 5e-3 * np.abs(exact.image).sum()


def test_one_field_is_kept_for_an_image_of_pressure_waves(shot, model):
    found = migrate(shot, model, every=4, budget="64MB")
    assert found.result.plan.keep == "records"
    assert found.result.plan.snapshot_bytes < 1.3 * model.vp.size * 4


def test_a_condition_of_ones_own_sees_both_waves(shot, model, exact):
    total = np.zeros(GRID.shape, np.float32)

    def condition(source, receiver, step):
        assert set(source) == set(receiver) == {"div"}
        total[...] += np.float32(exact.dt * 5) * source["div"] * receiver["div"]

    found = migrate(shot, model, every=5, budget="64MB", condition=condition)
    assert np.allclose(total, found.image, atol=1e-6 * np.abs(found.image).max())


def test_images_of_no_name_are_refused(shot, model):
    with pytest.raises(WaveError, match="'pp', 'velocity'"):
        migrate(shot, model, images=("ps",))
    with pytest.raises(WaveError, match="give an ElasticModel"):
        migrate(shot, AcousticModel(model.vp, model.grid), images=("velocity",))


def test_a_name_twice_is_one_image_where_there_are_several_and_refused_where_there_is_one(shot, model):
    found = migrate(shot, model, images=("pp", "pp"), budget="64MB")
    assert list(found.images) == ["pp"] and found.image is found.images["pp"][0]
    with pytest.raises(WaveError, match=r"images=\('pp', 'pp'\) of an acoustic model, which has one"):
        migrate(shot, AcousticModel(model.vp, model.grid), images=("pp", "pp"))


@pytest.mark.slow
def test_three_dimensions():
    grid = Grid((30, 26, 28), 10.0, absorb=18)
    model, deep = uniform(grid), 20
    values = [getattr(model, name).copy() for name in ("vp", "vs", "rho")]
    for one in values:
        one[deep:] *= 1.2
    receivers = [(25.0, y, x) for y in range(10, 250, 40) for x in range(10, 270, 40)]
    shot = Shot((25.0, 120.0, 135.0), receivers, ricker(16.0, 0.002, 130), 0.002)
    shot = shot.with_data(simulate(shot, ElasticModel(*values, grid)) - simulate(shot, model))
    tight, kept = (migrate(shot, model, images=("pp", "velocity"), budget=budget) for budget in ("14MB", "200MB"))
    assert np.array_equal(tight.image, kept.image)
    assert np.array_equal(tight.images["velocity"][0], kept.images["velocity"][0])
    # Receivers this few reach little further than one Fresnel zone, so lobes above are as bright as the reflector: its
    # own crest, of the sign of the reflection, still has its place.
    assert abs(kept.clean()[deep - 4 : deep + 4, 13, 14].argmax() - 4) <= 1
