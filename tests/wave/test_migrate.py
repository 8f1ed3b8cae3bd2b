"""Migration: reflectors come out where they are, and the same bits for every budget."""

import warnings

import numpy as np
import pytest
from tests.wave.setups import smooth_model, surface_shot

import forebay as fb
from forebay.errors import BudgetError
from forebay.wave import (
    AcousticModel,
    Grid,
    Shot,
    WaveWarning,
    gradient,
    highest_frequency,
    imaging_interval,
    laplacian_filter,
    migrate,
    normalise,
    ricker,
    simulate,
)

DEPTH = 40


def echo_of(model, shot, **options):
    """Compute what a reflector at `DEPTH` adds to the data."""
    layered = model.velocity.copy()
    layered[DEPTH:] *= 1.2
    return simulate(shot, AcousticModel(layered, model.grid), **options) - simulate(shot, model, **options)


@pytest.fixture(scope="module")
def model():
    return smooth_model()


@pytest.fixture(scope="module")
def shot(model):
    silent = surface_shot(model)
    return silent.with_data(echo_of(model, silent))


@pytest.fixture(scope="module")
def exact(shot, model):
    return migrate(shot, model, every=1, budget="64MB", schedule="storeall")


def test_the_image_of_acoustic_waves_has_no_name(exact):
    assert exact.images == {} and exact.image.shape == exact.illumination.shape == exact.grid.shape


def test_the_reflector_is_imaged_where_it_is(exact):
    depths = np.abs(exact.clean())[15:, 20:40].argmax(axis=0) + 15
    assert np.abs(depths - DEPTH).max() <= 3


@pytest.mark.parametrize("every", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "options",
    [
        {"budget": "520kB"},
        {"budget": "1MB", "schedule": "revolve:5"},
        {"budget": fb.Budget(host="520kB", disk="40MB")},
        {"budget": "8MB", "codec": "lossless"},
    ],
    ids=["tight", "revolve", "disk", "lossless"],
)
def test_budgets_change_no_bit(shot, model, exact, every, options, tmp_path):
    kept = exact if every == 1 else migrate(shot, model, every=every, budget="64MB", schedule="storeall")
    found = migrate(shot, model, every=every, directory=tmp_path, **options)
    assert np.array_equal(found.image, kept.image)
    assert np.array_equal(found.illumination, kept.illumination)


def test_the_default_interval_follows_from_the_band_and_hardly_shows(shot, model, exact):
    found = migrate(shot, model, budget="64MB")
    assert found.every == imaging_interval(highest_frequency(shot.wavelet, shot.dt), found.dt) > 2
    assert 2 * highest_frequency(shot.wavelet, shot.dt) < 1 / (found.every * found.dt)
    for one, other in ((found.image, exact.image), (found.clean(), exact.clean())):
        assert np.linalg.norm(one - other) < 5e-3 * np.linalg.norm(other)


def test_an_interval_beyond_the_band_does_show(shot, model, exact):
    found = migrate(shot, model, budget="64MB", every=24)
    assert np.linalg.norm(found.image - exact.image) > 0.1 * np.linalg.norm(exact.image)


@pytest.mark.parametrize("what", [migrate, gradient])
def test_an_interval_beyond_the_band_is_warned_about_before_the_first_step(shot, model, what):
    with pytest.warns(WaveWarning, match="every of at most") as told:
        what(shot, model, every=24, budget="64MB")
    (note,) = (str(one.message) for one in told if "every" in str(one.message))
    largest = int(note.split()[-1])
    for every in (largest, largest + 1):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", WaveWarning)
            with pytest.raises(BudgetError):  # no step is taken
                what(shot, model, every=every, budget=1)
        assert any("every" in str(one.message) for one in told) == (every > largest)


def test_a_lossy_codec_is_used_where_asked_for_and_measured(shot, model, exact):
    found = migrate(shot, model, every=1, budget="6MB", schedule="storeall", codec="cast:float16")
    assert found.result.plan.codec == "cast:float16"
    assert found.result.metrics.samples
    assert 0 < np.linalg.norm(found.image - exact.image) < 1e-2 * np.linalg.norm(exact.image)


def test_records_leave_layers_and_halo_out(shot, model):
    found = migrate(shot, model, every=3, budget="64MB", costs=fb.Costs(1e-3, 1e-3, 1e9))
    assert found.result.plan.keep == "records"
    assert found.result.plan.snapshot_bytes < 1.3 * model.velocity.size * 4


def test_a_condition_of_ones_own_sees_both_waves(shot, model, exact):
    total, steps = np.zeros(model.grid.shape, np.float32), []

    def condition(source, receiver, step):
        total[...] += np.float32(exact.dt * 5) * source * receiver
        steps.append(step)

    found = migrate(shot, model, every=5, budget="64MB", condition=condition)
    assert steps == sorted(steps, reverse=True) and set(np.diff(steps)) == {-5} and steps[-1] == 0
    assert np.allclose(total, found.image, atol=1e-6 * np.abs(found.image).max())


@pytest.mark.slow
def test_a_plan_serves_the_next_shot(shot, model, exact):
    first = migrate(shot, model, every=1, budget="680kB")
    again = migrate(shot, model, every=1, plan=first.result.plan)
    assert again.result.plan is first.result.plan
    assert np.array_equal(again.image, exact.image)


def test_nothing_sent_gives_no_image(shot, model):
    silent = Shot(shot.source, shot.receivers, 0 * shot.wavelet, shot.dt, data=shot.data)
    found = migrate(silent, model, budget="64MB", every=10)
    assert not found.image.any() and not found.clean().any()


@pytest.mark.slow
def test_images_do_not_depend_on_the_samplings(model):
    fine, coarse = (surface_shot(model, samples=samples, dt=0.6 / samples) for samples in (300, 150))
    images = [
        migrate(shot.with_data(echo_of(model, shot, dt=0.001)), model, dt=0.0009, every=2, budget="64MB").image
        for shot in (fine, coarse)
    ]
    assert np.linalg.norm(images[0] - images[1]) < 0.02 * np.linalg.norm(images[0])


@pytest.mark.slow
def test_three_dimensions():
    grid = Grid((24, 26, 22), 10.0, absorb=12)
    velocity = np.full(grid.shape, 2000.0)
    model, layered = AcousticModel(velocity, grid), velocity.copy()
    layered[16:] = 2300.0
    receivers = [(25.0, y, x) for y in range(10, 250, 40) for x in range(10, 210, 40)]
    shot = Shot((25.0, 120.0, 105.0), receivers, ricker(17.0, 0.002, 160), 0.002)
    shot = shot.with_data(simulate(shot, AcousticModel(layered, grid)) - simulate(shot, model))
    tight, kept = (migrate(shot, model, every=4, budget=budget) for budget in ("4.4MB", "64MB"))
    assert tight.result.plan.keep == "states" and np.array_equal(tight.image, kept.image)
    assert abs(np.abs(kept.clean())[8:, 13, 11].argmax() + 8 - 16) <= 2


def test_the_filter_removes_what_is_smooth_and_keeps_what_changes():
    grid = Grid((20, 20), spacing=(5.0, 10.0))
    ramp = np.add.outer(np.arange(20.0), 3 * np.arange(20.0))
    assert np.abs(laplacian_filter(ramp, grid)[1:-1, 1:-1]).max() < 1e-12
    spike = np.zeros((20, 20))
    spike[7, 9] = 1.0
    assert laplacian_filter(spike, grid)[7, 9] == pytest.approx(2 / 25 + 2 / 100)
    assert laplacian_filter(spike, grid)[8, 9] == pytest.approx(-1 / 25)


def test_normalising_divides_by_the_light_and_never_by_the_dark():
    image, light = np.array([1.0, 1.0, 1.0, 1.0]), np.array([2.0, 1000.0, 4.0, 0.0])
    assert normalise(image, light).tolist() == [0.5, 0.001, 0.25, 2.5]
    assert not normalise(0 * image, 0 * light).any()


def test_light_that_falls_off_as_in_three_dimensions_is_evened_out_all_over():
    """The largest is that of the source itself: a share of it would be above what is there a few points away."""
    away = np.sqrt(sum(axis**2 for axis in np.ogrid[1:60, -30:31, -30:31]))
    light = (1 / away**2).astype(np.float32)
    evened = normalise(3 * light, light)
    assert evened.dtype == np.float32 and np.allclose(evened, 3, rtol=1e-5)
