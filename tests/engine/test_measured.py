"""What is made of what was timed: seconds of a step, of a disk and of a codec, by a clock that can be foretold."""

from collections import Counter
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.engine.layout import Layout
from forebay.engine.loop import TimeLoop
from forebay.engine.timing import costing, host_costs, measure
from forebay.machine.host import HostReversal
from forebay.machine.packing import Packing
from forebay.planner.costs import HostCost
from forebay.planner.operations import Evict, Fetch, Store


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    """Let a second pass from each look at the clock to the next."""
    seconds = count(1000)
    for timing in (measure, host_costs):
        monkeypatch.setattr(timing, "perf_counter", lambda: float(next(seconds)))


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
    cost = host_costs.host_costs(lambda: HostReversal(tmp_path), (np.zeros(3),), tiers, asked=asked)
    told = HostCost(**{name: value / host_costs.KINDS for name, value in each.items()}, forward=asked, backward=asked)
    assert vars(cost) == pytest.approx(vars(told))


def test_operations_that_are_mixed_take_longer_than_in_a_row(monkeypatch, tmp_path):
    looks, asked = count(), 2.0
    monkeypatch.setattr(host_costs, "perf_counter", lambda: float(next(looks) ** 5))

    def taken(number):
        return (2.0 * number + 1) ** 5 - (2.0 * number) ** 5

    cost = host_costs.host_costs(lambda: HostReversal(tmp_path), (np.zeros(3),), ("host",), asked=asked)
    # Four rounds of four kinds, of which the first does not count: the median is the third. Then three mixed reversals.
    call, save, restore, take = (taken(8 + kind) / host_costs.KINDS for kind in range(4))
    steps, saves = 32, fb.Revolve(32, 4).saves
    slower = taken(17) / (steps * call + saves * (save + take) + (steps - saves) * restore)
    assert slower > 1
    expected = HostCost(
        forward=asked,
        backward=asked,
        call=slower * (call / 2 - asked) + (slower - 1) * asked,
        save=slower * save,
        restore=slower * restore,
        take=slower * take,
    )
    assert vars(cost) == pytest.approx(vars(expected))


def test_movements_between_other_things_are_timed_there(monkeypatch, tmp_path):
    seconds, ran = [1.0] * 39 + [100.0, 340.0, 700.0] + [1.0] * 9, []
    looks = iter([look for start, lasted in enumerate(seconds) for look in (1e4 * start, 1e4 * start + lasted)])
    monkeypatch.setattr(host_costs, "perf_counter", lambda: next(looks))
    run = host_costs.Executor.run

    def running(executor, operations, state):
        ran.append(list(operations))
        return run(executor, ran[-1], state)

    monkeypatch.setattr(host_costs.Executor, "run", running)
    cost = host_costs.host_costs(lambda: HostReversal(tmp_path), (np.zeros(3),), ("host", "disk"))
    # Four rounds of nine kinds, three mixed reversals, and three with movements, of which 340 seconds are the median.
    moved = Counter(map(type, ran[40]))
    assert moved[Evict] and moved[Store] and moved[Fetch]
    assert cost.move == pytest.approx((340 - 1 - moved[Evict] * cost.drop) / (moved[Store] + moved[Fetch]))


class Run:
    """Steps that take two seconds alone, and three beside something, then four and five: others are at work."""

    def __init__(self, lasted):
        self.lasted, self.calls = lasted, 0

    def __call__(self):
        self.calls += 1
        return (2.0 if self.calls % 2 else 2.0 + self.calls / 2), 99.0


@pytest.mark.parametrize(("lasted", "beside", "calls"), [(None, 1.0, 0), (0.5, 1.5, 6), (1.0, 1.0, 3), (9.0, 1.0, 3)])
def test_a_disk_is_timed_each_way_alone_both_at_once_and_beside_steps(lasted, beside, calls, tmp_path):
    run = None if lasted is None else Run(lasted)
    link = measure._disk(8192, tmp_path, run)
    # Each way takes a second, and both at once one too: from the start to the end of them there is one look.
    assert (link.up, link.down, link.both, link.beside) == (8192.0, 8192.0, 1.0, beside)
    assert run is None or run.calls == calls


@pytest.mark.parametrize(
    ("name", "error", "ratio"), [("cast:float16", None, 3.2), ("lossless", None, None), ("lossless", 0.1, None)]
)
def test_a_codec_is_timed_on_a_state(name, error, ratio):
    arrays, codec = [np.zeros((64, 64)), np.zeros(4096)], get(name)
    layout = Layout.of(tuple(arrays))
    machine = HostReversal(Path())
    cost = measure.measure_codec(machine, layout, "host", codec, arrays, error)
    packing = Packing.of(layout.leaves, codec, "host")
    assert cost.worst == packing.most / layout.nbytes and cost.encode_host == cost.decode_host == 1.0
    assert cost.ratio == pytest.approx(ratio) if ratio else cost.ratio > 8
    for what, speed in (("compress", cost.encode), ("decompress", cost.decode)):
        taken = [span.stop - span.start for span in machine.metrics.timeline if span.what == what]
        assert len(taken) == 1 + measure.REPEATS and speed == pytest.approx(layout.nbytes / median(taken[1:]))
    assert cost.spread == (1.0 if packing.fixed else measure.SPREAD)


def test_the_host_takes_what_the_quickest_of_several_took_and_the_first_does_not_count(monkeypatch):
    looks = count()
    monkeypatch.setattr(measure, "perf_counter", lambda: float(next(looks) ** 2))
    arrays = [np.zeros(4096)]
    cost = measure.measure_codec(HostReversal(Path()), Layout.of(arrays), "host", get("cast:float16"), arrays, None)
    # Looks are at 0, 1, 4, 9 for the first, which compiles, and at 16, 25, 36, 49 for the second.
    assert (cost.encode_host, cost.decode_host) == (25 - 16, 49 - 36)


def test_a_loop_of_one_step_is_measured_before_it():
    steps = []
    state = (np.zeros(4096),)
    options = {"record": lambda state, step: steps.append(step) or state, "codec": "cast:float16", "budget": "1MB"}
    fb.reverse(lambda state, start, stop: state, lambda record, step: None, state, 1, **options)
    assert set(steps) == {0}


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
    worth = []
    monkeypatch.setattr(costing, "measure_host", lambda loop, nbytes, disk, costs: worth.append(costs) or timed)
    monkeypatch.setattr(costing, "host_costs", lambda make, arrays, tiers, step, asked: HostCost(call=1.0, start=asked))
    loop = TimeLoop(lambda state, start, stop: state, (np.zeros(3),), 40, 4, None)
    for step_costs in (None, [1.0] * 20 + [3.0] * 20):
        costs = costing.measured(loop, fb.Budget(host="1MB"), Path(), False, step_costs)
        assert (costs.forward, costs.backward, costs.copy, costs.measured) == (2.0, 3.0, 1e9, True)
        assert costs.operations == HostCost(forward=1.0, backward=0.5, call=1.0)
    assert worth == [(), (0.5,) * 5 + (1.5,) * 5]  # steps of the schedule, in mean ones


def test_steps_that_a_device_is_asked_for_go_on_and_begin_again():
    calls = []

    def forward(state, start, stop, replay):
        calls.append((state[0][0], start, stop, replay))
        return (state[0] + (stop - start),)

    step = costing._stepper(TimeLoop(forward, (np.zeros(3),), 5, 2, None))
    for _ in range(5):
        step()
    passage = [(0, 0, 2, True), (2, 2, 4, True), (4, 4, 5, True)]
    assert calls == passage + passage[:2]


@pytest.mark.parametrize(("seconds", "many"), [(1.0, 1), (measure.SHORT, 1), (1e-6, measure.MANY)])
def test_a_step_is_asked_for_in_its_part_of_the_call(seconds, many):
    called = []

    def clock(call):
        call()
        return seconds * called[-1]

    steps = measure.Steps(lambda state, start, stop: called.append(stop - start) or state, lambda: 0, 1000, clock)
    assert steps.typical() == (pytest.approx(seconds), 1 / many)


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
    pytest.importorskip("cuda.bindings")
    monkeypatch.setattr("forebay.cuda.slab.kept_bytes", lambda: 7)
    assert costing.host_room("device", 10) is None
    monkeypatch.setattr(costing, "free_host_bytes", lambda: 1600)
    assert costing.host_room("device", 10) == 1607  # what the process has pinned can be used again
    assert costing.of_all_steps(3, 100) == 500 and costing.of_all_steps(0, 7) == 8
    asked = ("device", False), ("device", True, 3), ("device", True, 3, 2**32)
    assert [costing.driver_overhead(*each) // costing.PIECE for each in asked] == [
        2,
        7,
        22,
    ] and costing.driver_overhead("host", True, 3) == 0


def test_a_rehearsal_is_the_median_of_all_calls_but_the_first(monkeypatch):
    times = iter([0.0, 100.0, 100.0, 101.0, 101.0, 106.0, 106.0, 115.0])
    monkeypatch.setattr(costing, "perf_counter", lambda: next(times))
    called = []
    assert costing._rehearsed(lambda: called.append(None)) == 5.0 and len(called) == 4


def test_arrays_beside_the_memory_of_the_engine_are_those_of_a_loop_that_keeps_records():
    state = (np.zeros(3), np.zeros(4))
    for record, allocations in ((None, 0), ((0,), 2)):
        assert TimeLoop(lambda state, start, stop: state, state, 9, 1, record).allocations == allocations
