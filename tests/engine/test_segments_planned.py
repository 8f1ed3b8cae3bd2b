"""What segments of a reversal that survives are planned with: as was asked, or as a plan from before says."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.engine.layout import Layout
from forebay.engine.resume import decision
from forebay.errors import StateError

COSTS = fb.Costs(2.0, 1.0, 1e9, disk=fb.Link(1e9, 1e9), codecs={"lossless": fb.CodecCost(2, 1e12, 1e12)})
GIVEN = fb.plan(60, 4096, fb.Budget(host=5 * 4096), costs=COSTS, schedule="revolve:5", policy="lru")
KEEPING = decision.Keeping(0.5, 0, 1e9, 4096)
CODED = fb.plan(60, 4096, fb.Budget(host=16 * 4096), costs=COSTS, codec="lossless")


def planned(options, keeping=KEEPING, disk=None, rest=None):
    """Decide how a loop is cut, or plan its rest; return what each plan was asked for with, and what was decided."""
    asked, state = [], (np.zeros(500),)

    def plan(forward, state, steps, **more):
        asked.append((steps, more))
        costs = more.get("costs") or COSTS
        made = more.get("plan") or fb.plan(steps, 4096, more["budget"], costs=costs, schedule=more["schedule"])
        return made, "noted"

    loop = decision.SurvivingLoop(lambda s, a, b: s, print, state, 60, None, {}, options, plan, None)
    if rest is not None:
        return asked, decision.plan_of_rest(loop, rest, 20)
    return asked, decision.decide(loop, disk, Layout.of(state), lambda: keeping)


@pytest.mark.parametrize("given", [GIVEN, CODED], ids=["exact", "encoded"])
@pytest.mark.parametrize("codec", [None, "lossless"])
def test_segments_of_a_plan_from_before_are_planned_as_it_was(given, codec, tmp_path):
    asked, decided = planned({"plan": given, "policy": "min", "schedule": "storeall", "codec": codec}, disk=tmp_path)
    assert asked[0][1]["plan"] is given and len(asked) > 1 and decided["note"] == "noted"
    for _, options in asked[1:]:
        about = [options[name] for name in ("plan", "step_costs", "schedule", "policy", "codec", "budget")]
        assert about == [None, None, "auto", given.policy, codec or given.codec, given.budget]
        assert options["synchronous"] is False and options["costs"].forward == 2.0
    starts = [*decided["starts"], 60]
    kinds = list(dict.fromkeys(stop - start for start, stop in pairwise(starts)))
    assert [steps for steps, _ in asked[1:]] == kinds


def test_segments_are_planned_as_the_whole_was_asked_for(tmp_path):
    options = {"budget": fb.Budget(host=9 * 4096), "schedule": "revolve:3", "policy": "lru", "step_costs": [1.0] * 60}
    for codec in (None, "lossless"):
        asked, _ = planned({**options, "codec": codec}, disk=tmp_path)
        for _, more in asked[1:]:
            about = [more[name] for name in ("plan", "step_costs", "schedule", "policy", "codec", "budget")]
            assert about == [None, None, "revolve:3", "lru", codec, options["budget"]]


def test_where_a_disk_has_progress_too_the_whole_is_planned_again_beside_it(tmp_path):
    options = {"budget": fb.Budget(host=9 * 4096, disk=10**6), "schedule": "auto", "record": ("u",)}
    asked, decided = planned(options, disk=tmp_path)
    kept = len(decided["starts"]) * (4096 + 4096) + 3 * 4096
    assert asked[-1][0] == 60 and asked[-1][1]["budget"] == fb.Budget(host=9 * 4096, disk=10**6 - kept)
    assert asked[-1][1]["costs"] == COSTS and asked[-1][1]["record"] == ("u",)
    assert {more["budget"] for _, more in asked[1:]} == {asked[-1][1]["budget"]}


def test_progress_is_kept_as_often_as_a_small_share_of_the_time_allows(tmp_path):
    options = {"budget": fb.Budget(host=70 * 4096), "schedule": "auto"}
    for seconds, least in ((1e9, 2), (1e-9, 32), (1.0, 5), (1.4, 3)):
        _, decided = planned(options, decision.Keeping(seconds, 0, 1e9, 4096), tmp_path)
        assert len(decided["starts"]) == least == max(2, min(32, int(0.03 * decided["seconds"] / seconds)))
    for record, recorded in ((1e9, 0), (1e-9, 60), (0.1, 36)):
        _, decided = planned(options, decision.Keeping(1.0, 0, record, 4096), tmp_path)
        assert decided["whole"] is not None and decided["recorded"] == recorded


def test_records_take_half_of_what_is_left_of_a_disk(tmp_path, monkeypatch):
    options = {"budget": fb.Budget(host=70 * 4096), "schedule": "auto"}
    for states, recorded in ((10**6, 60), (120, 60), (119, 48), (96, 48), (95, 36), (0, 0)):
        # Beside progress, five states of two sectors each are kept, and as much room is left again.
        free = SimpleNamespace(free=3 * 4096 + 2 * 5 * 8192 + states * 4096)
        monkeypatch.setattr(decision, "disk_capacity", lambda directory, free=free: free)
        _, decided = planned(options, decision.Keeping(1.0, 0, 1e-9, 4096), tmp_path)
        assert (len(decided["starts"]), decided["recorded"]) == (5, recorded)


def test_the_rest_is_planned_as_the_whole_was(tmp_path):
    asked, _ = planned({"schedule": "revolve:4", "policy": "min", "reversals": 2, "plan": None}, rest=GIVEN)
    ((steps, options),) = asked
    assert steps == 40 and "plan" not in options and options["schedule"] == "revolve:4"
    assert (options["policy"], options["reversals"], options["budget"]) == ("min", 2, GIVEN.budget)
    asked, _ = planned({"budget": "1GB"}, rest=GIVEN)
    assert asked[0][1]["schedule"] == "auto" and asked[0][1]["budget"] == GIVEN.budget
    for given in (GIVEN, CODED):
        with pytest.raises(KeyError, match="schedule"):
            planned({"schedule": "revolve:4", "plan": given}, rest=given)  # which the plan says


def test_arrays_of_a_state_that_share_memory_cannot_be_kept_apart(tmp_path):
    whole = np.zeros(20)
    state = (whole[:12], whole[8:])
    with pytest.raises(StateError):
        fb.reverse(
            lambda s, a, b: s,
            lambda s, t: None,
            state,
            9,
            budget="1MB",
            costs=COSTS,
            resume=tmp_path / "kept",
            adjoint={},
        )
    assert not [path for path in (tmp_path / "kept").glob("*") if path.name.startswith(("manifest", "progress"))]


@pytest.mark.parametrize(("seconds", "is_whole"), [(99.0, True), (100.0, False), (101.0, False)])
def test_one_plan_of_the_whole_is_carried_out_where_it_is_quicker(seconds, is_whole, tmp_path):
    """Than two segments of 20 seconds each, before the last of which 30 steps are run in 2 seconds each."""
    whole = SimpleNamespace(
        seconds=1e-9, budget=fb.Budget(host="1MB"), costs=COSTS, codec=None, to_json=lambda: "whole"
    )
    whole.prediction = SimpleNamespace(seconds=seconds)
    segment = SimpleNamespace(prediction=SimpleNamespace(seconds=20.0), to_json=lambda: "segment")
    state = (np.zeros(500),)
    loop = decision.SurvivingLoop(
        lambda s, a, b: s,
        print,
        state,
        60,
        None,
        {},
        {},
        lambda f, s, n, **o: (whole if n == 60 else segment, ""),
        None,
    )
    decided = decision.decide(loop, tmp_path, Layout.of(state), lambda: decision.Keeping(1.0, 0, 1e9, 4096))
    assert decided["starts"] == [0, 30] and decided["plans"] == ["segment"] and decided["plan numbers"] == [0, 0]
    assert decided["whole"] == ("whole" if is_whole else None)
