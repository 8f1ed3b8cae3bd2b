"""What takes time beside steps and copies: each effect on a timeline small enough to be computed by hand."""

import json
from dataclasses import replace
from random import Random

import pytest

import forebay as fb
from forebay.planner.choose import Setting, operations_of, predict
from forebay.planner.costs import HostCost
from forebay.planner.operations import Compute, Evict, Fetch, Store
from forebay.planner.search.bounds import least_seconds
from forebay.planner.search.coarse import Coarse
from forebay.planner.simulate import Work, host_pace, simulate
from forebay.schedule import Backward, Drop, Forward, Restore, Save, TwoLevel

WORK = Work(forward=10, backward=1, save=0, restore=0, take=0, up=(10,), down=(10,))


def seconds(operations, **effects):
    predicted = simulate(operations, (3, 9), replace(WORK, **effects))
    parts = predicted.forward + predicted.backward + predicted.save + predicted.restore + predicted.stall
    assert predicted.seconds == pytest.approx(parts + predicted.host + predicted.slowed)
    return predicted.seconds


def both_ways(steps):
    """A fetch that starts as a store does, after so many steps in which the first snapshot went down."""
    begin = [Save(0), Store(0, 1), Forward(0, steps), Evict(0, 0), Save(steps)]
    return [*begin, Fetch(0, 1), Store(steps, 1), Restore(0), Drop(0)]


@pytest.mark.parametrize(
    ("operations", "effects", "expected"),
    [
        # Alone, the fetch is there at 20.
        (both_ways(1), {}, 20),
        # Both move from 10 on, each at four fifths of its speed.
        (both_ways(1), {"both": (0.25,)}, 22.5),
        # So they do in milliseconds.
        (both_ways(1), {"both": (0.25,), "forward": 0.01, "up": (0.01,), "down": (0.01,)}, 0.0225),
        # A store that begins in the middle of a fetch meets its last half.
        (
            [*both_ways(1)[:4], Fetch(0, 1), Backward(1), Save(1), Store(1, 1), Restore(0), Drop(0)],
            {"both": (0.25,), "backward": 5},
            20 + 5 * 0.25,
        ),
        # It ends later for that, and its slot is free later.
        (
            [*both_ways(1)[:4], Fetch(0, 1), Backward(1), Save(1), Store(1, 1), Evict(1, 0), Save(2), Save(3)],
            {"both": (0.25,), "backward": 5},
            25 + 5 * 0.25,
        ),
        # Steps beside a store of 5 seconds take half as long again, so 10 s of them take 5 / 3 s more.
        ([Save(0), Store(0, 1), Forward(0, 1)], {"beside": (1.5,), "down": (5,)}, 10 + 5 / 3),
        # A long store slows the whole step.
        ([Save(0), Store(0, 1), Forward(0, 1)], {"beside": (1.5,), "down": (50,)}, 15),
        # The store is in the way of the fetch as much as the fetch is in its: a slot that it reads is free later too.
        (
            [*both_ways(1)[:4], Save(5), Store(5, 1), Fetch(0, 1), Evict(5, 0), Save(6), Save(7)],
            {"both": (0.25,)},
            22.5,
        ),
        # A slot from which a snapshot is still going down is not free when a restore has read it.
        ([Save(8), Save(9), Save(0), Store(0, 1), Restore(0), Evict(0, 0), Save(1)], {}, 10),
        # A fetch that has not begun slows nothing yet.
        ([Forward(0, 1), Save(1), Store(1, 1)], {"beside": (1.5,)}, 10),
    ],
)
def test_links(operations, effects, expected):
    assert seconds(operations, **effects) == pytest.approx(expected)


STEPS = [Forward(0, 1), Forward(1, 2), Forward(2, 3)]
SETTLING = {"host": HostCost(save=4, drop=1, move=1, ahead=True), "save": 5, "forward": 1, "settles": True}


@pytest.mark.parametrize(
    ("operations", "effects", "expected"),
    [
        # A host that computes: its time adds up.
        (STEPS, {"host": HostCost(call=3)}, 39),
        # One that runs ahead: the device waits for the first call alone, or for every one where steps are short.
        (STEPS, {"host": HostCost(call=3, ahead=True)}, 33),
        (STEPS, {"host": HostCost(call=3, ahead=True), "forward": 1}, 10),
        # Three steps of one call are asked for in 3 + 3 * 4 seconds.
        ([Forward(0, 3)], {"host": HostCost(call=3, forward=4, ahead=True), "forward": 1}, 15),
        # Each kind of operation has its own price.
        (
            [Save(0), Forward(0, 1), Restore(0), Forward(0, 1), Restore(0), Drop(0), Backward(0)],
            {"host": HostCost(call=1, backward=2, save=10, restore=100, take=1000, drop=10_000)},
            20 + 1 + 11_000 + 100 + 10 + 2 + 3,
        ),
        ([Save(0), Store(0, 1), Evict(0, 0)], {"host": HostCost(move=5, drop=1)}, 6),
        # The size of the first encoding is there at 4 + 5; only then the host asks for the second.
        (
            [Save(0), Forward(0, 1), Save(1), Forward(1, 2)],
            {"host": HostCost(save=4, ahead=True), "save": 5, "forward": 1, "settles": True},
            19,
        ),
        (
            [Save(0), Forward(0, 1), Save(1), Forward(1, 2)],
            {"host": HostCost(save=4, ahead=True), "save": 5, "forward": 1},
            16,
        ),
        # Nothing is dropped or fetched before that size is there either.
        ([Save(0), Drop(0), Forward(0, 1)], SETTLING, 11),
        ([Save(0), Store(0, 1), Evict(0, 0), Save(1), Fetch(0, 1), Forward(0, 1)], SETTLING, 20),
    ],
)
def test_the_host(operations, effects, expected):
    assert seconds(operations, **effects) == pytest.approx(expected)


def drawn(seed):
    """A schedule, the slots of two or three tiers, costs, and every effect."""
    random = Random(seed)
    steps = random.randint(20, 100)
    interval = random.randint(1, steps)
    schedule = TwoLevel(steps, interval, random.randint(0, interval - 1))
    upper = [random.randint(1, 9) for _ in range(random.randint(1, 2))]

    def each(low, high):
        return tuple(random.uniform(low, high) for _ in upper)

    work = Work(*(random.uniform(0.01, 10) for _ in range(4)), random.choice((0, 2)), each(0.01, 10), each(0.01, 10))
    # Steps are timed one right after the other, so that none takes less than the host needs to ask for it.
    asked = {"forward": random.random() * work.forward, "backward": random.random() * work.backward}
    ahead = asked | {"ahead": True} if random.random() < 0.5 else {}
    host = HostCost(**{name: random.random() for name in ("call", "save", "restore", "take", "drop", "move")}, **ahead)
    return schedule, (*upper, steps), work, {"both": each(0, 1), "beside": each(1, 2), "host": host}


def in_full(schedule, slots, work):
    return simulate(operations_of(schedule, slots, "min"), slots, work)


@pytest.mark.parametrize("seed", range(40))
def test_effects_only_add_and_the_coarse_prediction_has_them(seed):
    schedule, slots, work, effects = drawn(seed)
    whole = in_full(schedule, slots, replace(work, **effects))
    least = least_seconds(schedule, replace(work, **effects), slots, Coarse(work, slots[0]))
    assert max(least, in_full(schedule, slots, work).seconds) <= whole.seconds * (1 + 1e-9)
    for name, within in {"both": 1e-9, "beside": 0.01, "host": 0.06}.items():
        single = replace(work, **{name: effects[name]})
        full = in_full(schedule, slots, single).seconds
        assert full <= whole.seconds * (1 + 1e-9)
        coarse = predict(schedule, slots, Setting("states", None, 1, single, slots, 0.0, "min"))
        assert coarse.seconds == pytest.approx(full, rel=within), name


def test_costs_say_nothing_of_effects_unless_they_are_measured():
    assert fb.Link(1.0, 2.0) == fb.Link(1.0, 2.0, both=1.0, beside=1.0)
    assert fb.Costs(1, 1, 1).operations == HostCost()
    for wrong in ({"both": 1.1}, {"both": 0.0}, {"beside": 0.9}):
        with pytest.raises(fb.PlanError):
            fb.Link(1.0, 2.0, **wrong)
    with pytest.raises(fb.PlanError, match="HostCost: save"):
        HostCost(save=-1.0)


def test_plans_written_before_the_effects_were_known_are_read():
    costs = fb.Costs(1, 1, 1e9, host=fb.Link(1e9, 1e9))
    plan = fb.plan(50, 10**9, fb.Budget("3GB", "20GB"), costs=costs)
    data = json.loads(plan.to_json())
    del data["costs"]["operations"], data["prediction"]["host"], data["prediction"]["slowed"]
    for name in ("both", "beside"):
        del data["costs"]["host"][name]
    assert fb.Plan.from_json(json.dumps(data)) == plan


MIB = 2**20


@pytest.mark.parametrize(
    ("budget", "overhead", "slots"), [(3, 4, 3), (4, 4, 4), (5, 4, 4), (8, 4, 4), (9, 4, 5), (40, 4, 36), (40, 0, 40)]
)
def test_what_a_driver_takes_is_left_free(budget, overhead, slots):
    plan = fb.plan(50, MIB, budget * MIB, overhead=overhead * MIB, schedule="revolve")
    assert plan.slots == (slots,)


def test_the_smallest_budget_that_works_counts_what_a_driver_takes():
    def plan(budget):
        return fb.plan(50, MIB, budget, overhead=4 * MIB, schedule="revolve:40")

    with pytest.raises(fb.BudgetError, match=f"{44 * MIB} bytes"):
        plan(43 * MIB)
    assert plan(44 * MIB).slots == (40,)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("budget", [fb.Budget(device=9), fb.Budget(device=4, host=9)], ids=str)
def test_a_reversal_takes_its_start_whether_anything_moves_or_not(budget, ahead):
    costs = fb.Costs(1.0, 1.0, 1e9, host=fb.Link(1.0, 1.0), operations=HostCost(save=0.1, call=2.0, ahead=ahead))
    later = replace(costs, operations=replace(costs.operations, start=50.0))
    seconds = [fb.plan(30, 1, budget, costs=each, schedule="revolve:9").seconds for each in (costs, later)]
    assert seconds[1] == pytest.approx(seconds[0] + 50)


def test_the_host_keeps_pace_with_what_stands_for_other_actions():
    work = replace(WORK, host=HostCost(save=1.0, take=2.0, drop=3.0, restore=5.0))
    actions = [Save(0), Compute(4.0), Restore(0), Compute(6.0), Restore(0), Drop(0)]
    # Listed are a save, a restore, and a take with its drop: 11 seconds of the host.
    assert host_pace(actions, work, 31.0) == pytest.approx((31 - 11) / 10)
    assert host_pace(actions, work, 10.5) == 0.0
    assert host_pace(actions, work, 0.0) == host_pace(actions[:1], work, 31.0) == 0.0
