"""Steps that would give other gradients when they run again: each is done right, or refused with a reason."""

import pytest
import torch

import penstock as ps
from penstock.errors import StateError
from penstock.torch import checkpointed
from penstock.torch.loops.planned import forget_plans

QUICK = ps.Costs(1e-3, 1e-3, 1e9)


@pytest.fixture(autouse=True)
def no_plans():
    torch.manual_seed(1)
    forget_plans()


def assert_equal(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one, other), (one - other).abs().max()


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


def test_a_tensor_that_was_forgotten_is_noticed_where_only_an_output_uses_it():
    weight, forgotten = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)

    def step(y, t, weight):
        return torch.sin(y * weight), y * forgotten if t == 5 else y * 1.0

    _, outputs = checkpointed(step, torch.ones(3), 12, params=weight, outputs=True, budget="64kB", chunk=4, costs=QUICK)
    with pytest.raises(StateError, match="params="):
        outputs.sum().backward()
