"""Plans of `fit` and the room that they are made in: what allocators take on top, and what iterations have told."""

from dataclasses import replace
from itertools import count

import pytest

torch = pytest.importorskip("torch")

from tests.torch.models import AMPLE, Transformer, problem, step  # noqa: E402
from tests.torch.models import deterministic as deterministic  # noqa: E402
from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from forebay import Budget  # noqa: E402
from forebay.errors import BudgetError  # noqa: E402
from forebay.planner import Link  # noqa: E402
from forebay.planner.blocks import Block, BlockChoice, Chain, Forecast, simulate  # noqa: E402
from forebay.torch import fit, plan_of  # noqa: E402
from forebay.torch.fit import _of  # noqa: E402
from forebay.torch.fitting import device_tools, planning, replanning  # noqa: E402
from forebay.torch.fitting.choices import LOW_OVERHEAD, TREATMENTS, BlockTiming, block_of  # noqa: E402
from forebay.torch.fitting.fitplan import FitPlan  # noqa: E402
from forebay.torch.fitting.planning import ALLOCATOR_SLACK, MARGIN, last_plans, make_plan  # noqa: E402
from forebay.torch.fitting.profile import Profile  # noqa: E402
from forebay.torch.fitting.record import BlockRecord  # noqa: E402
from forebay.torch.fitting.replanning import hooked_blocks  # noqa: E402
from forebay.torch.fitting.timings import StepTiming  # noqa: E402
from forebay.torch.gauge import HostGauge  # noqa: E402
from forebay.torch.mover import mover_for  # noqa: E402
from forebay.torch.replay.costly_operations import Share  # noqa: E402
from forebay.torch.replay.frame import Frame  # noqa: E402
from forebay.torch.replay.module_state import ModuleState  # noqa: E402
from forebay.torch.saved_tensors import TensorStore  # noqa: E402

LEAST, SAVED = 10**9, 10**8
"""Bytes of the device when all blocks are recomputed, and those that each block saves."""
ALL_KEPT = LEAST + 2 * SAVED  # what the last block saves is part of its own peak


def measured_profile(**others):
    """What is known of three blocks, of which to recompute each takes a second."""
    records = [
        BlockRecord(f"{number}", number, (), False, spans=[(0, 1)], saved=SAVED, encoded=SAVED) for number in range(3)
    ]
    for record in records:
        record.peak_forward = record.peak_after = LEAST - SAVED
        record.peak_backward = LEAST
    guess = BlockTiming(1.0, 2.0, {"keep": (0.0, 0.0), "recompute": (0.0, 1.0)})
    return Profile(records=records, first=StepTiming((guess,) * 3, 0.0), learned=1, **others)


def planned(profile, device):
    return make_plan(profile, Budget(device=device), True, None, None)


def rivals(profile, device):
    """What the last look finds, by the first letters of the choices."""
    return [letters_of(plan) for plan in last_plans(profile, Budget(device=device), True, None, None)]


def least_budget(room):
    """The smallest budget whose part without the margin is a room."""
    device = int(room / (1 - MARGIN)) - 2
    return next(device + more for more in range(8) if int((device + more) * (1 - MARGIN)) >= room)


@pytest.fixture
def rooms(monkeypatch):
    """The rooms that plans were sought in."""
    tried, choose = [], planning.choose

    def recording(chain, room):
        tried.append(room)
        return choose(chain, room)

    monkeypatch.setattr(planning, "choose", recording)
    return tried


# Rooms.


def test_room_is_left_where_something_fits_without_it(rooms):
    device = least_budget(ALL_KEPT + ALLOCATOR_SLACK)
    assert set(planned(measured_profile(), device).names) == {"keep"}
    assert "recompute" in planned(measured_profile(), device - 10**6).names  # it would fit in what is left
    assert rooms == [
        int(device * (1 - MARGIN)) - ALLOCATOR_SLACK,
        int((device - 10**6) * (1 - MARGIN)) - ALLOCATOR_SLACK,
    ]


@pytest.mark.parametrize(
    ("device", "tried"),
    [
        (least_budget(LEAST + ALLOCATOR_SLACK), 1),
        (least_budget(LEAST + ALLOCATOR_SLACK) - 10**6, 2),
        (least_budget(LEAST), 2),
        (least_budget(LEAST) - 10**6, 3),
        (LEAST, 3),
    ],
)
def test_rooms_are_tried_from_the_cautious_one_to_the_whole_budget(device, tried, rooms):
    plan = planned(measured_profile(), device)
    assert set(plan.names[:2]) == {"recompute"} and plan.foreseen.peak == LEAST
    most = int(device * (1 - MARGIN))
    assert rooms == [most - ALLOCATOR_SLACK, most, device][:tried]


def test_only_where_the_whole_budget_does_not_do_there_is_an_error(rooms):
    with pytest.raises(BudgetError, match=r"does not fit .* lacks about 1B\b"):
        planned(measured_profile(), LEAST - 1)
    assert rooms == sorted(rooms) and rooms[-1] == LEAST - 1 and len(rooms) == 3


def test_what_nobody_counts_has_no_allocator_to_leave_room_for(rooms):
    make_plan(measured_profile(), Budget(device=10**9), False, None, None)
    assert rooms == [int(10**9 * (1 - MARGIN))]
    rooms.clear()
    make_plan(measured_profile(), Budget(device=SAVED), False, None, None)  # all that is saved at once just fits
    assert rooms == [int(SAVED * (1 - MARGIN)), SAVED]


def test_the_room_is_smaller_by_what_an_iteration_was_short_of(rooms):
    device = least_budget(ALL_KEPT + ALLOCATOR_SLACK)
    plan = planned(measured_profile(), device)
    seen = measured_profile()
    seen.weigh(plan, plan.foreseen.peak + ALLOCATOR_SLACK - 1)  # which was left
    assert planned(seen, device).names == plan.names
    seen.weigh(plan, plan.foreseen.peak + ALLOCATOR_SLACK + 1)
    seen.weigh(plan, plan.foreseen.peak - ALLOCATOR_SLACK)  # the most counts
    assert planned(seen, device).foreseen.peak <= int(device * (1 - MARGIN)) - ALLOCATOR_SLACK - 1 < ALL_KEPT
    rooms.clear()
    assert planned(seen, LEAST).foreseen.peak == LEAST == rooms[-1]  # there is no other way


# What iterations tell.


class Counting(HostGauge):
    """A gauge that counts: an iteration takes what its plan foresaw, or what it is told."""

    counts, taken, model = True, 0, None

    def __init__(self, device):
        super().__init__(device)
        self._asked = count(1)

    def peak(self):
        return LEAST

    allocated = peak

    def most(self):
        began = next(self._asked) % 2  # it is asked when an iteration begins and when it ends
        return 1 if began else Counting.taken or _of(Counting.model).session._iteration.plan.foreseen.peak


@pytest.fixture
def plans(monkeypatch):
    """The plans that were made, of a model whose blocks are not to fit all at once."""
    made, make = [], replanning.make_plan

    def recording(*args):
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(replanning, "make_plan", recording)
    monkeypatch.setattr(device_tools, "gauge_for", Counting)
    monkeypatch.setattr(replanning, "REPLANNED_AFTER", ())
    monkeypatch.setattr(planning, "ALLOCATOR_SLACK", 10_000)
    monkeypatch.setattr(Counting, "link", lambda gauge, mover: Link(1e9, 1e9))
    return made


def counted_steps(part, which=2):
    """Run a model one of whose iterations takes so much of the budget, and one byte."""
    device = least_budget(LEAST + 10_000 + 200_000)
    Counting.model, x = problem(Transformer)
    fit(Counting.model, Budget(device=device, host="1GB"))
    for number in range(5):
        Counting.taken = int(part * device) + 1 if number == which else 0
        step(Counting.model, x)
    return device


@pytest.mark.parametrize("which", [1, 2], ids=["not timed", "timed"])
def test_a_plan_whose_peak_was_exceeded_is_made_anew_with_that_many_bytes_less(plans, which):
    device = counted_steps(1.0, which)
    first, second = plans
    assert LEAST < first.foreseen.peak <= int(device * (1 - MARGIN)) - 10_000
    shortfall = device + 1 - first.foreseen.peak
    assert LEAST <= second.foreseen.peak <= device - shortfall
    assert plan_of(Counting.model).names == second.names != first.names


def test_a_plan_that_does_not_fit_is_refused_as_long_as_it_does_not():
    model, x = problem(Transformer)
    fit(model, "10kB", choice="keep")
    step(model, x)
    for _ in range(2):
        with pytest.raises(BudgetError, match="does not fit"):
            step(model, x)


def test_memory_that_has_grown_too_much_is_told_each_time(monkeypatch):
    monkeypatch.setattr(device_tools, "gauge_for", Counting)
    monkeypatch.setattr(Counting, "allocated", lambda gauge: LEAST + Counting.taken)
    monkeypatch.setattr(Counting, "taken", 0)
    Counting.model, x = problem(Transformer)
    fit(Counting.model, Budget(device=2 * LEAST))
    for _ in range(3):
        step(Counting.model, x)
    monkeypatch.setattr(Counting, "taken", 2 * LEAST)  # as the states of an optimizer
    for _ in range(2):
        with pytest.raises(BudgetError, match="does not fit"):
            step(Counting.model, x)


def test_a_plan_that_took_more_than_foreseen_but_not_than_the_budget_stays(plans):
    counted_steps(0.999)
    assert len(plans) == 1


def test_what_is_in_front_of_the_first_block_is_none_of_the_memory_that_has_grown(plans, monkeypatch):
    class Net(Transformer):
        def forward(self, x):
            Counting.there = LEAST
            x = self.first(x)
            Counting.there += 10**8  # what the first layer saves
            for block in self.blocks:
                x = block(x)
            Counting.there = LEAST
            return self.last(x)

    monkeypatch.setattr(Counting, "allocated", lambda gauge: Counting.there + Counting.taken, raising=False)
    monkeypatch.setattr(Counting, "there", 0, raising=False)
    Counting.model, x, grown = Net(), problem(Transformer)[1], 3 * 10**6
    fit(Counting.model, Budget(device="3GB", host="1GB"))
    for Counting.taken in (0, grown, grown):  # as the states of an optimizer
        step(Counting.model, x)
    assert [block.peak_backward for block in plans[0].chain.blocks] == [LEAST + grown] * 4


# The last look.


def tried(seconds):
    """What is known when choices were tried, named by their first letters, with the seconds that iterations took."""
    names = {"k": "keep", "r": "recompute"}
    found = measured_profile(tried={tuple(names[one] for one in letters): taken for letters, taken in seconds.items()})
    found.plan = planned(measured_profile(), 2 * ALL_KEPT)  # the choices that are carried out now
    return found


def letters_of(plan):
    return "".join(name[0] for name in plan.names)


def test_the_last_look_finds_the_fastest_that_were_tried():
    seen = tried({"kkk": [3.0, 3.0, 3.0], "rrk": [9.0, 1.0, 1.0], "krk": [0.5, 2.0, 2.0], "rkk": [4.0], "kkr": [5.0]})
    assert rivals(seen, 2 * ALL_KEPT) == ["rrk", "krk", "kkk"]  # by their medians
    assert letters_of(planned(seen, 2 * ALL_KEPT)) == "kkk"


def test_a_plan_that_stayed_after_its_turns_goes_on_to_stay_where_it_fits():
    seen = tried({"kkk": [3.0], "rrk": [1.0], "rkk": [2.0]})
    seen.settled = True
    assert rivals(seen, 2 * ALL_KEPT) == ["kkk"]  # whatever the medians: its turns have decided
    assert rivals(seen, least_budget(LEAST + SAVED + ALLOCATOR_SLACK)) == ["rrk"]
    seen.plan = None  # it took more than the budget
    assert rivals(seen, 2 * ALL_KEPT) == ["rrk"]


def test_the_last_look_leaves_out_what_does_not_fit_or_is_not_offered():
    device = least_budget(LEAST + SAVED + ALLOCATOR_SLACK)
    seen = tried({"kkk": [1.0], "rrk": [4.0], "rkr": [3.0], "rrr": [5.0]})
    seen.tried["offload", "keep", "keep"] = [0.1]
    assert rivals(seen, device) == ["rkr", "rrk", "rrr"]
    seen = tried({"kkk": [1.0]})
    (found,) = rivals(seen, device)
    assert found.count("k") == 2  # none of those fits: the planner's


HEAVY = "keep costly, recompute the rest"


def heavily_tried(seconds):
    """What is known of blocks with costly outputs, when choices were tried, H being heavy."""
    names = {"k": "keep", "r": "recompute", "H": HEAVY}
    tried = {tuple(names[one] for one in letters): [taken] for letters, taken in seconds.items()}
    found = measured_profile(tried=tried)
    for record in found.records:
        record.costly = {"costly": Share(frozenset({0}), SAVED // 2)}
    return found


def without_light(choose):
    """What chooses as `choose` does, as if nothing that is light would fit."""

    def chosen(chain, room):
        picks, foreseen = choose(chain, room)
        light = all(one.name != HEAVY for block in chain.blocks for one in block.choices)
        return picks, replace(foreseen, excess=1) if light else foreseen

    return chosen


def test_a_light_plan_is_made_where_one_is_asked_for_and_fits():
    budget = Budget(device=least_budget(LEAST + SAVED + ALLOCATOR_SLACK))
    profile = heavily_tried({"HHk": 1.0})
    heavy, best = last_plans(profile, budget, True, None, None)
    assert LOW_OVERHEAD.isdisjoint(heavy.names[:2]) and LOW_OVERHEAD.issuperset(best.names)
    profile.plan = heavy
    assert make_plan(profile, budget, True, None, None).names == heavy.names  # little has changed
    assert make_plan(profile, budget, True, None, None, True).names == best.names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "choose", without_light(planning.choose))
        assert make_plan(profile, budget, True, None, None, True).names == heavy.names
    first, second, third = best.picks
    profile.plan = replace(best, picks=(second, first, third))
    assert (
        make_plan(profile, budget, True, None, None, True).names == profile.plan.names != best.names
    )  # light, it stays


def test_a_light_plan_is_light_whatever_was_there_before():
    budget = Budget(device=least_budget(LEAST + SAVED + ALLOCATOR_SLACK))
    profile = heavily_tried({"HHk": 1.0})
    _, profile.plan = last_plans(profile, budget, True, None, None)
    profile.plan_base += SAVED // 2  # memory has grown: that one does not fit any more
    assert LOW_OVERHEAD.isdisjoint(make_plan(profile, budget, True, None, None).names[:1])
    assert LOW_OVERHEAD.issuperset(make_plan(profile, budget, True, None, None, True).names)
    profile.plan = None  # one took too much
    assert LOW_OVERHEAD.issuperset(make_plan(profile, budget, True, None, None, True).names)


def test_one_of_the_looks_makes_a_light_plan(monkeypatch):
    made, make = [], replanning.make_plan

    def recording(profile, *others):
        plan = make(profile, *others)
        made.append((profile.learned, others[-1], LOW_OVERHEAD.issuperset(plan.names)))
        return plan

    monkeypatch.setattr(replanning, "make_plan", recording)
    model, x = problem(Transformer)
    fit(model, Budget(device=200_000, host="1GB"))
    for _ in range(replanning.LAST_TIMED + len(replanning.REPLANNED_AFTER) + 1):
        step(model, x)
    looks = 1, *replanning.REPLANNED_AFTER[:-1]
    assert [one[:2] for one in made] == [(seen, seen == replanning.LOW_OVERHEAD_AFTER) for seen in looks]
    assert made[-1] == (replanning.LOW_OVERHEAD_AFTER, True, True)


def test_the_last_look_adds_what_is_light_where_others_are_not():
    device = least_budget(LEAST + SAVED + ALLOCATOR_SLACK)
    budget = Budget(device=device)
    heavy, slow, light = last_plans(heavily_tried({"HHk": 1.0, "rrr": 5.0}), budget, True, None, None)
    assert heavy.names == (HEAVY, HEAVY, "keep") and set(slow.names) == {"recompute"}
    assert set(light.names) == {"keep", "recompute"} and light.foreseen.peak <= device
    letters = "".join(name[0] for name in light.names)
    # Also where it was tried, and three others were faster as long as blocks were timed one by one; but once alone.
    tried = heavily_tried({"HHk": 1.0, "HHH": 1.1, "rHk": 1.2, letters: 1.3})
    assert last_plans(tried, budget, True, None, None)[-1].names == light.names
    found = [plan.names for plan in last_plans(heavily_tried({"HHk": 1.0, letters: 1.1}), budget, True, None, None)]
    assert len(found) == len(set(found)) == 2
    # And where one that is light was the fastest, but is not the best of these by what is known now.
    found = last_plans(heavily_tried({"rrr": 0.9, "HHk": 1.0}), budget, True, None, None)
    assert [set(plan.names) for plan in found] == [{"recompute"}, {HEAVY, "keep"}, {"keep", "recompute"}]
    assert len(last_plans(heavily_tried({"rrr": 0.9}), budget, True, None, None)) == 1
    tried.settled = True
    assert [plan.names for plan in last_plans(tried, budget, True, None, None)] == [heavy.names]


def test_the_last_look_adds_nothing_light_that_does_not_fit():
    tried = heavily_tried({"HHH": 1.0})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "choose", without_light(planning.choose))
        (heavy,) = last_plans(tried, Budget(device=4 * LEAST), True, None, None)
    assert set(heavy.names) == {HEAVY}
    assert len(last_plans(tried, Budget(device=4 * LEAST), True, None, None)) == 2


def test_a_room_with_a_margin_is_left_for_none_that_was_tried():
    """A plan that is new and leaves what it should comes before one that was tried and does not."""
    device = least_budget(ALL_KEPT)
    assert rivals(tried({"kkk": [1.0]}), device + 2 * ALLOCATOR_SLACK) == ["kkk"]
    seen = tried({"kkk": [1.0]})
    seen.shortfall = 2 * ALLOCATOR_SLACK + device - ALL_KEPT + 1
    (found,) = rivals(seen, device + 2 * ALLOCATOR_SLACK)
    assert found.count("k") == 2


def test_light_is_what_the_host_does_nothing_for_each_tensor_with():
    assert {"keep", "recompute", "recompute, inputs offloaded"} == LOW_OVERHEAD


# What a block takes.


def test_small_tensors_stay_where_others_move():
    record = BlockRecord("0", 0, (), False, spans=[(0, 1)], outputs=frozenset({9}))
    record.saved, record.stays, record.encoded, record.loose = 1000, 10, 510, 7
    record.costly = {
        "costly": Share(frozenset({0, 1, 2}), 400, 4),
        "1/2 of costly": Share(frozenset({1, 2}), 103, 4),
        "1/4 of costly": Share(frozenset({2}), 3, 3),
    }
    found = {
        one.name: (one.kept, one.moved) for one in block_of(record, BlockTiming(1, 1), (1, 1, 1), True, None).choices
    }
    assert found["keep"] == (1007, 0) and found["keep costly, recompute the rest"] == (400, 0)
    assert found["offload"] == (17, 990) and found["offload costly, recompute the rest"] == (4, 396)
    assert found["offload 1/2 of costly, recompute the rest"] == (4, 99)
    assert found["keep 1/4 of costly, recompute the rest"] == (3, 0)
    assert "offload 1/4 of costly, recompute the rest" not in found  # nothing of it would move
    assert found["compress"] == (517, 0) and found["offload compressed"] == (17, 500)


@pytest.mark.parametrize("choice", [name for name in TREATMENTS if "offload" in name])
@pytest.mark.parametrize("least", [2**8, 2**13 + 1, 2**14])
def test_what_moves_is_what_the_plan_says_to_the_byte(choice, least, monkeypatch):
    monkeypatch.setitem(device_tools.LEAST_MOVED, "cpu", least)
    codec = "cast:float16" if "compressed" in choice else None
    model, x = problem(Transformer)
    fit(model, AMPLE, codec=codec, choice=choice)
    for _ in range(2):
        step(model, x)
    plan = plan_of(model)
    assert plan.metrics.moved["down 1"] == plan.foreseen.moved
    assert (plan.foreseen.moved > 0) == ("inputs" not in choice or least == 2**8)


class Summing(TorchDispatchMode):
    """Looks whether a storage is there while gradients are summed to the shape of a bias."""

    def __init__(self, weak):
        super().__init__()
        self.weak, self.there = weak, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sum.dim_IntList:
            self.there.append(not self.weak[-1].expired())
        return func(*args, **(kwargs or {}))


def there_while_summing(way):
    torch.manual_seed(0)
    block, weak = nn.Sequential(nn.GELU(), nn.Linear(8, 8)), []
    block[0].register_forward_hook(lambda module, args, output: weak.append(StorageWeakRef(output.untyped_storage())))
    x = torch.randn(4, 8, requires_grad=True)
    frame = Frame(block.forward, ModuleState(block), x.device, weighed=way == "weighed")
    output = block(x) if way == "kept" else frame.run((x,), {})
    with Summing(weak) as summing:
        output.sum().backward()
    assert len(weak) == (1 if way == "kept" else 2)
    frame, output = None, None
    assert all(one.expired() for one in weak)
    return summing.there


def test_a_block_is_weighed_with_what_it_holds_while_gradients_are_summed_as_if_it_were_kept():
    assert there_while_summing("kept") == there_while_summing("weighed") == [True]
    assert there_while_summing("recomputed") == [False]


def test_what_others_hold_is_not_fetched_a_second_time():
    store = TensorStore(mover_for(torch.device("cpu"), 10**6))
    for held in (True, False):
        x = torch.arange(64.0)
        place, expected = x.data_ptr(), x.tolist()
        saved, entry = store.save(x)
        assert store.send(entry)
        store.leave(entry)
        assert store.held == 0
        if not held:
            x = None
        store.fetch(entry)
        assert store.held == entry.size and store.metrics.moved["up 1"] == (0 if held else entry.size)
        found = saved.tensor()
        assert found.tolist() == expected and (not held or found.data_ptr() == place)
        assert store.held == 0
        saved = entry = None
        store.collect()
    assert store.mover.room.used == 0


# Whose backward a plan is told of.


def hooked(fetch, leave, needed=(1, 1, 1, 1, 1), passes=1):
    """The blocks whose backward a plan is told of that fetches and lets go so."""
    foreseen = Forecast(1.0, 0.0, 0, 0, 0, (0,) * 6, tuple(leave), tuple(fetch))
    records = [BlockRecord("", 0, (), False, spans=[(0, 1)] * count) for count in needed]
    return sorted(hooked_blocks(FitPlan(AMPLE, Chain(()), (), foreseen, None, True), records, passes))


def test_a_settled_plan_is_told_where_a_pass_begins_and_where_something_moves():
    assert hooked([()] * 5, [0] * 5) == [4]
    assert hooked([(), (), (0, 1), (), ()], [0] * 5) == [2, 4]
    assert hooked([()] * 5, [2] * 5) == [4]


def test_what_leaves_after_a_pass_has_begun_does_so_though_none_comes_to_the_blocks_behind():
    assert hooked([()] * 5, [3, 3, 2, 2, 2]) == [0, 1, 4]


def test_what_belongs_to_a_block_that_no_loss_comes_to_is_done_at_the_one_before_it():
    assert hooked([(), (), (), (0,), ()], [0] * 5, (1, 1, 1, 0, 1)) == [2, 3, 4]
    assert hooked([()] * 5, [0] * 5, (1, 1, 1, 1, 0)) == [3, 4]


def test_where_there_were_several_passes_all_blocks_tell():
    assert hooked([()] * 5, [0] * 5, passes=2) == [0, 1, 2, 3, 4]


def test_a_block_that_lacks_a_choice_has_the_one_with_the_fewest_bytes_in_what_is_told_of_others():
    keep, again = BlockChoice("keep", kept=100), BlockChoice("recompute", backward=1.0)
    costly, quarter = (BlockChoice(f"keep {name}, recompute the rest", kept=40) for name in ("costly", "1/4 of costly"))
    several = (
        Block("0", 1.0, 2.0, 50, 50, 150, (keep, costly, quarter, again)),
        Block("1", 1, 2, 50, 50, 150, (keep, again)),
    )
    plan = FitPlan(AMPLE, Chain(several), (keep, keep), simulate(Chain(several), (keep, keep), 10**6), None, True)
    alternatives = {name: seconds for name, seconds, _ in plan.alternatives()}
    assert alternatives == {"keep": 6.0, "keep costly, recompute the rest": 7.0, "recompute": 8.0}
