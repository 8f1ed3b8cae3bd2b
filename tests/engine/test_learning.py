"""Steps whose costs are found out in the first sweep: bit-equal to keeping everything, whatever they turn out to be."""

import numpy as np
import pytest

import forebay as fb
from forebay.machine.host import HostReversal
from forebay.schedule import Forward, Save, Weighted, check
from tests.engine.loops import COSTS, LOOP, SNAPSHOT, Loop, assert_within, budget_of


class ClockedLoop(Loop):
    """One whose steps take what they are said to, on a clock of its own."""

    def __init__(self, costs, monkeypatch):
        super().__init__()
        self.costs, self.now, self.asked = costs, 0.0, []
        monkeypatch.setattr(HostReversal, "moment", lambda machine: self.now)

    def forward(self, state, start, stop, replay):
        self.asked.append((start, stop))
        self.now += sum(self.costs[start:stop])
        return super().forward(state, start, stop, replay)

    def wait(self, seconds):
        self.now += seconds
        return self.now

    def run(self, budget, **more):
        options = {"costs": COSTS, "turn": self.turn, "step_costs": "learn"} | more
        return fb.reverse(self.forward, self.backward, self.state, len(self.costs), budget=budget, **options)


def uneven(steps, seed):
    draw = np.random.default_rng(seed)
    kinds = [draw.lognormal(size=steps), np.where(draw.random(steps) < 0.1, 20.0, 1.0), np.linspace(9, 1, steps)]
    return [float(cost) * 1e-2 for cost in kinds[seed % 3]]


@pytest.mark.parametrize("slots", [(1,), (3,), (40,), (2, 3), (1, 1)], ids=str)
def test_whatever_steps_cost_bits_are_those_of_keeping_everything(slots, tmp_path, monkeypatch):
    budget = budget_of(slots)
    for seed, steps in enumerate((1, 2, 3, 7, 24, 40)):
        loop = ClockedLoop(uneven(steps, seed), monkeypatch)
        schedule = f"weighted:{sum(slots)}" if seed % 2 else "auto"
        result = loop.run(budget, schedule=schedule, directory=tmp_path)
        assert (loop.seen, loop.turned) == (LOOP.expect(steps)[0], [LOOP.expect(steps)[1]])
        assert loop.first_times == list(range(steps)) and check(result.plan.schedule)
        assert result.costs.steps == pytest.approx(loop.costs)
        assert_within(slots, result)
        again = Loop()
        plan = fb.Plan.from_json(result.plan.to_json())
        fb.reverse(again.forward, again.backward, again.state, steps, plan=plan, directory=tmp_path)
        assert plan == result.plan and again.seen == loop.seen
    assert not list(tmp_path.iterdir())


def test_the_next_reversal_is_near_the_least_time(monkeypatch):
    loop = ClockedLoop(uneven(150, 1), monkeypatch)
    first = loop.run(6 * SNAPSHOT)
    assert first.plan.schedule.name == "learned:6"
    least = Weighted(150, 6, loop.costs).forward_seconds
    asked = sum(sum(loop.costs[start:stop]) for start, stop in loop.asked)
    assert asked == pytest.approx(first.plan.prediction.forward) and asked <= 1.03 * least
    loop.asked.clear()
    second = loop.run(6 * SNAPSHOT, costs=first.costs, step_costs=None)
    assert loop.seen == 2 * LOOP.expect(150)[0]
    assert sum(sum(loop.costs[start:stop]) for start, stop in loop.asked) <= 1.03 * least
    assert second.plan.costs.steps == first.costs.steps


def test_deciding_takes_a_small_part_of_the_sweep(monkeypatch):
    loop = ClockedLoop([0.01] * 40, monkeypatch)

    def saves_of_the_sweep():
        actions = list(loop.run(40 * SNAPSHOT).plan.schedule)
        return sum(isinstance(action, Save) for action in actions[: actions.index(Forward(39, 40))])

    assert saves_of_the_sweep() == 40
    monkeypatch.setattr(HostReversal, "moment", lambda machine: loop.wait(0.002))  # so long it takes to decide
    assert saves_of_the_sweep() <= 4
    assert loop.seen == 2 * LOOP.expect(40)[0]


@pytest.mark.parametrize("steps", [3, 12, 13, 42])
def test_coarse_and_short_steps_are_timed_together(steps, monkeypatch):
    loop = ClockedLoop(uneven(steps, 2), monkeypatch)
    result = loop.run(3 * SNAPSHOT, every=4, costs=fb.Costs(0.1e-3, 1e-3, 1e9), record=("u",))
    assert loop.seen == LOOP.expect(steps, every=4, keys=("u",))[0]
    first = next(action for action in result.plan.schedule if isinstance(action, Forward))
    assert first == Forward(0, min(3, -(-steps // 4)))  # 12 steps of 0.1 ms
    assert sum(result.costs.steps) == pytest.approx(sum(loop.costs)) and len(result.costs.steps) == steps


def test_adjoints_may_follow_each_other_and_costs_may_be_timed():
    loop = Loop()
    with fb.prepare(loop.forward, loop.state, 60, budget=5 * SNAPSHOT, step_costs="learn") as reversal:
        reversal.forward()
        reversal.backward(loop.backward, retain=True)
        reversal.backward(loop.backward)
    assert loop.seen == 2 * LOOP.expect(60)[0]


def test_what_needs_the_costs_before_is_refused_in_words(monkeypatch):
    loop = ClockedLoop([1.0] * 9, monkeypatch)
    for name, value in (
        ("plan", fb.plan(9, 100, "9kB")),
        ("codec", "cast:float16"),
        ("policy", "lru"),
        ("resume", "nowhere"),
    ):
        with pytest.raises(fb.PlanError, match=f"{name}= needs what steps cost"):
            loop.run("1MB", **{name: value})
    with pytest.raises(fb.PlanError, match="with step_costs='learn' it is 'auto', or 'weighted:20'"):
        loop.run("1MB", schedule="revolve:3")
    with pytest.raises(fb.PlanError, match="or 'learn'"):
        loop.run("1MB", step_costs="lern")
    with pytest.raises(fb.PlanError, match="can learn them"):
        fb.plan(9, 100, "1MB", step_costs="learn")
    with pytest.raises(fb.BudgetError, match="one snapshot: host has"):
        loop.run(SNAPSHOT - 1)
    assert not loop.asked
