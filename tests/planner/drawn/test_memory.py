"""Snapshots over time: as many as the plan says, and never more than the run allocated."""

import numpy as np
import pytest

import forebay as fb
from forebay.metrics import Span
from forebay.planner.drawn.memory import occupancy
from forebay.schedule import Drop, Save


class Kept(list):
    """Operations of a plan for one tier."""

    tiers = ("host",)


def test_a_slot_counts_from_the_start_of_a_save_to_the_end_of_what_comes_before_it_is_given_up():
    spans = [Span("compute", "save", 0, 1.0, 3.0)]
    assert occupancy(Kept([Save(0), Drop(0)]), spans) == {"host": [(0.0, 0), (1.0, 1), (3.0, 0)]}


COSTS = fb.Costs(forward=1e-3, backward=1e-3, copy=1e9, disk=fb.Link(up=1e8, down=1e8))


@pytest.mark.parametrize("schedule", ["auto", "revolve", "storeall", "twolevel", "uniform:5"])
@pytest.mark.parametrize("disk", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_a_predicted_curve_peaks_where_the_plan_does_and_ends_empty(schedule, disk):
    budget = fb.Budget(host=4 * 8192, disk=disk * 8192)
    try:
        plan = fb.plan(100, 8192, budget, costs=COSTS, schedule=schedule)
    except fb.BudgetError:
        pytest.skip("too small for this schedule")
    curves = occupancy(plan, plan.timeline())
    assert list(curves) == list(plan.tiers)
    for curve, peak, slots in zip(curves.values(), plan.prediction.peak, plan.slots, strict=True):
        counts, times = [count for _, count in curve], [when for when, _ in curve]
        assert min(counts) == 0 == counts[-1]
        assert peak - 1 <= max(counts) <= min(peak + 1, slots)  # a slot that changes hands at one moment counts once
        assert times == sorted(times)


def test_a_measured_curve_stays_within_what_was_allocated(tmp_path):
    def run(state, start, stop):
        return (state[0] + (stop - start),)

    result = fb.reverse(
        run,
        lambda state, step: None,
        (np.zeros(1024),),
        60,
        budget=fb.Budget(host="33kB", disk="200kB"),
        costs=COSTS,
        directory=tmp_path,
    )
    curves = occupancy(result.plan, result.metrics.timeline)
    for tier, curve in curves.items():
        most = max(count for _, count in curve)
        assert 0 < most * 8192 <= result.metrics.peak[tier]
        assert curve[-1][1] == 0 and curve[-1][0] <= result.metrics.seconds
