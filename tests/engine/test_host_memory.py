"""A host budget above what is there: planned smaller, or refused, before the first step, and never exceeded."""

import json
import subprocess
import sys

import numpy as np
import pytest

import forebay as fb
from forebay.errors import BudgetError

STATE, STEPS = 4 * 10**6, 40
CODE = """
import json, resource, sys
import numpy as np
import forebay as fb
import forebay.engine.timing.costing as costing

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def run(size, steps, budget):
    total = np.zeros(1)
    def forward(state, start, stop):
        for _ in range(start, stop):
            state = (state[0] * 0.5 + 1.0,)
        return state
    def backward(state, step):
        total[0] += state[0][0]
    result = fb.reverse(forward, backward, (np.ones(size // 8),), steps, budget=budget)
    return result, float(total[0])

size, steps, share = json.loads(sys.argv[1])
run(800, 3, "1MB")  # loads what it needs
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
begun = resident()
limit = int(share * size * steps)
costing.free_host_bytes = lambda: max(0, limit - (resident() - begun))
result, total = run(size, steps, 4 * size * steps)
(peak,) = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([peak - begun, limit, total, result.plan.budget.host, result.note]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how much is free is known on Linux")
def test_a_budget_above_the_limit_of_a_control_group_is_never_exceeded():
    totals = set()
    for share in (0.3, 1.0):
        run = subprocess.run(
            [sys.executable, "-c", CODE, json.dumps([STATE, STEPS, share])], capture_output=True, text=True, check=True
        )
        peak, limit, total, host, note = json.loads(run.stdout)
        assert peak <= limit and host < limit, (share, peak, limit)
        assert "of the host, of which" in note and "are there: taking those" in note
        totals.add(total)
    assert len(totals) == 1


@pytest.fixture
def little(monkeypatch):
    """Leave 100 kB of memory."""
    monkeypatch.setattr("forebay.engine.timing.costing.free_host_bytes", lambda: 100_000)


def reverse(**options):
    state = (np.ones(1024),)
    return fb.reverse(lambda s, a, b: s, lambda s, t: None, state, **{"steps": 30, "budget": "1GB"} | options)


def test_what_is_not_there_at_all_is_refused_before_the_first_step(monkeypatch):
    monkeypatch.setattr("forebay.engine.timing.costing.free_host_bytes", lambda: 1000)
    calls = []
    with pytest.raises(BudgetError, match=r"of which 0B are there: taking those; .* needs"):
        fb.reverse(lambda s, a, b: calls.append(a), lambda s, t: None, (np.ones(1024),), 30, budget="1GB")
    assert not calls


@pytest.mark.parametrize("options", [{}, {"step_costs": "learn"}], ids=str)
def test_less_is_planned_and_told(little, options):
    result = reverse(**options)
    assert result.metrics.peak["host"] <= 100_000 and "taking those" in result.note


def test_a_plan_for_more_memory_is_refused(little):
    plan = fb.plan(30, 8192, fb.Budget(host="1GB"), schedule="storeall")
    with pytest.raises(BudgetError, match=r"the plan takes 246kB of the host, of which 61kB are there: make another"):
        reverse(plan=plan, budget=None)


def test_a_budget_that_nothing_can_fill_stays_as_it_is(little):
    result = reverse(steps=3)
    assert result.plan.budget.host == 10**9 and result.note == ""
