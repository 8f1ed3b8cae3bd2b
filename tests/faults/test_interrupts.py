"""Ctrl-C at any moment of a reversal: its file is gone when the exception is seen, not when garbage is collected."""

from time import perf_counter

import pytest
from tests.faults import figures
from tests.spills import number_told

SCRIPT = """
import faulthandler, gc, random, signal, sys, time, traceback
import numpy as np
import forebay as fb
from tests.spills import spills

directory, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
choose = random.Random(seed)
COSTS = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9))


def run():
    fb.reverse(lambda state, start, stop: (state[0] + (stop - start),), lambda state, step: None, (np.zeros(10_000),),
               60, budget=fb.Budget(host=4 * 82_000, disk="8MB"), schedule="storeall", costs=COSTS, directory=directory)


def interrupt(number, frame):
    raise KeyboardInterrupt


run()  # what is loaded on first use is there
start = time.perf_counter()
run()
duration = time.perf_counter() - start
gc.disable()
signal.signal(signal.SIGALRM, interrupt)
interrupted, runs, kept = 0, 0, []
while interrupted < count:
    runs += 1
    faulthandler.dump_traceback_later(60, exit=True)  # says where it hangs
    start = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, choose.uniform(0.0005, 1.3 * duration))
        run()
        signal.setitimer(signal.ITIMER_REAL, 0)
        duration = 0.7 * duration + 0.3 * (time.perf_counter() - start)  # as the load is now
    except KeyboardInterrupt as error:
        kept.append(error)  # with all the frames that it passed
        interrupted += 1
    for _ in range(2000):  # a thread that was opening it closes it when the disk has answered
        if not spills(directory):
            break
        time.sleep(0.01)
    if spills(directory):
        print("left", "".join(traceback.format_exception(kept[-1])) if kept else "without an exception")
        break
    kept.clear()
print(runs)
"""


def test_ctrl_c_leaves_no_file_even_before_garbage_is_collected(tmp_path):
    assert number_told(SCRIPT, tmp_path, 1, 10) >= 10


@pytest.mark.slow
def test_ctrl_c_at_many_moments_leaves_no_file(tmp_path):
    begun = perf_counter()
    counted = {"interrupted": 1000, "reversals": number_told(SCRIPT, tmp_path, 2, 1000), "wrong": 0}
    figures.record("faults", "Ctrl-C by timer", counted, perf_counter() - begun)
