"""What a fitted model does not do as meant, it says, once: nothing is swallowed in silence."""

import warnings

import pytest
import torch
from tests.torch.models import AMPLE, MLP, equal, pair, step
from tests.torch.models import deterministic as deterministic
from torch import nn
from torch.utils.checkpoint import checkpoint

from forebay.torch import fit


class Checkpointing(MLP):
    """Checkpoints by itself, as blocks of others do where they are asked to."""

    reentrant = False

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=self.reentrant) + x


class Partly(Checkpointing):
    def forward(self, x):
        return MLP.forward(self, super().forward(x))


class Reentrant(Checkpointing):
    reentrant = True


def told(caught, of):
    return [str(warning.message) for warning in caught if of in str(warning.message)]


@pytest.mark.parametrize("kind", [Checkpointing, Partly, Reentrant])
def test_blocks_that_checkpoint_by_themselves_are_told_of(kind):
    model, plain = pair(kind)
    fit(model, AMPLE)
    x = torch.randn(32, 8, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert equal(step(model, x), step(plain, x))
    assert len(told(caught, "call torch.utils.checkpoint themselves")) == 1


def test_several_graphs_at_once_are_told_of_and_right():
    model, plain = pair(MLP)
    fit(model, AMPLE, choice="recompute")
    x = torch.randn(32, 8)
    step(model, x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(model, x)
        assert not told(caught, "waits for a backward pass")
        for one in (model, plain):
            one.zero_grad()
            sum(one(factor * x).square().mean() for factor in range(1, 5)).backward()
    assert len(told(caught, "waits for a backward pass")) == 1
    gradients = [[parameter.grad for parameter in one.parameters()] for one in (model, plain)]
    assert equal(*gradients)


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_compiled_after_fit_is_told_of(in_place):
    torch._dynamo.reset()
    model, plain = pair(MLP)
    fit(model, AMPLE)
    if in_place:
        model.compile(backend="eager")
    compiled = model if in_place else torch.compile(model, backend="eager")
    with pytest.warns(UserWarning, match="compiled around its blocks"):
        assert equal(step(compiled, x := torch.randn(32, 8)), step(plain, x))


@pytest.mark.parametrize("kind", [MLP, lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)])
def test_nothing_is_told_where_all_is_as_meant(kind):
    model, _ = pair(kind)
    fit(model, AMPLE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            step(model, torch.randn(4, 6, 8))
    assert not told(caught, "")
