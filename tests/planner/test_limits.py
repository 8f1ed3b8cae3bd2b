"""Limits of what is planned: what is refused on one side of each, and taken on the other.

Little is planned: what is taken mostly fails later, for its budget, which holds no snapshot.
"""

import json
from dataclasses import replace
from functools import cache, partial
from math import inf, nan
from random import Random

import numpy as np
import pytest

import forebay as fb
from forebay.planner.choose import operations_of
from forebay.planner.costs import CodecCost, HostCost, assumed_costs, check_number
from forebay.planner.make import MOST_LRU_STEPS, MOST_STEPS, check_budget, check_step_costs, with_step_costs
from forebay.planner.plan import MOST_SHOWN
from forebay.planner.search.bounds import in_last_tier
from forebay.planner.search.hierarchies import MOST_SPLITS, Recipe, most_splits
from forebay.planner.simulate import BOUNDLESS, Work, simulate
from forebay.schedule import Hierarchical, Level, named
from forebay.units import MOST_BYTES

NOTHING = {"state_bytes": 1, "budget": fb.Budget(device=0)}
LRU = {"policy": "lru", "schedule": "auto"}


@pytest.mark.parametrize(
    ("taken", "refused", "says"),
    [
        ({"steps": MOST_STEPS}, {"steps": MOST_STEPS + 1}, r"up to 1e\+09 calls"),
        ({"steps": 2 * MOST_STEPS, "every": 2}, {"steps": 2 * MOST_STEPS + 1, "every": 2}, r"up to 1e\+09 calls"),
        (LRU | {"steps": MOST_LRU_STEPS}, LRU | {"steps": MOST_LRU_STEPS + 1}, "at most 4000 steps, not 4001"),
        (LRU | {"steps": 8000, "every": 2}, LRU | {"steps": 8001, "every": 2}, "at most 4000 steps, not 4001"),
        (LRU | {"steps": 9000, "schedule": "revolve:9"}, LRU | {"steps": 9000}, "not 9000"),
        (NOTHING | {"slots": MOST_BYTES}, {"slots": MOST_BYTES + 1}, "slots=.*at least 1, and a number"),
        ({"every": MOST_BYTES}, {"every": MOST_BYTES + 1}, "every=.*at least 1, and a number"),
        ({"slots": 1}, {"slots": 0}, "slots=0: it must be at least 1"),
        ({"every": 1}, {"every": 0}, "every=0: it must be at least 1"),
        ({"reversals": 1}, {"reversals": 0}, "reversals=0: it must be at least 1"),
        ({"overhead": 0}, {"overhead": -1}, "overhead=-1: it must be at least 0"),
        (NOTHING, {"state_bytes": 0}, "at least one byte"),
        ({"record_bytes": 1, "schedule": "revolve:2"}, {"record_bytes": 0}, "at least one byte"),
        ({"below": inf}, {"below": nan}, "below=nan: give a number"),
        ({"below": 1}, {"below": "1"}, "below='1': give a number"),
        ({"codec": []}, {"codec": 7}, "codec=7: give the name of a codec"),
        ({"costs": None}, {"costs": 3}, r"costs=3: give Costs\(...\)"),
        ({"hurry": np.bool_(True)}, {"hurry": 1}, "hurry=1: give True or False"),
        ({"machine": "v100"}, {"machine": np.ones(2)}, "no machine is called array"),
        ({"policy": "lru"}, {"policy": np.ones(2)}, "no policy is called array"),
        ({"codec": ()}, {"codec": [7]}, "nothing is known of codec 7"),
        ({"schedule": fb.Revolve(20, 3)}, {"schedule": fb.Revolve(19, 3)}, "made for 19 steps, but the loop has 20"),
        ({"schedule": fb.StoreAll(20)}, {"schedule": fb.StoreAll(19)}, "made for 19 steps"),
        ({"schedule": fb.StoreAll(7), "every": 3}, {"schedule": fb.StoreAll(20), "every": 3}, "the loop has 7"),
    ],
)
def test_each_limit_is_where_it_is_said_to_be(taken, refused, says):
    usual = {"steps": 20, "state_bytes": 10**9, "budget": "0.5GB", "schedule": "storeall"}
    with pytest.raises(fb.BudgetError):
        fb.plan(**usual | taken)
    with pytest.raises(fb.PlanError, match=says):
        fb.plan(**usual | refused)


@pytest.mark.parametrize(
    ("make", "taken", "refused"),
    [
        (lambda up: fb.Link(up, 1.0), (1.1e-30, 9e29), (1e-30, 1e30, 0, -1, nan, inf, "1", None)),
        (lambda down: fb.Link(1.0, down), (1.1e-30, 9e29), (1e-30, 1e30)),
        (lambda both: fb.Link(1.0, 1.0, both), (0.1, 1), (1.01, 0, 1e-30)),
        (lambda beside: fb.Link(1.0, 1.0, 1.0, beside), (1, 1.5), (0.99, 1e30)),
        (lambda ratio: CodecCost(ratio, 1, 1), (0.5, 100), (0, inf)),
        (lambda worst: CodecCost(1, 1, 1, worst), (0.5, 100), (0, inf)),
        (lambda scratch: CodecCost(1, 1, 1, scratch=scratch), (0, 2.5), (-0.1, inf, nan, "1")),
        (lambda encode: CodecCost(1, 1, 1, encode_host=encode), (0, 2.5), (-0.1, inf)),
        (lambda decode: CodecCost(1, 1, 1, decode_host=decode), (0, 2.5), (-0.1, inf)),
        (lambda move: HostCost(move=move), (0, 2.5), (-0.1, inf, "1")),
        (lambda start: HostCost(start=start), (0, 2.5), (-0.1, inf)),
        (lambda forward: fb.Costs(forward, 1, 1), (1e-9, 1), (0, -1)),
        (lambda backward: fb.Costs(1, backward, 1), (0, 1), (-1, nan)),
        (lambda copy: fb.Costs(1, 1, copy), (1e-9, 1), (0, -1)),
        (lambda pin: fb.Costs(1, 1, 1, pin=pin), (0, 1), (-1, inf)),
        (lambda host: fb.Costs(1, 1, 1, host=host), (None, fb.Link(1, 1)), (1e9, "1GB")),
        (lambda disk: fb.Costs(1, 1, 1, disk=disk), (None, fb.Link(1, 1)), (1e9, (1, 1))),
        (lambda steps: fb.Costs(1, 1, 1, steps=steps), ((), (0, 1)), ((0, 0), (-1, 2), (inf,), ("1",))),
        (
            lambda codecs: fb.Costs(1, 1, 1, codecs=codecs),
            ({}, {"zfp:8": fb.CodecCost(1, 1, 1)}),
            ({"": fb.CodecCost(1, 1, 1)}, {" ": fb.CodecCost(1, 1, 1)}, ["zfp:8"]),
        ),
        (lambda value: check_number(value, "x"), (0, -inf, True), ("0", nan, None, 1j)),
        (
            lambda costs: check_step_costs(costs, 2),
            ([0, 1], (9e29, 0)),
            ([0, 0], [1e30, 1], [-1, 2], [1], [1, 2, 3], [[1], [1, 2]]),
        ),
        (lambda first: assumed_costs("laptop", 1, first), ("host",), ("device",)),
        (lambda first: assumed_costs("h200", 1, first), ("device",), ("host",)),
        (lambda name: assumed_costs(name, 1, "device"), (None, "v100"), ("", "H200", 7, ["h200"], np.ones(2))),
    ],
)
def test_figures_of_a_machine_are_in_their_range(make, taken, refused):
    for value in taken:
        make(value)
    for value in refused:
        with pytest.raises(fb.PlanError):
            make(value)


def test_costs_of_equal_steps_are_none():
    costs = fb.Costs(1, 1, 1)
    assert with_step_costs(costs, [2, 2, 2], 3).steps == with_step_costs(costs, None, 3).steps == ()
    assert with_step_costs(costs, [2, 3, 2], 3).steps == (2.0, 3.0, 2.0)
    uneven = fb.Costs(1, 1, 1, steps=(1.0, 2.0))
    assert with_step_costs(uneven, None, 2) is uneven and with_step_costs(uneven, [5, 4], 2).steps == (5.0, 4.0)
    with pytest.raises(fb.PlanError, match="step_costs has 2 numbers, but the loop has 3 steps"):
        with_step_costs(uneven, None, 3)


def test_a_machine_that_does_not_suit_the_budget_is_told_with_those_that_do():
    with pytest.raises(fb.PlanError, match=r"starts with the host.*or one of the machines laptop$"):
        assumed_costs("v100", 1, "host")
    with pytest.raises(fb.PlanError, match=r"starts with the device.*or one of the machines h200, v100, "):
        assumed_costs("laptop", 1, "device")
    assert assumed_costs(None, 1, "host").assumed == "laptop" and assumed_costs(None, 1, "device").assumed == "h200"


def test_small_numbers_of_numpy_are_as_any_others():
    usual = {"state_bytes": 10**6, "budget": "20MB"}
    few = fb.plan(np.uint8(200), **usual, every=np.uint8(3), overhead=np.int8(100), reversals=np.int8(100))
    assert few == fb.plan(200, **usual, every=3, overhead=100, reversals=100)
    assert fb.plan(np.uint64(200), **usual, every=np.uint64(3), slots=np.int8(9)) == fb.plan(
        200, **usual, every=3, slots=9
    )


@cache
def moving_plan():
    """A plan for two tiers that are full to the last slot."""
    costs = fb.Costs(1.0, 1.0, 1e12, host=fb.Link(1e9, 1e9))
    return fb.plan(30, 10**9, fb.Budget(device="3GB", host="6GB"), costs=costs, schedule="revolve:9", slots=3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"policy": "fifo"}, "policy"),
        ({"keep": "foo"}, "keep, snapshot_bytes"),
        ({"keep": "records"}, "keep, snapshot_bytes"),
        ({"every": 31}, "every, schedule"),
        ({"every": 0}, "every"),
        ({"reversals": 0}, "reversals"),
        ({"schedule": fb.Revolve(31, 9)}, "schedule"),
        ({"schedule": fb.Revolve(30, 8)}, "schedule"),
        ({"snapshot_bytes": 10**9 - 1}, "snapshot_bytes"),
        ({"snapshot_bytes": 0, "state_bytes": 0}, "snapshot_bytes"),
        ({"snapshot_bytes": 1, "state_bytes": 0}, "snapshot_bytes"),
        ({"slots": ()}, "slots"),
        ({"slots": (3,)}, "slots"),
        ({"slots": (3, 6, 1)}, "slots"),
        ({"slots": (3, 0)}, "slots"),
        ({"slots": (2, 6)}, "device"),
        ({"slots": (3, 5)}, "host"),
        ({"budget": fb.Budget(device=3 * 10**9 - 1, host="6GB")}, "device"),
        ({"budget": fb.Budget(device="3GB", host=6 * 10**9 - 1)}, "host"),
        ({"budget": fb.Budget(device="2GB", host="5GB")}, "device, host"),
        ({"seconds": 1.0}, "seconds"),
        ({"codec": "zz"}, "codec: the costs do not know it"),
    ],
)
def test_a_plan_that_cannot_be_is_not_made_and_says_what_is_wrong(change, named):
    plan = moving_plan()
    assert plan.prediction.peak == plan.slots == (3, 6) and plan.seconds == plan.prediction.seconds
    with pytest.raises(fb.PlanError, match=f"^{named}( cannot be as said)?$"):
        replace(plan, **change)


def test_where_the_last_tier_has_room_for_all_nothing_is_simulated():
    """However long the loop: what is kept in one tier alone follows from the schedule."""
    with pytest.raises(fb.BudgetError, match="needs 1000PB "):
        fb.plan(10**9, 10**9, "1GB", schedule="storeall")
    with pytest.raises(fb.BudgetError, match="needs 20GB "):
        fb.plan(10**9, 10**9, "1GB", schedule="revolve:20")


def test_where_the_tiers_have_too_little_room_nothing_is_simulated():
    """However long the loop: what goes down at most follows from the schedule, too."""
    for schedule in ("revolve:50", "twolevel:1000,20", "hierarchical:10,40@5"):
        with pytest.raises(fb.BudgetError, match=f"the .* snapshots that {schedule} puts there: host has 20GB"):
            fb.plan(10**9, 10**9, fb.Budget(device="10GB", host="20GB"), schedule=schedule)
    with pytest.raises(fb.BudgetError, match=r"the 36 snapshots .* disk has 30GB"):  # 4 stay on the host
        fb.plan(10**9, 10**9, fb.Budget(device="10GB", host="5GB", disk="30GB"), schedule="revolve:50")


@pytest.mark.parametrize("seed", range(150))
def test_what_the_last_tier_holds_is_what_a_simulation_finds_there(seed):
    draw = Random(seed)
    steps, few = draw.randint(1, 60), partial(draw.randint, 1)
    interval = few(steps)
    names = {
        "revolve": f"{few(min(12, steps))}",
        "twolevel": f"{interval},{few(min(7, interval)) - 1}",
        "uniform": f"{few(min(20, steps))}",
        "hierarchical": f"{few(min(5, steps))},{few(min(9, steps))}@{draw.choice((0.1, 1, 5, 30))}",
    }
    family = draw.choice([*names, "storeall"])
    schedule = named(f"{family}:{names[family]}" if family in names else family, steps)
    slots = tuple(few(6) for _ in range(few(3)))
    links = tuple(draw.choice((0.1, 1, 10)) for _ in slots[1:])
    found = simulate(operations_of(schedule, slots, "min"), (*slots[:-1], BOUNDLESS), Work(1, 1, 0, 0, 0, links, links))
    assert in_last_tier(schedule, slots, "min") == found.peak[-1]


@pytest.mark.parametrize(
    ("steps", "links", "change", "is_made"),
    [
        (60, 1, {}, True),
        (60, 1, {"seconds": 1.03}, True),
        (60, 1, {"seconds": 1.032}, False),
        (60, 1, {"seconds": 0.9, "alive": 0.1, "splits": 9}, True),
        (60, 1, {"alive": 1.24}, True),
        (60, 1, {"alive": 1.25}, True),
        (60, 1, {"alive": 1.26}, False),
        (500, 1, {"seconds": 1.0049}, True),
        (500, 1, {"seconds": 1.0052}, False),
        (9000, 1, {}, True),
        (9000, 2, {}, False),
    ],
)
def test_schedules_that_are_not_as_estimated_or_have_too_many_splits_are_not_made(steps, links, change, is_made):
    levels = Level(1), Level(min(steps // 3, 800), 0.1)
    schedule, work = Hierarchical(steps, levels), Work(1, 1, 0, 0, 0, (1,) * links, (1,) * links)
    known = schedule.forward_steps, schedule.saves, schedule.priced_saves, schedule.alive_at_turn
    change = dict(change)
    seconds = change.pop("seconds", 1.0) * (schedule.forward_steps + steps)
    recipe = Recipe(seconds - steps, *map(float, known[1:]), levels)
    recipe = recipe._replace(**{name: factor * getattr(recipe, name) for name, factor in change.items()})
    assert (recipe.make(steps, work) is not None) == is_made


@pytest.mark.parametrize(("up", "down", "most"), [(2.0, 2.0, 0), (2.1, 2.0, 1), (0.5, 3.6, 1), (3.5, 0.5, 0)])
def test_fewer_splits_are_simulated_where_a_trip_takes_more_than_four_steps(up, down, most):
    assert most_splits(Work(1, 1, 0, 0, 0, (up,), (down,))) == MOST_SPLITS[most]
    assert most_splits(Work(1, 1, 0, 0, 0, (up, up), (down, down))) == MOST_SPLITS[2]


def test_a_plan_says_where_its_costs_are_from_and_logs_its_reasons_where_asked(caplog):
    plan, assumed = moving_plan(), fb.plan(9, 10**9, "9GB")
    assert "costs as given: forward 1 s" in plan.explain() and "costs assumed for h200" in assumed.explain()
    assert "costs measured: " in replace(plan, costs=replace(plan.costs, measured=True)).explain()
    for level, lines in (("INFO", 1), ("DEBUG", 2)):
        caplog.clear()
        with caplog.at_level(level, "forebay.planner"):
            fb.plan(9, 10**9, "9GB")
        assert len(caplog.records) == lines and assumed.explain() == (caplog.messages[1:] or [assumed.explain()])[0]


@pytest.mark.parametrize(("steps", "drawn"), [(MOST_SHOWN // 5, True), (MOST_SHOWN // 5 + 1, False)])
def test_a_notebook_draws_plans_of_few_actions_unasked(steps, drawn):
    plan = fb.plan(steps, 10**6, "9GB", schedule="storeall")
    assert len(plan.schedule) == 5 * steps
    assert ("<svg" in plan._repr_html_()) == drawn and "storeall" in plan._repr_html_()


def test_a_plan_is_written_a_line_for_each_parameter():
    assert moving_plan().to_json().startswith('{\n  "steps": 30,\n  "every": 1,\n')


def test_a_name_that_could_not_be_written_again_is_refused():
    data = json.loads(moving_plan().to_json())
    data["alternatives"] = [{"name": "revolve", "seconds": 1.0, "exact": True}]
    assert fb.Plan.from_json(json.dumps(data)).alternatives[0].name == "revolve"
    data["alternatives"][0]["name"] = "\ud800"
    with pytest.raises(fb.PlanError, match="not a plan that Forebay wrote"):
        fb.Plan.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("least", "options"),
    [
        (10**6, {}),
        (3 * 10**6, {"schedule": "revolve:3"}),
        (5 * 10**6, {"schedule": fb.Revolve(20, 5)}),
        (20 * 10**6, {"schedule": "storeall"}),
        (7 * 10**6, {"schedule": "storeall", "every": 3}),
        (10**6, {"schedule": "storeall", "every": 99}),
        (2_100_000, {"schedule": "storeall", "record_bytes": 10**5}),
        (800_000, {"schedule": "storeall", "record_bytes": 10**5, "every": 3}),
    ],
)
def test_a_budget_is_checked_without_a_plan(least, options):
    check_budget(20, 10**6, fb.Budget(host=least), **options)
    with pytest.raises(fb.BudgetError, match=f"{least} bytes"):
        check_budget(20, 10**6, fb.Budget(host=least - 1), **options)
    with pytest.raises(fb.BudgetError, match="through the host"):
        check_budget(20, 10**6, fb.Budget(device="9GB", disk="9GB"), **options)
