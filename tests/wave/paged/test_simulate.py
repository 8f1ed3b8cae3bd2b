"""Fields that are paged through a window smaller than they are: every bit is that of a run that fits."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.wave.emulator import GPP, Emulator
from tests.wave.paged.setups import VirtualPlace, paged
from tests.wave.setups import random_model, random_shot

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, DeviceError, DiskError, WaveError
from forebay.wave import (
    Acoustic,
    Adjoint,
    Grid,
    Loop,
    Shot,
    WaveWarning,
    fit_fields,
    gradient,
    migrate,
    ricker,
    simulate,
)
from forebay.wave.earth.model import AcousticModel
from forebay.wave.paged import door
from forebay.wave.paged.door import field_bytes
from forebay.wave.paged.lanes import VirtualLanes

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
    assert parts.kernels.plan().slabs > 1 and parts.kernels.plan().steps < whole.steps
    expected, found = (loop.forward(loop.propagator.zeros(), 0, loop.steps) for loop in (whole, parts))
    assert np.abs(expected["p"]).max() > 0
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(parts.data(), whole.data())


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
def test_any_thickness_and_number_of_steps_give_the_same(steps):
    model = random_model((70, 14, 15), free_surface=True)
    shot = noisy(model, steps=22)
    whole = Loop(shot, Acoustic(model, shot.dt))
    whole.forward(whole.propagator.zeros(), 0, whole.steps)
    for slab, more in ((12, 0), (13, 5), (15, 19)):
        case = steps, slab, slab + 4 * (steps + 1) + more
        parts = Loop(shot, paged(model, shot.dt, VirtualPlace(2), field_bytes(model.grid), case=case))
        assert parts.kernels.plan().slabs > 1
        parts.forward(parts.propagator.zeros(), 0, parts.steps)
        np.testing.assert_array_equal(parts.data(), whole.data())


@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("free_surface", "absorb", "order", "devices"),
    [(False, 8, 8, 1), (True, 8, 8, 2), (True, 0, 8, 1), (True, 8, 4, 1)],
)
def test_kernels_of_a_gpu_compute_in_a_window_what_they_compute_of_all(
    free_surface, absorb, order, devices, monkeypatch
):
    from forebay.wave.acoustic import propagator
    from forebay.wave.acoustic.volume import gpu_kernels

    emulator = Emulator()
    monkeypatch.setattr(propagator, "kernels_of", lambda array, *about: gpu_kernels(*about, device=emulator))
    model = random_model((70, 17, 19), free_surface=free_surface, absorb=absorb)
    shot = noisy(model, steps=12)
    budget = int(0.8 * field_bytes(model.grid, order))
    whole = Loop(shot, Acoustic(model, shot.dt, order))
    parts = Loop(shot, paged(model, shot.dt, VirtualPlace(device=emulator, count=devices), budget, order=order))
    expected, found = (loop.forward(loop.propagator.zeros(), 0, loop.steps) for loop in (whole, parts))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(parts.data(), whole.data())


def in_depth():
    """Return a shot in a model that is deep rather than wide."""
    grid = Grid((130, 14, 16), 10.0, absorb=6)
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
        fit_fields(model, fb.Budget(host="100kB", disk="1GB"))
    least = int(str(error.value).split("(")[1].split()[0])
    assert fit_fields(model, fb.Budget(host=least, disk="1GB")).steps == 1
    with pytest.raises(BudgetError, match=rf"needs .* \({least} bytes\) at least"):
        fit_fields(model, fb.Budget(host=least - 1, disk="1GB"))


def test_budgets_that_nothing_can_be_paged_within_are_refused():
    shot, model = in_depth()
    with pytest.raises(BudgetError, match=f"give it {field_bytes(model.grid)} bytes, or as many of the disk"):
        simulate(shot, model, budget="1MB")
    with pytest.raises(BudgetError, match="or as many of the disk"):
        simulate(shot, model, budget=fb.Budget(host="1MB", disk="1MB"))
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


def reversed_shot():
    """Return a shot with data of another model."""
    shot, model = in_depth()
    other = AcousticModel(np.full(model.grid.shape, 2200.0), model.grid)
    return shot.with_data(simulate(shot, other)), model


@pytest.mark.slow
def test_images_and_gradients_of_paged_fields_have_the_same_bits(monkeypatch):
    monkeypatch.setattr(door, "gpu_count", lambda: 1)
    monkeypatch.setattr(door, "devices", lambda: [0])
    monkeypatch.setattr(door, "DevicePlace", lambda needed, devices: VirtualPlace(3))
    shot, model = reversed_shot()
    budget = fb.Budget(device=int(0.8 * field_bytes(model.grid)), host="1GB")
    expected = migrate(shot, model, budget="1GB")
    with pytest.warns(WaveWarning, match="go through a window"):
        found = migrate(shot, model, budget=budget)
    np.testing.assert_array_equal(found.image, expected.image)
    np.testing.assert_array_equal(found.illumination, expected.illumination)
    assert np.abs(expected.image).max() > 0
    slope = gradient(shot, model, every=4, budget="1GB")
    with pytest.warns(WaveWarning, match="go through a window"):
        found = gradient(shot, model, every=4, budget=budget)
    np.testing.assert_array_equal(found.gradient, slope.gradient)
    assert found.misfit == slope.misfit > 0


@pytest.mark.slow
@pytest.mark.skipif(GPP is None, reason="g++ is not installed")
@pytest.mark.parametrize("free_surface", [False, True])
def test_kernels_of_a_gpu_make_images_and_gradients_in_a_window(free_surface, monkeypatch):
    from forebay.wave.acoustic import propagator
    from forebay.wave.acoustic.volume import gpu_kernels

    emulator = Emulator()
    monkeypatch.setattr(propagator, "kernels_of", lambda array, *about: gpu_kernels(*about, device=emulator))
    model = random_model((70, 17, 19), free_surface=free_surface)
    shot, record = noisy(model, steps=9), np.random.default_rng(3).random
    data, place = record((9, 60)), VirtualPlace(device=emulator)
    found = []
    for own in (Acoustic(model, shot.dt), paged(model, shot.dt, place, int(0.9 * field_bytes(model.grid)))):
        adjoint, sums, images = Adjoint(Loop(shot, own), data), own.sensitivity_sums(), own.image_sums(("pp",))
        fields = {"p": np.random.default_rng(4).random(own.zeros()["p"].shape).astype(np.float32)}
        for step in (7, 6, 3):
            own.add_sensitivity(sums, adjoint, fields, step, 4)
        own.add_image(adjoint, 0, images, own.image_record(fields), 2.0, None)
        found.append([own.gradient(sums, "velocity"), *images["pp"], *adjoint.state.values()])
    for expected, values in zip(*found, strict=True):
        np.testing.assert_array_equal(values, expected)
        assert np.abs(expected).max() > 0


def test_reversals_whose_fields_cannot_be_paged_are_refused(monkeypatch):
    monkeypatch.setattr(door, "gpu_count", lambda: 1)
    shot, model = reversed_shot()
    with pytest.raises(BudgetError, match="give a model that is there"):
        migrate(shot, model, budget=fb.Budget(device="1GB", host="1GB"))
    for host in (None, "5MB"):
        with pytest.raises(BudgetError, match="snapshots come on top: give it more than"):
            gradient(shot, model, budget=fb.Budget(device="3MB", host=host))


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
@pytest.mark.parametrize(
    ("share", "free_surface", "devices"), [(0.5, False, 1), (0.7, True, 1), (0.95, False, 1), (0.6, True, 2)]
)
def test_a_gpu_pages_from_pinned_memory(share, free_surface, devices, monkeypatch):
    """Two windows of one GPU take turns as those of two would."""
    import cupy

    monkeypatch.setattr(door, "devices", lambda: [0] * devices)
    model = random_model((150, 60, 70), free_surface=free_surface, absorb=12)
    there = AcousticModel(cupy.asarray(model.velocity), model.grid)
    points = noisy(model)
    shot = Shot(points.source[:1], points.receivers, ricker(8.0, points.dt, 270), points.dt)
    expected = simulate(shot, there, dt=shot.dt)
    budget = fb.Budget(device=int(share * field_bytes(model.grid)), host="4GB")
    for own in (model, there):
        with pytest.warns(WaveWarning, match="go through a window"):
            np.testing.assert_array_equal(simulate(shot, own, dt=shot.dt, budget=budget), expected)
    fits = fb.Budget(device="4GB")
    np.testing.assert_array_equal(simulate(shot, model, dt=shot.dt, budget=fits), expected)


@pytest.mark.gpu
@pytest.mark.skipif(gpu_count() == 0, reason="no GPU")
def test_a_gpu_images_fields_that_are_paged():
    import cupy

    shot, model = reversed_shot()
    there = AcousticModel(cupy.asarray(model.velocity), model.grid)
    budget = fb.Budget(device=int(0.8 * field_bytes(model.grid)), host="4GB")
    expected, found = migrate(shot, there, budget="4GB"), migrate(shot, model, budget=budget)
    np.testing.assert_array_equal(found.image, expected.image.get())
    slope, found = gradient(shot, there, every=4, budget="4GB"), gradient(shot, model, every=4, budget=budget)
    assert found.misfit == slope.misfit
    np.testing.assert_allclose(found.gradient, slope.gradient.get(), rtol=1e-5, atol=1e-6 * abs(found.gradient).max())


@pytest.fixture
def virtual(monkeypatch):
    """Let virtual lanes stand in for a GPU, and return what copies have moved over the link."""
    moved, copies = [], VirtualLanes.copies

    def counted(lanes, lane, pairs, after):
        moved.append(sum(target.nbytes for target, _ in pairs) if lane != "compute" else 0)
        return copies(lanes, lane, pairs, after)

    monkeypatch.setattr(VirtualLanes, "copies", counted)
    monkeypatch.setattr(door, "gpu_count", lambda: 1)
    monkeypatch.setattr(door, "devices", lambda: [0])
    monkeypatch.setattr(door, "DevicePlace", lambda needed, devices: VirtualPlace(3))
    return moved


@pytest.mark.slow
@pytest.mark.parametrize(("call", "run"), [("migrate", migrate), ("gradient", gradient)])
def test_the_cost_that_is_told_of_a_reversal_is_what_it_moves(call, run, virtual):
    shot, model = reversed_shot()
    budget = fb.Budget(device=int(0.7 * field_bytes(model.grid)), host="1GB")
    plan = fit_fields(model, budget, call=call, every=3)
    with pytest.warns(WaveWarning) as told:
        result = run(shot, model, every=3, budget=budget).result
    assert any(plan.explain() == str(note.message) for note in told)
    assert plan.steps <= 3 and "Each step back moves" in plan.explain() and plan.needed > 2 * field_bytes(model.grid)
    steps = 2 * result.plan.steps
    assert 0.5 * plan.link_bytes < sum(virtual) / steps <= plan.link_bytes


@pytest.mark.parametrize(("call", "run"), [("migrate", migrate), ("gradient", gradient)])
def test_a_budget_that_holds_no_slab_of_the_way_back_is_refused_before_the_first_step(call, run, virtual):
    shot, model = in_depth()
    shot = shot.with_data(np.zeros((60, 7)))
    with pytest.raises(BudgetError, match="at least") as error:
        fit_fields(model, fb.Budget(device="100kB", host="1GB"), call=call, every=4)
    least = int(str(error.value).split("(")[1].split()[0])
    assert fit_fields(model, fb.Budget(device=least - 1, host="1GB")) is not None
    with pytest.raises(BudgetError, match=rf"\({least} bytes\) at least"):
        run(shot, model, every=4, budget=fb.Budget(device=least - 1, host="1GB"))
    assert not virtual
    assert fit_fields(model, fb.Budget(device=least, host="1GB"), call=call, every=4).steps == 1


def test_what_simulate_refuses_is_refused_before_it():
    _, model = in_depth()
    budget = fb.Budget(host=field_bytes(model.grid) * 2 // 3, disk="1GB")
    for about in ({"dtype": np.int32}, {"dtype": np.float16}, {"order": 7}, {"order": 0}, {"order": "x"}):
        with pytest.raises(WaveError, match=r"give|take|float32"):
            fit_fields(model, budget, **about)
    for about in ({"call": "invert"}, {"call": "migrate"}, {"every": 2}, {"call": "gradient", "every": 1}):
        with pytest.raises(WaveError, match=r"take one of|every=|names a device"):
            fit_fields(model, budget, **about)


@pytest.mark.skipif(gpu_count() > 0, reason="there is a GPU")
@pytest.mark.parametrize("device", ["1GB", "1MB"])
def test_a_reversal_asks_for_the_gpu_before_anything_else(device):
    shot, model = in_depth()
    with pytest.raises(DeviceError, match="no GPU"):
        migrate(shot.with_data(np.zeros((60, 7))), model, budget=fb.Budget(device=device, host="64MB"))


def test_a_directory_that_is_not_there_is_refused_in_words(tmp_path):
    shot, model = in_depth()
    budget, missing = fb.Budget(host=field_bytes(model.grid) * 2 // 3, disk="1GB"), tmp_path / "missing"
    with pytest.raises(DiskError, match="make that directory"):
        simulate(shot, model, budget=budget, directory=missing)
    with pytest.raises(DiskError, match="make that directory"):
        migrate(shot.with_data(np.zeros((60, 7))), model, budget=fb.Budget(host="3MB", disk="1GB"), directory=missing)


def test_a_budget_without_the_device_of_a_model_is_refused(monkeypatch):
    _, model = in_depth()
    monkeypatch.setattr(door, "tier_of", lambda model: "device")
    with pytest.raises(BudgetError, match="name the device's bytes"):
        fit_fields(model, fb.Budget(host="1GB"))


def test_all_is_let_go_of_though_one_end_fails():
    closed = []

    class Failing(VirtualPlace):
        def lanes(self, nbytes):
            return [SimpleNamespace(close=lambda: 1 / 0), SimpleNamespace(close=lambda: closed.append("lanes"))]

        def close(self):
            closed.append("place")

    model = random_model((90, 17, 19))
    kernels = paged(model, 0.001, Failing(), field_bytes(model.grid)).kernels
    kernels._lanes = kernels._place.lanes(0)
    with pytest.raises(ZeroDivisionError):
        kernels.close()
    assert sorted(closed) == ["lanes", "place"]
