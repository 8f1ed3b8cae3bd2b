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


class Wavefields(list):
    pass


@pytest.mark.parametrize(
    "tree", [Wavefields([1, 2]), torch.Size([3, 4]), Fields(1, (2, None)), OrderedDict(b=1, a=2), {"b": 1, "a": 2}]
)
def test_trees_are_built_as_they_were(tree):
    structure = Structure.of(tree)
    again = structure.build(structure.leaves(tree, "it"))
    assert type(again) is type(tree) and again == tree


def test_derived_dicts_are_built_as_dicts_and_may_stand_for_each_other():
    structure = Structure.of(Output(b=1, a=2))
    assert type(structure.build([1, 2])) is dict
    for tree in ({"a": 2, "b": 1}, Output(b=1, a=2), Output(a=2, b=1)):
        assert structure.leaves(tree, "it") == [1, 2]
        assert Structure.of(tree).leaves(Output(a=2, b=1), "it") == list(tree.values())


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
