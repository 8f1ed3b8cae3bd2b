"""What is made of what was timed: seconds of a step, of a disk and of a codec, by a clock that can be foretold."""

from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.engine import costing, measure
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.machine.host import HostReversal
from forebay.machine.packing import Packing
from forebay.planner.costs import HostCost


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Let a second pass from each look at the clock to the next."""
    seconds = count()
    monkeypatch.setattr(measure, "perf_counter", lambda: float(next(seconds)))


@pytest.mark.parametrize(
    ("tiers", "asked", "each"),
    [
        (("host",), 0.0, {"call": 0.5, "save": 1, "restore": 1, "take": 1}),
        (("host", "disk"), 0.0, {"call": 0.5, "save": 1, "restore": 1, "take": 0, "drop": 1, "move": 1}),
        (("host",), 1 / 64, {"call": 0.25, "save": 1, "restore": 1, "take": 1}),
        (("host",), 1.0, {"call": 0, "save": 1, "restore": 1, "take": 1}),
    ],
)
def test_each_kind_of_operation_has_its_part_of_what_a_row_of_it_took(tiers, asked, each, tmp_path):
    cost = measure.host_costs(lambda: HostReversal(tmp_path), (np.zeros(3),), tiers, asked=asked)
    told = HostCost(**{name: value / measure.KINDS for name, value in each.items()}, forward=asked, backward=asked)
    assert vars(cost) == pytest.approx(vars(told))


class Run:
    """Steps that take two seconds alone, and three beside something."""

    def __init__(self, lasted):
        self.lasted, self.calls = lasted, 0

    def __call__(self):
        self.calls += 1
        return (2.0, 3.0)[1 - self.calls % 2], 99.0


@pytest.mark.parametrize(("lasted", "beside", "calls"), [(None, 1.0, 0), (0.5, 1.5, 6), (1.0, 1.0, 3), (9.0, 1.0, 3)])
def test_a_disk_is_timed_each_way_alone_both_at_once_and_beside_steps(lasted, beside, calls, tmp_path):
    run = None if lasted is None else Run(lasted)
    link = measure._disk(8192, tmp_path, run)
    # Each way takes a second, and both at once one too: from the start to the end of them there is one look.
    assert (link.up, link.down, link.both, link.beside) == (8192.0, 8192.0, 1.0, beside)
    assert run is None or run.calls == calls


@pytest.mark.parametrize(
    ("name", "error", "ratio"), [("cast:float16", None, 3.2), ("lossless", None, 4.0), ("lossless", 0.1, 4.0)]
)
def test_a_codec_is_timed_on_a_state(name, error, ratio):
    arrays, codec = [np.zeros((64, 64)), np.zeros(4096)], get(name)
    layout = Layout.of(tuple(arrays))
    machine = HostReversal(Path())
    cost = measure.measure_codec(machine, layout, "host", codec, arrays, error)
    packing = Packing.of(layout.leaves, codec, "host")
    assert cost.worst == packing.most / layout.nbytes and cost.encode_host == cost.decode_host == 1.0
    assert cost.ratio == pytest.approx(ratio)
    for what, speed in (("compress", cost.encode), ("decompress", cost.decode)):
        taken = [span.stop - span.start for span in machine.metrics.timeline if span.what == what]
        assert len(taken) == 1 + measure.REPEATS and speed == pytest.approx(layout.nbytes / median(taken[1:]))
    assert cost.spread == (1.0 if packing.fixed else measure.SPREAD)


def test_a_codec_that_is_not_exact_enough_is_left_out():
    arrays = [np.linspace(0, 1, 4096)]
    measured = [
        measure.measure_codec(HostReversal(Path()), Layout.of(arrays), "host", get("cast:float16"), arrays, error)
        for error in (1e-2, 1e-9)
    ]
    assert [cost is None for cost in measured] == [False, True]


def test_a_codec_keeps_an_error_relative_to_the_range_or_not():
    exact, whole = np.array([0.0, 2.0]), np.array([1, 2])
    for worst, is_kept in ((0.2, True), (0.21, False)):
        seen = [np.array([0.0, 2.0 + worst]), whole + 5]
        assert measure._keeps_error([exact, whole], seen, 0.1 + 1e-12) == is_kept


def test_costs_of_a_step_are_those_of_a_call_over_its_steps(monkeypatch):
    timed = fb.Costs(8.0, 12.0, 1e9, operations=HostCost(forward=4.0, backward=2.0))
    monkeypatch.setattr(costing, "measure_host", lambda loop, nbytes, disk: timed)
    monkeypatch.setattr(costing, "host_costs", lambda make, arrays, tiers, step, asked: HostCost(call=1.0, start=asked))
    loop = TimeLoop(lambda state, start, stop: state, (np.zeros(3),), 40, 4, None)
    for step_costs, forward in ((None, 2.0), ([1.0] * 20 + [3.0] * 20, 4.0)):
        costs = costing.measured(loop, fb.Budget(host="1MB"), Path(), False, step_costs)
        assert (costs.forward, costs.backward, costs.copy, costs.measured) == (forward, 3.0, 1e9, True)
        assert costs.operations == HostCost(forward=1.0, backward=0.5, call=1.0)


def test_what_a_caller_did_not_say_is_told():
    note = costing.with_unused
    plan = fb.plan(9, 10**9, "9GB")
    assert note("", None, plan) == "" and note("before", None, plan) == "before"
    assert note("", "lossless", plan).startswith("codec lossless is not used")
    assert note("before", ["lossless", "zfp:8"], plan).startswith("before; codec lossless or zfp:8 is not used")


def test_what_the_host_has_is_what_is_free_less_some_states_and_a_part_to_spare(monkeypatch):
    monkeypatch.setattr(costing, "free_host_bytes", lambda: 1600)
    assert costing.host_room("host", 10) == 1600 - 100 - 40 and costing.host_room("host", 1000) == 0
    monkeypatch.setattr(costing, "free_host_bytes", lambda: None)
    assert costing.host_room("host", 10) is None
    assert costing.of_all_steps(3, 100) == 500 and costing.of_all_steps(0, 7) == 8
    pieces = [costing.driver_overhead(*asked) // costing.PIECE for asked in (("device", False), ("device", True, 3))]
    assert pieces == [2, 7] and costing.driver_overhead("host", True, 3) == 0
