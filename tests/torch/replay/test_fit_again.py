"""`fit`: a block that is run again finds what it found the first time, or is refused."""

import pytest
import torch
from tests.torch.models import AMPLE, EXACT, MLP, Residual, Transformer, equal, of, pair, problem, step, trains_alike
from tests.torch.models import deterministic as deterministic
from torch import nn

from forebay.torch import fit, plan_of
from forebay.torch.replay import module_state


@pytest.mark.parametrize("choice", EXACT)
def test_several_backward_passes_with_retain_graph(choice):
    model, x = problem(Transformer)
    plain, _ = problem(Transformer)
    model.eval(), plain.eval()
    fit(model, AMPLE, choice=choice)
    expected = torch.autograd.grad(plain(x).sum(), list(plain.parameters()))
    for _ in range(2):
        loss = model(x).sum()
        for retain in (True, True, False):
            assert equal(torch.autograd.grad(loss, list(model.parameters()), retain_graph=retain), expected)


@pytest.mark.parametrize("choice", EXACT)
def test_double_backward(choice):
    def second(model, x):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), list(model.parameters()), allow_unused=True)

    model, plain = nn.Sequential(*(MLP() for _ in range(3))), nn.Sequential(*(MLP() for _ in range(3)))
    plain.load_state_dict(model.state_dict())
    x = torch.randn(32, 8)
    fit(model, AMPLE, choice=choice)
    for _ in range(3):
        for one, other in zip(second(model, x), second(plain, x), strict=True):
            assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("choice", ["recompute", "keep costly, recompute the rest", "recompute, inputs offloaded"])
def test_an_input_that_is_changed_in_place_raises(choice):
    model, x = nn.Sequential(MLP(), MLP()), torch.randn(32, 8)
    fit(model, AMPLE, choice=choice)
    model(x).sum().backward()
    x = (x * 1.0).requires_grad_() * 1.0
    y = model(x)
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


class ReadOneByOne(torch.autograd.Function):
    """A product whose backward asks for what was saved each time that it needs a part of it."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0]
        y = ctx.saved_tensors[1]
        return gradient * y, gradient * x


@pytest.mark.parametrize("choice", ["recompute", "keep costly, recompute the rest"])
def test_a_block_runs_twice_however_often_a_function_reads_what_it_saved(choice):
    class Multiplying(MLP):
        runs = 0

        def forward(self, x):
            Multiplying.runs += 1
            return ReadOneByOne.apply(super().forward(x), torch.tanh(x))

    model, plain = pair(Multiplying)
    fit(model, AMPLE, choice=choice)
    x = torch.randn(32, 8)
    for _ in range(3):
        expected = step(plain, x)
        Multiplying.runs = 0
        assert equal(step(model, x), expected)
        assert Multiplying.runs == 2 * len(model)
    loss = model(x).sum()
    grads = torch.autograd.grad(loss, model.parameters(), retain_graph=True)
    assert equal(grads, torch.autograd.grad(loss, model.parameters()))


@pytest.mark.parametrize("how", ["a graph of its own", "a backward pass"])
def test_a_block_that_differentiates_inside_its_own_forward_is_refused(how):
    class Slope(MLP):
        def forward(self, x):
            given = x.detach().requires_grad_()
            value = super().forward(given)
            if how == "a backward pass":
                value.square().sum().backward()
                return super().forward(x) + given.grad
            return x + torch.autograd.grad(value.square().sum(), given, create_graph=True)[0]

    model, x = nn.Sequential(Slope(), Slope()), torch.randn(32, 8)
    fit(model, AMPLE)
    with pytest.raises(RuntimeError, match=r"differentiates inside its own forward: leave it out with blocks=\.\.\."):
        step(model, x)  # the first iteration recomputes, whatever comes then


def test_parameters_lent_for_a_call_are_those_of_its_second_run_too():
    model, plain = pair(MLP)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    lent = {name: (one.detach() * 2).requires_grad_() for name, one in model.named_parameters()}
    own = list(model.parameters())

    def gradients(net):
        loss = torch.func.functional_call(net, lent, (x,)).square().mean()
        return torch.autograd.grad(loss, list(lent.values()))

    for _ in range(2):
        assert equal(gradients(model), gradients(plain))
    assert all(one is other for one, other in zip(model.parameters(), own, strict=True))


def test_parameters_replaced_before_backward_by_some_that_count_no_changes_are_not_those_of_the_second_run():
    model, plain = pair(MLP)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    own = dict(model.named_parameters())
    loss = model(x).square().mean()
    with torch.inference_mode():
        other = {name: one * 2 for name, one in model.state_dict().items()}
        model.load_state_dict(other, assign=True)
    loss.backward()
    plain(x).square().mean().backward()
    assert equal([one.grad for one in own.values()], [one.grad for one in plain.parameters()])
    assert equal(list(model.parameters()), list(other.values()))


def test_a_parameter_that_is_changed_before_backward_is_refused():
    model, _ = pair(MLP)
    fit(model, AMPLE, choice="recompute")
    loss = model(torch.randn(32, 8)).square().mean()
    with torch.no_grad():
        model[0].up.bias.add_(1.0)
    with pytest.raises(RuntimeError, match=r"parameter or buffer of a block \(bias\) was changed"):
        loss.backward()


def between(model, x):
    """Differentiate an evaluation after the statistics that it read were changed."""
    loss = model.eval()(x).sum()
    model.train()
    with torch.no_grad():
        model(x)
    model.zero_grad()
    loss.backward()
    return [one.grad for one in model.parameters()]


def test_small_buffers_that_are_read_may_change_before_backward():
    model, x = problem(Residual)
    plain, _ = problem(Residual)
    fit(model, AMPLE, choice="recompute")
    found = between(model, x)
    plain.eval()(x).sum().backward()
    assert equal(found, [one.grad for one in plain.parameters()])


def test_large_buffers_that_are_read_may_not_change_before_backward(monkeypatch):
    class Scaled(MLP):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(8))

        def forward(self, x):
            return super().forward(x * self.scale)

    monkeypatch.setattr(module_state, "SMALL", 0)
    model, _ = pair(Scaled)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    for _ in range(2):  # the first run in a mode copies them all
        loss = model(x).sum()
        loss.backward()
    loss = model(x).sum()
    model[0].scale.mul_(2)
    with pytest.raises(RuntimeError, match=r"parameter or buffer of a block \(scale\)"):
        loss.backward()


def test_a_second_run_is_in_the_mode_of_the_first():
    class Louder(MLP):
        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x) * (2.0 if self.training else 1.0)))

    model, plain = pair(Louder)
    fit(model, AMPLE, choice="recompute")
    x, found = torch.randn(32, 8), []
    for net in (model, plain):
        loss = net(x).square().mean()
        net.eval()
        loss.backward()
        found.append([one.grad for one in net.parameters()])
        assert not any(one.training for one in net.modules())
    assert equal(*found)


@pytest.mark.parametrize("choice", ["recompute", None])
def test_a_block_that_scales_its_parameters_as_it_runs_is_kept(choice):
    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.inner = nn.Embedding(10, 8, max_norm=0.5), MLP()

        def forward(self, x):
            return self.inner(x + self.table(torch.arange(32) % 10))

    with pytest.warns(UserWarning, match=r"block \(0\) scales rows of its parameters as it runs"):
        model = trains_alike(of(Looking), choice)
    assert set(plan_of(model).choices.values()) == {"keep"}
