"""What is decided before anything runs: segments, rooms, sizes of recordings, and what is refused."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import forebay as fb
from forebay.codec import get
from forebay.engine import array_memory, online
from forebay.engine.layout import Layout
from forebay.engine.recorded import Recording, Request, plan_recorded
from forebay.engine.resume import decision
from forebay.engine.spilling.rooms import rooms_of
from forebay.errors import BudgetError, DiskError, PlanError, StateError
from forebay.filesystems import spill_directory
from forebay.machine.packing import Packing
from forebay.tier.sectors import SECTOR

GB = 10**9
NOTHING = Request(None, "auto", None, None, None, None, None)


@pytest.mark.parametrize(
    ("steps", "every", "wanted", "schedule", "starts"),
    [
        (100, 1, 4, "auto", [0, 25, 50, 75]),
        (10, 1, 3, "auto", [0, 3, 6]),
        (10, 3, 2, "auto", [0, 6]),
        (10, 3, 32, "auto", [0, 3, 6, 9]),
        (10, 1, 4, "revolve:5", [0, 5]),
        (10, 1, 4, "revolve:6", [0]),
        (10, 1, 4, "twolevel:2,1", [0, 2, 5, 7]),
        (3, 1, 2, "storeall", [0, 1]),
        (1, 1, 2, "auto", [0]),
    ],
)
def test_a_loop_is_cut_into_segments_of_about_the_same_length(steps, every, wanted, schedule, starts):
    loop = SimpleNamespace(steps=steps, every=every)
    assert decision._starts(loop, wanted, schedule) == starts


def test_progress_gets_its_room_on_the_disk_before_states_do(tmp_path, monkeypatch):
    def most(free, disk, progress=1000, nbytes=100):
        monkeypatch.setattr(decision, "disk_capacity", lambda directory: SimpleNamespace(free=free))
        return decision._most_segments(tmp_path, fb.Budget(host=GB, disk=disk), nbytes, progress)

    assert decision._room_of_progress(0) == 3 * SECTOR and decision._room_of_progress(1) == 6 * SECTOR
    assert most(10**9, None) == most(10**9, 10**9) == decision.MOST == 32
    assert most(1400, None) == most(10**9, 1400) == 2 and most(1600, 10**9) == most(1600, None) == 3
    with pytest.raises(BudgetError, match=r"the disk budget is 1.4kB, and .* needs 1.4kB \(1400 bytes\)"):
        most(10**9, 1399)
    with pytest.raises(BudgetError, match="the disk budget"):
        most(0, 1399)
    for disk in (None, 1400):
        with pytest.raises(DiskError, match=r"has 1.4kB free, and .* needs 1.4kB \(1400 bytes\)"):
            most(1399, disk)


def test_a_budget_of_the_disk_has_what_progress_leaves():
    budget = fb.Budget(host=GB, disk=1000)
    assert decision._beside(budget, 599, 100).disk == 401 and decision._beside(budget, 600, 100).disk is None
    alone = fb.Budget(host=GB)
    assert decision._beside(alone, 600, 100) is alone


def test_segments_have_the_costs_of_their_own_steps():
    costs = fb.Costs(2.0, 1.0, 1.0, steps=(1.0, 3.0, 0.0, 0.0, 2.0, 6.0))
    first, none, last = (decision._costs_between(costs, start, start + 2) for start in (0, 2, 4))
    assert (first.steps, first.forward) == ((1.0, 3.0), 2.0) and (last.steps, last.forward) == ((2.0, 6.0), 4.0)
    assert (none.steps, none.forward) == ((), 2.0)
    even = fb.Costs(2.0, 1.0, 1.0)
    assert decision._costs_between(even, 0, 3) == even


@pytest.mark.parametrize("slots", [3, 5, 6, 7, 8, 9, 12, 70])
def test_segments_take_a_small_share_of_the_time_and_are_left_where_one_plan_is_quicker(slots, tmp_path):
    state, costs = (np.zeros(500),), fb.Costs(2.0, 1.0, 1e9)

    def plan(forward, state, steps, **options):
        return fb.plan(steps, 4096, options["budget"], costs=options["costs"], schedule=options["schedule"]), "a note"

    asked = {"budget": fb.Budget(host=slots * 4096), "costs": costs, "schedule": "auto"}
    loop = decision.SurvivingLoop(print, print, state, 60, None, {}, asked, plan, None)
    decided = decision.decide(loop, tmp_path, Layout.of(state), lambda: decision.Keeping(0.5, 0, 1e9, 4096))
    starts, plans = decided["starts"], [fb.Plan.from_json(text) for text in decided["plans"]]
    assert len(starts) == min(32, int(0.03 * decided["seconds"] / 0.5)) and decided["note"] == "a note"
    stops = [*starts[1:], 60]
    numbers = decided["plan numbers"]
    assert [plans[number].steps for number in numbers] == [b - a for a, b in zip(starts, stops, strict=True)]
    whole = fb.plan(60, 4096, asked["budget"], costs=costs)
    in_segments = 2.0 * starts[-1] + sum(plans[number].prediction.seconds for number in numbers)
    assert (decided["whole"] is not None) == (whole.prediction.seconds < in_segments)
    assert decided["whole"] in (None, whole.to_json()) and decided["seconds"] == whole.seconds


def test_schedules_of_segments_are_known_by_name():
    assert decision._named("revolve:3") == decision._named(fb.Revolve(9, 3)) == "revolve:3"
    for schedule in (None, [1], fb.schedule.Foreign(1, tuple(fb.Revolve(1, 1)))):
        with pytest.raises(PlanError, match="by its name"):
            decision._named(schedule)
    assert [decision._least(name) for name in ("auto", "storeall", "twolevel:4,9", "revolve:2")] == [1, 1, 9, 2]
    plan = fb.plan(9, GB, "9GB")
    known = {"zfp:8": fb.CodecCost(1, 1e9, 1e9), "lossless": fb.CodecCost(1, 1e9, 1e9)}
    coded = [replace(plan, costs=replace(plan.costs, codecs=known), codec=codec) for codec in (None, *known)]
    assert [decision._is_exact(each) for each in coded] == [True, False, True]
    assert decision._name(fb.plan) == "plan" and decision._name(partial(fb.plan)) == "partial"


@pytest.mark.parametrize(
    ("change", "steps", "sizes"),
    [
        ({}, 1, [1]),
        ({}, 2, [1]),
        ({}, 3, [1, 2]),
        ({}, 16, [1, 2, 4, 8]),
        ({}, 17, [1, 2, 4, 8, 16]),
        ({"chunk": 5}, 17, [5]),
        ({"chunk": 50}, 17, [17]),
        ({"schedule": "revolve"}, 5, [1, 2, 4]),
        ({"schedule": "revolve:3"}, 17, [1]),
        ({"schedule": fb.Revolve(17, 3)}, 17, [1]),
    ],
)
def test_so_many_steps_may_be_recorded_at_once(change, steps, sizes):
    assert replace(NOTHING, **change).sizes(steps) == sizes


def test_a_request_says_what_it_asks_for():
    plan = fb.plan(8, GB, "9GB", every=4)
    asked = [{"chunk": 4}, {"codec": "lossless"}, {"schedule": "revolve"}, {"plan": plan}]
    asked += [{"budget": "1GB"}, {"costs": fb.Costs(1, 1, 1)}, {"directory": "/nowhere"}]
    requests = [NOTHING, *(replace(NOTHING, **change) for change in asked)]
    assert [request.asks_for_nothing for request in requests] == [True] + [False] * 4 + [True] * 3
    assert len({request.key() for request in requests}) == len(requests)
    assert str(requests[-1].where) == "/nowhere" and NOTHING.where == spill_directory()
    memory = SimpleNamespace(tier="host")
    for request in (*requests[:4], replace(requests[4], chunk=4), replace(requests[4], chunk=9)):
        (replace(request, plan=fb.plan(8, GB, "9GB", every=8)) if request.chunk == 9 else request).check(8, memory)
    wrong = {"chunk": [0, -1, 1.5, "2"], "budget": [fb.Budget(device="1GB"), "much"], "schedule": ["fancy"]}
    wrong |= {"codec": ["fancy"], "plan": [replace(requests[4], chunk=5)]}
    for name, values in wrong.items():
        for value in values:
            request = value if isinstance(value, Request) else replace(NOTHING, **{name: value})
            with pytest.raises(fb.ForebayError):
                request.check(8, memory)
    with pytest.raises(fb.ForebayError, match="at least one step"):
        NOTHING.check(0, memory)


def test_a_budget_is_checked_before_anything_is_recorded():
    for request, steps, least in ((NOTHING, 8, 1), (replace(NOTHING, chunk=3, schedule="storeall"), 9, 3)):
        request.check_budget(steps, GB, fb.Budget(host=least * GB))
        with pytest.raises(BudgetError):
            request.check_budget(steps, GB, fb.Budget(host=least * GB - 1))
        replace(request, codec="lossless").check_budget(steps, GB, fb.Budget(host=1))  # who knows how small it gets


def test_graphs_that_have_no_room_are_refused_in_words():
    costs, record = fb.Costs(1.0, 1.0, 1e12), Recording(GB, 0.5, 2.0)
    planned = partial(plan_recorded, 8, GB, fb.Budget(host=4 * GB), costs, record, codecs=[])
    assert planned(replace(NOTHING, chunk=4)).every == 4
    with pytest.raises(BudgetError, match="the graphs of 4 further steps take 4GB of the host budget of 4GB: try a"):
        planned(replace(NOTHING, chunk=5))
    with pytest.raises(BudgetError, match=r"needs 2GB .*\(the graphs of 3 further steps take 3GB of the host"):
        planned(replace(NOTHING, chunk=4, schedule="storeall"))
    with pytest.raises(BudgetError, match=r"needs 8GB .* at least$"):
        planned(replace(NOTHING, chunk=1, schedule="storeall"))
    assert [planned(NOTHING, largest=largest).every for largest in (1, 2, 3)] == [1, 2, 2]
    assert planned(NOTHING, largest=0).every == planned(replace(NOTHING, chunk=1), largest=0).every == 1
    assert planned(replace(NOTHING, chunk=2), largest=2).every == 2
    with pytest.raises(BudgetError, match="chunk=3: the device holds the graphs of 2 steps"):
        planned(replace(NOTHING, chunk=3), largest=2)


def test_a_plan_for_something_else_is_refused():
    state, costs = (np.zeros(1024),), fb.Costs(1.0, 1.0, 1e9, codecs={"lossless": fb.CodecCost(2, 1e12, 1e12)})

    def reverse(steps=9, nbytes=8192, budget=None, **options):
        planned = {name: options.pop(name) for name in ("codec", "schedule", "record_bytes") if name in options}
        plan = fb.plan(steps, nbytes, budget or fb.Budget(host="1MB"), costs=costs, **planned)
        codec = {"codec": "lossless"} if "codec" in planned else {}
        asked = {"steps": 9} | codec | options
        return fb.reverse(lambda s, a, b: s, lambda s, t: None, state, plan=plan, progress=False, **asked)

    reverse()
    reverse(codec="lossless")
    for options, said in (
        ({"steps": 8}, "made for 8 steps, every 1; the loop has 9, every 1"),
        ({"every": 2}, "made for 9 steps, every 1; the loop has 9, every 2"),
        ({"budget": fb.Budget(device="1MB")}, "the plan starts on the device, but the arrays are on the host"),
        ({"nbytes": 100, "schedule": "storeall", "budget": fb.Budget(host=900)}, "made for snapshots of 100 bytes"),
        ({"nbytes": 100, "budget": fb.Budget(host=900), "codec": "lossless"}, "a snapshot that does not shrink takes"),
        ({"record_bytes": 100, "schedule": "storeall", "budget": fb.Budget(host=9000)}, "the plan keeps records"),
    ):
        with pytest.raises(PlanError, match=said):
            reverse(**options)
    for budget, is_enough in (("1MB", True), (10**6, True), ("999999B", False), (fb.Budget(host="1MB", disk=1), True)):
        plan = fb.plan(9, 8192, fb.Budget(host="1MB"), costs=costs)
        run = partial(fb.reverse, lambda s, a, b: s, lambda s, t: None, state, 9, plan=plan, progress=False)
        if is_enough:
            run(budget=budget)
        else:
            with pytest.raises(PlanError, match="which is more than"):
                run(budget=budget)


def test_encoded_snapshots_begin_with_some_more_room_than_planned():
    layout, codec = Layout.of((np.zeros(10**4),)), get("lossless")
    packing = Packing.of(layout.leaves, codec, "device")
    costs = fb.Costs(1, 1, 1e9, fb.Link(1e9, 1e9), fb.Link(1e9, 1e9), codecs={"lossless": fb.CodecCost(4, 1e12, 1e12)})
    budget = fb.Budget(device=10**6, host=10**6, disk=10**6)
    plan = fb.plan(60, layout.nbytes, budget, costs=costs, codec="lossless", schedule="revolve:50")
    assert plan.codec == "lossless" and len(plan.prediction.peak) == 3
    rooms, peak = rooms_of(plan, layout, packing, 0), plan.prediction.peak
    most = (10**6 - packing.scratch, *[10**6] * (len(peak) - 1))
    first = [min(max(int(1.1 * n * plan.snapshot_bytes), packing.most), m) for n, m in zip(peak, most, strict=True)]
    assert rooms.most == most and rooms.first[0] == min(first[0] + packing.most, most[0])
    assert rooms.first[1:2] == tuple(first[1:2]) and rooms.first[2:] == most[2:]
    assert rooms_of(plan, layout, None, 0).first == tuple(n * layout.nbytes for n in peak)


def test_what_is_saved_has_to_be_in_the_order_of_the_state():
    layout = Layout.of((np.zeros((3, 4)),))
    assert layout.check((np.ones((3, 4)),))[0].sum() == 12
    with pytest.raises(StateError, match="with strides"):
        layout.check((np.ones((3, 4), order="F"),))
    record = Layout.of((np.zeros((3, 4)),), "record")
    assert record.match_record((np.ones((3, 4), order="F"),))[0].flags.c_contiguous


@pytest.mark.parametrize(
    ("forward", "every", "steps", "lap"),
    [(1.0, 1, 100, 1), (4e-4, 1, 100, 3), (4e-4, 2, 100, 2), (5e-4, 2, 100, 1), (1.0, 1, 8192, 1), (1.0, 1, 8193, 2)],
)
def test_so_many_steps_are_timed_as_one(forward, every, steps, lap):
    problem = SimpleNamespace(costs=SimpleNamespace(forward=forward), every=every, coarse_steps=steps)
    assert online._lap(problem) == lap


def test_segments_count_from_their_start_what_the_loop_counts_from_its_own():
    calls = []

    def forward(state, start, stop, replay):
        calls.append((start, stop, replay))
        return state

    asked = {"record": lambda state, step: step}
    loop = decision.SurvivingLoop(forward, print, None, 90, None, None, asked, None, None)
    assert loop.record_from(50)(None, 2) == 52 and replace(loop, options={"record": ("u",)}).record_from(50) == ("u",)
    for before in (False, True):
        segment = loop.forward_from(50, replay=before)
        segment(None, 1, 3, replay=False)
        segment(None, 1, 2, replay=True)
    assert calls == [(51, 53, False), (51, 52, True), (51, 53, True), (51, 52, True)]
    plain = replace(loop, forward=lambda state, start, stop: (start, stop))
    assert plain.forward_from(50, replay=True)(None, 1, 3) == (51, 53)
    assert [replace(loop, options={"every": every}).every for every in (1, 7, 200)] == [1, 7, 90]
    assert [replace(loop, options={"synchronous": asked}).synchronous for asked in (None, False, True)] == [
        False,
        False,
        True,
    ]
    forward.synchronous = True
    assert [replace(loop, options={"synchronous": asked}).synchronous for asked in (None, False)] == [True, False]


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ([0], 0),
        ([1, 1], 1),
        ([None, 2], 2),
        ([None], None),
        ([0, 1], "cuda:0 and cuda:1"),
        (["host", 0], "some on a GPU"),
    ],
)
def test_arrays_are_in_one_place(devices, said, monkeypatch):
    """On devices that are told by libraries of a kind."""
    library = SimpleNamespace(on_host=lambda array: array == "host", device=lambda array: array, leaf_spec=repr)
    monkeypatch.setattr(array_memory.dispatch, "array_library", lambda array: library)
    monkeypatch.setattr(array_memory.dispatch, "device_library", lambda spec: None)
    monkeypatch.setattr(array_memory, "_device", lambda index, arrays: index)
    monkeypatch.setattr(array_memory, "arrays_of", lambda state: state)
    if isinstance(said, str):
        with pytest.raises(StateError, match=said):
            array_memory.memory_of(devices)
    else:
        assert array_memory.memory_of(devices) == said
    with pytest.raises(StateError, match="holds no arrays"):
        array_memory.memory_of([])
