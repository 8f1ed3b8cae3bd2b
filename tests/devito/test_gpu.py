"""On a GPU, with the compiler that Devito needs there: the same values as Devito's own, bit for bit."""

import os
from contextlib import nullcontext

import numpy as np
import pytest

devito = pytest.importorskip("devito")

import forebay as fb  # noqa: E402
from forebay.cuda.available import gpu_count  # noqa: E402
from forebay.devito import Forward, UnifiedAllocator, outside, resident, sync_host, unified, view  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not gpu_count() or os.environ.get("DEVITO_PLATFORM") != "nvidiaX",
        reason="needs a GPU and DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang",
    ),
]
STEPS = 24


class Shot:
    """A small acoustic shot, with source and receivers that touch no grid point twice."""

    def __init__(self, **options):
        grid = devito.Grid(shape=(40, 44, 48), extent=(390.0, 430.0, 470.0))
        self.u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=8, **options)
        self.m = devito.Function(name="m", grid=grid, space_order=2, **options)
        self.m.data_with_halo[:] = np.random.default_rng(0).uniform(0.01, 0.05, self.m.data_with_halo.shape)
        self.source, self.receivers = (
            devito.SparseTimeFunction(name=name, grid=grid, npoint=count, nt=STEPS + 2, **options)
            for name, count in (("source", 1), ("receivers", 8))
        )
        self.source.coordinates.data[:] = 203.0
        self.source.data[:, 0] = np.sin(np.arange(STEPS + 2))
        self.receivers.coordinates.data[:] = 103.0
        self.receivers.coordinates.data[:, 0] = 40.0 * np.arange(8) + 33.0
        self.functions = (self.u, self.m, self.source, self.receivers)

    def operator(self):
        u, m = self.u, self.m
        return devito.Operator(
            [
                devito.Eq(u.forward, 2 * u - u.backward + 100.0 * m * u.laplace),
                self.source.inject(u.forward, expr=self.source * m),
                self.receivers.interpolate(u),
            ]
        )

    def outcome(self):
        return np.array(self.u.data), np.array(self.receivers.data)


@pytest.fixture(scope="module")
def expected():
    shot = Shot()
    operator = shot.operator()
    for time in range(0, STEPS, 2):
        operator.apply(time_m=time, time_M=time + 1)
    assert np.abs(shot.receivers.data).max() > 0
    return shot.outcome()


def same(ours, theirs):
    return all(np.array_equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_resident_fields_are_devito_s_own(expected):
    shot = Shot()
    with resident(*shot.functions):
        operator = shot.operator()
        for time in range(0, STEPS, 2):
            operator.apply(time_m=time, time_M=time + 1)
    assert same(shot.outcome(), expected)


def test_unified_fields_are_devito_s_own(expected):
    with unified():
        shot = Shot()
        operator = shot.operator()
        for time in range(0, STEPS, 2):
            operator.apply(time_m=time, time_M=time + 1)
        assert same(shot.outcome(), expected)  # nothing to bring home


def test_managed_functions_may_be_resident(expected):
    shot = Shot(allocator=UnifiedAllocator())
    with resident(*shot.functions):
        shot.operator().apply(time_m=0, time_M=STEPS - 1)
    assert same(shot.outcome(), expected)


def test_views_are_cupy_arrays_that_operators_see():
    cupy = pytest.importorskip("cupy")
    f = devito.Function(name="f", grid=devito.Grid(shape=(64, 65)))
    with resident(f):
        operator = devito.Operator(devito.Eq(f, 2 * f))
        for value in range(20):
            view(f)[...] = cupy.float32(value)  # on CuPy's stream, which the operator waits for
            operator.apply()
            assert float(view(f)[5, 5]) == 2 * value
        sync_host(f)
        assert (f.data == 38.0).all()


@pytest.mark.parametrize("way", ["resident", "unified"])
def test_weights_that_devito_makes_are_carried_along(way):
    def outcome(surround):
        shot = Shot()
        points = devito.SparseTimeFunction(
            name="points", grid=shot.u.grid, npoint=1, nt=STEPS, interpolation="sinc", r=4
        )
        points.coordinates.data[:] = 203.0
        points.data[:] = 1.0
        with surround(shot.u, points):
            equations = [devito.Eq(shot.u.forward, 0.5 * shot.u), points.inject(shot.u.forward, expr=points)]
            operator = devito.Operator(equations)
            for time in range(4):
                operator.apply(time_m=time, time_M=time)
        return np.array(shot.u.data)

    by_default = outcome(lambda *made: nullcontext())
    assert np.abs(by_default).max() > 0
    if way == "unified":
        with unified():
            assert np.array_equal(outcome(lambda *made: nullcontext()), by_default)
    else:
        assert np.array_equal(outcome(resident), by_default)


def test_other_functions_are_computed_on_outside():
    f, other = (devito.Function(name=name, grid=devito.Grid(shape=(64, 65))) for name in ("f", "other"))
    other.data[:] = 1.0
    with resident(f):
        devito.Operator(devito.Eq(f, 3.0))()
        with outside():
            assert devito.norm(other) == pytest.approx(np.sqrt(64 * 65))
    assert (f.data == 3.0).all()


@pytest.mark.parametrize("way", ["resident", "unified"])
def test_reversals_keep_their_snapshots_on_the_device(way, expected):
    pytest.importorskip("cupy")
    if way == "unified":
        with unified():
            shot = Shot()
    else:
        shot = Shot()
    with unified() if way == "unified" else resident(*shot.functions):
        forward = Forward(shot.operator())
        initial = forward.state()
        nbytes = sum(array.nbytes for array in initial.values())
        seen = {}

        def keep(state, step):
            seen[step] = {name: array.get() for name, array in state.items()}

        everything = fb.Budget(device=(STEPS + 3) * nbytes)
        fb.reverse(forward, keep, initial, STEPS, budget=everything, schedule="storeall")
        kept, seen = seen, {}
        budget = fb.Budget(device=5 * nbytes, host=6 * nbytes)
        result = fb.reverse(forward, keep, initial, STEPS, budget=budget, schedule="revolve:4")
        assert result.metrics.seconds > 0
    assert kept.keys() == seen.keys() == set(range(STEPS))
    assert all(np.array_equal(kept[step][name], seen[step][name]) for step in kept for name in kept[step])
    assert np.array_equal(shot.receivers.data, expected[1])
