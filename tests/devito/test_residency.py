"""Fields on the device: what is copied when, what is refused, and that Devito is as it was afterwards."""

import functools
import pickle
import sys
import warnings

import numpy as np
import pytest

devito = pytest.importorskip("devito")

from devito.data import allocators  # noqa: E402
from devito.operator import operator as devito_operator  # noqa: E402

from forebay.devito import (  # noqa: E402
    DevitoError,
    residency,
    resident,
    sync_device,
    sync_host,
    view,
)
from forebay.devito import fields as on_device  # noqa: E402
from forebay.errors import DeviceError  # noqa: E402

SHAPE = (12, 13)


def fields():
    grid = devito.Grid(shape=SHAPE)
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
    m = devito.Function(name="m", grid=grid)
    u.data[:] = np.random.default_rng(0).random(u.shape)
    m.data[:] = 0.01
    return u, m


def step(u, m, **options):
    return devito.Operator([devito.Eq(u.forward, 2 * u - u.backward + m * u.laplace)], name="Step", **options)


@functools.cache
def expected(steps=6):
    """Compute on the host, by Devito as it is."""
    with devito.switchconfig(platform="cpu64", language="C", compiler="gcc"):
        u, m = fields()
        step(u, m).apply(time_m=1, time_M=steps)
        return np.array(u.data)


@pytest.mark.slow
def test_operators_built_inside_compute_on_the_device_and_come_home(device):
    u, m = fields()
    before = np.array(u.data)
    with resident(u, m):
        op = step(u, m)
        device.begin()
        for time in range(1, 7):
            op.apply(time_m=time, time_M=time)
        assert device.diary == []  # nothing moved
        assert np.array_equal(u.data, before)  # the host's copy stands still
    np.testing.assert_allclose(u.data, expected(), rtol=1e-5)


def test_each_field_goes_up_once_and_only_what_was_written_comes_down(device):
    u, m = fields()
    with resident():
        pass  # the runtime has been found
    device.begin()
    with resident(u, m):
        step(u, m).apply(time_m=1, time_M=2)
        assert device.diary == ["alloc", "associate", "alloc", "associate", "up", "up"]
        device.begin()
    assert device.diary == ["part", "free", "down", "part", "free"]  # m, then u
    assert device.associated == 0


@pytest.mark.slow
def test_no_transfers_are_generated(device):
    u, m = fields()
    outside = str(step(u, m))
    with resident(u, m):
        inside = str(step(u, m))
    assert "enter data" in outside and "update from" in outside
    assert "enter data" not in inside and "update from" not in inside


@pytest.mark.slow
def test_several_operators_share_fields(device):
    u, m = fields()
    image = devito.Function(name="image", grid=u.grid)
    with resident(u, m, image):
        forward = step(u, m)
        add = devito.Operator([devito.Inc(image, u * u)], name="Add")
        total = 0
        for time in range(1, 4):
            forward.apply(time_m=time, time_M=time)
            add.apply(time_m=time, time_M=time)
            sync_host(u)
            total = total + np.array(u.data[time % 3]) ** 2
    np.testing.assert_allclose(image.data, total, rtol=1e-5)


@pytest.mark.slow
def test_sparse_functions_bring_coordinates_and_weights(device):
    u, m = fields()
    source = devito.SparseTimeFunction(name="source", grid=u.grid, npoint=1, nt=10)
    source.coordinates.data[:] = 0.5
    source.data[:] = 1.0
    receivers = devito.PrecomputedSparseTimeFunction(
        name="receivers",
        grid=u.grid,
        npoint=2,
        nt=10,
        r=2,
        gridpoints=np.array([[3, 3], [6, 7]], np.int32),
        interpolation_coeffs=np.full((2, 2, 2), 0.5, np.float32),
    )

    def operator():
        equation = devito.Eq(u.forward, 2 * u - u.backward + m * u.laplace)
        return devito.Operator([equation, source.inject(u.forward, expr=source), receivers.interpolate(u)])

    operator().apply(time_m=1, time_M=8)
    by_default, receivers.data[:] = np.array(receivers.data), 0
    u.data[:] = fields()[0].data
    device.begin()
    with resident(u, m, source, receivers):
        assert device.diary.count("associate") == 7  # u, m, two of points, coordinates, grid points, weights
        operator().apply(time_m=1, time_M=8)
    assert np.abs(by_default).max() > 0
    assert np.array_equal(receivers.data, by_default)


def test_vectors_and_tensors_are_taken_apart(device):
    grid = devito.Grid(shape=SHAPE)
    v = devito.VectorTimeFunction(name="v", grid=grid)
    tau = devito.TensorTimeFunction(name="t", grid=grid)
    device.begin()
    with resident(v, tau):
        assert device.diary.count("associate") == 5  # a symmetric tensor has three of its own in 2-D


def test_data_moves_when_asked(device):
    u, m = fields()
    with resident(u, m):
        u.data[:] = 3.0
        sync_device(u)
        u.data[:] = 0.0
        sync_host(u)
        assert (u.data == 3.0).all()


@pytest.mark.parametrize("sync", [sync_device, sync_host])
def test_work_on_views_is_waited_for_before_data_moves(device, monkeypatch, sync):
    happened = []
    monkeypatch.setattr(on_device, "wait", lambda: happened.append("wait"))
    for way in ("upload", "download"):
        monkeypatch.setattr(on_device.Field, way, lambda self, way=way: happened.append(way))
    u, m = fields()
    with resident(u, m):
        happened.clear()
        sync(u, m)
        assert "wait" not in happened  # nobody has a view
        view(u)[...] = 0
        happened.clear()
        sync(u, m)
        way = "upload" if sync is sync_device else "download"
        assert happened == ["wait", way, way]


def test_views_without_cupy_are_refused_with_advice(device, monkeypatch):
    u, m = fields()
    monkeypatch.setattr(residency, "_array_at", device.cupy_array_at)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with resident(u, m), pytest.raises(DevitoError, match="extra cuda12 or cuda13"):
        view(u)


def test_views_are_the_device_s_own_memory(device):
    u, m = fields()
    with resident(u, m):
        view(u)[:] = 2.0
        assert not (u.data == 2.0).any()
        sync_host(u)
        assert (u.data == 2.0).all()
        view(m)[:] = 5.0
    assert (m.data == 5.0).all()  # no operator wrote it, but a view was out


@pytest.mark.slow
def test_an_operator_built_outside_is_refused_with_advice(device):
    u, m = fields()
    op = step(u, m)
    with resident(u, m), pytest.raises(DevitoError, match=r"Step was built with transfers.*build it inside"):
        op.apply(time_m=1, time_M=2)
    op.apply(time_m=1, time_M=2)  # and is as good as before outside


@pytest.mark.slow
def test_an_operator_on_other_fields_is_none_of_our_business(device):
    (u, m), (other, also) = fields(), fields()
    op = step(other, also)
    with resident(u, m):
        op.apply(time_m=1, time_M=6)
    np.testing.assert_allclose(other.data, expected(), rtol=1e-5)


@pytest.mark.slow
def test_a_field_that_was_forgotten_is_named(device):
    u, m = fields()
    with resident(u):
        op = step(u, m)
        with pytest.raises(DevitoError, match=r"m is not on the device: name it in resident"):
            op.apply(time_m=1, time_M=2)


@pytest.mark.slow
def test_an_operator_built_inside_is_refused_after_leaving(device):
    u, m = fields()
    with resident(u, m):
        op = step(u, m)
    with pytest.raises(DevitoError, match="m, u is not on the device"):
        op.apply(time_m=1, time_M=2)
    with resident(u, m):
        op.apply(time_m=1, time_M=6)
    np.testing.assert_allclose(u.data, expected(), rtol=1e-5)


@pytest.mark.slow
def test_residencies_nest(device):
    u, m = fields()
    with resident(m):
        with resident(u, m):
            op = step(u, m)
            op.apply(time_m=1, time_M=6)
        assert device.associated == 1
        np.testing.assert_allclose(u.data, expected(), rtol=1e-5)
        with pytest.raises(DevitoError, match="u is not on the device"):
            op.apply(time_m=1, time_M=2)


@pytest.mark.slow
def test_residencies_may_end_in_any_order(device):
    u, m = fields()
    before = devito_operator.operator_selector, devito.Operator._prepare_arguments
    first, second = resident(u), resident(m)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with resident(u):
        step(u, m).apply(time_m=1, time_M=6)
        assert "enter data" not in str(step(u, m))
    second.__exit__(None, None, None)
    assert before == (devito_operator.operator_selector, devito.Operator._prepare_arguments)
    np.testing.assert_allclose(u.data, expected(), rtol=1e-5)


def test_operators_built_inside_can_be_pickled(device):
    u, m = fields()
    with resident(u, m):
        op = pickle.loads(pickle.dumps(step(u, m)))
        op.apply(time_m=1, time_M=6, u=u, m=m)
    np.testing.assert_allclose(u.data, expected(), rtol=1e-5)
    with pytest.raises(DevitoError, match="m, u is not on the device"):
        op.apply(time_m=1, time_M=2, u=u, m=m)


@pytest.mark.slow
def test_an_exception_brings_fields_home_and_restores_devito(device):
    u, m = fields()
    before = devito_operator.operator_selector, devito.Operator._prepare_arguments, dict(allocators.custom_allocators)
    with pytest.raises(ZeroDivisionError), resident(u, m):
        _ = step(u, m).apply(time_m=1, time_M=6), 1 / 0
    assert device.associated == 0
    assert before == (
        devito_operator.operator_selector,
        devito.Operator._prepare_arguments,
        dict(allocators.custom_allocators),
    )
    np.testing.assert_allclose(u.data, expected(), rtol=1e-5)
    assert "enter data" in str(step(u, m))


def test_a_device_that_is_full_says_so_and_is_left_empty(device):
    u, m = fields()
    with resident():
        pass
    device.begin(allocations=1)
    with pytest.raises(DeviceError, match=r"no room for the .* of m"), resident(u, m):
        pass
    assert device.diary == ["alloc", "associate", "alloc", "part", "free"]
    device.begin()
    assert device.associated == 0


@pytest.mark.slow
def test_another_device_is_refused(device):
    u, m = fields()
    with resident(u, m), pytest.raises(DevitoError, match="deviceid=3"):
        step(u, m).apply(time_m=1, time_M=2, deviceid=3)


def test_what_is_not_a_field_is_refused(device):
    with pytest.raises(DevitoError, match="not a function of Devito"), resident(devito.Constant(name="c")):
        pass
    with pytest.raises(DevitoError, match="sync_host: m is not on the device"):
        sync_host(fields()[1])


@pytest.mark.parametrize("language", ["openacc", "C"])
def test_other_languages_are_refused_with_what_is_supported(device, language):
    u, m = fields()
    supported = f"language {language}.*DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang"
    with devito.switchconfig(language=language), pytest.raises(DevitoError, match=supported), resident(u, m):
        pass


def test_other_compilers_are_refused_with_what_is_supported(device):
    u, m = fields()
    supported = r"compiler GNUCompiler.*DEVITO_ARCH=clang"
    with devito.switchconfig(compiler="gcc"), pytest.raises(DevitoError, match=supported), resident(u, m):
        pass


@pytest.mark.slow
def test_on_a_cpu_nothing_is_done_and_said_once():
    from forebay.devito.support import warn_once

    warn_once.cache_clear()
    u, m = fields()
    op = step(u, m)

    def use():
        with resident(u, m):
            op.apply(time_m=1, time_M=3)
            sync_host(u)
            sync_device(u)
            assert np.shares_memory(view(u), u.data)
            step(u, m).apply(time_m=4, time_M=6)

    with pytest.warns(UserWarning, match="on a CPU here"):
        use()
    np.testing.assert_allclose(u.data, expected(), rtol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        use()
