"""What goes wrong in the thread of a lane is raised by whoever waits for it, and by the end of all."""

import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path

import numpy as np
import pytest

from forebay.machine.host import HostReversal
from forebay.machine.machine import Wait
from forebay.machine.region import Region
from forebay.machine.threads import UNDER_WAY, LaneThreads

PAIR = [(Region(0, 8, np.zeros(8, np.uint8)), Region(0, 8, np.ones(8, np.uint8)))]


class FakeDisk:
    """Remembers what is asked of it, and ends transfers when it is told to."""

    def __init__(self):
        self.asked, self.transfers, self.dropped = [], [], []
        self.fails = None

    def write(self, step, data):
        if self.fails:
            raise self.fails
        self.asked.append((step, data))
        self.transfers.append(Future())
        return self.transfers[-1]

    read = write

    def drop(self, step):
        self.dropped.append(step)

    def close(self):
        for transfer in self.transfers:
            if not transfer.done():
                transfer.set_exception(CancelledError())


@pytest.fixture
def lanes():
    told = []
    threads = LaneThreads(tell=lambda *about: told.append(about))
    threads.disk, threads.told = FakeDisk(), told
    yield threads
    threads.close()


def nothing():
    pass


def refuse():
    raise ZeroDivisionError("refused")


def settled(lanes, lane="down 1"):
    """Wait until a lane has done what it was given."""
    lanes.submit(lane, nothing).result()


def test_a_transfer_that_ends_well_is_told(lanes):
    down = lanes.transfer("down 1", "store", 3, PAIR, nothing)
    up = lanes.transfer("up 1", "fetch", 4, PAIR, nothing)
    settled(lanes)
    settled(lanes, "up 1")
    assert not down.done() and not lanes.told
    assert {(step, data.sum()) for step, data in lanes.disk.asked} == {(3, 8), (4, 0)}
    for transfer in lanes.disk.transfers:
        transfer.set_result(None)
    down.result(), up.result()
    assert sorted(about[:3] for about in lanes.told) == [("down 1", "store", 3), ("up 1", "fetch", 4)]
    lanes.finish()


@pytest.mark.parametrize("where", ["wait", "move", "transfer"])
def test_what_goes_wrong_with_a_transfer_is_raised_by_its_end_and_by_the_end_of_all(lanes, where):
    lanes.disk.fails = ZeroDivisionError("refused") if where == "move" else None
    end = lanes.transfer("down 1", "store", 3, PAIR, refuse if where == "wait" else nothing)
    settled(lanes)
    assert len(lanes.disk.asked) == (where == "transfer")
    if where == "transfer":
        lanes.disk.transfers[0].set_exception(ZeroDivisionError("refused"))
    for wait in (lambda: end.result(), lambda: lanes.finish()):
        with pytest.raises(ZeroDivisionError, match="refused"):
            wait()
    assert not lanes.told


def test_what_a_lane_was_given_to_do_is_raised_at_the_end(lanes):
    lanes.submit("codec", refuse)
    with pytest.raises(ZeroDivisionError):
        lanes.finish()


def test_few_transfers_of_a_lane_are_under_way_at_once(lanes):
    ends = [lanes.transfer("down 1", "store", step, PAIR, nothing) for step in range(UNDER_WAY + 1)]
    while len(lanes.disk.asked) < UNDER_WAY:
        pass
    reached = threading.Event()
    lanes.submit("down 1", reached.set)
    assert not reached.wait(0.05) and len(lanes.disk.asked) == UNDER_WAY
    lanes.disk.transfers[0].set_result(None)
    assert reached.wait(60) and len(lanes.disk.asked) == UNDER_WAY + 1
    for transfer in lanes.disk.transfers[1:]:
        transfer.set_result(None)
    for end in ends:
        end.result()
    # Time on the lane begins where the transfer before it ended.
    starts = [start for *_, start in lanes.told]
    assert starts == sorted(starts) and starts[2] > starts[1] > starts[0]


def test_a_snapshot_is_dropped_after_it_was_read_and_kept_where_reading_failed(lanes):
    read, broken = Future(), Future()
    lanes.drop("down 1", 3, [read])
    lanes.drop("down 1", 4, [broken])
    assert not lanes.disk.dropped
    read.set_result(None)
    broken.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        lanes.finish()
    assert lanes.disk.dropped == [3]


def test_a_snapshot_that_nobody_reads_is_dropped_after_it_was_written(lanes):
    written = lanes.transfer("down 1", "store", 3, PAIR, nothing)
    settled(lanes)
    lanes.drop("down 1", 3, [])
    assert not lanes.disk.dropped
    lanes.disk.transfers[0].set_result(None)
    written.result()
    lanes.finish()
    assert lanes.disk.dropped == [3]


def test_nobody_waits_for_ever_for_a_lane_that_is_shut_down(lanes):
    held = threading.Event()
    lanes.submit("down 1", held.wait, 60)
    end = lanes.transfer("down 1", "store", 3, PAIR, nothing)
    closing = threading.Thread(target=lanes.close)
    closing.start()
    with pytest.raises(CancelledError):
        end.result()
    held.set()
    closing.join()


@pytest.mark.parametrize("late", [False, True])
def test_whoever_waits_for_an_event_that_failed_raises_what_went_wrong(late):
    machine, event = HostReversal(Path()), Future()
    waits = [Wait("restore: its snapshot has arrived", event)]
    for wait in (lambda: machine.wait(0, waits), lambda: machine.sync(waits)):
        if late and not event.done():
            threading.Timer(0.02, event.set_exception, [ZeroDivisionError("late")]).start()
        elif not event.done():
            event.set_exception(ZeroDivisionError("early"))
        with pytest.raises(ZeroDivisionError, match="late" if late else "early"):
            wait()
    assert machine.metrics.late == late
    machine.close()
