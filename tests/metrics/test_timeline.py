"""Spans that are kept as numbers come back as they were told, from many threads, through copies and pickles."""

import os
import pickle
import signal
from copy import deepcopy
from random import Random
from threading import Thread

from forebay.metrics import Metrics, Span, Timeline
from forebay.metrics import timeline as timeline_module
from forebay.metrics.timeline import PIECE, ROW

ROWS = PIECE // ROW.size


def filled(count):
    timeline = Timeline()
    for step in range(count):
        timeline.add(f"lane {step % 3}", "store", step, 0.5 * step, 0.5 * step + 0.25)
    return timeline


def test_spans_come_back_in_their_order():
    expected = [Span(f"lane {n % 3}", "store", n, 0.5 * n, 0.5 * n + 0.25) for n in range(ROWS + 7)]
    timeline = filled(ROWS + 7)
    assert list(timeline) == expected and len(timeline) == ROWS + 7
    assert timeline[-1] == expected[-1] and timeline[ROWS - 1 : ROWS + 1] == expected[ROWS - 1 : ROWS + 1]
    timeline.forget(ROWS + 5)
    assert list(timeline) == expected[ROWS:] and len(filled(ROWS)) == ROWS


def test_copies_and_pickles_go_on_by_themselves():
    timeline = filled(5)
    for other in (deepcopy(timeline), pickle.loads(pickle.dumps(timeline))):
        other.add("compute", "save", 9, 1.0, 2.0)
        assert list(other)[:5] == list(timeline) and other[5] == Span("compute", "save", 9, 1.0, 2.0)
    assert len(timeline) == 5


def test_no_thread_writes_over_the_span_of_another():
    metrics = Metrics()

    def tell(lane):
        for step in range(2 * ROWS):
            metrics.add(lane, "compress", step, step, step + 1)

    threads = [Thread(target=tell, args=(f"codec {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [(span.lane, span.step) for span in metrics.timeline]
    assert sorted(told) == [(f"codec {number}", step) for number in range(4) for step in range(2 * ROWS)]


def test_no_span_stops_later_than_it_did():
    random, timeline = Random(1), Timeline()
    times = [sorted((random.uniform(0, 9), random.uniform(0, 9) ** random.randint(-9, 2))) for _ in range(2000)]
    for start, stop in times:
        timeline.add("up 1", "fetch", 3, start, stop)
    for span, (start, stop) in zip(timeline, times, strict=True):
        assert span.start == start and stop - 1.2e-7 * (stop - start) <= span.stop <= stop


def test_a_forked_child_tells_spans_whoever_was_telling_some_when_it_was_forked():
    with timeline_module._growing:
        child = os.fork()
        if not child:
            signal.alarm(20)
            filled(ROWS + 1)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_metrics_of_nothing_are_equal_and_many_kinds_of_spans_are_told_apart():
    assert Metrics() == Metrics()
    timeline = Timeline()
    for number in range(300):
        timeline.add(f"codec {number}", "compress", 1, 0.0, 1.0)
    assert len({span.lane for span in timeline}) == 300
