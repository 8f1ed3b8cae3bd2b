"""`auto` beside the best of a sweep of H-Revolve's dynamic programming, each schedule judged by the simulation."""

from random import Random

import numpy as np
import pytest

import forebay as fb
from forebay.planner.choose import operations_of
from forebay.planner.search.coarse import DEEPEST, Coarse
from forebay.planner.search.hierarchies import MOST_WORTH, estimate
from forebay.planner.search.levels import LevelBounds
from forebay.planner.simulate import Work, simulate
from forebay.schedule import Drop, Foreign, Forward, Hierarchical, Level, Restore, Save, binomial

STATE = 10**9
SHARES = (0.05, 0.15, 0.3, 0.5, 0.7, 1.0, 1.5)
"""Of a snapshot's way down and up again: the prices of the sweep."""


def table(visits, first, most, price):
    """Tabulate every length: the part before the best split, by saves left; 0 where a stretch is not split."""
    lengths = np.arange(visits + 1)
    plain = np.array([0.0] + [float(binomial.forward_steps(length, first)) for length in lengths[1:]])
    before, splits = plain, [np.zeros(visits + 1, int)]
    for _ in range(most):
        best, split = plain.copy(), np.zeros(visits + 1, int)
        for length in range(2, visits + 1):
            costs = lengths[1:length] + before[length - 1 : 0 : -1] + best[1:length]
            place = int(costs.argmin())
            if costs[place] + price < best[length] - 1e-9:
                best[length], split[length] = costs[place] + price, place + 1
        before = best
        splits.append(split)
    return splits


def actions(steps, first, saves, splits):
    """Yield the actions that such a table says."""

    def reverse(start, visits, saves):
        before = int(splits[saves][visits]) if saves is not None else 0
        if not before:
            yield from binomial.reverse(start, visits, first, steps)
            return
        yield Forward(start, start + before)
        if visits - before > 1:
            yield Save(start + before)
        yield from reverse(start + before, visits - before, saves - 1)
        yield Restore(start)
        if before == 1:
            yield Drop(start)
        yield from reverse(start, before, saves)

    yield Save(0)
    yield from reverse(0, steps + 1, saves)


@pytest.mark.parametrize(("first", "stalls"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_stalls_are_followed_as_deep_as_python_recurses(first, stalls):
    work = Work(1.0, 1.0, 0.1, 0.1, 0.0, (25.0,), (25.0,))
    bounds = LevelBounds(Hierarchical(700, (Level(first), Level(2, 3.0))), Coarse(work, 2))
    assert (bounds.stalled > 0) is stalls


def best_of_sweep(steps, slots, work):
    """Return the smallest simulated time over prices, snapshots of the first level, and saves."""
    seconds = []
    for first in sorted({max(1, slots[0] - 1), slots[0]}):
        most = min(steps, sum(slots) - first)
        for share in SHARES:
            splits = table(steps + 1, first, most, share * (work.up[0] + work.down[0]) / work.forward)
            for saves in sorted({most, max(1, most - 1), max(1, 4 * most // 5)}):
                schedule = Foreign(steps, tuple(actions(steps, first, saves, splits)))
                predicted = simulate(operations_of(schedule, slots, "min"), (slots[0], steps), work)
                if predicted.peak[1] <= slots[1]:
                    seconds.append(predicted.seconds)
    return min(seconds)


def compare(seed, most_steps):
    """Return the time of `auto` over that of the sweep, for a random problem of few slots of the first tier."""
    random = Random(seed)
    steps, device = round(10 ** random.uniform(1.3, np.log10(most_steps))), random.randint(1, 4)
    host, ratio = round(10 ** random.uniform(0.3, 1.5)), 10 ** random.uniform(-1, 1.5)
    copy = random.choice([0.01, 0.3, 0.7])
    link = fb.Link(STATE / ratio, STATE / ratio)
    costs = fb.Costs(forward=1.0, backward=1.0, copy=STATE / copy, host=link)
    plan = fb.plan(steps, STATE, fb.Budget(device * STATE, host * STATE), costs=costs)
    work = Work(1.0, 1.0, copy, copy, 0.0, (ratio,), (ratio,))
    return plan.seconds / best_of_sweep(steps, (device, host), work)


@pytest.mark.parametrize("seed", [25, 50, 53, 60, 74, 78])
def test_auto_keeps_up_with_a_sweep_of_dynamic_programming(seed):
    assert compare(seed, most_steps=80) <= 1.02


@pytest.mark.parametrize("seed", [32, 161])
def test_auto_keeps_up_where_splits_need_a_table(seed):
    assert compare(seed, most_steps=350) <= 1.02


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(500))
def test_auto_keeps_up_with_the_sweep_on_many_problems(seed):
    assert compare(seed, most_steps=350) <= 1.02


SALT = 310 * 676 * 676 * 8
"""Bytes of a state of the problem that the rows below are about, in 3751 steps."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "budget", "swept"),
    [
        ("h200", {"device": "3GB", "host": "16GB"}, 25.33),
        pytest.param("h200", {"device": "3GB", "host": "64GB"}, 24.2, marks=pytest.mark.slow),
        ("v100", {"device": "12GB", "host": "32GB"}, 81.9),
        ("laptop", {"host": "4GB", "disk": "40GB"}, 1629.0),
    ],
)
def test_auto_keeps_up_on_named_machines(machine, budget, swept):
    plan = fb.plan(3751, SALT, fb.Budget(**budget), machine=machine, reversals=100)
    assert plan.seconds <= 1.02 * swept


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3751, 100_000])
def test_more_budget_never_predicts_more_time_in_long_loops(steps):
    """One schedule after the other of the smaller budget is one of the larger's too."""
    costs = fb.Costs(1e-3, 1e-3, 2e12, host=fb.Link(SALT / 25e-3, SALT / 25e-3))
    for device, host in ((7, 53), (3, 14)):
        budgets = [fb.Budget(device=(device + more) * SALT, host=(host + 2 * more) * SALT) for more in range(3)]
        seconds = [fb.plan(steps, SALT, budget, costs=costs).seconds for budget in budgets]
        assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize(
    ("machine", "budget", "old"),
    [
        pytest.param("laptop", {"host": "12GB", "disk": "400GB"}, 44406, marks=pytest.mark.slow),
        ("h200", {"device": "120GB", "host": "400GB"}, 353),
    ],
)
def test_schedules_of_segments_are_no_better_in_long_loops(machine, budget, old):
    assert fb.plan(100_000, SALT, fb.Budget(**budget), machine=machine, reversals=168).seconds < old


def test_estimates_are_close_to_the_schedules():
    variants = [(first, price) for first in (1, 3) for price in (2.0, 13.0, 49.0)]
    estimated = estimate(1001, variants, np.ones((21, len(variants)), bool), 8, MOST_WORTH).forward_steps
    for saves in (5, 12, 20):
        for number, (first, price) in enumerate(variants):
            made = Hierarchical(1000, (Level(first), Level(saves, price))).forward_steps
            assert estimated[saves, number] == pytest.approx(made, rel=0.03)


@pytest.mark.parametrize(("first", "worth"), [(1, 3), (3, 4), (7, 2)])
def test_without_a_second_level_the_estimate_is_revolve(first, worth):
    visits = binomial.beta(first, worth)
    figures = estimate(visits, [(first, 2.0)], np.ones((1, 1), bool), 1, MOST_WORTH)
    known = [count(visits, first) for count in (binomial.forward_steps, binomial.saves, binomial.live)]
    assert [float(each[0, 0]) for each in figures] == [*known[:2], 0, known[2]]
