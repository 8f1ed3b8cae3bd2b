"""Steps that would give other gradients when they run again: each is done right, or refused with a reason."""

import functools
import random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.torch.loops.shared import QUICK, assert_equal
from tests.torch.loops.shared import no_plans as no_plans
from torch import nn

import forebay as fb
from forebay.errors import StateError
from forebay.torch import checkpointed


def written_out(step, state, steps, *params):
    for t in range(steps):
        state = step(state, t, *params)
    return state


FORGOTTEN = {
    "state": lambda y, t, w, b: torch.sin(y * w) + b if t == 5 else torch.sin(y * w),
    "the tensor itself": lambda y, t, w, b: b if t == 5 else torch.sin(y * w),
}


@pytest.mark.parametrize("use", FORGOTTEN.values(), ids=FORGOTTEN)
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_tensor_that_was_forgotten_is_noticed_in_whichever_step_uses_it(use, chunk):
    weight, forgotten = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    def step(y, t, weight):
        return use(y, t, weight, forgotten)

    final = checkpointed(step, torch.ones(3), 12, params=weight, budget="64kB", chunk=chunk, costs=QUICK)
    with pytest.raises(StateError, match="params="):
        final.sum().backward()
    with pytest.raises(StateError, match="params="):  # where nothing that was given has a gradient
        checkpointed(step, torch.ones(3), 12, params=torch.ones(3), budget="64kB")


GENERATOR = torch.Generator()


def test_a_tensor_that_was_forgotten_is_noticed_where_only_an_output_uses_it():
    weight, forgotten = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    def step(y, t, weight):
        return torch.sin(y * weight), y * forgotten if t == 5 else y * 1.0

    _, outputs = checkpointed(step, torch.ones(3), 12, params=weight, outputs=True, budget="64kB", chunk=4, costs=QUICK)
    with pytest.raises(StateError, match="params="):
        outputs.sum().backward()


class Drawing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.inner = nn.Parameter(torch.ones(3)), nn.Identity()
        self.inner.generator = torch.Generator()

    def step(self, y, t, *_):
        return y * self.weight + torch.rand(3, generator=self.inner.generator)


class Noise:
    def __init__(self):
        self.generator = np.random.default_rng(1)

    def step(self, y, t, weight):
        return y * weight + self.generator.random()


def closing_over(generator):
    return lambda y, t, weight: y * weight + torch.rand(3, generator=generator)


@pytest.mark.parametrize(
    ("step", "more"),
    [
        (closing_over(torch.Generator()), ()),
        (closing_over([torch.Generator()]), ()),
        (lambda y, t, weight: y * weight + torch.rand(3, generator=GENERATOR), ()),
        (lambda y, t, weight, g: y * weight + torch.rand(3, generator=g), (torch.Generator(),)),
        (lambda y, t, weight, g: y * weight + torch.rand(3, generator=g["g"]), ({"g": torch.Generator()},)),
        (functools.partial(lambda y, t, weight, g: y * weight + g.random(), g=random.Random(1)), ()),
        (Noise().step, ()),
        (Drawing().step, ()),
        (lambda y, t, weight, drawing: drawing.step(y, t), (Drawing(),)),
        (lambda y, t, weight: y * weight + np.random.rand(), ()),
        (lambda y, t, weight: y * weight + random.gauss(0, 1), ()),
    ],
    ids=["closure", "list", "global", "params", "tree", "partial", "object", "method", "module", "numpy", "python"],
)
def test_generators_that_are_not_set_again_are_refused_before_the_loop(step, more, alone):
    weight = torch.ones(3, requires_grad=True)
    for budget in ("8kB", "1MB"):
        with pytest.raises(StateError, match="default generators"):
            checkpointed(step, torch.ones(3), 10, params=(weight, *more), budget=budget)


class Counter:
    calls = 0

    def step(self, y, t, weight):
        self.calls += 1
        return torch.sin(y * weight) / self.calls


def counting(calls):
    return lambda y, t, weight: (calls.append(t), torch.sin(y * weight) / len(calls))[1]


def drifting(scale):
    return lambda y, t, weight: torch.sin(y * weight) * scale.mul_(0.9)


@pytest.mark.parametrize("budget", ["8kB", "1MB"])
@pytest.mark.parametrize("make", [lambda: Counter().step, lambda: counting([]), lambda: drifting(torch.ones(3))])
def test_steps_with_state_of_their_own_are_refused(make, budget):
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(StateError, match="state of its own"):
        checkpointed(make(), torch.ones(3), 10, params=weight, budget=budget)


def test_what_another_thread_draws_is_no_matter(prefetching):
    weight = torch.ones(3, requires_grad=True)
    for _ in range(3):
        final = checkpointed(lambda y, t, weight: y * weight, torch.ones(3), 10, params=weight, budget="8kB")
        assert torch.equal(torch.autograd.grad(final.sum(), weight)[0], torch.full((3,), 10.0))
    assert prefetching.is_alive()


def test_derivatives_of_torch_func_are_refused_but_for_those_that_work():
    def final(weight):
        return checkpointed(lambda y, t, weight: y * weight, torch.ones(3), 10, params=weight, budget="8kB").sum()

    weight = torch.tensor(2.0)
    for transform in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(StateError, match="call backward"):
            transform(final)(weight)
    assert torch.func.jvp(final, (weight,), (torch.tensor(1.0),))[1] == 3 * 10 * 2**9
    assert torch.equal(torch.func.vmap(final)(torch.tensor([1.0, 2.0])), torch.tensor([3.0, 3.0 * 2**10]))

    def by_state(state):
        return checkpointed(lambda y, t: torch.sin(y), state, 10, budget="8kB").sum()

    state = torch.rand(3)
    wanted = torch.func.jvp(lambda y: written_out(lambda y, t: torch.sin(y), y, 10).sum(), (state,), (state,))
    assert torch.func.jvp(by_state, (state,), (state,)) == wanted
    several = torch.rand(2, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(torch.func.vmap(by_state)(several).sum(), several)
    plain = written_out(lambda y, t: torch.sin(y), several, 10)
    assert torch.equal(gradient, torch.autograd.grad(plain.sum(), several)[0])


def test_the_default_generator_may_be_named():
    weight = torch.ones(3, requires_grad=True)
    step = closing_over(torch.default_generator)
    torch.manual_seed(3)
    wanted = torch.autograd.grad(written_out(step, torch.ones(3), 10, weight).sum(), weight)
    torch.manual_seed(3)
    final = checkpointed(step, torch.ones(3), 10, params=weight, budget="64kB", schedule="revolve:2")
    assert_equal(torch.autograd.grad(final.sum(), weight), wanted)


class Layered(nn.Module):
    """A step with everything that may change between the passes, and a head that is no part of it."""

    def __init__(self):
        super().__init__()
        self.layer, self.dropout, self.head = nn.Linear(4, 4), nn.Dropout(0.3), nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.full((4,), 0.9))
        self.frozen = nn.Parameter(torch.full((4,), 1.1), requires_grad=False)
        self.constant = torch.full((4,), 0.7)

    def step(self, y, t, *_):
        return self.dropout(torch.tanh(self.layer(y) * self.scale * self.frozen[:4] + self.constant)) + y

    def run(self, **more):
        start = torch.linspace(0, 1, 12).reshape(3, 4)
        params = tuple(self.layer.parameters())
        return checkpointed(self.step, start, 12, params=params, budget="64kB", schedule="revolve:2", **more)


@torch.no_grad()
def double(module, name):
    getattr(module, name).mul_(2)


@torch.no_grad()
def replace(module, name):
    made = getattr(module, name).clone()
    setattr(module, name, nn.Parameter(made, requires_grad=False) if name == "frozen" else made)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (double, "scale"),
        (double, "frozen"),
        (double, "constant"),
        (replace, "scale"),
        (replace, "frozen"),
        (replace, "constant"),
    ],
)
@pytest.mark.parametrize("again", [False, True], ids=["first pass", "second pass"])
def test_what_a_step_uses_must_not_change_between_the_passes(change, name, again):
    module = Layered()
    loss = module.run().sum()
    if again:
        loss.backward(retain_graph=True)
    change(module, name)
    with pytest.raises(fb.ForebayError, match=f"{name} of a module was changed or replaced"):
        loss.backward()


def test_what_a_step_closes_over_must_not_change_between_the_passes():
    weight, constant = torch.ones(4, requires_grad=True), torch.ones(4)
    final = checkpointed(
        lambda y, t, w: torch.sin(y * w * constant),
        torch.ones(4),
        12,
        params=weight,
        budget="64kB",
        schedule="revolve:2",
    )
    constant.mul_(2)
    with pytest.raises(fb.ForebayError, match=r"a tensor of shape \[4\] was changed"):
        final.sum().backward()


def test_what_a_compiled_step_uses_must_not_change_between_the_passes():
    module, compiled = Layered().eval(), torch.compile(torch.tanh, backend="aot_eager")
    step = torch.compile(lambda y, t, layer, module: compiled(layer(y) * module.scale), backend="aot_eager")
    final = checkpointed(
        step, torch.ones(3, 4), 12, params=(module.layer, module), budget="64kB", schedule="revolve:2", costs=QUICK
    )
    double(module, "scale")
    with pytest.raises(fb.ForebayError, match="scale of a module was changed"):
        final.sum().backward()


def modes(module):
    return [part.training for part in module.modules()]


def change_what_no_step_uses(module):
    module.head(torch.randn(5, 4))
    double(module.head, "running_mean")


@pytest.mark.parametrize(
    "change",
    [nn.Module.eval, lambda module: module.dropout.eval(), change_what_no_step_uses],
    ids=["eval", "eval of a part", "the buffers of another part"],
)
def test_what_may_change_between_the_passes(change):
    module = Layered()
    torch.manual_seed(3)
    (wanted,) = torch.autograd.grad(module.run().square().sum(), module.layer.weight)
    torch.manual_seed(3)
    loss = module.run().square().sum()
    change(module)
    left = modes(module)
    for retain in (True, False):
        (found,) = torch.autograd.grad(loss, module.layer.weight, retain_graph=retain)
        assert torch.equal(found, wanted)
        assert modes(module) == left


def pushed(y, t, weight):
    """Move by a force, which is the derivative of an energy: forward sweeps record nothing unless they are told to."""
    with torch.enable_grad():
        y = y if y.requires_grad else y.detach().requires_grad_()
        (force,) = torch.autograd.grad((y * weight).sin().exp().sum(), y, create_graph=True)
    return y - 0.1 * force


@pytest.mark.parametrize("more", [{"schedule": "revolve:3"}, {"chunk": 4}, {}], ids=["revolve", "chunks", "whole"])
def test_a_step_that_differentiates_inside_itself(more):
    start, weight = torch.linspace(0, 1, 50, requires_grad=True), torch.full((50,), 0.9, requires_grad=True)
    wanted = written_out(pushed, start, 20, weight)
    final = checkpointed(pushed, start, 20, params=weight, budget="1MB", costs=QUICK, **more)
    assert torch.equal(final, wanted)
    found, wanted = (torch.autograd.grad(loss.square().sum(), (start, weight)) for loss in (final, wanted))
    assert_equal(found, wanted)


def adding_from(first):
    """Make a step that changes its state in place, but perhaps not from the first."""

    def step(state, t, weight):
        y, total = state
        if t >= first:
            total = total.add_(weight)
        return torch.sin(y * weight + total), total

    return step


@pytest.mark.parametrize("more", [{"schedule": "revolve:2"}, {"chunk": 4}, {}], ids=["revolve", "chunks", "whole"])
@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_step_that_changes_its_state_in_place_is_refused(first, more):
    weight, start = torch.full((4,), 0.9, requires_grad=True), (torch.ones(4), torch.zeros(4))
    call = {"params": weight, "budget": "64kB" if more else "1MB"}
    if first < 5 or more:  # a loop that is recorded as a whole is one of plain autograd, whose errors these are
        with pytest.raises(StateError, match=f"step {first} changes its state in place"):
            checkpointed(adding_from(first), start, 12, **call, **more)
    with torch.no_grad():
        final = checkpointed(adding_from(first), start, 12, **call)
    torch.testing.assert_close(final[1], weight * (12 - first))
    assert_equal(start, (torch.ones(4), torch.zeros(4)))


WAYS = {"nothing kept": (False, {}), "whole": (True, {}), "planned": (True, {"schedule": "revolve:2"})}
OTHERWISE = {
    "type": lambda y, t: torch.tensor(1.5 if t else 1),
    "shape": lambda y, t: torch.ones(1 if t else 3),
    "structure": lambda y, t: (y, y) if t else [y, y],
    "number": lambda y, t: (y, y) if t else (y,),
}


@pytest.mark.parametrize("output", OTHERWISE.values(), ids=OTHERWISE)
@pytest.mark.parametrize(("gradient", "more"), WAYS.values(), ids=WAYS)
def test_outputs_that_change_their_form_are_refused_in_every_way(gradient, more, output):
    start = torch.ones(3, requires_grad=gradient)
    with pytest.raises(StateError, match="step 1 put out something else"):
        checkpointed(lambda y, t: (y * 1.0, output(y, t)), start, 4, outputs=True, budget="1MB", **more)


class Medium(NamedTuple):
    speed: torch.Tensor
    damping: torch.Tensor


def test_a_named_tuple_is_one_argument():
    medium = Medium(torch.full((4,), 0.9, requires_grad=True), torch.full((4,), 0.1, requires_grad=True))

    def step(y, t, medium):
        return torch.sin(y * medium.speed) - medium.damping * y

    wanted = torch.autograd.grad(written_out(step, torch.ones(4), 12, medium).sum(), medium)
    final = checkpointed(step, torch.ones(4), 12, params=medium, budget="64kB", schedule="revolve:2")
    assert_equal(torch.autograd.grad(final.sum(), medium), wanted)
    assert torch.equal(checkpointed(step, torch.ones(4), 12, params=Medium(*map(torch.detach, medium))), final)


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("order", ["C", "transposed"])
def test_states_that_are_conjugates_or_negatives(chunk, order):
    start = torch.randn(4, 4, dtype=torch.complex64)
    start = (start if order == "C" else start.T).requires_grad_()
    weight = torch.randn(4, 4, dtype=torch.complex64, requires_grad=True)

    def step(state, t, weight):
        y, shift = state
        return (y * weight).conj(), shift * 0.5 if t % 2 else y.conj().imag  # whose negative is only noted

    begin = (start.conj(), start.conj().imag)
    assert begin[0].is_conj() and begin[1].is_neg()
    final = checkpointed(step, begin, 12, params=weight, budget="64kB", schedule="revolve:2", chunk=chunk, costs=QUICK)
    wanted = written_out(step, begin, 12, weight)
    assert_equal(final, wanted)
    found, wanted = (torch.autograd.grad(y.abs().sum() + shift.sum(), (start, weight)) for y, shift in (final, wanted))
    assert_equal(found, wanted)
