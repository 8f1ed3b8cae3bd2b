"""Reversals that wait at their turn: several at once, resumed in any thread, given up without a trace."""

import gc
import threading
import time

import numpy as np
import pytest

import forebay as fb
from forebay.engine.reverse import prepare
from forebay.errors import EngineError
from tests.engine.loops import Loop

SNAPSHOT = 4096
MANY = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))
STEPS = 40


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path):
    before = set(threading.enumerate())
    yield
    assert not list(tmp_path.glob("forebay-*"))
    assert set(threading.enumerate()) <= before


def waiting(loop, directory, schedule="storeall", **more):
    reversal = prepare(
        loop.forward,
        loop.backward,
        loop.state,
        STEPS,
        budget=fb.Budget(host=4 * SNAPSHOT, disk=60 * SNAPSHOT),
        schedule=schedule,
        costs=MANY,
        directory=directory,
        **more,
    )
    final = reversal.forward()
    loop.turn(final)
    reversal.wait()
    return reversal


@pytest.mark.parametrize("schedule", ["storeall", "revolve:6", "twolevel:8,3"])
def test_several_wait_at_once_and_go_on_in_any_order_and_thread(schedule, tmp_path):
    loops = [Loop(points) for points in (5, 7, 9)]
    expected = [loop.expect(STEPS) for loop in loops]
    reversals = [waiting(loop, tmp_path, schedule) for loop in loops]
    assert [loop.turned for loop in loops] == [[final] for _, final in expected]
    assert not any(loop.seen for loop in loops)

    def go_on(reversal):
        reversal.resume()
        reversal.backward()

    for number in (1, 2, 0):
        thread = threading.Thread(target=go_on, args=(reversals[number],))
        thread.start()
        thread.join()
    assert [loop.seen for loop in loops] == [states for states, _ in expected]


@pytest.mark.parametrize("how", ["given up", "forgotten"])
def test_one_that_is_not_needed_any_more_gives_everything_back(how, tmp_path):
    loop = Loop()
    reversal = waiting(loop, tmp_path)
    assert list(tmp_path.glob("forebay-*"))
    if how == "given up":
        reversal.give_up()
        reversal.give_up()
    else:
        gc.disable()  # nobody has to come by for it
        try:
            del reversal
        finally:
            gc.enable()
    assert not list(tmp_path.glob("forebay-*")) and not loop.seen


def test_one_that_has_ended_is_not_taken_up_again(tmp_path):
    reversal = waiting(Loop(), tmp_path)
    reversal.resume()
    reversal.backward()
    with pytest.raises(EngineError, match="start another"):
        reversal.resume()


def test_the_wait_is_no_part_of_the_measured_time(tmp_path):
    start = time.perf_counter()
    reversal = waiting(Loop(), tmp_path)
    time.sleep(0.6)
    reversal.resume()
    result = reversal.backward()
    assert result.metrics.seconds <= time.perf_counter() - start - 0.6
    assert max(span.stop for span in result.metrics.timeline) <= result.metrics.seconds + 1e-3


def test_encoded_snapshots_wait_too(tmp_path):
    field = np.linspace(0, 1, 5000, dtype=np.float32)
    seen = []
    reversal = prepare(
        lambda state, start, stop: (state[0] * np.float32(0.9) ** (stop - start),),
        lambda state, step: seen.append(float(np.abs(state[0] - field * np.float32(0.9) ** step).max())),
        (field,),
        STEPS,
        budget=fb.Budget(host="60kB", disk="600kB"),
        schedule="storeall",
        codec="cast:bfloat16",
        costs=MANY,
        directory=tmp_path,
    )
    reversal.forward()
    reversal.wait()
    reversal.resume()
    assert reversal.backward().plan.codec == "cast:bfloat16"
    assert len(seen) == STEPS and max(seen) < 1e-2
