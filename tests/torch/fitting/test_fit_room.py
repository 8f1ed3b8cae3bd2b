"""Plans of `fit` and the room that they are made in: what allocators take on top, and what iterations have told."""

from itertools import count

import pytest
import torch
from tests.torch.models import AMPLE, Transformer, problem, step
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from forebay import Budget
from forebay.errors import BudgetError
from forebay.planner import Link
from forebay.planner.blocks import Block, BlockChoice, Chain, simulate
from forebay.torch import fit, plan_of
from forebay.torch.fit import _of
from forebay.torch.fitting import device_tools, planning
from forebay.torch.fitting.choices import TREATMENTS, BlockTiming, block_of
from forebay.torch.fitting.fitplan import FitPlan
from forebay.torch.fitting.record import BlockBytes, BlockRecord, BlockTimes
from forebay.torch.gauge import HostGauge
from forebay.torch.mover import mover_for
from forebay.torch.replay.costly_operations import Share
from forebay.torch.saved_tensors import TensorStore

LEAST = 10**9
"""Bytes of the device when all blocks are recomputed."""


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
def counting(monkeypatch):
    """A device that counts, with less slack than a GPU's: the model's blocks are not to fit all at once."""
    monkeypatch.setattr(device_tools, "gauge_for", Counting)
    monkeypatch.setattr(planning, "ALLOCATOR_SLACK", 10_000)
    monkeypatch.setattr(Counting, "link", lambda gauge, mover: Link(1e9, 1e9))


def names_of_steps(budget, taken, steps):
    """Run a model one of whose iterations takes so many bytes; return the choices of each, and what it foresaw."""
    Counting.model, x = problem(Transformer)
    fit(Counting.model, Budget(device=budget, host="1GB"))
    followed = []
    for number in range(steps):
        Counting.taken = taken if number == 2 else 0
        step(Counting.model, x)
        plan = _of(Counting.model).session._iteration.plan
        followed.append(None if plan is None else (plan.names, plan.foreseen.peak))
    return followed


def test_a_plan_that_took_more_than_the_budget_is_left(counting):
    budget = LEAST + 11_000_000
    followed = names_of_steps(budget, budget + 1, 12)
    (left, peak), later = followed[2], followed[3:]
    assert LEAST < peak < budget
    assert all(names != left for names, _ in later)
    assert later[0][1] <= budget - (budget + 1 - peak)  # so many bytes less are planned with


def test_where_no_other_treatment_is_allowed_a_plan_that_took_more_than_the_budget_stays(counting):
    Counting.model, x = problem(Transformer)
    fit(Counting.model, Budget(device=LEAST + 11_000_000, host="1GB"), choice="recompute")
    for number in range(6):
        Counting.taken = LEAST + 12_000_000 if number == 2 else 0
        step(Counting.model, x)
    assert set(plan_of(Counting.model).choices.values()) == {"recompute"}


def test_a_plan_that_took_more_than_foreseen_but_not_than_the_budget_is_tried_to_its_end(counting):
    budget = LEAST + 11_000_000
    followed = names_of_steps(budget, budget - 1, 8)
    assert followed[1] == followed[2] and followed[-1] is not None


def test_a_plan_that_does_not_fit_is_refused_as_long_as_it_does_not():
    model, x = problem(Transformer)
    fit(model, "10kB", choice="keep")
    step(model, x)
    for _ in range(2):
        with pytest.raises(BudgetError, match="does not fit"):
            step(model, x)


def test_a_plan_that_was_given_is_not_dropped_in_silence_when_memory_has_grown(monkeypatch):
    monkeypatch.setattr(device_tools, "gauge_for", Counting)
    monkeypatch.setattr(Counting, "allocated", lambda gauge: LEAST + Counting.taken)
    monkeypatch.setattr(Counting, "taken", 0)
    Counting.model, x = problem(Transformer)
    fit(
        Counting.model, Budget(device=LEAST + 10_000_000), plan=dict.fromkeys([f"blocks.{n}" for n in range(4)], "keep")
    )
    for _ in range(3):
        step(Counting.model, x)
    assert set(plan_of(Counting.model).choices.values()) == {"keep"}
    monkeypatch.setattr(Counting, "taken", 9_500_000)
    with pytest.warns(UserWarning, match="is followed no further"):
        step(Counting.model, x)
    assert set(plan_of(Counting.model).choices.values()) != {"keep"}


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


def test_what_is_in_front_of_the_first_block_is_none_of_the_memory_that_has_grown(counting, monkeypatch):
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
    assert [block.peak_backward for block in plan_of(Counting.model).chain.blocks] == [LEAST + grown] * 4


# What a block takes.


def test_small_tensors_stay_where_others_move():
    record = BlockRecord("0", 0, (), times=BlockTimes(spans=[(0, 1)]))
    record.bytes = BlockBytes(saved=1000, stays=10, encoded=510, loose=7)
    record.facts.costly = {
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


def there_while_summing(steps):
    """Tell for each block, the last first, whether what its product is given is there in the last of some steps."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.GELU(), nn.Linear(8, 8)) for _ in range(2)))
    weak = []
    for block in model:
        block[0].register_forward_hook(lambda module, args, given: weak.append(StorageWeakRef(given.untyped_storage())))
    if steps:
        fit(model, AMPLE, choice="recompute", blocks=list(model))
    for _ in range(max(steps, 1)):
        output = model(torch.randn(4, 8, requires_grad=True))
        with Summing(weak) as summing:
            output.sum().backward()
    return summing.there


def test_a_block_is_weighed_with_what_it_holds_while_gradients_are_summed_as_if_it_were_kept():
    assert [there_while_summing(steps)[0] for steps in (0, 1, 2)] == [True] * 3


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
