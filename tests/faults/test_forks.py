"""Children that are forked in the middle of a reversal: they leave at once and cleanly, and the parent goes on."""

import subprocess
import sys
from time import perf_counter

import pytest
from tests.faults import figures

SCRIPT = """
import os, signal, sys
import numpy as np
import forebay as fb

STEPS, HUNG = 40, 20
directory = sys.argv[1]
COSTS = fb.Costs(1e-3, 1e-3, 1e9, disk=fb.Link(1e9, 1e9), codecs={"lossless": fb.CodecCost(1.5, 1e9, 1e9)})
EXPECTED = {"exits": 3, "raises": 1, "goes on": 1, "forgets": 0}


def child_of(how, act):
    child = os.fork()
    if child:
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != EXPECTED[how]:
            print(f"forked {moment}, a child that {how} ended with {ended}")
        return
    signal.alarm(HUNG)
    sys.stderr = open(os.devnull, "w")
    if how == "exits":
        sys.exit(3)
    if how == "raises":
        raise ZeroDivisionError
    act()


def run(moment, how, codec):
    def forward(state, start, stop):
        if moment == "in forward" and start == 30 and not seen:
            child_of(how, lambda: None)
        return (state[0] + (stop - start),)

    def backward(state, step):
        if moment == "in backward" and step == 20:
            child_of(how, lambda: None)
        seen.append(float(state[0][0]))

    def forget():
        nonlocal reversal
        del reversal
        sys.exit(0)

    seen, budget = [], fb.Budget(host=8 * 80_000, disk="8MB")
    reversal = fb.prepare(forward, (np.zeros(10_000),), STEPS, budget=budget, schedule="storeall", costs=COSTS,
                          codec=codec, directory=directory)
    with reversal:
        reversal.forward()
        if moment == "at the turn":
            child_of(how, forget)
        reversal.backward(backward)
    assert seen == [float(step) for step in reversed(range(STEPS))], seen
    assert os.listdir(directory) == []


for moment, how, codec in [
    ("in forward", "exits", None),
    ("in forward", "goes on", None),
    ("in forward", "exits", "lossless"),
    ("in forward", "goes on", "lossless"),
    ("in backward", "exits", None),
    ("in backward", "raises", None),
    ("in backward", "goes on", None),
    ("in backward", "goes on", "lossless"),
    ("at the turn", "exits", None),
    ("at the turn", "raises", None),
    ("at the turn", "forgets", None),
] * int(sys.argv[2]):
    run(moment, how, codec)
"""


def forked(directory, rounds):
    """Fork children in all ways, so many times."""
    command = [sys.executable, "-c", SCRIPT, str(directory), str(rounds)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0 and not ended.stdout, ended.stdout + ended.stderr


def test_forked_children_leave_cleanly_and_their_parent_goes_on(tmp_path):
    forked(tmp_path, 1)


@pytest.mark.slow
def test_many_forked_children_leave_cleanly(tmp_path):
    begun = perf_counter()
    forked(tmp_path, 20)
    figures.record("faults", "children forked in reversals", {"forks": 20 * 11, "wrong": 0}, perf_counter() - begun)
