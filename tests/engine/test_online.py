"""Loops that say themselves when they are over: bit-equal to keeping everything, whatever the end and the slots."""

import numpy as np
import pytest

import forebay as fb
from forebay.engine.executor import Callbacks, Executor
from forebay.engine.layout import Layout
from forebay.errors import EngineError, StateError
from forebay.machine.virtual import VirtualReversal
from forebay.planner.residency import holdings, reside_online, ways_back
from forebay.schedule import Forward, Online
from forebay.schedule.online import retainable
from tests.engine.loops import COSTS, LOOP, SNAPSHOT, Loop, assert_within, budget_of


class EndingLoop(Loop):
    """One that ends after so many steps, which it says as soon as it has come there, or when asked for more."""

    def __init__(self, end, late):
        super().__init__()
        self.end, self.late, self.calls = end, late, 0

    def forward(self, state, start, stop, replay):
        assert start < stop
        self.calls += 1
        reached = min(self.end, stop)
        state = super().forward(state, start, reached, replay) if reached > start else state
        over = reached == self.end and (reached < stop if self.late else True)
        return fb.Ended(state, reached) if over else state


def run(end, budget, late=False, **more):
    loop = EndingLoop(end, late)
    options = {"costs": COSTS, "turn": loop.turn} | more
    result = fb.reverse(loop.forward, loop.backward, loop.state, None, budget=budget, **options)
    return loop, result


@pytest.mark.parametrize("late", [False, True], ids=["told", "asked"])
@pytest.mark.parametrize("slots", [(1,), (3,), (40,), (2, 3), (1, 1)], ids=str)
def test_every_end_gives_the_bits_of_keeping_everything(slots, late, tmp_path):
    budget = budget_of(slots)
    for end in (1, 2, 3, 6, 7, 23, 40):
        loop, result = run(end, budget, late, directory=tmp_path)
        assert (loop.seen, loop.turned) == (LOOP.expect(end)[0], [LOOP.expect(end)[1]])
        assert loop.first_times == list(range(end))
        assert result.plan.steps == end and result.plan.schedule == Online(end, sum(slots))
        assert_within(slots, result)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_forward_runs_the_steps_that_the_plan_says_and_is_asked_for_stretches():
    loop, result = run(3000, 5 * SNAPSHOT, record=("u",))
    steps = sum(span.what == "forward" for span in result.metrics.timeline)
    assert loop.seen == LOOP.expect(3000, keys=("u",))[0]
    assert steps == sum(isinstance(action, Forward) for action in result.plan.schedule)
    assert result.plan.schedule.forward_steps <= 1.15 * fb.Revolve(3000, 5).forward_steps
    assert result.plan.prediction.forward == pytest.approx(1e-3 * result.plan.schedule.forward_steps)


@pytest.mark.parametrize("end", [1, 3, 4, 12, 13])
def test_coarse_steps_may_end_in_a_shorter_one(end):
    loop, result = run(end, 3 * SNAPSHOT, every=4)
    assert loop.seen == LOOP.expect(end, every=4)[0]
    assert result.plan.every == min(4, end)


def test_its_plan_can_be_given_again_once_the_end_is_known(tmp_path):
    budget = fb.Budget(host=2 * SNAPSHOT, disk=4 * SNAPSHOT)
    _, result = run(50, budget, directory=tmp_path)
    plan = fb.Plan.from_json(result.plan.to_json())
    assert plan == result.plan and "online:6" in result.explain()
    loop = Loop()
    fb.reverse(loop.forward, loop.backward, loop.state, 50, plan=plan, directory=tmp_path)
    assert loop.seen == LOOP.expect(50)[0]


def test_costs_are_measured_on_steps_that_there_are():
    for end in (1, 2, 3):
        loop, result = run(end, "1MB", costs=None)
        assert loop.seen == LOOP.expect(end)[0] and result.plan.costs.measured


def test_time_steps_that_adapt_are_part_of_the_state():
    def forward(state, start, stop):
        x, t, dt = (array.copy() for array in state)
        for step in range(start, stop):
            if t >= 1:
                return fb.Ended((x, t, dt), step)
            dt[...] = min(0.1 / (1 + float(x @ x)), 1 - float(t))
            x += dt * np.sin(x)
            t += dt
        return x, t, dt

    exact, reversed_ = [], []
    state = first = (np.linspace(1, 2, 5), np.zeros(()), np.zeros(()))
    while not isinstance(state, fb.Ended):
        exact.append(b"".join(array.tobytes() for array in state))
        state = forward(state, len(exact) - 1, len(exact))
    exact.pop()
    fb.reverse(
        forward,
        lambda state, step: reversed_.append(b"".join(array.tobytes() for array in state)),
        first,
        None,
        budget="24kB",
    )
    assert len(exact) > 50 and reversed_ == exact[::-1]


def test_what_cannot_be_without_an_end_is_refused_in_words():
    for name, value in (("plan", fb.plan(5, 100, "9kB")), ("step_costs", [1.0]), ("policy", "lru")):
        with pytest.raises(fb.PlanError, match=f"{name}= needs the number of steps"):
            run(5, "1MB", **{name: value})
    with pytest.raises(fb.PlanError, match="resume= needs the number of steps"):
        run(5, "1MB", resume="nowhere", adjoint={})
    with pytest.raises(fb.PlanError, match="with steps=None it is 'auto', or 'online:20'"):
        run(5, "1MB", schedule="revolve:3")
    with pytest.raises(fb.PlanError, match="do not say what the link to the disk carries"):
        run(5, fb.Budget(host="1MB", disk="1MB"), costs=fb.Costs(1.0, 1.0, 1e9))
    with pytest.raises(fb.BudgetError, match="one snapshot: host has"):
        run(5, SNAPSHOT - 1)
    with pytest.raises(fb.BudgetError, match="holds 3 snapshots"):
        run(5, 3 * SNAPSHOT, schedule="online:4")
    with pytest.raises(fb.BudgetError, match="slots=4"):
        run(5, 3 * SNAPSHOT, slots=4)
    with pytest.raises(fb.ScheduleError, match="at least one step"):
        run(0, "1MB")
    reversal = fb.prepare(LOOP.forward, LOOP.state, None, budget="1MB", costs=COSTS)
    with pytest.raises(EngineError, match="no plan before its turn"):
        reversal.plan.explain()


def test_a_schedule_by_name_keeps_fewer_snapshots(tmp_path):
    budget = fb.Budget(host=2 * SNAPSHOT, disk=9 * SNAPSHOT)
    for wanted, slots in ((1, (1,)), (2, (2,)), (5, (2, 3))):
        loop, result = run(30, budget, schedule=f"online:{wanted}", directory=tmp_path)
        assert result.plan.slots == slots and loop.seen == LOOP.expect(30)[0]


def test_an_end_that_moves_is_refused():
    ended = []

    def forward(state, start, stop):
        if ended or stop >= 9:
            ended.append(start if ended else 9)
            return fb.Ended(state, ended[-1])
        return state

    with pytest.raises(StateError, match=r"ended at step -1, but was asked"):
        fb.reverse(lambda *_: fb.Ended(LOOP.state, -1), LOOP.backward, LOOP.state, None, budget="1MB", costs=COSTS)
    with pytest.raises(StateError, match="depend on its state alone"):
        fb.reverse(forward, LOOP.backward, LOOP.state, None, budget=SNAPSHOT, costs=COSTS)


STEPS = 24
EXPECTED, _ = LOOP.expect(STEPS)


def virtual(slots, seed, without=None, sweeps=1):
    """Run it on the virtual machine, several times back where that is said."""
    loop, machine = Loop(), VirtualReversal(seed, without)
    layout = Layout.of(loop.state)
    callbacks = Callbacks(
        forward=lambda state, start, stop: loop.forward(state, start, stop, False),
        backward=loop.backward,
        snapshot=lambda state, step: state,
    )
    rooms = [count * layout.nbytes for count in slots]
    executor = Executor(machine, layout, ("first", "second", "third")[: len(slots)], rooms, callbacks)
    schedule = Online(STEPS, sum(slots))
    state = {key: array.copy() for key, array in loop.state.items()}
    if sweeps == 1:
        executor.run(reside_online(schedule, slots), state)
    else:
        operations = list(reside_online(schedule, slots))
        turned = 1 + next(n for n, each in enumerate(operations) if isinstance(each, Forward) and each.stop == STEPS)
        executor.run(operations[:turned], state)
        held, _ = holdings(operations[:turned], [()] * len(slots))
        for left in reversed(range(sweeps)):
            choices = retainable(sorted(set().union(*held)), STEPS, sum(slots)) if left else [[]]
            operations = next(ways_back(held, STEPS, slots, choices))
            executor.run(operations, None)
            held, _ = holdings(operations, held)
    machine.finish()
    assert not any(executor.held)
    return loop.seen


SLOTS = [(3, 4), (1, 6), (2, 1, 5), (2, 3, 2)]


@pytest.mark.parametrize("slots", SLOTS, ids=str)
def test_lanes_may_run_in_any_order(slots):
    for seed in range(8):
        assert virtual(slots, seed) == EXPECTED
        assert virtual(slots, seed, sweeps=3) == 3 * EXPECTED


def test_stores_that_nobody_waits_for_go_wrong():
    def goes_wrong(slots, seed):
        try:
            return virtual(slots, seed, "save: its slot is free") != EXPECTED
        except EngineError:
            return False

    assert any(goes_wrong(slots, seed) for slots in SLOTS for seed in range(10))
