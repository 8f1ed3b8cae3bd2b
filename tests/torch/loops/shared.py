"""What the tests of loops share."""

import pytest
import torch

import forebay as fb
from forebay.torch.loops.decision import forget_plans

QUICK = fb.Costs(1e-3, 1e-3, 1e9)


@pytest.fixture(autouse=True)
def no_plans():
    torch.manual_seed(1)
    forget_plans()


def assert_equal(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one, other), (one - other).abs().max()
