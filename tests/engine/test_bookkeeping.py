"""What the engine itself holds for each step of a reversal, beside snapshots: a few numbers, however it is run."""

import gc
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

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
PLANS = {"plan of two tiers": None, "plan of three tiers": "1GB"}
"""And the disk of each."""
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


def most_for_a_plan(steps, disk):
    """Return the most bytes that Python holds while a plan is found, half of whose steps move a snapshot."""
    budget = fb.Budget(device=10 * SNAPSHOT, host="1GB" if disk is None else 20 * SNAPSHOT, disk=disk)
    tracemalloc.start()
    fb.plan(steps, SNAPSHOT, budget, schedule=f"revolve:{min(50, steps)}")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def bytes_a_planned_step(disk):
    most_for_a_plan(FEW, disk)
    few, more = (most_for_a_plan(end, disk) for end in (FEW, MORE))
    return (more - few) / (MORE - FEW)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Count in a process of its own, where no thread, cache or collector of another test has a part in it."""
    command = [sys.executable, "-m", "tests.engine.test_bookkeeping", str(tmp_path_factory.mktemp("spills"))]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("way", [*WAYS, *PLANS])
def test_a_step_takes_a_few_numbers(counted, way):
    assert counted[way] < A_FEW_NUMBERS


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = {way: bytes_a_planned_step(disk) for way, disk in PLANS.items()}
    print(json.dumps(found | {way: bytes_a_step(options, folder) for way, options in WAYS.items()}))
