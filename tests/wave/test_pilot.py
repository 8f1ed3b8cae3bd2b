"""Pilots: what codecs do to an image is seen in one passage, and the bound that keeps the picture is told from it."""

from functools import cache

import numpy as np
import pytest
from tests.wave import elastic_setups, setups

from forebay.errors import WaveError
from forebay.wave import (
    AcousticModel,
    ElasticModel,
    find_bound,
    laplacian_filter,
    migrate,
    normalise,
    picture_error,
    simulate,
)
from forebay.wave.pilot import TriedBound, chosen_bound, read_share


@cache
def acoustic():
    model = setups.smooth_model()
    shot, layered = setups.surface_shot(model), model.velocity.copy()
    layered[40:] *= 1.2
    echo = simulate(shot, AcousticModel(layered, model.grid)) - simulate(shot, model)
    return shot.with_data(echo), model, {}


def elastic():
    model = elastic_setups.smooth_rock()
    shot = elastic_setups.surface_shot(model)
    data = simulate(shot, ElasticModel(0.97 * model.vp, 0.95 * model.vs, model.rho, model.grid))
    return shot.with_data(data), model, {"images": ("velocity", "pp"), "zero_phase": True}


@pytest.mark.slow
@pytest.mark.parametrize("make", [acoustic, elastic])
def test_what_is_compared_is_what_a_history_kept_so_gives(make):
    shot, model, options = make()
    names = ["bounded:0.001", "bounded:0.01", "raw"]
    exact = migrate(shot, model, every=4, budget="64MB", compare=names, **options)
    assert list(exact.compared) == names
    plan = exact.result.plan
    history = plan.record_bytes * -(-plan.steps // 4)
    lossy = migrate(shot, model, every=4, budget=history // 2, schedule="storeall", codec=names[:1], **options)
    assert lossy.result.plan.codec == names[0] and lossy.result.plan.keep == "records"
    first, second, raw = (exact.compared[name] for name in names)
    assert np.array_equal(first.image, lossy.image) and np.array_equal(first.illumination, lossy.illumination)
    assert first.ratio > lossy.result.metrics.mean_ratio  # of the room that is taken, which is rounded up
    assert np.array_equal(raw.image, exact.image) and raw.ratio == 1 < first.ratio < second.ratio
    assert not np.array_equal(first.image, exact.image)


def test_the_bound_that_is_found_keeps_the_picture_and_is_not_far_from_the_loosest():
    shot, model, _ = acoustic()
    found = find_bound(shot, model, "1%", every=4, budget="64MB")
    lossy = migrate(shot, model, every=4, budget="64MB", compare=[found.codec]).compared[found.codec]
    picture = laplacian_filter(normalise(lossy.image, lossy.illumination), model.grid)
    assert 0.004 < picture_error(picture, found.exact.clean()) < 0.008
    plain = find_bound(shot, model, 0.01, lambda image, illumination: image, every=4, budget="64MB")
    assert plain.codec != found.codec  # another picture, another bound


@pytest.mark.parametrize("given", [{"codec": "bounded:1e-3"}, {"compare": ["raw"]}])
def test_who_says_how_histories_are_kept_is_told_that_they_are_exact(given):
    shot, model, _ = acoustic()
    with pytest.raises(WaveError, match=f"{next(iter(given))}= beside image_error: .* exactly here, so leave it out"):
        find_bound(shot, model, "1%", **given)


def rungs(*pairs):
    return [TriedBound(bound, error, 9.0) for bound, error in pairs]


@pytest.mark.parametrize(
    ("tried", "allowed", "bound"),
    [
        (rungs((1e-3, 0.1), (1e-4, 0.01), (1e-5, 1e-3)), 0.007, 7e-5),  # errors in proportion to bounds
        (rungs((1e-5, 1e-3), (1e-3, 0.1), (1e-4, 0.01)), 0.007, 7e-5),  # in whatever order
        (rungs((1e-3, 0.04), (1e-4, 0.01)), 0.02, 3.1e-4),  # or not in proportion: halfway between both
        (rungs((1e-3, 0.1), (1e-4, 0.02), (1e-5, 0.01)), 0.005, 5e-6),  # tighter than all that were tried
        (rungs((1e-3, 2e-3), (1e-4, 1e-4)), 0.007, 3.5e-3),  # looser, in proportion
        (rungs((1e-3, 1e-9), (1e-4, 1e-10)), 0.007, 1e-2),  # but not ten times as loose
        (rungs((1e-3, 0.0), (1e-4, 0.0)), 0.007, 1e-2),
        (rungs((1e-2, 0.001), (1e-3, 0.1), (1e-4, 0.01)), 0.01, 1e-4),  # a loose one that happens to err little
        (rungs((1e-3, 1e7), (1e-4, 1e6)), 0.007, None),  # nothing that float32 tells apart
        (rungs((1e-3, 0.1994), (1e-4, 0.01994)), 0.01, 5e-5),  # rounded down, to two digits
    ],
)
def test_a_bound_follows_from_those_that_were_tried(tried, allowed, bound):
    assert chosen_bound(tried, allowed) == (None if bound is None else pytest.approx(bound, rel=1e-9))


@pytest.mark.parametrize("value", ["0%", "100%", 0, 1, -0.1, "nan", "one", "1%%", True, None, "inf%", "", 1e-8, 1e-310])
def test_what_is_no_share_is_refused(value):
    with pytest.raises(WaveError, match=r"give a share between 1e-7 and 1, such as 0\.01, or '1%'"):
        read_share(value)


def test_the_error_of_a_picture_is_relative_and_knows_small_and_missing_ones():
    exact = np.array([3.0, 4.0])
    for scale in (1.0, 1e-30, 1e30):
        assert picture_error(scale * np.array([3.0, 4.5]), scale * exact) == pytest.approx(0.1)
    assert picture_error(exact, exact) == 0
    assert picture_error(exact, np.zeros(2)) == np.inf
    tiny = np.array([3e-30, 4e-30], np.float32)
    assert picture_error(tiny * np.float32(1.1), tiny) == pytest.approx(0.1, rel=1e-5)
