"""What the tests of loops share."""

import pytest
import torch

import forebay as fb
from forebay.torch.loops import decision

QUICK = fb.Costs(1e-3, 1e-3, 1e9)


def forget_plans():
    """Have each loop measured and planned anew."""
    decision._decisions.clear()


@pytest.fixture(autouse=True)
def no_plans():
    torch.manual_seed(1)
    forget_plans()


def assert_equal(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one, other), (one - other).abs().max()
