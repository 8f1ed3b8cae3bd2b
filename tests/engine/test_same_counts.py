"""What a reversal does is counted, and the counts are the same as ever; what its result tells follows from them."""

from dataclasses import replace

import pytest

import forebay as fb
from forebay.engine.result import Result
from forebay.metrics import Metrics
from forebay.metrics.metrics import Distortion
from tests.engine.loops import COSTS, LOOP, Loop, budget_of

EXPECTED = {
    "storeall, host": ["storeall", 33, 0, 33, {}, {"host": 135168}, 66, 33, 33],
    "storeall, disk": [
        "storeall",
        3,
        30,
        33,
        {"down 1": 122880, "up 1": 122880},
        {"host": 12288, "disk": 122880},
        66,
        33,
        33,
    ],
    "storeall, disk, lru": [
        "storeall",
        3,
        30,
        33,
        {"down 1": 135168, "up 1": 122880},
        {"host": 12288, "disk": 135168},
        66,
        33,
        33,
    ],
    "revolve": ["revolve:5", 33, 0, 74, {}, {"host": 20480}, 66, 33, 33],
    "revolve, disk": [
        "revolve:6",
        19,
        14,
        66,
        {"down 1": 40960, "up 1": 57344},
        {"host": 8192, "disk": 16384},
        66,
        33,
        33,
    ],
    "twolevel": [
        "twolevel:7,2",
        29,
        4,
        71,
        {"down 1": 16384, "up 1": 16384},
        {"host": 12288, "disk": 16384},
        66,
        33,
        33,
    ],
    "records": ["storeall", 11, 0, 11, {}, {"host": 45056}, 22, 33, 11],
    "records, disk": [
        "storeall",
        3,
        30,
        33,
        {"down 1": 122880, "up 1": 122880},
        {"host": 12288, "disk": 122880},
        66,
        33,
        33,
    ],
    "slots": ["revolve:2", 33, 0, 154, {}, {"host": 8192}, 66, 33, 33],
    "uneven": ["weighted:4", 33, 0, 83, {}, {"host": 16384}, 66, 33, 33],
    "whole": ["storeall", 1, 0, 1, {}, {"host": 4096}, 2, 33, 1],
}
"""Schedule, hits, misses, steps run, bytes by lane, most bytes by tier; calls of both, first steps, backward steps."""
CASES = {
    "storeall, host": ((99,), {"schedule": "storeall"}),
    "storeall, disk": ((3, 50), {"schedule": "storeall"}),
    "storeall, disk, lru": ((3, 50), {"schedule": "storeall", "policy": "lru"}),
    "revolve": ((5,), {"schedule": "revolve"}),
    "revolve, disk": ((2, 4), {"schedule": "revolve:6"}),
    "twolevel": ((3, 9), {"schedule": "twolevel:7,2"}),
    "records": ((40,), {"record": ("u",), "every": 3}),
    "records, disk": ((3, 40), {"record": lambda state, step: {"v": state["v"] + step}, "schedule": "storeall"}),
    "slots": ((6,), {"slots": 2, "schedule": "revolve"}),
    "uneven": ((4,), {"step_costs": [1.0 + step % 5 for step in range(33)]}),
    "whole": ((2,), {"every": 40}),
}


def counted(name, directory):
    """Run a case; return what backward saw, and what was counted."""
    slots, options = CASES[name]
    loop = Loop()
    options = {"costs": COSTS, "directory": directory, "turn": loop.turn} | options
    result = fb.reverse(loop.forward, loop.backward, loop.state, 33, budget=budget_of(slots), **options)
    metrics = result.metrics
    told = [str(result.plan.schedule), metrics.hits, metrics.misses, metrics.advanced, dict(metrics.moved)]
    spans = sum(span.what in ("forward", "backward") for span in metrics.timeline)
    return loop, [*told, dict(metrics.peak), spans, len(loop.first_times), len(loop.seen)]


@pytest.mark.parametrize("name", list(CASES))
def test_the_counts_of_a_reversal_are_the_same_as_ever(name, tmp_path):
    loop, told = counted(name, tmp_path)
    assert told == EXPECTED[name]
    assert loop.turned == [LOOP.expect(33)[1]]
    assert [step for step, *_ in loop.seen] == list(range(0, 33, CASES[name][1].get("every", 1)))[::-1]


def result_of(**changes):
    """A result of which everything is known."""
    plan = fb.plan(20, 1000, fb.Budget(host=5000, disk=50000), costs=COSTS, schedule="storeall")
    metrics = Metrics()
    metrics.seconds, metrics.advanced = 4.0, 20
    metrics.phases |= {"forward": 2.0, "backward": 1.0, "save": 0.5, "compress": 0.25, "restore": 0.125}
    metrics.peak["host"], metrics.peak["disk"] = 5000, 16384
    for name, value in changes.items():
        setattr(metrics, name, value)
    return Result(plan, metrics, "no budget was given")


def test_a_result_sets_what_was_measured_beside_what_was_predicted():
    lines = result_of().explain().splitlines()
    assert lines[0] == "no budget was given" and "measured against predicted:" in lines
    told = {line.split()[0]: line.split()[1:] for line in lines[lines.index("measured against predicted:") + 1 :]}
    assert told["whole"][:2] == ["4", "s"] and told["forward"][:2] == ["2", "s"]
    assert told["save"][:2] == ["750", "ms"] and told["restore"][:2] == ["125", "ms"]
    assert told["host"][0] == "5kB" and told["disk"][0] == "16.4kB"
    assert "stall" not in told and "errors" not in told and "encodings" not in told
    assert told["forward"][2:] == ["predicted", "20", "ms"] and told["backward"][2:] == ["predicted", "20", "ms"]


def test_a_part_of_a_reversal_is_compared_with_its_part_of_the_prediction():
    told = replace(result_of(), steps=5).explain()
    assert "predicted 5 ms" in told and "predicted 20 ms" not in told


def test_a_result_tells_of_errors_and_of_plans_that_were_left():
    sample = Distortion(3, 0.1, 0.25, 40.0, 0.9)
    told = result_of(samples=[sample, sample._replace(relative=0.125)]).explain()
    assert "errors         0.25  of the range at most, in bricks of 2 sampled steps" in told
    assert "the codec's bound holds at each save" in told
    told = result_of(replanned=1, spilled=4, advanced=30).explain()
    assert "the loop went forward 1.50 times over its steps" in told and "moved down" not in told
    assert "4 times one was moved down" in result_of(spilled=4).explain()


def test_costs_that_were_measured_are_those_of_the_next_plan():
    result = result_of()
    costs = result.costs
    assert costs.forward == pytest.approx(2.0 / 20) and costs.backward == pytest.approx(1.0 / 20)
    assert replace(result, steps=5).costs.backward == pytest.approx(1.0 / 5)
    assert replace(result, steps=0).costs is result.plan.costs
    assert result_of(advanced=40).costs.forward == pytest.approx(2.0 / 40)
    assert result_of(advanced=0).costs.forward == pytest.approx(2.0 / 20)
    assert repr(result).startswith("Result(4 s; host 5kB, disk 16.4kB of snapshots at most; Plan(")
