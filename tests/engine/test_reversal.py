"""Reversals that wait at their turn: several at once, resumed in any thread, given up without a trace."""

import gc
import inspect
import re
import threading
import time
import weakref

import numpy as np
import pytest

import forebay as fb
from forebay.engine.reverse import Options
from forebay.errors import EngineError
from forebay.machine import host
from tests.engine.loops import Loop
from tests.spills import spills

SNAPSHOT = 4096
MANY = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))
STEPS = 40


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    before = set(threading.enumerate())
    yield
    assert not spills(tmp_path)
    assert set(threading.enumerate()) <= before


def waiting(loop, directory, schedule="storeall", **more):
    reversal = fb.prepare(
        loop.forward,
        loop.state,
        STEPS,
        budget=fb.Budget(host=4 * SNAPSHOT, disk=60 * SNAPSHOT),
        schedule=schedule,
        costs=MANY,
        directory=directory,
        **more,
    )
    loop.turn(reversal.forward())
    return reversal


def test_time_between_phases_is_the_callers(monkeypatch, tmp_path):
    passed = [0.0]

    def clock():
        passed[0] += 1e-6
        return passed[0]

    monkeypatch.setattr(host, "perf_counter", clock)
    loop = Loop()
    reversal = waiting(loop, tmp_path, "revolve:6")
    for retain in (True, True, False):
        passed[0] += 1000
        result = reversal.backward(loop.backward, retain=retain)
    assert 0 < result.metrics.seconds < 1


@pytest.mark.parametrize("schedule", ["storeall", "revolve:6", "twolevel:8,3"])
def test_several_wait_at_once_and_go_on_in_any_order_and_thread(schedule, tmp_path):
    loops = [Loop(points) for points in (5, 7, 9)]
    expected = [loop.expect(STEPS) for loop in loops]
    reversals = [waiting(loop, tmp_path, schedule) for loop in loops]
    assert [loop.turned for loop in loops] == [[final] for _, final in expected]
    assert not any(loop.seen for loop in loops)

    for number in (1, 2, 0):
        thread = threading.Thread(target=reversals[number].backward, args=(loops[number].backward,))
        thread.start()
        thread.join()
    assert [loop.seen for loop in loops] == [states for states, _ in expected]


@pytest.mark.parametrize("how", ["closed", "left", "forgotten"])
def test_one_that_is_not_needed_any_more_gives_everything_back(how, tmp_path):
    loop = Loop()
    reversal = waiting(loop, tmp_path)
    assert spills(tmp_path)
    if how == "closed":
        reversal.close()
        reversal.close()
    elif how == "left":
        with reversal:
            pass
    else:
        gc.disable()  # nobody has to come by for it
        try:
            del reversal
        finally:
            gc.enable()
    assert not spills(tmp_path) and not loop.seen


def test_phases_out_of_order_are_refused_with_what_to_do(tmp_path):
    loop = Loop()
    with fb.prepare(loop.forward, loop.state, 5, budget="1MB", costs=MANY) as reversal:
        with pytest.raises(EngineError, match=r"call forward\(\) first"):
            reversal.backward(loop.backward)
        reversal.forward()
        with pytest.raises(EngineError, match=r"call backward\(\)"):
            reversal.forward()
        reversal.backward(loop.backward)
        for again in (reversal.forward, lambda: reversal.backward(loop.backward)):
            with pytest.raises(EngineError, match="prepare another"):
                again()
    assert len(loop.seen) == 5


def test_what_turn_returns_is_what_forward_returns():
    loop = Loop()
    with fb.prepare(loop.forward, loop.state, 5, budget="1MB", costs=MANY) as reversal:
        assert reversal.forward(lambda final: final["u"].tobytes()) == loop.expect(5)[1]


def test_reverse_takes_what_prepare_takes():
    named = set(inspect.signature(fb.prepare).parameters) - {"forward", "state", "steps"}
    assert named == set(Options.__annotations__)
    documented = inspect.getdoc(fb.reverse).partition("**options")[2].partition("Examples")[0]
    assert named == set(re.findall(r"`(\w+)`", documented)) - {"prepare"}


@pytest.mark.slow
def test_the_wait_is_no_part_of_the_measured_time(tmp_path):
    start = time.perf_counter()
    reversal = waiting(Loop(), tmp_path)
    time.sleep(0.6)
    result = reversal.backward(lambda state, step: None)
    assert result.metrics.seconds <= time.perf_counter() - start - 0.6
    assert max(span.stop for span in result.metrics.timeline) <= result.metrics.seconds + 1e-3


def test_encoded_snapshots_wait_too(tmp_path):
    field = np.linspace(0, 1, 5000, dtype=np.float32)
    seen = []
    reversal = fb.prepare(
        lambda state, start, stop: (state[0] * np.float32(0.9) ** (stop - start),),
        (field,),
        STEPS,
        budget=fb.Budget(host="60kB", disk="600kB"),
        schedule="storeall",
        codec="cast:bfloat16",
        costs=MANY,
        directory=tmp_path,
    )
    reversal.forward()
    result = reversal.backward(
        lambda state, step: seen.append(float(np.abs(state[0] - field * np.float32(0.9) ** step).max()))
    )
    assert result.plan.codec == "cast:bfloat16"
    assert len(seen) == STEPS and max(seen) < 1e-2


@pytest.mark.parametrize("schedule", ["storeall", "revolve:6", "twolevel:8,3", "uniform:5", "online:7"])
@pytest.mark.parametrize("slots", [(60,), (4, 60), (1, 60)], ids=str)
def test_several_adjoints_of_one_forward(schedule, slots, tmp_path):
    loop = Loop()
    budget = fb.Budget(**{tier: n * SNAPSHOT for tier, n in zip(("host", "disk"), slots, strict=False)})
    options = {"budget": budget, "schedule": schedule, "costs": MANY, "directory": tmp_path}
    with fb.prepare(loop.forward, loop.state, STEPS, **options) as reversal:
        reversal.forward()
        results = [reversal.backward(loop.backward, retain=retain) for retain in (True, True, False)]
    assert loop.seen == 3 * loop.expect(STEPS)[0]
    assert loop.first_times == list(range(STEPS))
    for tier, planned in results[0].plan.peak_bytes.items():
        assert results[-1].metrics.peak[tier] <= planned
    seconds = [result.metrics.phases["backward"] for result in results]
    assert seconds == sorted(seconds)  # of all so far, each result with metrics of its own


def test_a_later_adjoint_does_not_run_the_loop_from_its_start():
    loop, steps = Loop(), []

    def forward(state, start, stop, replay):
        steps.append(stop - start)
        return loop.forward(state, start, stop, replay)

    with fb.prepare(forward, loop.state, 400, budget=24 * SNAPSHOT, schedule="twolevel:40,13", costs=MANY) as reversal:
        reversal.forward()
        reversal.backward(loop.backward, retain=True)
        planned, before = reversal.plan.schedule.forward_steps, sum(steps)
        assert before <= 1.05 * planned
        reversal.backward(loop.backward)
    assert sum(steps) - before <= planned - 400 + 40


@pytest.mark.parametrize(("host", "disk"), [(60, 0), (3, 60)])
def test_records_and_encoded_snapshots_are_retained_where_there_is_room(host, disk, tmp_path):
    loop = Loop()
    budget = fb.Budget(host=host * SNAPSHOT, **({"disk": disk * SNAPSHOT} if disk else {}))
    options = {"budget": budget, "schedule": "storeall", "costs": MANY, "directory": tmp_path}
    with fb.prepare(loop.forward, loop.state, STEPS, codec="lossless", **options) as reversal:
        reversal.forward()
        reversal.backward(loop.backward, retain=True)
        reversal.backward(loop.backward)
    assert loop.seen == 2 * loop.expect(STEPS)[0]
    loop = Loop(2000)
    options["budget"] = fb.Budget(host=60_000, disk="1MB") if disk else "1MB"
    with fb.prepare(loop.forward, loop.state, STEPS, record=("u",), **options) as reversal:
        reversal.forward()
        assert reversal.plan.keep == "records"
        if disk:  # all that the first tier holds would have to change places with the second, in which nothing is free
            with pytest.raises(fb.BudgetError, match="cannot be retained"):
                reversal.backward(loop.backward, retain=True)
        else:
            reversal.backward(loop.backward, retain=True)
        reversal.backward(loop.backward)
    assert loop.seen == (1 if disk else 2) * loop.expect(STEPS, keys=("u",))[0]


def test_what_is_retained_waits_for_the_next_in_any_thread_or_is_closed(tmp_path):
    loop = Loop()
    reversal = waiting(loop, tmp_path, "twolevel:8,3")
    reversal.backward(loop.backward, retain=True)
    thread = threading.Thread(target=reversal.backward, args=(loop.backward,), kwargs={"retain": True})
    thread.start()
    thread.join()
    assert loop.seen == 2 * loop.expect(STEPS)[0]
    reversal.close()


@pytest.mark.parametrize("retain", [True, False])
def test_what_was_called_is_let_go_of_once_it_was(retain, tmp_path):
    """A reversal that waits for its next adjoint does not keep what the last one was computed with."""

    class Adjoint:
        def add(self, state, step):
            pass

    adjoint, reversal = Adjoint(), waiting(Loop(), tmp_path, "revolve:6")
    known = weakref.ref(adjoint)
    reversal.backward(adjoint.add, retain=retain)
    del adjoint
    gc.collect()
    assert known() is None
    reversal.close()


class TestWhileItRuns:
    def call_inside(self, phase, act):
        """Do something to a reversal from within one of its callbacks."""
        box = []

        def forward(state, start, stop):
            if phase == "forward" and box:
                act(box[0])
            return state

        reversal = fb.prepare(forward, (np.zeros(3),), 9, budget="64kB", costs=MANY)
        box.append(reversal)
        reversal.forward()
        reversal.backward(lambda state, step: act(reversal))

    @pytest.mark.parametrize("phase", ["forward", "backward"])
    @pytest.mark.parametrize(
        "act", [lambda r: r.close(), lambda r: r.forward(), lambda r: r.backward(lambda state, step: None)]
    )
    def test_callbacks_cannot_close_it_or_run_it_again(self, phase, act):
        with pytest.raises(EngineError, match="this reversal is running"):
            self.call_inside(phase, act)

    def test_another_thread_is_refused(self, tmp_path):
        loop, errors = Loop(), []

        def act():
            for wrong in (lambda: reversal.backward(loop.backward), reversal.close):
                with pytest.raises(EngineError, match="this reversal is running") as error:
                    wrong()
                errors.append(error)

        def backward(state, step):
            if step == STEPS - 1:
                thread = threading.Thread(target=act)
                thread.start()
                thread.join()
            loop.backward(state, step)

        with waiting(loop, tmp_path) as reversal:
            reversal.backward(backward)
        assert len(errors) == 2 and loop.seen == loop.expect(STEPS)[0]


def test_what_interrupts_the_end_of_a_reversal_keeps_nothing_from_being_given_back(monkeypatch):
    reversal = fb.prepare(lambda s, a, b: s, (np.zeros(3),), 4, budget="64kB", costs=fb.Costs(1.0, 1.0, 1e9))
    reversal.forward()
    forget, calls = reversal._visitor.forget, []

    def interrupted():
        calls.append(None)
        if len(calls) == 1:
            raise KeyboardInterrupt
        forget()

    monkeypatch.setattr(reversal._visitor, "forget", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reversal.close()
    assert len(calls) == 2 and reversal._executor is None and not reversal._close.alive
