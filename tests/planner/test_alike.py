"""Schedules of several prices that do the same: one of them is looked at."""

import pytest

import forebay as fb
from forebay.planner import choose
from forebay.schedule import Hierarchical
from forebay.schedule.hierarchical import Level


@pytest.mark.parametrize("steps", [300, 20_000])
def test_schedules_that_are_the_same_have_the_same_actions(steps):
    made = [Hierarchical(steps, (Level(5), Level(12, price))) for price in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)]
    made.append(Hierarchical(steps, (Level(6), Level(12, 4.0))))
    actions = [list(schedule) for schedule in made]
    pairs = [(one, other) for one in range(len(made)) for other in range(one)]
    same = [made[one].same(made[other]) for one, other in pairs]
    assert all(actions[one] == actions[other] for (one, other), alike in zip(pairs, same, strict=True) if alike)
    assert (any(same) or steps == 300) and not all(same)  # tables of short loops may differ where nobody looks


def test_no_two_that_do_the_same_are_simulated(monkeypatch):
    looked, evaluate = [], choose.evaluate

    def watched(schedule, slots, setting):
        looked.append((schedule, setting))
        return evaluate(schedule, slots, setting)

    monkeypatch.setattr(choose, "evaluate", watched)
    costs = fb.Costs(2.8e-3, 5.9e-3, 3e14, fb.Link(9.3e10, 9.3e10, beside=1.1))
    fb.plan(20_000, 10**9, fb.Budget(device="12GB", host="26GB"), costs=costs)
    levels = [(schedule, setting) for schedule, setting in looked if isinstance(schedule, Hierarchical)]
    assert len(levels) > 1
    for number, (schedule, setting) in enumerate(levels):
        assert not any(setting == other and schedule.same(earlier) for earlier, other in levels[:number])
