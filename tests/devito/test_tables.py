"""What operators need beside the fields that were named: tables of Devito's own making, and operators built outside."""

import numpy as np
import pytest

devito = pytest.importorskip("devito")

from tests.devito.test_residency import SHAPE, fields, step  # noqa: E402

from forebay.devito import DevitoError, Run, outside, resident  # noqa: E402


def sinc(u):
    points = devito.SparseTimeFunction(name="points", grid=u.grid, npoint=1, nt=10, interpolation="sinc", r=2)
    points.coordinates.data[:] = 0.43
    points.data[:] = 1.0
    return [points], [points.inject(u.forward, expr=points)]


def weighted(u):
    sparse = pytest.importorskip("scipy.sparse")
    points = devito.MatrixSparseTimeFunction(name="points", grid=u.grid, nt=10, r=2, matrix=sparse.eye(1, format="coo"))
    points.gridpoints.data[:] = 3
    for weights in points.interpolation_coefficients.values():
        weights.data[:] = 0.5
    points.manual_scatter()
    points.data[:] = 1.0
    return [points], points.inject(u.forward, expr=points)


def border(u):
    return [], [devito.Eq(u.forward, 0.5 * u.forward, subdomain=devito.Border(u.grid, 2))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [border, pytest.param(sinc, marks=pytest.mark.slow), pytest.param(weighted, marks=pytest.mark.slow)]
)
def test_tables_that_devito_makes_for_itself_are_carried_along(device, make):
    u, m = fields()
    u = devito.TimeFunction(name="u", grid=u.grid, time_order=2, space_order=6)
    functions, more = make(u)

    def outcome(*surround):
        u.data[:] = np.random.default_rng(0).random(u.shape)
        equation = devito.Eq(u.forward, 2 * u - u.backward + m * u.laplace)
        with resident(*surround) if surround else outside():
            operator = devito.Operator([equation, *more])
            run = Run(operator)
            for time in (1, 3):
                operator.apply(time_m=time, time_M=time)
                run(time + 1, time + 2)
        return np.array(u.data)

    by_default = outcome()
    assert np.array_equal(outcome(u, m, *functions), by_default)
    assert device.associated == 0


@pytest.mark.slow
def test_points_that_move_have_new_weights_on_the_device(device):
    u, m = fields()
    (points,), more = sinc(u)
    with resident(u, m, points):
        operator = devito.Operator([devito.Eq(u.forward, u), *more])
        operator.apply(time_m=1, time_M=1)
        first = device.associated
        device.begin()
        operator.apply(time_m=2, time_M=2)
        assert device.associated == first  # in the stead of the old ones
        assert device.diary.count("up") == 2  # the weights along x and y, and nothing else


@pytest.mark.slow
def test_devito_s_own_operators_are_built_outside(device):
    u, m = fields()
    other = devito.Function(name="other", grid=u.grid)
    other.data[:] = 1.0
    with resident(u, m):
        with pytest.raises(DevitoError, match=r"norm2 .* n, other is not on the device.*with outside\(\)"):
            devito.norm(other)
        with outside():
            assert devito.norm(other) == pytest.approx(np.sqrt(np.prod(SHAPE)))
            with pytest.raises(DevitoError, match=r"norm2 was built with transfers, but m stays.* view"):
                devito.norm(m)
        assert "enter data" not in str(step(u, m))


@pytest.mark.slow
def test_devito_s_smoothing_runs_outside(device):
    u, m = fields()
    other = devito.Function(name="other", grid=u.grid)
    other.data[:] = 1.0
    with resident(u, m), outside():
        devito.gaussian_smooth(other, sigma=1)
    assert np.allclose(other.data, 1.0)
