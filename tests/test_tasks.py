"""Threads of ours: in order, and whole wherever an exception strikes whoever submits, waits or closes."""

import sys
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest

import forebay as fb
from forebay import tasks
from forebay.errors import EngineError
from forebay.tasks import ThreadTask, Workers

LONG = 20.0
"""Seconds after which something hangs."""


def in_time(call):
    """Call something in a thread; fail where it hangs."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(LONG)
    assert answers, "it hangs"
    return answers[0]


def interrupted_after(events, call):
    """Call something, and raise Ctrl-C after so many returns of calls in it; tell whether it came to that."""
    left = events

    def profile(frame, event, argument):
        nonlocal left
        if event == "c_return" or event == "return":
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_ctrl_c_anywhere_leaves_others_free_to_go_on():
    moments, struck = 0, True
    while struck:
        with_gate, workers = threading.Event(), Workers(1, "test")
        first = workers.submit(with_gate.wait, 0.001)

        def work(workers=workers, first=first):
            first.add_done_callback(str)
            workers.submit(len, "ab").result()
            first.exception(), first.done(), first.cancel()

        struck = interrupted_after(moments, work)
        moments += 1
        assert in_time(lambda workers=workers, first=first: first.done() or first.result() in (True, False)) is True
        assert in_time(workers.submit(len, "abc").result) == 3
        in_time(workers.close)
    assert moments > 10


def test_ctrl_c_while_a_thread_is_started_leaves_tasks_to_come_somebody_who_does_them():
    moments, struck = 0, True
    while struck:
        workers = Workers(1, "test")
        struck = interrupted_after(moments, lambda workers=workers: workers.submit(len, "ab"))
        moments += 1
        assert in_time(lambda workers=workers: workers.submit(len, "abc").result()) == 3
        in_time(lambda workers=workers: workers.close() or True)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-")]
        struck |= interrupted_and_closed(moments)
    assert moments > 10


def interrupted_and_closed(moment):
    """Strike while the first thread is started, and close at once; tell whether it came to that."""
    workers = Workers(1, "test")
    struck = interrupted_after(moment, lambda: workers.submit(len, "ab"))
    in_time(lambda: workers.close() or True)
    return struck


def test_ctrl_c_while_they_are_closed_leaves_nobody_behind():
    moments, struck = 0, True
    while struck:
        workers = Workers(2, "test")
        tasks = [workers.submit(len, "ab") for _ in range(3)]
        struck = interrupted_after(moments, lambda workers=workers: workers.close(cancel=True))
        moments += 1
        in_time(workers.close)
        assert {task.done() for task in tasks} == {True}
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-")]
    assert moments > 5


def test_tasks_run_in_order_by_as_many_threads_as_are_needed():
    seen, workers = [], Workers(1, "test")
    tasks = [workers.submit(seen.append, number) for number in range(50)]
    assert [task.result() for task in tasks] == [None] * 50 and seen == list(range(50))
    several, barrier = Workers(3, "test"), threading.Barrier(3)
    assert sorted(task.result() for task in [several.submit(barrier.wait, LONG) for _ in range(3)]) == [0, 1, 2]
    for pool in (workers, several):
        pool.close()
        with pytest.raises(RuntimeError, match="no thread works here"):
            pool.submit(len, "")


def test_errors_come_out_and_callbacks_are_called_once():
    workers, seen = Workers(1, "test"), []
    failed = workers.submit([].pop)
    failed.add_done_callback(seen.append)
    with pytest.raises(IndexError, match="pop from empty list"):
        failed.result()
    assert isinstance(failed.exception(), IndexError) and failed.done() and not failed.cancelled()
    workers.close()
    failed.add_done_callback(seen.append)
    assert seen == [failed, failed]


def test_what_is_cancelled_is_never_run_and_what_runs_is_not_cancelled():
    workers, go, begun = Workers(1, "test"), threading.Event(), threading.Event()

    def run():
        begun.set()
        return go.wait(LONG)

    running, waiting = workers.submit(run), workers.submit(go.clear)
    begun.wait(LONG)
    workers.close(cancel=True, wait=False)
    assert waiting.cancelled() and not running.cancel()
    go.set()
    assert running.result() is True and go.is_set()
    with pytest.raises(CancelledError):
        waiting.result()
    workers.close()


def test_where_threads_cannot_begin_or_start_their_tasks_fail(monkeypatch):
    def broken():
        raise ZeroDivisionError

    workers = Workers(1, "test", broken)
    assert isinstance(in_time(workers.submit(len, "").exception), ZeroDivisionError)
    workers.close()

    def no_thread(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    workers = Workers(1, "test")
    for _ in range(2):
        assert "can't start new thread" in str(workers.submit(len, "").exception())
    monkeypatch.undo()
    assert in_time(workers.submit(len, "abc").result) == 3  # now there is one
    workers.close()


@pytest.mark.parametrize("which", [1, 2, 3, 4])
def test_a_reversal_that_gets_no_thread_says_so_and_ends(monkeypatch, tmp_path, which):
    real, count = tasks.start_new_thread, iter(range(1, 100))

    def start(*about):
        if next(count) == which:
            raise RuntimeError("can't start new thread")
        return real(*about)

    monkeypatch.setattr(tasks, "start_new_thread", start)
    call = {"steps": 30, "schedule": "revolve:6", "budget": fb.Budget(host=8192, disk=40960)}
    with pytest.raises(EngineError, match="starts no more threads"):
        fb.reverse(lambda state, *_: state, lambda *_: None, (np.ones(512),), directory=tmp_path, **call)


def test_threads_that_nobody_needs_any_more_end():
    workers = Workers(1, "forgotten")
    assert workers.submit(len, "abc").result() == 3
    (thread,) = [each for each in threading.enumerate() if each.name.startswith("forgotten-")]
    del workers
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_task_of_nobody_is_ended_by_whoever_knows():
    task = ThreadTask()
    task.set_result(3)
    task.set_exception(ValueError())  # too late
    assert task.result() == 3 and not task.cancel()
