"""The memory that a plan takes for a moment, to find its movements before a reversal takes its own."""

import tracemalloc

import pytest

import forebay as fb


def peak(steps):
    """Return the most bytes while the first operation of a plan on two tiers is made."""
    plan = fb.plan(
        steps, "1GB", fb.Budget(device="8GB", host="64GB"), machine="h200", schedule=f"twolevel:{steps // 20},15"
    )
    tracemalloc.start()
    next(iter(plan))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


@pytest.mark.slow
def test_movements_are_found_in_little_room_for_each_step():
    assert peak(16_000) - peak(4_000) <= 110 * 12_000
