"""What of an operator's past makes up a state: enough to run every step again, bit for bit, whatever the operator."""

import numpy as np
import pytest

devito = pytest.importorskip("devito")

import forebay as fb  # noqa: E402
from forebay.devito import DevitoError, Forward  # noqa: E402

STEPS = 17
EXTENT = (10.0, 11.0)


@pytest.fixture
def grid():
    return devito.Grid(shape=(11, 12), extent=EXTENT)


def field(grid, name="u", **options):
    u = devito.TimeFunction(name=name, grid=grid, space_order=options.pop("space_order", 2), **options)
    u.data[:] = np.random.default_rng(0).random(u.shape)
    return u


def inner(grid):
    class Inner(devito.SubDomain):
        name = "inner"

        def define(self, dimensions):
            return dict.fromkeys(dimensions, ("middle", 2, 2))

    return Inner(grid=grid)


def check(operator, functions, names, first=2, **arguments):
    """Compare every step from a state that a reversal gave, and from nothing else, with Devito's own."""
    forward = Forward(operator, first=first, **arguments)
    initial = forward.state()
    assert list(initial) == names
    before = [np.array(function._data_allocated) for function in functions]
    truth = []
    for step in range(STEPS + 1):
        truth.append([np.array(function._data_allocated) for function in functions])
        time = forward.time(step)
        operator.apply(time_m=time, time_M=time, **arguments)
    states = {}

    def backward(state, step):
        states[step] = {name: array.copy() for name, array in state.items()}

    for function, data in zip(functions, before, strict=True):
        function._data_allocated[...] = data
    fb.reverse(forward, backward, initial, STEPS, budget="1MB", schedule="revolve:3")
    for step, state in states.items():
        for function, data in zip(functions, before, strict=True):
            function.data[:] = np.nan if any(name.startswith(f"{function.name}[") for name in names) else 0
            halo = np.ones(function.shape_allocated, bool)
            halo[tuple(slice(left, -right or None) for left, right in function._size_nodomain)] = False
            function._data_allocated[halo] = data[halo]  # what nobody writes
        after = forward(state, step, step + 1)
        for name, array in after.items():
            index = [function.name for function in functions].index(name.split("[")[0])
            offset = int(name.partition("[t")[2].rstrip("]") or 0)
            slot = (forward.time(step + 1) + offset) % len(truth[0][index])
            assert np.array_equal(array, truth[step + 1][index][slot]), (step, name)


def test_the_new_slot_is_dead(grid):
    u = field(grid, time_order=2)
    check(devito.Operator(devito.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace)), [u], ["u[t]", "u[t-1]"])


@pytest.mark.slow
def test_memory_variables_are_written_at_the_time_of_the_step(grid):
    u, psi = field(grid, time_order=2), field(grid, "psi", time_order=1)
    new = [
        devito.Eq(psi, 0.9 * psi.backward + 0.01 * u.dx),
        devito.Eq(u.forward, 2 * u - u.backward + 0.1 * (u.laplace + psi.dx)),
    ]
    check(devito.Operator(new), [psi, u], ["psi[t-1]", "u[t]", "u[t-1]"])


@pytest.mark.slow
def test_a_field_may_be_written_from_two_steps_back(grid):
    u, t = field(grid, time_order=2), grid.stepping_dim
    new = 2 * u.backward - u.subs(t, t - 2) + 0.1 * u.backward.laplace
    check(devito.Operator(devito.Eq(u, new)), [u], ["u[t-1]", "u[t-2]"])


@pytest.mark.slow
def test_downwards_too(grid):
    u = field(grid, time_order=2)
    check(
        devito.Operator(devito.Eq(u, 0.9 * u.forward + 0.01 * u.forward.laplace)), [u], ["u[t+1]", "u[t+2]"], first=40
    )


@pytest.mark.slow
def test_what_is_read_before_it_is_overwritten_is_alive(grid):
    u = field(grid, time_order=2)
    operator = devito.Operator(devito.Eq(u.forward, 0.5 * u.forward + 0.1 * u.laplace))
    check(operator, [u], ["u[t]", "u[t-1]", "u[t-2]"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Shrinking bounds")
def test_all_slots_are_alive_where_a_part_is_never_overwritten(grid):
    u = field(grid, time_order=2)
    new = 2 * u - u.backward + 0.1 * u.laplace
    everything = ["u[t]", "u[t-1]", "u[t-2]"]
    check(devito.Operator(devito.Eq(u.forward, new, subdomain=inner(grid))), [u], everything)
    check(devito.Operator(devito.Eq(u.forward, new)), [u], everything, x_m=3)
    narrow = devito.Eq(u.forward, 2 * u - u.backward + 1e-3 * u.dx.dx.dx.dx)  # more than the halo has
    check(devito.Operator(narrow), [u], everything)


@pytest.mark.slow
def test_all_slots_are_alive_where_they_are_overwritten_at_times(grid):
    u = field(grid, time_order=1)
    often = devito.ConditionalDimension("often", parent=grid.time_dim, factor=3)
    operator = devito.Operator([devito.Eq(u.forward, 0.9 * u + 1, implicit_dims=(often,))])
    check(operator, [u], ["u[t]", "u[t-1]"])


@pytest.mark.slow
def test_corrections_after_the_whole_is_written_change_nothing(grid):
    u, (x, _), t = field(grid, time_order=2), grid.dimensions, grid.stepping_dim
    surface = [
        devito.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace),
        devito.Eq(u[t + 1, x, 0], 0),
        devito.Eq(u[t + 1, x, 11], u[t + 1, x, 10]),
        devito.Eq(u.forward, 0.9 * u.forward, subdomain=inner(grid)),
    ]
    check(devito.Operator(surface), [u], ["u[t]", "u[t-1]"])


def test_a_halo_that_is_read_before_it_is_written_is_alive(grid):
    v, p = field(grid, "v", time_order=1, space_order=4), field(grid, "p", time_order=1, space_order=4)
    (x, _), t = grid.dimensions, grid.stepping_dim
    surface = [
        devito.Eq(v.forward, v + 0.1 * p.dy),
        devito.Eq(p.forward, p + 0.1 * v.forward.dy),
        devito.Eq(v[t + 1, x, -1], v[t + 1, x, 0]),
    ]
    check(devito.Operator(surface), [v, p], ["p[t]", "v[t]", "v[t-1]"])


@pytest.mark.slow
@pytest.mark.parametrize("write", [devito.Eq, pytest.param(devito.Inc, marks=pytest.mark.slow)])
def test_a_halo_that_is_written_at_another_time_is_alive(grid, write):
    u, (x, y), t = field(grid, time_order=1, space_order=4), grid.dimensions, grid.stepping_dim
    new = [devito.Eq(u.forward, 0.9 * u + 0.1 * u.laplace), write(u[t, x, -1], 0.1 * u[t, x, 1])]
    check(devito.Operator(new), [u], ["u[t]", "u[t-1]"])
    check(devito.Operator(devito.Eq(u[t + 1, x, y + 1], 0.5 * u + 0.3 * u[t, x, y + 1])), [u], ["u[t]", "u[t-1]"])


@pytest.mark.slow
@pytest.mark.parametrize("time_order", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_points_outside_keep_all_slots_alive_whenever_they_add(grid, time_order):
    u = field(grid, time_order=time_order, space_order=8)
    source = devito.SparseTimeFunction(name="source", grid=grid, npoint=1, nt=STEPS + 5)
    source.coordinates.data[:] = [[-0.4, 5.3]]
    source.data[:, 0] = np.sin(np.arange(STEPS + 5))
    new = devito.Eq(u.forward, (2 * u - u.backward if time_order == 2 else u) + 0.1 * u.laplace)
    operator = devito.Operator([new, source.inject(u, expr=source)])
    check(operator, [u], ["u[t]", "u[t-1]", "u[t-2]"][: time_order + 1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "where", "slots"),
    [
        pytest.param({}, 5.3, 2, marks=pytest.mark.slow),
        pytest.param({}, 0.0, 2, marks=pytest.mark.slow),
        ({}, -0.4, 3),
        pytest.param({"interpolation": "sinc", "r": 3}, 5.3, 2, marks=pytest.mark.slow),
        ({"interpolation": "sinc", "r": 3}, 1.3, 3),
    ],
)
def test_points_that_add_to_the_halo_keep_its_slot_alive(grid, options, where, slots):
    u = field(grid, time_order=2, space_order=8)
    source = devito.SparseTimeFunction(name="source", grid=grid, npoint=1, nt=STEPS + 5, **options)
    source.coordinates.data[:] = [[where, 5.3]]
    source.data[:, 0] = np.sin(np.arange(STEPS + 5))
    new = devito.Eq(u.forward, 2 * u - u.backward + 0.1 * u.laplace)
    operator = devito.Operator([new, source.inject(u.forward, expr=source)])
    check(operator, [u], ["u[t]", "u[t-1]", "u[t-2]"][:slots])


@pytest.mark.slow
def test_points_that_are_overwritten_may_be_read_too(grid):
    u = field(grid, time_order=1)
    points, observed, residual = (
        devito.SparseTimeFunction(name=name, grid=grid, npoint=1, nt=STEPS + 5) for name in ("here", "there", "between")
    )
    for function in (points, observed, residual):
        function.coordinates.data[:] = 5.3
    new = [devito.Eq(u.forward, 0.9 * u), points.interpolate(u), devito.Eq(residual, points - observed)]
    assert list(Forward(devito.Operator(new)).state()) == ["u[t]"]
    with pytest.raises(DevitoError, match="adds to here"):
        Forward(devito.Operator([new[0], points.interpolate(u, increment=True), new[2]]))
