import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.example_counts import fewer

import forebay as fb
from forebay.errors import SlowerError
from forebay.planner import HostCost
from forebay.planner.choose import Setting, evaluate
from forebay.planner.settings import Problem
from forebay.schedule import Foreign, Revolve, StoreAll, TwoLevel

STATE = 10**9
TIERS = ("device", "host", "disk")


def costs(x, copy=0.5, backward=1.0, pin=0.0, disk=None):
    """A machine whose links take `x` steps for a state; a step takes a second, a copy `copy` of one."""
    link = fb.Link(up=STATE / x, down=STATE / x)
    return fb.Costs(
        forward=1.0,
        backward=backward,
        copy=STATE / copy,
        host=link,
        disk=fb.Link(STATE / disk, STATE / disk) if disk else link,
        pin=pin,
    )


def test_codecs_are_left_to_records_where_states_are_not_to_be_encoded():
    priced = replace(costs(2.0), codecs={"small": fb.CodecCost(ratio=10, encode=1e12, decode=1e12)})
    problem = {"budget": fb.Budget(device=4 * STATE), "costs": priced, "codec": "small", "record_bytes": STATE // 2}
    assert (fb.plan(200, STATE, **problem).keep, fb.plan(200, STATE, **problem).codec) == ("states", "small")
    for steps, kept in ((200, ("states", None)), (50, ("records", "small"))):
        found = fb.plan(steps, STATE, **problem, encode_states=False)
        assert (found.keep, found.codec) == kept
    with pytest.raises(fb.BudgetError, match="1GB"):
        fb.plan(200, STATE, **problem | {"budget": fb.Budget(device=STATE // 2)}, encode_states=False)


def test_a_plan_is_made_for_the_salt_problem_and_explained():
    plan = fb.plan(3751, "1.13GB", fb.Budget(device="8GB", host="64GB"), reversals=100)
    assert plan.peak_bytes["device"] <= 8e9 and plan.peak_bytes["host"] <= 64e9
    text = plan.explain()
    first, second = plan.schedule.levels
    meaning = f"({first.snapshots} snapshots at no price, and {second.snapshots} at a price of {second.price:g} steps)"
    for told in (f"{plan.schedule} {meaning}", "assumed for h200", "runner-up", "stall", "host", "pinning"):
        assert told in text


def test_pinning_is_shared_by_reversals():
    for reversals, said in ((1, "pinning "), (2, "pinning (its share of 2 reversals) ")):
        assert said in fb.plan(900, STATE, fb.Budget("6GB", "90GB"), reversals=reversals).explain()


@pytest.mark.slow
def test_the_same_inputs_give_the_same_plan():
    first, second = (fb.plan(900, STATE, fb.Budget("6GB", "90GB"), costs=costs(25)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("schedule", ["auto", "revolve:8", "twolevel:9", Revolve(100, 5)], ids=str)
def test_plans_are_json_both_ways(schedule, tmp_path):
    plan = fb.plan(100, STATE, fb.Budget("4GB", "40GB", "90GB"), costs=costs(3), schedule=schedule)
    again = fb.Plan.from_json(plan.to_json(tmp_path / "plan.json"))
    assert again == plan == fb.Plan.from_json(tmp_path / "plan.json")
    assert list(map(str, again.operations())) == list(map(str, plan.operations()))


def test_a_foreign_plan_is_json_too():
    library = pytest.importorskip("checkpoint_schedules")
    plan = fb.plan(60, STATE, fb.Budget("4GB", "40GB"), schedule=library.HRevolve(60, 2, 3))
    assert isinstance(plan.schedule, Foreign)
    assert fb.Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "text",
    ["{}", "{", '{"steps": 3}', '{"budget": {"host": "many"}}', '{"schedule": "revolve:x", "steps": 3, "every": 1}'],
)
def test_what_is_not_a_plan_is_refused(text):
    with pytest.raises(fb.PlanError, match="not a plan that Forebay wrote") as refusal:
        fb.Plan.from_json(text)
    assert len(str(refusal.value)) < 300 and "Error" not in str(refusal.value)


def test_the_timeline_ends_at_the_predicted_time():
    plan = fb.plan(100, STATE, fb.Budget("4GB", "40GB"), costs=costs(3))
    assert max(span.stop for span in plan.timeline()) == pytest.approx(plan.prediction.seconds)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"budget": "0.9GB"}, "device has 900MB and needs 1GB"),
        ({"budget": fb.Budget(disk="1TB")}, "host too"),
        ({"budget": fb.Budget(device="4GB", disk="1TB")}, "through the host"),
        ({"schedule": "storeall"}, "host has 20GB and needs 196GB"),
        ({"schedule": "revolve:60"}, "host has 20GB and needs"),
        ({"schedule": "zcut"}, "needs"),
        ({"slots": 9}, "1 to 4"),
        ({"budget": "0.9GB", "slots": 1}, "needs 1GB"),
        ({"budget": "300GB", "slots": 2, "schedule": "storeall"}, "give more slots"),
        ({"budget": fb.Budget("4GB", "0.5GB", "500GB"), "schedule": "storeall"}, "host has 500MB and needs 1GB"),
        ({"budget": fb.Budget("1GB", "1GB"), "schedule": "online:3"}, "snapshots that online:3 puts there"),
        ({"budget": "14GB", "schedule": "zcut", "record_bytes": "0.1GB"}, "device has 14GB and needs 26GB"),
        ({"budget": "20GB", "schedule": "storeall", "record_bytes": "0.1GB"}, "needs 20.1GB"),
    ],
)
def test_a_budget_that_cannot_work_is_refused_with_the_smallest_that_does(arguments, says):
    with pytest.raises(fb.BudgetError, match=says):
        fb.plan(**({"steps": 200, "state_bytes": STATE, "budget": fb.Budget("4GB", "20GB")} | arguments))


@pytest.mark.parametrize("schedule", ["storeall", "zcut", "revolve:60", "uniform:70"])
def test_the_smallest_budget_named_in_a_refusal_works(schedule):
    with pytest.raises(fb.BudgetError) as refusal:
        fb.plan(200, STATE, fb.Budget("4GB", "10GB"), schedule=schedule)
    least = int(str(refusal.value).split("(")[1].split()[0])
    assert fb.plan(200, STATE, fb.Budget("4GB", least), schedule=schedule).peak_bytes["host"] == least
    with pytest.raises(fb.BudgetError):
        fb.plan(200, STATE, fb.Budget("4GB", least - STATE), schedule=schedule)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"steps": 0}, "at least one step"),
        ({"every": 0}, "at least 1"),
        ({"policy": "fifo"}, "min, lru"),
        ({"policy": "lru", "steps": 100_100}, r"at most 4000 steps, not 100100: .* or take policy='min'"),
        ({"codec": "bounded:1e-4"}, "costs.codecs"),
        ({"machine": "abacus"}, "h200"),
        ({"machine": "laptop"}, "h200, v100"),
        ({"machine": "v100", "budget": fb.Budget(host="9GB")}, "laptop"),
        ({"schedule": "fancy"}, "revolve"),
        ({"schedule": Revolve(99, 3)}, "made for 99 steps"),
        ({"state_bytes": 0}, "at least one byte"),
        ({"costs": fb.Costs(1, 1, 1e9)}, "host=Link"),
        ({"every": 1.5}, "every must be a whole number"),
        ({"slots": "2"}, "slots must be a whole number"),
        ({"reversals": 0}, "reversals=0"),
        ({"schedule": None}, "no schedule"),
        ({"schedule": "revolve:" + "9" * 5000}, "one number"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(arguments, says):
    with pytest.raises(fb.ForebayError, match=says):
        fb.plan(**({"steps": 200, "state_bytes": STATE, "budget": fb.Budget("4GB", "20GB")} | arguments))


def test_records_are_kept_where_they_fit():
    plan = fb.plan(1000, STATE, fb.Budget("6GB", "60GB"), costs=costs(2), record_bytes="0.5GB", every=8)
    assert plan.keep == "records" and plan.schedule == StoreAll(125)
    assert plan.prediction.forward == pytest.approx(1000)
    assert (
        fb.plan(1000, STATE, fb.Budget("6GB", "50GB"), costs=costs(2), record_bytes="0.5GB", every=8).keep == "states"
    )


@pytest.mark.slow
def test_a_codec_is_used_only_where_it_pays():
    quick = {"bounded:1e-4": fb.CodecCost(ratio=8, encode=2e12, decode=2e12)}
    slow = {"bounded:1e-4": fb.CodecCost(ratio=1.1, encode=1e8, decode=1e8)}
    for codecs, chosen in ((quick, "bounded:1e-4"), (slow, None)):
        known = fb.Costs(**(vars(costs(50)) | {"codecs": codecs}))
        plan = fb.plan(1000, STATE, fb.Budget("6GB", "60GB"), costs=known, codec="bounded:1e-4")
        assert plan.codec == chosen
    assert fb.plan(1000, STATE, fb.Budget("6GB", "60GB"), costs=known).codec is None


def test_records_that_backward_takes_encoded_are_copied_and_not_decoded():
    def restored(keep, handed_encoded):
        cost = fb.CodecCost(ratio=8, encode=2e12, decode=1e10, decode_host=1e-3, handed_encoded=handed_encoded)
        known = replace(costs(50), codecs={"bounded:1e-4": cost}, operations=HostCost(restore=1e-4, ahead=True))
        problem = Problem(100, 1, STATE, STATE // 2, fb.Budget("90GB"), known, "min", None, 1)
        work = problem.work(keep, "bounded:1e-4", 1)
        assert work.restore == work.take and work.host.restore == work.host.take
        return work.restore, work.host.restore

    copied = pytest.approx(STATE / 16 / costs(50).copy)
    assert restored("records", False) == (pytest.approx(STATE / 2 / 1e10), 1.1e-3)
    assert restored("records", True) == (copied, 1e-4)
    assert restored("states", True) == restored("states", False) == (pytest.approx(STATE / 1e10), 1.1e-3)


def test_what_a_codec_takes_for_itself_holds_no_snapshots():
    def planned(scratch, snapshots):
        cost = fb.CodecCost(ratio=8, encode=2e12, decode=2e12, spread=1, worst=1, scratch=scratch)
        known = fb.Costs(**(vars(costs(50)) | {"codecs": {"bounded:1e-4": cost}}))
        budget = fb.Budget(6 * STATE)
        return fb.plan(1000, STATE, budget, costs=known, codec="bounded:1e-4", schedule=f"revolve:{snapshots}")

    assert planned(0, 40).prediction.peak == (40,) and planned(2, 24).prediction.peak == (24,)
    with pytest.raises(fb.BudgetError):
        planned(2, 25)


def test_pinning_is_shared_by_the_reversals():
    once = fb.plan(1000, STATE, fb.Budget("6GB", "60GB"), costs=costs(25, pin=1e-6))
    often = fb.plan(1000, STATE, fb.Budget("6GB", "60GB"), costs=costs(25, pin=1e-6), reversals=1000)
    assert once.prediction.peak[1] < often.prediction.peak[1]
    assert often.pinning < once.seconds


@pytest.mark.slow
def test_slots_override_what_fits():
    assert fb.plan(200, STATE, fb.Budget("6GB", "60GB"), costs=costs(5), slots=2).prediction.peak[0] == 2


budgets = st.builds(
    lambda device, host, disk: fb.Budget(
        device * STATE, host * STATE if host else None, disk * STATE if disk and host else None
    ),
    st.integers(1, 20),
    st.integers(0, 40),
    st.integers(0, 60),
)


@fewer(12, of=40)
@given(st.integers(1, 150), budgets, st.sampled_from([0.5, 2, 25, 100]), st.sampled_from([None, 400]))
def test_peaks_stay_within_every_budget(steps, budget, x, record):
    plan = fb.plan(steps, STATE, budget, costs=costs(x), record_bytes=record and record * 10**6, every=3)
    for tier, peak in plan.peak_bytes.items():
        assert peak <= budget[tier]
    assert plan.seconds >= steps * 2.0 * (1 - 1e-9)


def check_more_budget(steps, budget, x, tier, data):
    assume(tier != "disk" or "host" in budget.tiers)
    before = budget[tier] if tier in budget.tiers else 0
    more = budget.with_tier(tier, before + data.draw(st.integers(1, 10)) * STATE)
    fewer, larger = (fb.plan(steps, STATE, given, costs=costs(x)) for given in (budget, more))
    assert larger.seconds <= fewer.seconds * (1 + 1e-9)


@fewer(6, of=20)
@given(st.integers(1, 60), budgets, st.sampled_from([0.5, 2, 25, 100]), st.sampled_from(TIERS), st.data())
def test_more_budget_or_another_tier_never_predicts_more_time(steps, budget, x, tier, data):
    check_more_budget(steps, budget, x, tier, data)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(1, 250), budgets, st.sampled_from([0.5, 2, 25, 100]), st.sampled_from(TIERS), st.data())
def test_more_budget_never_predicts_more_time_in_longer_loops(steps, budget, x, tier, data):
    check_more_budget(steps, budget, x, tier, data)


@pytest.mark.slow
@fewer(4, of=20)
@given(st.integers(1, 150), budgets, st.sampled_from([0.5, 2, 25, 100]), st.floats(0.5, 2))
def test_a_plan_below_a_time_is_the_fastest_or_there_is_none(steps, budget, x, factor):
    fastest = fb.plan(steps, STATE, budget, costs=costs(x))
    below = factor * fastest.seconds
    if fastest.seconds < below:
        assert fb.plan(steps, STATE, budget, costs=costs(x), below=below).seconds == fastest.seconds
    else:
        with pytest.raises(SlowerError, match="no plan takes less"):
            fb.plan(steps, STATE, budget, costs=costs(x), below=below)


def test_a_budget_that_cannot_work_is_refused_as_such_whatever_the_time():
    with pytest.raises(fb.BudgetError, match="needs"):
        fb.plan(100, STATE, "0.5GB", costs=costs(2), below=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "disk"),
    [(25, 10), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((50, 10), (150, 20), (150, 200)))],
)
def test_pinning_never_makes_more_host_slower(steps, disk):
    known = costs(1.0, copy=0.01, pin=1e-8)
    predicted = [
        fb.plan(steps, STATE, fb.Budget(STATE, host * STATE, disk * STATE), costs=known).seconds
        for host in (1, 2, 4, 10, 20, 37)
    ]
    assert all(more <= fewer * (1 + 1e-9) for fewer, more in pairwise(predicted))


@pytest.mark.parametrize(("seconds", "reversals", "levels"), [(1e-4, 1, False), (1e-4, 100, True), (1e-2, 1, True)])
def test_a_run_that_waits_for_its_plan_does_not_wait_longer_than_schedules_on_levels_save(seconds, reversals, levels):
    link = fb.Link(STATE / seconds, STATE / seconds)
    known = fb.Costs(seconds, seconds, 1e3 * STATE / seconds, host=link)
    about = {"budget": fb.Budget(2 * STATE, 12 * STATE), "costs": known, "reversals": reversals}
    thorough, hurried = (fb.plan(60, STATE, **about, hurry=hurry) for hurry in (False, True))
    assert str(thorough.schedule).startswith("hierarchical:")
    assert (hurried.schedule == thorough.schedule) == levels
    assert hurried.seconds <= 1.25 * thorough.seconds


@pytest.mark.slow
def test_many_slots_are_planned_too():
    for device, host in ((1500, 1500), (3000, 500)):
        plan = fb.plan(3751, STATE, fb.Budget(device * STATE, host * STATE), costs=costs(3))
        assert plan.prediction.peak[0] <= device


@pytest.mark.parametrize(("steps", "slots", "copy"), [(1000, 950, 0.01), (1000, 950, 0.5), (3751, 3000, 0.01)])
def test_auto_keeps_up_where_almost_everything_fits(steps, slots, copy):
    budget, known = fb.Budget(slots * STATE), costs(1, copy)
    auto, best = (fb.plan(steps, STATE, budget, costs=known, schedule=s) for s in ("auto", Revolve(steps, slots)))
    assert auto.seconds <= 1.02 * best.seconds


def test_a_last_step_that_is_shorter_is_not_charged_in_full():
    plan = fb.plan(61, STATE, "60GB", costs=costs(1, copy=1e-9), every=20)
    assert plan.seconds == pytest.approx(122)
    assert fb.plan(100, STATE, "60GB", costs=costs(1, copy=1e-9), every=1000).seconds == pytest.approx(200)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("every", 0),
        ("schedule", {"a": 5}),
        ("schedule", "auto"),
        ("schedule", "revolve:60"),
        ("policy", "fifo"),
        ("codec", "zz"),
        ("slots", [0, 1]),
        ("slots", []),
        ("slots", [1000, 1000, 1]),
        ("keep", "foo"),
        ("snapshot_bytes", 0),
        ("seconds", -5),
        ("reversals", 0),
        ("steps", 50),
        ("budget", {"device": "1GB"}),
        ("budget", {"device": "1GB", "host": "40GB"}),
        ("slots", [2, 35]),
        ("snapshot_bytes", STATE // 2),
        ("prediction", {}),
    ],
)
def test_a_plan_that_was_tampered_with_is_refused(field, value):
    data = json.loads(tampered_with()) | {field: value}
    if field == "schedule" and value == "revolve:60":
        data["prediction"]["peak"] = [4, 56]
    with pytest.raises(fb.PlanError, match="not a plan"):
        fb.Plan.from_json(json.dumps(data))


@cache
def tampered_with():
    return fb.plan(100, STATE, fb.Budget("4GB", "40GB"), costs=costs(3)).to_json()


@pytest.mark.parametrize(("name", "change"), [("every", {"every": 2}), ("slots", {"slots": [3, 0]})])
def test_numbers_that_fit_all_others_but_make_no_sense_are_refused(name, change):
    plan = fb.plan(1, STATE, fb.Budget("4GB", "40GB"), costs=costs(3), schedule="storeall")
    assert plan.prediction.peak[1] == 0
    with pytest.raises(fb.PlanError, match=f"{name} cannot be as said"):
        fb.Plan.from_json(json.dumps(json.loads(plan.to_json()) | change))


def exhaustive(steps, slots, work):
    """Try every interval and every number of inner snapshots: the oracle for `auto`."""
    setting = Setting("states", None, STATE, work, slots, 0.0, "min")
    every = (TwoLevel(steps, interval, inner) for interval in range(1, steps + 1) for inner in range(interval))
    choices = (evaluate(schedule, slots, setting) for schedule in every if schedule.peak_snapshots <= sum(slots))
    return min(choice.seconds for choice in choices if choice.fits)


# x = transfer / step on an H200 is about 25 without a codec and 3 with one; a V100 has about 20; a laptop that
# computes in host memory and stores on a fast disk has 0.5 to 10.
TABLE = [
    (steps, x, device, host, copy)
    for steps, copy in ((120, 0.65), (180, 0.3))
    for x, device, host in ((0.5, 4, 200), (2, 6, 30), (3, 16, 60), (10, 8, 40), (20, 3, 90), (25, 6, 25), (25, 20, 60))
] + [
    (150, 50, 10, 60, 0.65),
    (150, 100, 4, 100, 0.65),
    (150, 100, 30, 50, 0.65),
    (240, 1, 5, 12, 1.0),
    (240, 5, 12, 24, 0.1),
    (200, 40, 2, 200, 0.65),
]


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "x", "device", "host", "copy"), TABLE)
def test_auto_is_within_two_percent_of_an_exhaustive_search(steps, x, device, host, copy):
    known = costs(x, copy)
    plan = fb.plan(steps, STATE, fb.Budget(device * STATE, host * STATE), costs=known)
    budget = fb.Budget(device * STATE, host * STATE)
    work = Problem(steps, 1, STATE, None, budget, known, "min", None, 1).work("states", None, 2)
    assert plan.seconds <= 1.02 * exhaustive(steps, (device, host), work)


@pytest.mark.parametrize("record_bytes", [None, "1kB", "40MB"])
@pytest.mark.parametrize("schedule", ["revolve", "revolve:2"])
def test_slots_that_the_budget_does_not_hold_are_told_with_the_smallest_that_does(schedule, record_bytes):
    asked = {"slots": 2, "schedule": schedule, "record_bytes": record_bytes}
    with pytest.raises(fb.BudgetError, match="slots=2") as refused:
        fb.plan(20, "1MB", "500kB", **asked)
    least = int(str(refused.value).rpartition("(")[2].split()[0])
    assert fb.plan(20, "1MB", least, **asked).prediction.peak[0] <= 2
    with pytest.raises(fb.BudgetError):
        fb.plan(20, "1MB", least - 1, **asked)
