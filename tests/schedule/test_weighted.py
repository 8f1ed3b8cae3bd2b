"""Steps of unequal cost: against the optimum of an independent table, and Revolve where costs are equal."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import fewer

from forebay.errors import ScheduleError
from forebay.schedule import Forward, Revolve, Weighted, binomial, check
from forebay.schedule.weighted import WeightedSplits


def least_seconds(costs, snapshots):
    """Find the least forward seconds of any reversal, stretch by stretch."""
    reach = [0.0, *np.cumsum(costs)]

    @cache
    def least(start, stop, count):
        if stop - start == 1:
            return 0.0
        if count == 1:
            return sum(reach[state] - reach[start] for state in range(start + 1, stop))
        return min(
            reach[middle] - reach[start] + least(middle, stop, count - 1) + least(start, middle, count)
            for middle in range(start + 1, stop)
        )

    return least(0, len(costs) + 1, snapshots)


def seconds_of(schedule, costs):
    return sum(sum(costs[action.start : action.stop]) for action in schedule if isinstance(action, Forward))


def uneven(kind, steps):
    draw = np.random.default_rng(steps)
    return {
        "ramp": np.linspace(1, 10, steps),
        "lognormal": draw.lognormal(size=steps),
        "spikes": np.where(draw.random(steps) < 0.1, 20.0, 1.0),
        "second half": np.where(np.arange(steps) < steps // 2, 1.0, 10.0),
    }[kind]


@fewer(40)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=24), st.data())
def test_short_loops_are_reversed_in_the_least_time(costs, data):
    snapshots = data.draw(st.integers(1, len(costs)))
    schedule = check(Weighted(len(costs), snapshots, costs))
    assert schedule.peak_snapshots <= snapshots
    assert seconds_of(schedule, costs) == pytest.approx(least_seconds(tuple(costs), snapshots), rel=1e-5)
    assert schedule.forward_seconds == pytest.approx(seconds_of(schedule, costs))


def test_one_table_does_for_a_short_loop(monkeypatch):
    made, table = [], WeightedSplits._table
    monkeypatch.setattr(WeightedSplits, "_table", lambda self, *where: made.append(where) or table(self, *where))
    check(Weighted(40, 4, uneven("lognormal", 40)))
    assert made == [(0, 41, 4)]


@pytest.mark.parametrize("kind", ["ramp", "lognormal", "spikes", "second half"])
@pytest.mark.parametrize("snapshots", [3, 12])
def test_grids_lose_at_most_three_percent(kind, snapshots, monkeypatch):
    costs = uneven(kind, 240)
    exact = Weighted(240, snapshots, costs).forward_seconds
    monkeypatch.setattr("forebay.schedule.weighted.LONGEST", 64)
    assert check(Weighted(240, snapshots, costs)).forward_seconds <= 1.03 * exact


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ramp", "lognormal", "spikes", "second half"])
@pytest.mark.parametrize(
    ("steps", "snapshots"), [(600, 3), (600, 12), (900, 2), (900, 5), (900, 20), (900, 60), (2000, 4)]
)
def test_long_loops_are_within_three_percent_of_the_least_time(kind, steps, snapshots, monkeypatch):
    costs = uneven(kind, steps)
    schedule = check(Weighted(steps, snapshots, costs))
    monkeypatch.setattr("forebay.schedule.weighted.LONGEST", steps + 1)
    monkeypatch.setattr("forebay.schedule.weighted.ADDITIONS", 1e12)
    assert schedule.forward_seconds <= 1.03 * Weighted(steps, snapshots, costs).forward_seconds


@pytest.mark.parametrize(("steps", "snapshots"), [(1, 1), (7, 7), (100, 3), (3000, 12)])
def test_equal_steps_are_left_to_revolve(steps, snapshots):
    assert list(Weighted(steps, snapshots, [0.5] * steps)) == list(Revolve(steps, snapshots))


@pytest.mark.parametrize(("visits", "snapshots"), [(4, 2), (7, 2), (9, 4), (13, 3)])
def test_a_stretch_of_equal_steps_is_split_as_revolve_splits_it_whatever_lies_around(visits, snapshots):
    costs = [5.0, *[1.0] * (visits - 1), 5.0, 5.0]
    assert WeightedSplits(costs, snapshots).split(1, visits, snapshots) == binomial.split(visits, snapshots)


def test_dear_steps_are_repeated_less_than_revolve_repeats_them():
    costs = uneven("spikes", 300)
    assert Weighted(300, 8, costs).forward_seconds < 0.8 * seconds_of(Revolve(300, 8), costs)


@pytest.mark.parametrize(("dear", "near", "behind"), [(0, 3, 1), (8, 7, 9), (4, 5, 5), (9, 6, 6), (2, 6, 6)])
def test_of_the_states_near_a_state_the_one_behind_the_dearest_step_is_taken(dear, near, behind):
    costs = [9.0 if step == dear else 1.0 for step in range(10)]
    assert WeightedSplits(costs, 2)._behind_dear(near, 2) == behind


@pytest.mark.parametrize("costs", [[1.0] * 9, [1.0] * 9 + [-1.0], [1.0] * 9 + [float("nan")], [0.0] * 10])
def test_costs_that_say_nothing_are_refused(costs):
    with pytest.raises(ScheduleError, match="cost"):
        Weighted(10, 3, costs)
