"""Fields that are paged through a window smaller than they are: every bit is that of a run that fits."""

import numpy as np
import pytest
from tests.wave.emulator import GPP, Emulator
from tests.wave.paged.setups import VirtualPlace, paged
from tests.wave.setups import random_model, random_shot

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, DeviceError, WaveError
from forebay.wave import Acoustic, Grid, Loop, Shot, WaveWarning, fit_fields, ricker, simulate
from forebay.wave.earth.model import AcousticModel
from forebay.wave.paged.door import field_bytes

SETUPS = [
    (False, 8, 8, np.float32),
    (True, 8, 8, np.float64),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in ((True, 0, 8, np.float32), (False, 0, 4, np.float64), (True, 8, 2, np.float32))
    ),
]
"""Whether there is a free surface, points of layers, the order, and the type."""


def noisy(model, steps=23, sources=40, receivers=60):
    """Place points everywhere, so that some are at every border of slabs, and send noise in every step."""
    sent = np.random.default_rng(0).random((steps, sources))
    return random_shot(model, sources=sources, receivers=receivers, samples=steps, wavelet=sent)


@pytest.mark.parametrize(("free_surface", "absorb", "order", "dtype"), SETUPS)
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_fields_and_data_are_those_of_a_run_that_fits(free_surface, absorb, order, dtype, share):
    model = random_model((90, 17, 19), free_surface=free_surface, absorb=absorb)
    shot = noisy(model)
    whole = Loop(shot, Acoustic(model, shot.dt, order, dtype))
    budget = int(share * field_bytes(model.grid, order, dtype))
    parts = Loop(shot, paged(model, shot.dt, VirtualPlace(1), budget, order=order, dtype=dtype))
    assert parts.kernels.plan().slabs > 2 and parts.kernels.plan().steps < whole.steps
    expected, found = (loop.forward(loop.propagator.zeros(), 0, loop.steps) for loop in (whole, parts))
    assert np.abs(expected["p"]).max() > 0
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(parts.data(), whole.data())


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_any_thickness_and_number_of_steps_give_the_same(steps, monkeypatch):
    model = random_model((70, 14, 15), free_surface=True)
    shot = noisy(model, steps=12)
    whole = Loop(shot, Acoustic(model, shot.dt))
    whole.forward(whole.propagator.zeros(), 0, whole.steps)
    monkeypatch.setattr("forebay.wave.paged.plan.MOST_STEPS", steps)
    for share in (0.75, 0.85, 0.95):
        parts = Loop(shot, paged(model, shot.dt, VirtualPlace(2), int(share * field_bytes(model.grid))))
        assert parts.kernels.plan().steps <= steps
        parts.forward(parts.propagator.zeros(), 0, parts.steps)
        np.testing.assert_array_equal(parts.data(), whole.data())


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.slow
@pytest.mark.parametrize(("free_surface", "absorb"), [(False, 8), (True, 8), (True, 0)])
def test_kernels_of_a_gpu_compute_in_a_window_what_they_compute_of_all(free_surface, absorb, monkeypatch):
    from forebay.wave.acoustic import propagator
    from forebay.wave.acoustic.volume import gpu_kernels

    emulator, choose = Emulator(), propagator.kernels_of
    monkeypatch.setattr(propagator, "kernels_of", lambda array, *about: gpu_kernels(*about, device=emulator))
    model = random_model((70, 17, 19), free_surface=free_surface, absorb=absorb)
    shot = noisy(model, steps=9)
    whole = Loop(shot, Acoustic(model, shot.dt))
    parts = Loop(shot, paged(model, shot.dt, VirtualPlace(device=emulator), int(0.8 * field_bytes(model.grid))))
    expected, found = (loop.forward(loop.propagator.zeros(), 0, loop.steps) for loop in (whole, parts))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(parts.data(), whole.data())
    assert choose is not propagator.kernels_of


def in_depth():
    """Return a shot in a model of 20 points of layers."""
    grid = Grid((140, 24, 26), 10.0)
    model = AcousticModel(2000.0 + 500.0 * np.random.default_rng(0).random(grid.shape), grid)
    receivers = [(25.0 + 180.0 * number, 20.0 * number, 100.0) for number in range(7)]
    return Shot((300.0, 120.0, 130.0), receivers, ricker(12.0, 0.004, 60), 0.004), model


def test_a_run_larger_than_its_budget_pages_from_a_disk_and_tells_what_that_costs(tmp_path):
    shot, model = in_depth()
    needed = field_bytes(model.grid)
    budget = fb.Budget(host=needed * 2 // 3, disk="1GB")
    plan = fit_fields(model, budget)
    assert plan.needed == needed and plan.window.nbytes <= budget.host and plan.link_bytes > 0
    with pytest.warns(WaveWarning, match=r"slabs of up to \d+ planes .* times as long as with"):
        found = simulate(shot, model, budget=budget, directory=tmp_path)
    np.testing.assert_array_equal(found, simulate(shot, model))
    assert not list(tmp_path.iterdir())


def test_fields_that_fit_are_not_paged():
    shot, model = in_depth()
    assert fit_fields(model, field_bytes(model.grid)) is None
    np.testing.assert_array_equal(simulate(shot, model, budget="1GB"), simulate(shot, model))


def test_too_small_budgets_name_the_smallest_that_works():
    _, model = in_depth()
    with pytest.raises(BudgetError, match=r"needs .* \((\d+) bytes\) at least") as error:
        fit_fields(model, fb.Budget(host="1MB", disk="1GB"))
    least = int(str(error.value).split("(")[1].split()[0])
    assert fit_fields(model, fb.Budget(host=least, disk="1GB")).steps == 1
    with pytest.raises(BudgetError, match=rf"needs .* \({least} bytes\) at least"):
        fit_fields(model, fb.Budget(host=least - 1, disk="1GB"))


def test_budgets_that_nothing_can_be_paged_within_are_refused():
    shot, model = in_depth()
    with pytest.raises(BudgetError, match=f"give it {field_bytes(model.grid)} bytes, or as many of the disk"):
        simulate(shot, model, budget="10MB")
    with pytest.raises(BudgetError, match="or as many of the disk"):
        simulate(shot, model, budget=fb.Budget(host="10MB", disk="10MB"))
    with pytest.raises(BudgetError, match="computed in the host's memory or a device's"):
        simulate(shot, model, budget=fb.Budget(disk="1GB"))
    flat = random_model((40, 40))
    with pytest.raises(WaveError, match="in three dimensions"):
        simulate(noisy(flat), flat, budget="10MB")
    with pytest.raises(WaveError, match="a shot alone"):
        simulate([shot, shot], model, budget="1GB")


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
def test_a_budget_of_a_device_is_refused_where_there_is_none():
    shot, model = in_depth()
    with pytest.raises(DeviceError, match="no GPU"):
        simulate(shot, model, budget=fb.Budget(device="10MB", host="1GB"))


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
@pytest.mark.parametrize("free_surface", [False, True])
def test_a_gpu_pages_from_pinned_memory(share, free_surface):
    import cupy

    model = random_model((150, 60, 70), free_surface=free_surface, absorb=12)
    shot = noisy(model, steps=70)
    there = AcousticModel(cupy.asarray(model.velocity), model.grid)
    expected = simulate(shot, there, dt=shot.dt)
    budget = fb.Budget(device=int(share * field_bytes(model.grid)), host="4GB")
    for own in (model, there):
        with pytest.warns(WaveWarning, match="go through a window"):
            np.testing.assert_array_equal(simulate(shot, own, dt=shot.dt, budget=budget), expected)
    fits = fb.Budget(device="4GB")
    np.testing.assert_array_equal(simulate(shot, model, dt=shot.dt, budget=fits), expected)
