"""Devito's operators as the forward computation of a reversal: states bit for bit, whatever the schedule."""

import sys
from functools import cache

import numpy as np
import pytest

devito = pytest.importorskip("devito")

from devito.exceptions import InvalidArgument  # noqa: E402

import forebay as fb  # noqa: E402
from forebay.devito import DevitoError, Forward, Run, resident, view  # noqa: E402

STEPS = 23
SHAPE = (11, 12)


@pytest.fixture
def grid():
    return devito.Grid(shape=SHAPE)


def shaken(time_order, **options):
    """Give a field at rest that a source shakes, its receivers, and the operator."""
    u, receivers, operator = built(time_order, **options)
    u.data_with_halo[:], receivers.data[:] = 0, 0
    return u, receivers, operator


@cache
def built(time_order, **options):
    """Build the operator once; the source makes every step different."""
    grid = devito.Grid(shape=SHAPE)
    u = devito.TimeFunction(name="u", grid=grid, time_order=time_order, space_order=2, **options)
    source = devito.SparseTimeFunction(name="source", grid=grid, npoint=1, nt=STEPS + 10)
    source.coordinates.data[:] = 0.45
    source.data[:, 0] = np.sin(np.arange(STEPS + 10))
    receivers = devito.SparseTimeFunction(name="receivers", grid=grid, npoint=2, nt=STEPS + 10)
    receivers.coordinates.data[:] = [[0.2, 0.3], [0.7, 0.8]]
    new = 2 * u - u.backward + 1e-3 * u.laplace if time_order == 2 else 0.9 * u + 1e-3 * u.laplace
    equations = [devito.Eq(u.forward, new), source.inject(u.forward, expr=source), receivers.interpolate(u)]
    return u, receivers, devito.Operator(equations)


def states(forward, steps):
    """Keep every state, step by step."""
    kept = [forward.state()]
    for step in range(steps):
        state = forward({name: array.copy() for name, array in kept[-1].items()}, step, step + 1)
        kept.append({name: array.copy() for name, array in state.items()})
    return kept


def reversed_states(forward, initial, steps, **options):
    """Give what backward sees, by step."""
    seen = {}

    def backward(state, step):
        forward.load(state, step)
        seen[step] = {name: np.array(array) for name, array in forward.state(step).items()}

    fb.reverse(forward, backward, initial, steps, **options)
    return [seen[step] for step in range(steps)]


def same(ours, theirs):
    return len(ours) == len(theirs) and all(
        one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
        for one, other in zip(ours, theirs, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("time_order", [1, 2])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_state_is_the_slots_alive_wherever_time_begins(time_order, first):
    u, _, operator = shaken(time_order)
    u.data[:] = np.random.default_rng(0).random(u.shape)
    forward = Forward(operator, first=first)
    assert list(forward.state()) == ["u[t]", "u[t-1]"][:time_order]
    whole = np.array(u.data)
    state = forward.state()
    operator.apply(time_m=first, time_M=first + STEPS - 1)
    expected, u.data[:] = np.array(u.data), whole
    final = forward(state, 0, STEPS)
    for back in range(time_order):
        slot = (first + STEPS - back) % (time_order + 1)
        name = f"u[t-{back}]" if back else "u[t]"
        assert np.array_equal(final[name], view(u)[slot])
        assert np.array_equal(u.data[slot], expected[slot])


@pytest.mark.parametrize("schedule", ["revolve:3", "uniform:4", "zcut:12", "storeall", "auto"])
def test_every_schedule_sees_the_same_states(schedule):
    _, receivers, operator = shaken(2)
    forward = Forward(operator, first=1)
    initial = forward.state()
    kept = states(forward, STEPS)
    recorded = np.array(receivers.data)
    assert np.abs(recorded).max() > 0
    receivers.data[:] = 0
    ours = reversed_states(forward, initial, STEPS, schedule=schedule, budget="200kB")
    assert same(ours, kept[:-1])
    assert np.array_equal(receivers.data, recorded)  # written again with the same values


def test_the_disk_and_a_codec_serve_as_for_any_loop(tmp_path):
    _, _, operator = shaken(2)
    forward = Forward(operator)
    initial = forward.state()
    kept = states(forward, STEPS)
    budget = fb.Budget(host="16kB", disk="1MB")
    assert same(reversed_states(forward, initial, STEPS, budget=budget, directory=tmp_path), kept[:-1])
    assert same(reversed_states(forward, initial, STEPS, budget="200kB", codec="lossless"), kept[:-1])


def test_records_are_kept_instead_of_states_where_they_suffice():
    u = devito.TimeFunction(name="u", grid=devito.Grid(shape=(40, 41)), time_order=2, space_order=2)
    u.data[:, 20, 20] = 1.0
    forward = Forward(devito.Operator(devito.Eq(u.forward, 2 * u - u.backward + 1e-5 * u.laplace)))
    initial = forward.state()
    kept = states(forward, STEPS)
    seen = {}

    def backward(record, step):
        seen[step] = {name: array.copy() for name, array in record.items()}

    costs = fb.Costs(forward=1e-3, backward=1e-3, copy=1e10)
    options = {"record": ("u[t]",), "costs": costs}
    result = fb.reverse(forward, backward, initial, STEPS, budget="250kB", **options)
    assert result.plan.keep == "records"
    assert same([seen[step] for step in range(STEPS)], [{"u[t]": state["u[t]"]} for state in kept[:-1]])


def test_several_fields_of_one_operator_make_one_state(grid):
    v = devito.VectorTimeFunction(name="v", grid=grid, space_order=2, time_order=1)
    p = devito.TimeFunction(name="p", grid=grid, space_order=2, time_order=1)
    p.data[0, 4:6, 5:7] = 1.0
    operator = devito.Operator(
        [devito.Eq(v.forward, v + 0.01 * devito.grad(p)), devito.Eq(p.forward, p + 0.01 * devito.div(v.forward))]
    )
    forward = Forward(operator)
    assert set(forward.state()) == {"v_x[t]", "v_y[t]", "p[t]"}
    initial = forward.state()
    kept = states(forward, STEPS)
    assert same(reversed_states(forward, initial, STEPS, schedule="revolve:3", budget="200kB"), kept[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("slots", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_buffers_of_any_size(slots):
    """Two slots for two times: the new field overwrites the old one in place, and both are alive."""
    _, _, operator = shaken(2, save=devito.Buffer(slots))
    forward = Forward(operator, first=1)
    assert len(forward.state()) == max(2, slots - 1)
    initial = forward.state()
    kept = states(forward, STEPS)
    assert np.abs(kept[-1]["u[t]"]).max() > 0
    assert same(reversed_states(forward, initial, STEPS, schedule="revolve:3", budget="200kB"), kept[:-1])


def test_an_operator_may_step_downwards(grid):
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
    u.data[:] = np.random.default_rng(0).random(u.shape)
    operator = devito.Operator(devito.Eq(u.backward, 2 * u - u.forward + 1e-3 * u.laplace))
    forward = Forward(operator, first=40)
    assert list(forward.state()) == ["u[t]", "u[t+1]"]
    initial, whole = forward.state(), np.array(u.data)
    operator.apply(time_m=40 - STEPS + 1, time_M=40)
    expected, u.data[:] = np.array(u.data), whole
    forward(initial, 0, STEPS)
    assert np.array_equal(u.data, expected)
    u.data[:] = whole
    initial = forward.state()
    kept = states(forward, STEPS)
    assert same(reversed_states(forward, initial, STEPS, schedule="revolve:3", budget="200kB"), kept[:-1])


def test_what_an_operator_adds_to_is_part_of_the_state(grid):
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
    light = devito.Function(name="light", grid=grid)
    operator = devito.Operator([devito.Eq(u.forward, u + 1), devito.Inc(light, u * u)])
    forward = Forward(operator)
    assert "light" in forward.state()
    initial = forward.state()
    kept = states(forward, STEPS)
    assert same(reversed_states(forward, initial, STEPS, schedule="revolve:2", budget="200kB"), kept[:-1])


def test_states_are_the_operator_s_own_arrays_and_go_back_without_a_copy():
    u, _, operator = shaken(2)
    forward = Forward(operator)
    state = forward(forward.state(), 0, 4)
    assert all(np.shares_memory(array, view(u)) for array in state.values())
    for array in view(u):
        array[:] = 7.0
    forward.load(state, 4)  # these are its own arrays: had they been copied from elsewhere, 7 would be gone
    assert (state["u[t]"] == 7.0).all()
    forward.load(forward.state(), 4)
    forward.load({"u[t]": np.zeros_like(state["u[t]"])}, 4)  # as much of a state as a record has
    assert (view(u)[4 % 3] == 0.0).all() and (view(u)[3 % 3] == 7.0).all()


def test_the_operator_s_own_arrays_may_be_loaded_as_another_step():
    """Slot by slot, one would be overwritten before it is read."""
    u, _, operator = shaken(2)
    u.data[:] = np.random.default_rng(0).random(u.shape)
    forward = Forward(operator)
    state = forward(forward.state(), 0, 4)
    before = {name: array.copy() for name, array in state.items()}
    forward.load(state, 0)
    assert same([forward.state(0)], [before])


def test_an_old_state_is_not_taken_for_the_present_one():
    _, _, operator = shaken(2)
    forward = Forward(operator)
    start = {name: array.copy() for name, array in forward(forward.state(), 0, 5).items()}
    once = {name: array.copy() for name, array in forward(start, 5, 9).items()}
    forward(forward.state(), 0, 2)
    again = forward(start, 5, 9)
    assert same([again], [once])


def test_the_caller_s_initial_state_is_left_untouched():
    _, _, operator = shaken(2)
    forward = Forward(operator)
    initial = forward.state()
    fb.reverse(forward, lambda state, step: None, initial, STEPS, budget="200kB")
    assert not any(array.any() for array in initial.values())


def test_a_run_is_what_apply_does():
    u, receivers, operator = shaken(2)
    operator.apply(time_m=1, time_M=20)
    expected, recorded = np.array(u.data), np.array(receivers.data)
    u.data[:], receivers.data[:] = 0, 0
    run = Run(operator)
    for start, stop in [(1, 4), (4, 4), (4, 5), (5, 21)]:
        run(start, stop)
    assert np.array_equal(u.data, expected) and np.array_equal(receivers.data, recorded)


def test_a_run_reads_constants_at_each_call(grid):
    u = devito.TimeFunction(name="u", grid=grid)
    c, d = devito.Constant(name="c", value=1.0), devito.Constant(name="d", value=5.0)
    operator = devito.Operator(devito.Eq(u.forward, u + c))
    run, other = Run(operator), Run(operator, c=d)
    run(0, 1)
    c.data = 10.0
    run(1, 2)
    assert (u.data[0] == 11.0).all()
    other(2, 3)
    d.data = 50.0
    other(3, 4)
    assert (u.data[0] == 66.0).all()


def test_a_run_sees_points_that_have_moved(grid):
    u = devito.TimeFunction(name="u", grid=grid, space_order=8)
    u.data[:] = np.random.default_rng(0).random(u.shape[1:])
    points = devito.SparseTimeFunction(name="points", grid=grid, npoint=1, nt=4, interpolation="sinc", r=4)
    points.coordinates.data[:] = 0.31
    operator = devito.Operator([devito.Eq(u.forward, u), points.interpolate(u)])
    run = Run(operator)
    run(0, 1)
    points.coordinates.data[:] = 0.62
    run(1, 2)
    operator.apply(time_m=2, time_M=2)
    assert points.data[1, 0] == points.data[2, 0] != points.data[0, 0]


def test_tuning_runs_no_step_twice():
    u = devito.TimeFunction(name="u", grid=devito.Grid(shape=(20, 20, 20)), space_order=2)
    blocked = devito.Operator(devito.Eq(u.forward, u + 1 + 0 * u.laplace), opt=("blocking", {"blocklevels": 1}))
    with devito.switchconfig(autotuning=["basic", "runtime"]):
        Run(blocked)(0, 60)
    assert (u.data[0] == 60.0).all()
    with pytest.raises(DevitoError, match="autotune: tuning may run steps twice"):
        Run(blocked, autotune=("basic", "runtime"))


def test_reversals_know_that_operators_have_streams_of_their_own(monkeypatch):
    _, _, operator = shaken(2)
    forward = Forward(operator)
    asked = []

    def prepared(setup, *_given, **_options):
        asked.append(setup.machine.args[-1])
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["forebay.engine.reverse"], "Reversal", prepared)
    for callback, options in [(forward, {}), (forward, {"synchronous": False}), (lambda *of: forward(*of), {})]:
        with pytest.raises(ZeroDivisionError):
            fb.reverse(callback, lambda state, step: None, forward.state(), 4, budget="64kB", **options)
    assert asked == [True, False, False]


def test_a_run_past_the_end_of_the_data_is_refused():
    _, _, operator = shaken(2)
    run = Run(operator)
    run(0, 1)
    run(STEPS, STEPS + 10)
    with pytest.raises(InvalidArgument, match="time_M"):
        run(STEPS, STEPS + 11)
    with pytest.raises(InvalidArgument, match="time_m"):
        run(-1, 1)


@pytest.mark.slow
def test_on_a_device_states_lie_there(device, grid):
    u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
    m = devito.Function(name="m", grid=grid)
    m.data[:] = 1e-3
    u.data[1, 4:6, 5:7] = 1.0
    with resident(u, m):
        operator = devito.Operator(devito.Eq(u.forward, 2 * u - u.backward + m * u.laplace))
        forward = Forward(operator, first=1)
        initial = forward.state()
        kept = states(forward, STEPS)
        assert np.abs(kept[-1]["u[t]"]).max() > 0
        device.begin()
        ours = reversed_states(forward, initial, STEPS, schedule="revolve:3", budget="200kB")
        assert device.diary == []  # nothing went to the host and back
        assert same(ours, kept[:-1])
        state = forward(initial, 0, 3)
        assert np.shares_memory(state["u[t]"], view(u)) and not np.shares_memory(state["u[t]"], u.data)
    with pytest.raises(DevitoError, match="not on the device"):
        forward(initial, 0, 3)


@pytest.mark.slow
def test_bad_input_is_refused():
    u, receivers, operator = shaken(2)
    with pytest.raises(DevitoError, match="time_M: the steps are given when it runs"):
        Forward(operator, time_M=4)
    with pytest.raises(DevitoError, match="t_M: the steps are given when it runs"):
        Run(operator, t_M=4)
    with pytest.raises(DevitoError, match=r"u is given as an array.* give a Function"):
        Forward(operator, u=np.zeros(u.shape_allocated, np.float32))
    with pytest.raises(DevitoError, match=r"p\[t\]: the state has u\[t\], u\[t-1\]"):
        Forward(operator).load({"p[t]": np.zeros(3)}, 0)
    f = devito.Function(name="f", grid=u.grid)
    with pytest.raises(DevitoError, match="does not loop over time"):
        Forward(devito.Operator(devito.Eq(f, f + 1)))
    v, w = (devito.TimeFunction(name=name, grid=u.grid) for name in "vw")
    with pytest.raises(DevitoError, match=r"Both has several loops over time: build one operator for each"):
        Run(devito.Operator([devito.Eq(v.forward, 0.9 * v), devito.Eq(w.backward, 0.9 * w + v)], name="Both"))
    saved = devito.TimeFunction(name="saved", grid=u.grid, save=4)
    with pytest.raises(DevitoError, match="saved is saved at all times"):
        Forward(devito.Operator(devito.Eq(saved.forward, saved + 1)))
    with pytest.raises(DevitoError, match="adds to receivers"):
        Forward(devito.Operator([devito.Eq(u.forward, u), receivers.interpolate(u, increment=True)]))
    with pytest.raises(DevitoError, match="carries nothing from step to step"):
        Forward(devito.Operator(devito.Eq(u.forward, f)))
