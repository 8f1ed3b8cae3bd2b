"""Trees of torch loops: derived tuples, lists and dicts too, compared by the places of their leaves."""

from collections import OrderedDict, namedtuple

import pytest
import torch

from forebay.errors import StateError
from forebay.torch import checkpointed
from forebay.torch.loops.trees import Structure

Fields = namedtuple("Fields", "pressure velocity")


class Output(OrderedDict):
    """As models of Hugging Face return it."""


def test_other_trees_are_refused_with_both():
    with pytest.raises(StateError, match=r"it is \(\*, \*\) where \{'a': \*\} belongs"):
        Structure.of({"a": 1}).leaves((1, 2), "it")
    with pytest.raises(StateError, match=r"it is a tensor or a value where .*Output.* belongs"):
        Structure.of(Output(a=1)).leaves(1, "it")


def test_a_loop_takes_a_derived_state():
    weight = torch.ones(3, requires_grad=True)

    def step(state, t, weight):
        return Output(y=torch.sin(state["y"] * weight), shape=state["shape"])

    state = Output(y=torch.ones(3), shape=torch.Size([3]))
    final = checkpointed(step, state, 4, params=weight, budget="64kB")
    final["y"].sum().backward()
    assert final["shape"] == torch.Size([3]) and weight.grad is not None
