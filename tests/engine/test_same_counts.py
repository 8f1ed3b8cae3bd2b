"""What a reversal does is counted, and the counts are the same as ever; what its result tells follows from them."""

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

import forebay as fb
from forebay.engine.result import Result
from forebay.metrics import Metrics
from forebay.metrics.metrics import Distortion
from tests.engine.loops import COSTS, LOOP, Loop, budget_of

STEPS = 33
SNAPSHOT_BYTES = 4096


class Case(NamedTuple):
    """A reversal of 33 steps, and what it has to count; bytes are in snapshots."""

    slots: tuple[int, ...]
    options: dict[str, Any]
    schedule: str
    hits: int
    misses: int
    steps: int
    """run forward"""
    peak: tuple[int, ...]
    """of each tier"""
    down: int = 0
    up: int = 0

    @property
    def every(self):
        return self.options.get("every", 1)


STORE_ALL = {"schedule": "storeall"}
RECORD = {"record": lambda state, step: {"v": state["v"] + step}}
CASES = {
    "storeall, host": Case((99,), STORE_ALL, "storeall", 33, 0, 33, (33,)),
    "storeall, disk": Case((3, 50), STORE_ALL, "storeall", 3, 30, 33, (3, 30), 30, 30),
    "storeall, disk, lru": Case((3, 50), STORE_ALL | {"policy": "lru"}, "storeall", 3, 30, 33, (3, 33), 33, 30),
    "revolve": Case((5,), {"schedule": "revolve"}, "revolve:5", 33, 0, 74, (5,)),
    "revolve, disk": Case((2, 4), {"schedule": "revolve:6"}, "revolve:6", 19, 14, 66, (2, 4), 10, 14),
    "twolevel": Case((3, 9), {"schedule": "twolevel:7,2"}, "twolevel:7,2", 29, 4, 71, (3, 4), 4, 4),
    "records": Case((40,), {"record": ("u",), "every": 3}, "storeall", 11, 0, 11, (11,)),
    "records, disk": Case((3, 40), RECORD | STORE_ALL, "storeall", 3, 30, 33, (3, 30), 30, 30),
    "slots": Case((6,), {"slots": 2, "schedule": "revolve"}, "revolve:2", 33, 0, 154, (2,)),
    "uneven": Case((4,), {"step_costs": [1.0 + step % 5 for step in range(STEPS)]}, "weighted:4", 33, 0, 83, (4,)),
    "whole": Case((2,), {"every": 40}, "storeall", 1, 0, 1, (1,)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_counts_of_a_reversal_are_the_same_as_ever(name, tmp_path):
    case, loop = CASES[name], Loop()
    options = {"costs": COSTS, "directory": tmp_path, "turn": loop.turn} | case.options
    result = fb.reverse(loop.forward, loop.backward, loop.state, STEPS, budget=budget_of(case.slots), **options)
    metrics, visited = result.metrics, list(range(0, STEPS, case.every))[::-1]
    assert str(result.plan.schedule) == case.schedule
    assert (metrics.hits, metrics.misses, metrics.advanced) == (case.hits, case.misses, case.steps)
    moved = {"down 1": case.down * SNAPSHOT_BYTES, "up 1": case.up * SNAPSHOT_BYTES} if len(case.slots) > 1 else {}
    assert dict(metrics.moved) == moved
    saves = result.plan.schedule.saves
    avoided = {"down 1": (saves - case.down) * SNAPSHOT_BYTES, "up 1": case.hits * SNAPSHOT_BYTES} if moved else {}
    assert dict(metrics.avoided) == avoided
    # Only a snapshot that is needed again is copied where it is restored; the initial state is copied once.
    copies = Counter(span.what for span in metrics.timeline if span.lane == "compute")
    assert (copies["restore"], copies["save"]) == (len(visited) - saves, 1 + saves)
    peak = [snapshots * SNAPSHOT_BYTES for snapshots in case.peak]
    assert dict(metrics.peak) == dict(zip(result.plan.tiers, peak, strict=True))
    spans = [span for span in metrics.timeline if span.what in ("forward", "backward")]
    assert len(spans) == 2 * len(visited) and len(loop.first_times) == STEPS
    assert loop.turned == [LOOP.expect(STEPS)[1]]
    assert [step for step, *_ in loop.seen] == visited


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


def test_what_took_no_time_is_not_told():
    rows = [line.split()[0] for line in result_of(seconds=0.0).explain().splitlines()]
    assert "whole" in rows and "stall" not in rows


def test_a_part_of_a_reversal_is_compared_with_its_part_of_the_prediction():
    told = replace(result_of(), steps=5).explain()
    assert "predicted 5 ms" in told and "predicted 20 ms" not in told


def test_a_result_tells_of_errors_and_of_plans_that_were_left():
    sample = Distortion(3, 0.1, 0.25, 40.0, 0.9)
    told = result_of(samples=[sample, sample._replace(relative=0.125)]).explain()
    assert "errors         0.25  of the range at most, in bricks of 2 sampled steps" in told
    assert "the codec's bound holds at each save; what" in result_of(generations=1).explain()
    assert "the codec's bound holds at each save, up to 3 of them in a row; what" in result_of(generations=3).explain()
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
