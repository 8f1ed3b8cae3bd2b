"""First sweeps that find out what steps cost: never too many snapshots, and near the least time at the turn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer
from tests.schedule.test_weighted import seconds_of, uneven

from forebay.schedule import Foreign, Forward, Save, Weighted, check
from forebay.schedule.learning import LearningSweep
from forebay.schedule.online import back
from forebay.schedule.weighted import WeightedSplits


def learned(costs, snapshots, lap=1):
    """Return what a reversal does whose first sweep is told what each lap has cost when it has run it."""
    steps, sweep = len(costs), LearningSweep(len(costs), snapshots, lap)
    actions = [Save(0)]
    for start in range(0, steps, lap):
        stop = min(start + lap, steps)
        actions += [Forward(start, stop), *sweep.learn(sum(costs[start:stop]))]
    actions += back(sweep.kept, steps, snapshots, splits=WeightedSplits(costs, snapshots).split)
    return Foreign(steps, tuple(actions))


@fewer(30)
@given(st.lists(st.one_of(st.just(1e-9), st.floats(0.01, 100)), min_size=1, max_size=60), st.data())
def test_any_costs_make_a_reversal_within_the_snapshots(costs, data):
    snapshots = data.draw(st.integers(1, 1 + len(costs)))
    schedule = check(learned(costs, snapshots, data.draw(st.integers(1, 7))))
    assert schedule.peak_snapshots <= snapshots


@pytest.mark.parametrize("snapshots", [3, 8, 30, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["ramp", "lognormal", "spikes", "second half", "falling", "first half", "equal"])
def test_a_sweep_that_learns_is_near_the_least_time(kind, snapshots):
    mirrored = {"falling": "ramp", "first half": "second half"}
    costs = np.ones(160) if kind == "equal" else uneven(mirrored.get(kind, kind), 160)
    costs = list(costs[::-1] if kind in mirrored else costs)
    taken, least = seconds_of(learned(costs, snapshots), costs), Weighted(160, snapshots, costs).forward_seconds
    assert least * (1 - 1e-5) <= taken <= 1.03 * least


@pytest.mark.slow
def test_many_slots_are_used_and_one_is_enough():
    costs = list(uneven("spikes", 160))
    assert seconds_of(learned(costs, 100), costs) < 1.03 * Weighted(160, 100, costs).forward_seconds
    assert learned(costs, 1).saves == 1
    assert learned(costs, 160).forward_steps == learned(costs, 999).forward_steps == 160


@pytest.mark.slow
@pytest.mark.parametrize("steps", [100, 160, 240, 400])
@pytest.mark.parametrize("kind", ["ramp", "lognormal", "spikes", "second half", "falling", "first half", "equal"])
def test_however_many_slots_there_are_it_is_near_the_least_time(kind, steps):
    mirrored = {"falling": "ramp", "first half": "second half"}
    costs = np.ones(steps) if kind == "equal" else uneven(mirrored.get(kind, kind), steps)
    costs = list(costs[::-1] if kind in mirrored else costs)
    for snapshots in (2, 3, 4, 5, 6, 12, 16, 20, 40):
        least = Weighted(steps, snapshots, costs).forward_seconds
        # Which two or three states to keep hangs on dear steps ahead, which nobody can know of.
        assert seconds_of(learned(costs, snapshots), costs) <= (1.03 if snapshots > 3 else 1.055) * least, snapshots


def test_a_sweep_that_may_not_ask_learns_and_keeps_nothing():
    sweep = LearningSweep(40, 5)
    assert not any(sweep.learn(1.0, asks=step % 8 == 7) for step in range(7)) and sweep.kept == [0]
    assert sweep.learn(1.0) == [Save(8)] and sweep.kept == [0, 8]


@pytest.mark.parametrize(
    ("steps", "snapshots", "asks"),
    [(128, 5, True), (129, 5, False), (400, 24, True), (400, 23, False), (136, 16, True)],
)
def test_a_sweep_asks_everywhere_where_loops_are_short_or_slots_many(steps, snapshots, asks):
    assert bool(LearningSweep(steps, snapshots).learn(1.0)) == asks


@pytest.mark.parametrize(("before", "cost", "asks"), [([1.0], 2.0, False), ([1.0], 2.01, True), ([], 9.0, False)])
@pytest.mark.parametrize("long_ago", [[], [999.0] * 3])
def test_a_sweep_asks_behind_steps_twice_as_dear_as_the_latest(before, cost, asks, long_ago):
    sweep = LearningSweep(128 * 40, 5)
    for each in [*long_ago, *before * 19]:
        assert sweep.learn(each) == []
    assert bool(sweep.learn(cost)) == (asks and bool(before))


def test_a_sweep_with_one_slot_never_asks():
    sweep = LearningSweep(20, 1)
    assert not any(sweep.learn(cost) for cost in [1.0] * 9 + [99.0] * 11) and sweep.kept == [0]


def test_a_sweep_saves_at_few_of_many_steps():
    sweep = LearningSweep(2000, 5)
    saves = [action for _ in range(2000) for action in sweep.learn(1.0) if isinstance(action, Save)]
    assert len(sweep.kept) == 5 and len(saves) <= 100
