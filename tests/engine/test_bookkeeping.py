"""What the engine itself holds for each step of a reversal, beside snapshots: a few numbers, however it is run."""

import gc
import tracemalloc

import numpy as np
import pytest

import forebay as fb

COSTS = fb.Costs(1e-5, 1e-5, 1e9, disk=fb.Link(1e9, 1e9))
SNAPSHOT = 4096  # of so small a state, as a plan counts it
FEW, MORE = 300, 1500

ONE_TIER = {"budget": fb.Budget(host=20 * SNAPSHOT), "schedule": "revolve:20"}
TWO_TIERS = {"budget": fb.Budget(host=4 * SNAPSHOT, disk="1MB"), "schedule": "revolve:20"}
ENCODED = {"budget": fb.Budget(host="90kB"), "schedule": "revolve:20", "codec": "lossless"}
WAYS = {
    "one tier": (ONE_TIER, 75),
    "two tiers": (TWO_TIERS, 110),
    "codec": (ENCODED, 75),
    "unknown end": (ONE_TIER | {"schedule": "online:20", "steps": None}, 75),
}


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


@pytest.mark.parametrize("way", WAYS)
def test_a_step_takes_a_few_numbers(way, tmp_path):
    options, most = WAYS[way]
    tracemalloc.start()
    try:
        _, few, more = (most_held(end, directory=tmp_path, **options) for end in (FEW, FEW, MORE))
    finally:
        tracemalloc.stop()
    assert (more - few) / (MORE - FEW) < most
