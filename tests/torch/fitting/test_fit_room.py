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
from forebay.torch import fit, plan_of
from forebay.torch.fit import _of
from forebay.torch.fitting import planning, tools
from forebay.torch.fitting.facts import TREATMENTS
from forebay.torch.storage.gauge import HostGauge

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
    monkeypatch.setattr(tools, "gauge_for", Counting)
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


def test_a_plan_that_was_given_is_not_dropped_in_silence_when_memory_has_grown(monkeypatch):
    monkeypatch.setattr(tools, "gauge_for", Counting)
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
    monkeypatch.setattr(tools, "gauge_for", Counting)
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


def test_what_is_in_no_block_is_told(counting, monkeypatch):
    Counting.model, x = problem(Transformer)
    peaks = iter([7 * 10**8] * 2 + [LEAST] * 8)  # before the first block, at its end, and of all that follows
    monkeypatch.setattr(Counting, "allocated", lambda gauge: 6 * 10**8)
    monkeypatch.setattr(Counting, "peak", lambda gauge: next(peaks, LEAST))
    fit(Counting.model, Budget(device="2GB", host="1GB"))
    for _ in range(2):
        step(Counting.model, x)
    told = plan_of(Counting.model).explain()
    assert "600MB are there before the first block" in told and "400MB come behind the last" in told
    Counting.model, x = problem(Transformer)
    fit(Counting.model, Budget(device="900MB", host="1GB"))
    step(Counting.model, x)
    with pytest.raises(
        BudgetError, match=r"blocks=\.\.\.\)\. Beside its blocks 600MB are there.*offloaded.*linear_cross_entropy"
    ):
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


@pytest.mark.parametrize("choice", [name for name in TREATMENTS if "offload" in name])
@pytest.mark.parametrize("least", [2**8, 2**13 + 1, 2**14])
def test_what_moves_is_what_the_plan_says_to_the_byte(choice, least, monkeypatch):
    monkeypatch.setitem(tools.LEAST_MOVED, "cpu", least)
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
