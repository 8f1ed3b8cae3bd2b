"""What is timed before a plan is made: steps one after the other, and each kind of operation."""

import threading
import time
from dataclasses import asdict
from statistics import fmean
from time import sleep

import numpy as np
import pytest

import forebay as fb
from forebay.engine.timing import costing
from forebay.engine.timing.host_costs import host_costs
from forebay.engine.timing.measure import MANY, Steps
from forebay.machine.host import HostReversal


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.5, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (1e-6, [(0, 1), (1, 2), (2, 2 + MANY), (2 + MANY, 2 + 2 * MANY), (2 + 2 * MANY, 2 + 3 * MANY)]),
    ],
)
def test_short_steps_are_timed_several_in_one_call(seconds, expected):
    calls = []

    def forward(state, start, stop):
        assert state == start
        calls.append((start, stop))
        return stop

    def clock(call):
        call()
        start, stop = calls[-1]
        return seconds * (stop - start)

    step, asked = Steps(forward, lambda: 0, 1000, clock).typical()
    assert step == pytest.approx(seconds) and asked >= 0
    assert calls == expected


def test_a_short_loop_is_timed_from_its_start_again():
    calls = []

    def forward(state, start, stop):
        assert state == start
        calls.append((start, stop))
        return stop

    Steps(forward, lambda: 0, 3, lambda call: call() or 1e-9).typical()
    assert calls == [(0, 1), (1, 2), (2, 3), (0, 3), (0, 3)]


@pytest.mark.parametrize("tiers", [("host",), ("host", "disk")], ids=len)
def test_every_kind_of_operation_takes_the_host_some_time(tmp_path, tiers):
    before = threading.active_count()
    cost = asdict(host_costs(lambda: HostReversal(tmp_path), (np.zeros((3, 40)), np.zeros(2, np.int8)), tiers))
    moving = {"drop", "move"} if len(tiers) > 1 else set()
    timed = {name for name, value in cost.items() if value}
    assert timed - {"start"} == {"call", "save", "restore", "take"} | moving
    assert threading.active_count() == before and not list(tmp_path.iterdir())


def test_a_step_between_other_things_takes_longer_than_in_a_row_and_counts_with_its_call(tmp_path):
    def step():
        sleep(2e-4)

    arrays = (np.zeros((3, 40)),)
    alone = host_costs(lambda: HostReversal(tmp_path), arrays, ("host",))
    cost = host_costs(lambda: HostReversal(tmp_path), arrays, ("host",), step, asked=5e-5)
    assert cost.forward == cost.backward == 5e-5
    assert cost.call > alone.call + 1e-4


def test_a_loop_of_tiny_steps_is_predicted_to_wait_for_the_host():
    result = fb.reverse(lambda s, a, b: s, lambda s, t: None, (np.zeros(3),), 30, budget="40kB", progress=False)
    predicted = result.plan.prediction
    assert predicted.host > predicted.save + predicted.restore
    assert "host" in result.explain()


def test_given_costs_are_scaled_by_the_steps_that_were_timed():
    """Short steps are timed several in one call: three dear ones at the start are not what the clock has seen.

    However slow the machine is, no step takes less than it sleeps.
    """
    costs = [1.0, 5.0, 5.0, 5.0] + [1.0] * 96

    def forward(state, start, stop):
        time.sleep(1e-4 * sum(costs[start:stop]))
        return state

    options = {"budget": "1MB", "step_costs": costs, "progress": False}
    result = fb.reverse(forward, lambda state, step: None, (np.zeros(8),), 100, **options)
    assert result.plan.costs.forward > 1e-4


@pytest.mark.parametrize(
    ("budget", "state", "probe"),
    [
        (fb.Budget(host=100 * 4096), 10**6, 50 * 4096),
        (fb.Budget(host=100 * 4096, disk=4096), 10**6, 50 * 4096),
        (fb.Budget(device=100 * 4096, host=10**9), 10**6, 20 * 4096),
        (fb.Budget(device=10**9, host=50 * 4096 + 9), 10**6, 10 * 4096),
        (fb.Budget(device=10**9, host=10**9), 12345, 12345),
        (fb.Budget(host=4096), 10, 4096),
    ],
)
def test_links_are_timed_with_what_leaves_room_for_their_buffers(budget, state, probe):
    assert costing._probe(state, budget) == probe


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("first", [2.0, 0.5], ids="first step {} ms".format)
def test_given_costs_of_steps_are_scaled_by_those_that_were_timed(first, every):
    """A first step of another length than the others decides how they are timed, and nothing else."""
    milliseconds = [1.0] + [first] * every + [0.6] * every + [0.3] * every + [0.1 + 0.01 * step for step in range(90)]
    taken = []

    def clock(call):
        call()
        return 1e-3 * sum(milliseconds[slice(*taken[-1])])

    def forward(state, start, stop):
        taken.append((start * every, stop * every))
        return state

    coarse = costing._in_mean_steps(milliseconds, every)
    step, _ = Steps(forward, lambda: 0, len(coarse), clock, coarse).typical()
    assert step / every == pytest.approx(1e-3 * fmean(milliseconds))


def test_steps_that_are_said_to_cost_nothing_are_timed_as_any_others():
    coarse = costing._in_mean_steps([3.0, 0.0, 0.0], 1)
    assert Steps(lambda state, start, stop: state, lambda: 0, 3, lambda call: call() or 0.5, coarse).typical()[0] == 0.5


def test_what_a_reversal_takes_before_its_first_operation_is_part_of_its_start(tmp_path, monkeypatch):
    reserve = HostReversal.reserve

    def slow(machine, tier, nbytes):
        sleep(0.02)
        reserve(machine, tier, nbytes)

    monkeypatch.setattr(HostReversal, "reserve", slow)
    assert host_costs(lambda: HostReversal(tmp_path), (np.zeros(40),), ("host", "disk")).start >= 0.03
