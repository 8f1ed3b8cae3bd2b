"""`fit`: a plan is made and followed whatever of a model its loss needs."""

import copy

import pytest
import torch
from tests.torch.cases import mostly_slow
from tests.torch.models import AMPLE, MLP
from tests.torch.models import deterministic as deterministic
from torch import nn

from forebay import Budget
from forebay.errors import BudgetError
from forebay.torch import fit, plan_of
from forebay.torch.fit import _of
from forebay.torch.fitting.planning import SETTLED_AFTER


class Twice(MLP):
    def forward(self, x):
        y = super().forward(x)
        return y * 2, y


class Heads(nn.Module):
    """Gives the output of every block, as models with several losses do."""

    def __init__(self, kind=None):
        super().__init__()
        self.blocks = nn.ModuleList((kind or MLP)() for _ in range(3))

    def forward(self, x):
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        return outputs


class Pairs(nn.Module):
    """Blocks that give two tensors, of which the first is not used."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Twice() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            _, x = block(x)
        return [x]


def one_loss(outputs):
    outputs[-1].square().sum().backward()


def without_the_last(outputs):
    outputs[1].square().sum().backward()


def two_passes(outputs):
    outputs[0].sum().backward(retain_graph=True)
    outputs[-1].square().sum().backward()


@pytest.mark.parametrize("choice", [None, "recompute", "offload"])
@pytest.mark.parametrize(
    ("kind", "backward"), [(Heads, without_the_last), (Heads, two_passes), (Pairs, one_loss), (Heads, one_loss)]
)
def test_a_plan_is_made_whatever_the_loss_needs(kind, backward, choice):
    torch.manual_seed(0)
    model = kind()
    plain = copy.deepcopy(model)
    fit(model, AMPLE, choice=choice)
    x = torch.randn(32, 8)
    for _ in range(5):
        for net in (model, plain):
            net.zero_grad()
            backward(net(x))
        for one, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert (one.grad is None and other.grad is None) or torch.equal(one.grad, other.grad)
    plan = plan_of(model)
    assert len(plan.choices) == 3 and plan.measured is not None
    if choice is None:
        unused = backward is without_the_last
        assert list(plan.choices.values()) == ["keep", "keep", "recompute" if unused else "keep"]
        assert (plan.chain.blocks[2].backward == 0) == unused


def test_a_loss_that_needs_more_than_the_one_measured_is_measured_anew():
    torch.manual_seed(0)
    model = Heads()
    fit(model, AMPLE)
    x = torch.randn(32, 8)
    for backward in (without_the_last, without_the_last, one_loss, one_loss, without_the_last, one_loss):
        backward(model(x))
    assert set(plan_of(model).choices.values()) == {"keep"}
    assert _of(model).session._iteration.plan is not None


def test_a_block_that_gives_its_input_back_leaves_no_hooks_on_it():
    class Passing(MLP):
        def forward(self, x):
            return x

    model = fit(nn.Sequential(Passing(), Passing()), AMPLE)
    x = torch.randn(4, 8, requires_grad=True)
    for _ in range(3):
        model(x).sum().backward()
    assert not x._backward_hooks


def test_what_moves_has_left_when_the_model_returns_wherever_a_pass_begins_then():
    class Short(Heads):
        def __init__(self):
            nn.Module.__init__(self)
            self.blocks = nn.ModuleList(MLP() for _ in range(5))
            self.depth = 5

        def forward(self, x):
            for block in self.blocks[: self.depth]:
                x = block(x)
            return [x]

    torch.manual_seed(0)
    model, x = Short(), torch.randn(64, 8)
    plain = copy.deepcopy(model)
    fit(model, Budget(device="60kB", host="1MB"), choice="offload")
    for _ in range(SETTLED_AFTER + 2):
        one_loss(model(x))
    outputs, now = model(x), _of(model).session._iteration
    assert now.progress.gone == now.plan.foreseen.leave[-1] == 2
    one_loss(outputs)
    model.depth = plain.depth = 3  # by then fewer had to be gone
    model.zero_grad()
    outputs, now = model(x), _of(model).session._iteration
    assert now.plan.foreseen.settle[3] == 1 and now.progress.gone == 3
    one_loss(outputs)
    one_loss(plain(x))
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert one.grad is other.grad is None or torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("odd", ["a loss that needs fewer blocks", "no loss at all"])
def test_blocks_that_are_called_without_their_model_come_to_a_plan_again(odd):
    model, x = fit(Heads(), AMPLE), torch.randn(32, 8)
    for _ in range(SETTLED_AFTER + 2):
        one_loss(model.forward(x))
    outputs = model.forward(x)
    if odd == "a loss that needs fewer blocks":
        outputs[0].sum().backward()
    for _ in range(3):
        one_loss(model.forward(x))
    session = _of(model).session
    assert len(session._iteration.records) == 3 and session._iteration.as_planned
    assert len(plan_of(model).picks) == 3


WAYS = {
    "each before the last one's backward pass": ([32], 1),
    "two, then both backward passes": ([32, 32], 2),
    "two of other sizes, then both": ([32, 16], 2),
    "three, then all": ([32, 32, 32], 3),
}


@pytest.mark.parametrize("depth", mostly_slow([3, 20], "3"))
@pytest.mark.parametrize(("rows", "ahead"), WAYS.values(), ids=WAYS.keys())
def test_forward_passes_between_a_forward_and_its_backward_pass_do_not_keep_it_from_a_plan(rows, ahead, depth):
    model, waiting = fit(nn.Sequential(*(MLP() for _ in range(depth))), Budget(device="110kB", host="1GB")), []
    for number in range(2 * SETTLED_AFTER * len(rows)):
        waiting.append(model(torch.randn(rows[number % len(rows)], 8)))
        if ahead == 1 and number:
            waiting.pop(0).square().mean().backward()
        elif ahead > 1 and len(waiting) == ahead:
            while waiting:
                waiting.pop(0).square().mean().backward()
    assert plan_of(model).measured is not None


def test_forward_passes_that_nobody_differentiates_are_iterations_of_their_own():
    model, x = fit(Heads(), AMPLE), torch.randn(32, 8)
    for _ in range(5):
        model.forward(x)
    one_loss(model.forward(x))
    assert len(plan_of(model).choices) == 3


def test_a_budget_that_several_forward_passes_at_once_exceed_is_enough_for_one():
    model, x = fit(Heads(), Budget(device="40kB")), torch.randn(32, 8)
    held = [model.forward(x) for _ in range(20)]
    one_loss(held.pop())
    with pytest.raises(BudgetError):
        model.forward(x)
    held.clear()
    for _ in range(3):
        one_loss(model.forward(x))
    assert len(plan_of(model).picks) == 3


@pytest.mark.parametrize("change", ["thawed", "in training"])
def test_blocks_that_save_more_than_they_did_are_measured_anew(change):
    class Norming(MLP):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return super().forward(self.norm(x))

    model, x = nn.Sequential(*(Norming() for _ in range(4))), torch.randn(32, 8)
    if change == "thawed":
        model[2:].requires_grad_(False)
    else:
        model[2:].eval()
    fit(model, AMPLE)

    def kept():
        model(x).square().sum().backward()
        return [{one.name: one.kept for one in block.choices}["keep"] for block in plan_of(model).chain.blocks]

    less = [kept() for _ in range(SETTLED_AFTER + 2)][-1]
    model.requires_grad_(True)
    model.train()
    more = [kept() for _ in range(2)][-1]
    assert less[:2] == more[:2] and all(one < other for one, other in zip(less[2:], more[2:], strict=True))
