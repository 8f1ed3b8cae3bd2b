"""Reversing on host arrays: bit-equal to keeping everything, whatever the plan, and clean whatever happens."""

import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import forebay as fb
from forebay.errors import EngineError, StateError
from tests.engine.loops import Loop
from tests.spills import bytes_on_disk, spills

SNAPSHOT = 4096
MANY = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    before = set(threading.enumerate())
    yield
    assert not spills(tmp_path)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)  # a progress bar's ends a moment after it was told to
    assert set(threading.enumerate()) <= before


def budget(host, disk):
    return fb.Budget(host=host * SNAPSHOT, disk=disk * SNAPSHOT if disk else None)


@pytest.mark.parametrize(
    ("functional", "policy"),
    [
        (False, "min"),
        pytest.param(True, "lru", marks=pytest.mark.slow),
        pytest.param(True, "min", marks=pytest.mark.slow),
        (False, "lru"),
    ],
)
@pytest.mark.parametrize(("host", "disk"), [(60, 0), (9, 50), (4, 60), (2, 60), (1, 60)])
@pytest.mark.parametrize("schedule", ["storeall", "uniform:9", "zcut:16", "revolve:5", "twolevel:8,3", "auto"])
def test_bit_equal_to_keeping_everything_run_twice(schedule, host, disk, policy, functional, tmp_path):
    loop = Loop(functional=functional)
    expected, final = loop.expect(50)
    for _ in range(2):
        result = fb.reverse(
            loop.forward,
            loop.backward,
            loop.state,
            50,
            budget=budget(host, disk),
            schedule=schedule,
            policy=policy,
            costs=MANY,
            turn=loop.turn,
            directory=tmp_path,
        )
        assert loop.seen == expected
        assert loop.turned == [final]
        assert result.metrics.peak["host"] <= host * SNAPSHOT
        assert result.metrics.peak["disk"] <= disk * SNAPSHOT
        loop.seen.clear(), loop.turned.clear()


@pytest.mark.parametrize("record", [("u",), ("count", "u"), lambda state, step: {"u": state["u"]}])
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize(("host", "disk"), [(60, 0), (3, 60), (5, 0)])
def test_records_and_intervals(record, every, host, disk, tmp_path):
    loop = Loop()
    keys = ("u",) if callable(record) else record
    expected, _ = loop.expect(50, every, keys)
    result = fb.reverse(
        loop.forward,
        loop.backward,
        loop.state,
        50,
        budget=budget(host, disk),
        record=record,
        every=every,
        costs=MANY,
        directory=tmp_path,
    )
    assert loop.seen == expected
    assert result.plan.keep in ("records", "states")
    assert loop.first_times == list(range(50))


def test_the_first_pass_is_told_from_recomputation_even_after_timing(tmp_path):
    loop = Loop()
    expected, _ = loop.expect(30)
    fb.reverse(loop.forward, loop.backward, loop.state, 30, budget=budget(3, 30), directory=tmp_path)
    assert loop.seen == expected
    assert loop.first_times == list(range(30))


def test_the_callers_state_is_left_untouched():
    loop = Loop()
    before = {key: array.copy() for key, array in loop.state.items()}
    fb.reverse(loop.forward, loop.backward, loop.state, 10, budget=budget(3, 0))
    for key, array in loop.state.items():
        np.testing.assert_array_equal(array, before[key])


@pytest.mark.parametrize("container", [tuple, list])
def test_states_of_torch_tensors(container):
    torch = pytest.importorskip("torch")
    seen = []

    def forward(state, start, stop):
        for _ in range(start, stop):
            state = container((state[0] * 0.5 + 1, state[1] + state[0].to(torch.bfloat16)))
        return state

    initial = container((torch.arange(5.0), torch.ones(3, 5, dtype=torch.bfloat16)))
    kinds = set()

    def backward(state, step):
        kinds.add((type(state), state[0].dtype, state[1].dtype))
        seen.append([tensor.clone() for tensor in state])

    fb.reverse(forward, backward, initial, 20, budget="16kB", schedule="revolve:3")
    assert kinds == {(container, torch.float32, torch.bfloat16)}
    expected = [initial]
    for _ in range(19):
        expected.append(forward(expected[-1], 0, 1))
    for got, wanted in zip(seen, reversed(expected), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_arrays_with_gaps_are_gathered():
    whole = np.arange(20.0).reshape(4, 5)
    seen = []
    fb.reverse(
        lambda state, start, stop: (state[0] + (stop - start),),
        lambda state, step: seen.append(state[0].copy()),
        (whole[::2, 1:4],),
        6,
        budget="9kB",
        schedule="revolve:2",
    )
    np.testing.assert_array_equal(seen[-1], whole[::2, 1:4])
    np.testing.assert_array_equal(seen[0], whole[::2, 1:4] + 5)


def test_a_plan_can_be_given_again(tmp_path):
    loop = Loop()
    first = fb.reverse(loop.forward, loop.backward, loop.state, 40, budget=budget(3, 40), directory=tmp_path)
    plan = fb.Plan.from_json(first.plan.to_json())
    seen, loop.seen = loop.seen, []
    again = fb.reverse(loop.forward, loop.backward, loop.state, 40, plan=plan, directory=tmp_path)
    assert again.plan == first.plan and loop.seen == seen


def test_a_plan_that_takes_more_or_keeps_less_than_asked_is_refused():
    loop = Loop()
    costs = fb.Costs(1.0, 1.0, 1e9, codecs={"cast:bfloat16": fb.CodecCost(4, 1e9, 1e9, worst=1.0)})
    plan = fb.plan(40, SNAPSHOT, fb.Budget(host=20 * SNAPSHOT), costs=costs, codec="cast:bfloat16")
    assert plan.codec == "cast:bfloat16"
    call = {"forward": loop.forward, "backward": loop.backward, "state": loop.state, "steps": 40, "plan": plan}
    with pytest.raises(fb.PlanError, match="was made for"):
        fb.reverse(**call, budget=10 * SNAPSHOT)
    with pytest.raises(fb.PlanError, match="asked for"):
        fb.reverse(**call, codec="cast:float16")
    assert fb.reverse(**call, codec="cast:bfloat16", budget=30 * SNAPSHOT).plan == plan


def test_metrics_tell_what_happened(tmp_path):
    loop = Loop()
    result = fb.reverse(
        loop.forward, loop.backward, loop.state, 50, budget=budget(4, 50), schedule="storeall", directory=tmp_path
    )
    metrics = result.metrics
    assert metrics.moved == {"up 1": 46 * SNAPSHOT, "down 1": 46 * SNAPSHOT}
    assert metrics.avoided == {"up 1": 4 * SNAPSHOT, "down 1": 4 * SNAPSHOT}
    assert (metrics.hits, metrics.misses) == (4, 46)
    assert metrics.peak == {"host": 4 * SNAPSHOT, "disk": 46 * SNAPSHOT}
    assert 0 < metrics.phases["forward"] + metrics.phases["backward"] < metrics.seconds
    assert metrics.table().row_count > 8
    metrics.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events} >= {"forward", "backward", "save", "store", "fetch", "thread_name"}
    for told in ("measured against predicted", "disk", "whole"):
        assert told in result.explain()


def test_without_a_budget_half_of_what_is_free_is_taken_and_said():
    loop = Loop()
    result = fb.reverse(loop.forward, loop.backward, loop.state, 10)
    assert "half" in result.explain() and "costs measured" in result.explain()


def test_a_codec_that_was_asked_for_and_does_not_pay_is_named():
    loop = Loop()
    slow = {"cast:float16": fb.CodecCost(ratio=2, encode=1e3, decode=1e3)}
    costs = fb.Costs(1e-3, 1e-3, 1e12, codecs=slow)
    result = fb.reverse(
        loop.forward, loop.backward, loop.state, 10, budget=f"{20 * SNAPSHOT}B", costs=costs, codec="cast:float16"
    )
    assert result.plan.codec is None and result.metrics.mean_ratio == 1
    assert "codec cast:float16 is not used" in result.explain() and "costs as given" in result.explain()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"steps": 0}, fb.ScheduleError, "at least one step"),
        ({"budget": "1kB"}, fb.BudgetError, "needs 4.1kB"),
        ({"budget": fb.Budget(device="8GB")}, fb.BudgetError, "on the host"),
        ({"state": ()}, StateError, "no arrays"),
        ({"state": (1.5,)}, StateError, "NumPy, CuPy or torch"),
        ({"state": (np.array([None]),)}, StateError, "objects"),
        ({"record": ("w",)}, StateError, "does not have"),
        ({"every": 0}, fb.PlanError, "at least 1"),
        ({"codec": "nothing"}, fb.ForebayError, "no codec is called"),
        ({"budget": fb.Budget(host="16kB", disk="1MB"), "directory": "/nowhere"}, fb.ForebayError, "create it"),
    ],
)
def test_bad_input_is_refused_before_any_step(arguments, error, says):
    loop = Loop()
    call = {"forward": loop.forward, "backward": loop.backward, "state": loop.state, "steps": 10} | arguments
    with pytest.raises(error, match=says):
        fb.reverse(**call)
    assert not loop.seen


def test_a_plan_for_another_loop_is_refused():
    loop = Loop()
    plan = fb.plan(10, 4096, fb.Budget(host="1MB"))
    for arguments, says in (({"steps": 11}, "10 steps"), ({"steps": 10, "state": (np.zeros(10**6),)}, "make a plan")):
        call = {"state": loop.state} | arguments
        with pytest.raises(fb.PlanError, match=says):
            fb.reverse(loop.forward, loop.backward, plan=plan, **call)


def test_a_forward_that_changes_the_state_is_caught():
    with pytest.raises(StateError, match="forward returned"):
        fb.reverse(
            lambda state, start, stop: (np.zeros(4),),
            lambda state, step: None,
            (np.zeros(3),),
            9,
            budget="64kB",
            schedule="storeall",
            costs=MANY,
        )


@pytest.mark.parametrize("where", ["forward", "turn", "backward"])
def test_exceptions_of_the_callers_come_through_and_leave_nothing(where, tmp_path):
    loop = Loop()

    def fail(*arguments, **more):
        raise ZeroDivisionError(where)

    def fail_late(state, start, stop):
        return fail() if stop > 30 else loop.forward(state, start, stop, False)

    call = {"forward": lambda s, a, b: loop.forward(s, a, b, False), "backward": loop.backward, "turn": loop.turn}
    call[where] = fail_late if where == "forward" else fail
    with pytest.raises(ZeroDivisionError, match=where):
        fb.reverse(state=loop.state, steps=50, budget=budget(3, 50), schedule="storeall", directory=tmp_path, **call)


def test_a_wrong_plan_is_refused_by_the_engine(tmp_path, monkeypatch):
    loop = Loop()
    plan = fb.plan(10, SNAPSHOT, fb.Budget(host=3 * SNAPSHOT, disk="1MB"), schedule="storeall")
    operations = [op for op in plan.operations() if type(op).__name__ != "Fetch"]
    monkeypatch.setattr(fb.Plan, "__iter__", lambda self: iter(operations))
    with pytest.raises(EngineError, match="does not hold it"):
        fb.reverse(loop.forward, loop.backward, loop.state, 10, plan=plan, directory=tmp_path)


INTERRUPTED = """
import sys, numpy as np, forebay as fb
def forward(state, start, stop):
    return (state[0] + 1,)
def backward(state, step):
    if step == 900:
        print("there", flush=True)
        import time; time.sleep(60)
budget = fb.Budget(host=4 * 8192, disk="9MB")
fb.reverse(forward, backward, (np.zeros(1000),), 1000, budget=budget, schedule="storeall", directory=sys.argv[1])
"""


def test_ctrl_c_leaves_no_files_and_no_stuck_threads(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "there\n"
    assert spills(tmp_path, child.pid)
    child.send_signal(2)
    assert child.wait(timeout=120) != 0
    assert not list(tmp_path.iterdir())


def test_progress_is_shown_on_request(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    loop = Loop()
    for wanted in (False, True):
        fb.reverse(loop.forward, loop.backward, loop.state, 10, budget=budget(3, 0), progress=wanted)
        assert ("reversing with" in capfd.readouterr().err) == wanted


def test_damage_on_the_disk_is_caught(tmp_path):
    loop = Loop()

    def turn(state):
        for _ in range(100):  # the writes of the first sweep may still be under way
            if bytes_on_disk(tmp_path) >= 46 * 4096:
                break
            time.sleep(0.02)
        time.sleep(0.2)
        (path,) = spills(tmp_path)
        with open(path, "r+b") as file:
            for start in range(0, bytes_on_disk(tmp_path), 4096):
                file.seek(start + 5)
                file.write(b"\x55\xaa")
            file.flush()
            os.fsync(file.fileno())

    with pytest.raises(fb.ForebayError, match=r"checksum|damaged|corrupt|changed"):
        fb.reverse(
            loop.forward,
            loop.backward,
            loop.state,
            50,
            budget=budget(4, 50),
            schedule="storeall",
            turn=turn,
            directory=tmp_path,
        )


def test_a_rehearsal_tells_the_plan_what_backward_costs():
    calls, arrays = [], []

    def rehearse():
        arrays.append(np.zeros(3))
        return lambda: (calls.append(1), time.sleep(0.02))

    def plan(**options):
        state, seen = (np.zeros(3),), []
        result = fb.reverse(lambda s, a, b: (s[0] + b - a,), lambda s, n: seen.append(n), state, 20, every=2, **options)
        assert seen == list(range(18, -1, -2))
        return result.plan

    learned = plan(budget="64kB", rehearse=rehearse)
    assert learned.costs.backward >= 0.01 and len(arrays) == 1
    known = len(calls)
    plan(budget="64kB", rehearse=rehearse, costs=learned.costs)
    assert len(calls) == known
