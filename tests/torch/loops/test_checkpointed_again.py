"""Loops that come again: each has the plan that was made for one like it, and no other."""

import functools
import gc
import weakref
from contextlib import nullcontext

import pytest
import torch
from tests.torch.loops.shared import QUICK, assert_equal, forget_plans
from tests.torch.loops.shared import no_plans as no_plans
from torch import nn

import forebay as fb
from forebay.errors import StateError
from forebay.torch import checkpointed


class Counting(nn.Module):
    """Puts another tensor in the place of its buffer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, y):
        self.seen = self.seen + 1
        return y * self.weight


class Norm(nn.Module):
    """A normalisation of its own: batch_norm writes the statistics without counting versions."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("variance", torch.full((5,), torch.nan))
        self.weight = nn.Parameter(torch.ones(5))

    def forward(self, y):
        if not self.training:
            return torch.tanh(y * self.weight)
        return nn.functional.batch_norm(y, self.mean, torch.ones(5), self.weight, training=True)


def test_buffers_that_are_written_without_counting_are_noticed_and_put_back():
    module = Norm()

    def run():
        return checkpointed(lambda y, t, module: module(y), torch.randn(8, 5), 10, params=module, budget="64kB")

    with pytest.raises(StateError, match="changes mean of"):  # and not the other, which is no number all the time
        run()
    assert torch.equal(module.mean, torch.zeros(5))
    module.eval()
    run().sum().backward()
    assert module.weight.grad is not None
    module.train()
    with pytest.raises(StateError, match="changes mean of"):
        run()


class Stepping(nn.Module):
    """A module whose method is the step."""

    def __init__(self):
        super().__init__()
        self.norm, self.weight = nn.BatchNorm1d(3), nn.Parameter(torch.ones(3))
        self.bias = nn.Parameter(torch.zeros(3), requires_grad=False)

    def step(self, y, t, weight):
        return torch.sin(self.norm(y) * weight) + self.bias

    def run(self, **more):
        start = torch.linspace(0, 1, 12).reshape(4, 3)
        return checkpointed(self.step, start, 10, params=self.weight, budget="64kB", schedule="revolve:2", **more)


def test_a_module_that_was_set_to_training_or_unfrozen_since_is_looked_at_again():
    module = Stepping().eval()
    with pytest.raises(StateError, match="params="):
        module.run()  # the norm's own parameters
    module.norm.requires_grad_(False)
    module.run().sum().backward()
    module.bias.requires_grad_(True)
    with pytest.raises(StateError, match="params="):
        module.run()
    module.bias.requires_grad_(False)
    module.train()
    with pytest.raises(StateError, match=r"norm\.num_batches_tracked"):
        module.run()
    assert module.norm.num_batches_tracked == 0


def test_buffers_are_looked_at_in_every_call():
    module, weight = Counting(), torch.ones(3, requires_grad=True)
    module.requires_grad_(False)
    module.use = False

    def step(y, t, weight, module):
        return module(y * weight) if module.use else y * weight

    def run():
        return checkpointed(step, torch.ones(3), 10, params=(weight, module), budget="64kB", schedule="revolve:2")

    run().sum().backward()
    module.use = True  # which no plan knows
    with pytest.raises(StateError, match="seen"):
        run()


def deep(depth):
    def step(y, t, weight):
        for _ in range(depth):
            y = torch.sin(y * weight)
        return y

    return step


def changing(y, t, weight):
    y.mul_(weight)
    return y


def keeping(y, t, weight):
    return y * weight


class Stepper:
    def __init__(self, step):
        self.step = step

    def __call__(self, *given):
        return self.step(*given)


@pytest.mark.parametrize("wrapped", [functools.partial, Stepper, lambda step: lambda *given: step(*given)])
def test_steps_of_the_same_code_that_do_something_else_have_plans_of_their_own(wrapped):
    weight = torch.full((2500,), 0.9, requires_grad=True)

    def run(step, **more):
        return checkpointed(wrapped(step), torch.ones(2500), 40, params=weight, budget="2MB", costs=QUICK, **more)

    # The graph of the one fits the budget as a whole, that of the other is fifty times as large.
    assert run(deep(1)).grad_fn.name() != "_LoopBackward"
    assert run(deep(50)).grad_fn.name() == "_LoopBackward"
    run(keeping, schedule="revolve:4")
    with pytest.raises(StateError, match="in place"):
        run(changing, schedule="revolve:4")


class Switched:
    """A step that changes its state in place where a flag says so."""

    in_place = depth = False

    def step(self, y, t, weight):
        if self.in_place:
            return torch.sin(y.mul_(0.9) * weight)
        for _ in range(self.depth):
            y = torch.sin(y * weight)
        return torch.sin(y * 0.9 * weight)


class SwitchedModule(Switched, nn.Module):
    """The same as a module."""


@pytest.mark.parametrize("more", [{"schedule": "revolve:2"}, {}], ids=["revolve", "whole"])
@pytest.mark.parametrize("made", [Switched, SwitchedModule, dict])
def test_a_flag_of_the_object_that_was_changed_is_looked_at_again(made, more):
    thing, weight = made(), torch.full((4,), 1.1, requires_grad=True)

    def by_dict(y, t, weight):
        return torch.sin((y.mul_(0.9) if thing["in_place"] else y * 0.9) * weight)

    start = torch.arange(4.0, requires_grad=True)
    for flag in (False, True):
        thing.__setitem__("in_place", flag) if made is dict else setattr(thing, "in_place", flag)
        step = by_dict if made is dict else thing.step
        with pytest.raises(fb.ForebayError, match="in place") if flag else nullcontext():
            checkpointed(step, start, 6, params=weight, budget="64kB", **more).sum().backward()
        assert torch.equal(start.detach(), torch.arange(4.0))


def test_the_initial_state_is_left_alone_though_a_plan_knows_of_no_changes():
    weight = torch.full((4,), 1.1, requires_grad=True)
    for IN_PLACE[0] in (False, True):  # which no plan looks at
        start = torch.arange(4.0)
        checkpointed(by_global, start, 6, params=weight, budget="1MB").sum().backward()
        assert_equal([start], [torch.arange(4.0)])


IN_PLACE = [False]


def by_global(y, t, weight):
    return torch.sin((y.mul_(0.9) if IN_PLACE[0] else y * 0.9) * weight)


def test_a_plan_is_found_again_for_a_step_made_anew_with_other_numbers():
    plans, weight = [], torch.randn(2000, requires_grad=True)
    for factor in (0.1, 0.2):
        drive = torch.full((2000,), factor)
        checkpointed(
            lambda y, t, weight, factor=factor, drive=drive: torch.sin(y * weight) * factor + drive,
            torch.ones(2000),
            50,
            params=weight,
            budget="64kB",
            report=lambda result: plans.append(result.plan),
        ).sum().backward()
    assert plans[0] is plans[1]


def test_plans_do_not_keep_alive_what_they_were_made_for():
    layer, held = nn.Linear(3, 3), Stepper(keeping)
    weight = torch.ones(3, requires_grad=True)
    checkpointed(lambda y, t, layer, held: layer(y) + held(y, t, 1.0), weight, 10, params=(layer, held), budget="64kB")
    alive = weakref.ref(layer), weakref.ref(held)
    del layer, held
    gc.collect()
    assert [refer() for refer in alive] == [None, None]


def test_hooks_around_the_call_do_not_see_the_steps_that_are_tried_out():
    weight, start = torch.randn(5, requires_grad=True), torch.ones(5, requires_grad=True)

    def loop(y):
        return checkpointed(
            lambda y, t, weight: torch.sin(y * weight), y, 12, params=weight, budget="64kB", schedule="revolve:3"
        )

    wanted = torch.autograd.grad(loop(start).sum(), (start, weight))
    forget_plans()
    final = torch.utils.checkpoint.checkpoint(loop, start, use_reentrant=False)
    assert_equal(torch.autograd.grad(final.sum(), (start, weight)), wanted)


def test_a_budget_that_was_taken_is_told():
    results, weight = [], torch.ones(3, requires_grad=True)
    for _ in range(2):
        checkpointed(
            lambda y, t, w: y * w, torch.ones(3), 10, params=weight, schedule="revolve:2", report=results.append
        ).sum().backward()
    assert all("half of what is free" in result.explain() for result in results)


def test_a_plan_of_more_steps_than_asked_for_is_refused():
    results, weight = [], torch.ones(3, requires_grad=True)
    call = {"step": keeping, "state": torch.ones(3), "steps": 10, "params": weight, "budget": "64kB", "costs": QUICK}
    checkpointed(**call, chunk=100, report=results.append).sum().backward()
    plan = results[0].plan
    assert plan.every == 10
    checkpointed(**call, plan=plan, chunk=100)
    with pytest.raises(fb.PlanError, match="chunk=3"):
        checkpointed(**call, plan=plan, chunk=3)
    with pytest.raises(StateError, match="in place"):
        checkpointed(**call | {"step": changing}, plan=plan)
