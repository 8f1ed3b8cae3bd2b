"""What the engine itself holds for each step of a reversal, beside snapshots: a few numbers, however it is run."""

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np

import forebay as fb

COSTS = fb.Costs(1e-5, 1e-5, 1e9, disk=fb.Link(1e9, 1e9))
SNAPSHOT = 4096  # of so small a state, as a plan counts it
FEW, MORE = 300, 1100

ONE_TIER = {"budget": fb.Budget(host=20 * SNAPSHOT), "schedule": "revolve:20"}
TWO_TIERS = {"budget": fb.Budget(host=4 * SNAPSHOT, disk="1MB"), "schedule": "revolve:20"}
ENCODED = {"budget": fb.Budget(host="90kB"), "schedule": "revolve:20", "codec": "lossless"}
WAYS = {
    "one tier": ONE_TIER,
    "two tiers": TWO_TIERS,
    "codec": ENCODED,
    "unknown end": ONE_TIER | {"schedule": "online:20", "steps": None},
}
A_FEW_NUMBERS = 16 * 8  # bytes: far from the kilobyte of a few objects, and above where containers double


def most_held(end, budget, steps=0, **options):
    """Return the bytes that Python holds early and late in the way back through a loop whose steps do nothing."""
    held = []

    def forward(state, start, stop):
        return fb.Ended(state, end) if steps is None and stop >= end else state

    def backward(state, step):
        if step in (1, end * 9 // 10):
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])

    state = (np.zeros(16),)
    fb.reverse(forward, backward, state, end if steps == 0 else None, budget=budget, costs=COSTS, **options)
    return max(held)


def bytes_a_step(options, directory):
    most_held(FEW, directory=directory, **options)  # what a process keeps from then on is no step's
    tracemalloc.start()
    few, more = (most_held(end, directory=directory, **options) for end in (FEW, MORE))
    tracemalloc.stop()
    return (more - few) / (MORE - FEW)


def test_a_step_takes_a_few_numbers(tmp_path):
    command = [sys.executable, "-m", "tests.engine.test_bookkeeping", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    counted = json.loads(run.stdout)
    assert {way: count for way, count in counted.items() if count > A_FEW_NUMBERS} == {}
    assert counted.keys() == WAYS.keys()


if __name__ == "__main__":  # in a process of its own, where no thread or cache of another test is counted
    folder = Path(sys.argv[1])
    print(json.dumps({way: bytes_a_step(options, folder) for way, options in WAYS.items()}))
