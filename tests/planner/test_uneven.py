"""Plans for steps of unequal cost."""

import numpy as np
import pytest
from tests.schedule.test_weighted import seconds_of, uneven

import forebay as fb
from forebay.errors import PlanError, ScheduleError
from forebay.planner import Plan
from forebay.planner.settings import Problem


def planned(costs, **options):
    return fb.plan(len(costs), "1GB", options.pop("budget", "6GB"), step_costs=costs, **options)


def test_a_plan_repeats_cheap_steps_and_tells_what_that_takes():
    costs = uneven("spikes", 200)
    plan = planned(costs)
    assert str(plan.schedule) == "weighted:6"
    assert plan.prediction.forward == pytest.approx(
        seconds_of(plan.schedule, costs) / sum(costs) * 200 * plan.costs.forward
    )
    assert plan.seconds < 0.9 * planned(costs, schedule="revolve:6").seconds
    assert Plan.from_json(plan.to_json()) == plan


def test_more_budget_never_predicts_more_time():
    costs = uneven("lognormal", 120)
    budgets = [{"device": f"{device}GB", "host": f"{host}GB"} for device, host in ((2, 4), (3, 4), (3, 9), (12, 9))]
    seconds = [planned(costs, budget=fb.Budget(**budget), reversals=100).seconds for budget in budgets]
    assert seconds == sorted(seconds, reverse=True)


def test_costs_of_the_steps_between_two_backward_computations_add_up():
    costs = uneven("spikes", 101)
    plan = planned(costs, every=4, budget="4GB")
    sums = [sum(costs[first : first + 4]) for first in range(0, 101, 4)]
    assert plan.schedule.costs == pytest.approx(sums)
    assert Plan.from_json(plan.to_json()) == plan


def test_equal_steps_are_planned_as_ever():
    assert planned([3.0] * 100) == fb.plan(100, "1GB", "6GB")


@pytest.mark.parametrize(
    "costs",
    [
        [1.0] * 99,
        [1.0] * 99 + [-1.0],
        [1.0] * 99 + [float("inf")],
        [1.0] * 99 + [1e308],
        [1.0] * 99 + [None],
        [0.0] * 100,
        [[1.0]] * 100,
        "1" * 100,
        3.0,
        dict.fromkeys(range(100), 1.0),
        (1.0 for _ in range(100)),
    ],
)
def test_costs_that_do_not_suit_the_loop_are_refused(costs):
    with pytest.raises(PlanError, match="step"):
        fb.plan(100, "1GB", "6GB", step_costs=costs)


def test_a_schedule_for_unequal_steps_asks_for_them():
    with pytest.raises(ScheduleError, match="step_costs="):
        fb.plan(100, "1GB", "6GB", schedule="weighted:5")


def test_a_reversal_over_unequal_steps_is_bit_equal():
    start = np.linspace(0, 1, 5)

    def forward(state, start, stop):
        for step in range(start, stop):
            state = (np.sin(state[0] + step),)
        return state

    def run(**options):
        states = []
        result = fb.reverse(forward, lambda state, step: states.append(state[0].copy()), (start,), 60, **options)
        return np.array(states), result

    everything, _ = run(schedule="storeall", budget="1MB")
    costs = fb.Costs(1e-3, 1e-3, 1e9)
    states, result = run(budget="20kB", step_costs=uneven("spikes", 60), costs=costs)
    assert np.array_equal(states, everything)
    assert str(result.plan.schedule).startswith("weighted:")


def test_the_seconds_up_to_a_step_begin_with_none():
    costs = fb.Costs(2.0, 1.0, 1.0, steps=(1.0, 3.0, 0.0, 4.0))
    problem = Problem(4, 2, 10, None, fb.Budget(1000), costs, "min", None, 1)
    assert problem.reach() == (0.0, 4.0, 8.0)
    assert Problem(4, 2, 10, None, fb.Budget(1000), fb.Costs(2.0, 1.0, 1.0), "min", None, 1).reach() == ()
