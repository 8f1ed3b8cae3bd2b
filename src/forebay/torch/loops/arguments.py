"""What a loop is given: which tensors in it have gradients, and how recordings stand in for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from forebay.errors import StateError
from forebay.torch.loops.trees import Structure


@dataclass(frozen=True)
class Params:
    """What is given to every step beside the state: trees of tensors, modules and anything else."""

    structure: Structure
    leaves: tuple[Any, ...]
    tensors: tuple[Tensor, ...]
    """each tensor among them and each parameter of a module once"""
    themselves: tuple[bool, ...]
    """for each tensor, whether steps get it as it is: where they may reach it through a module or otherwise"""

    @classmethod
    def of(cls, params: Any) -> "Params":
        """Read what was given: one thing, or a tuple or list of several; a named tuple is one thing."""
        single = isinstance(params, Tensor | nn.Module | dict | str) or not hasattr(params, "__iter__")
        single |= hasattr(params, "_fields")
        arguments = (params,) if single else tuple(params)
        structure = Structure.of(arguments)
        leaves = structure.leaves(arguments, "params")
        modules = [leaf for leaf in leaves if isinstance(leaf, nn.Module)]
        theirs = {id(tensor): tensor for module in modules for tensor in module.parameters() if tensor.requires_grad}
        if any(tensor._backward_hooks for tensor in theirs.values()):
            raise StateError("a parameter of a module in params has hooks, which every step would call: remove them")
        tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)} | theirs
        themselves = tuple(
            key in theirs or (tensor.is_leaf and not tensor._backward_hooks) for key, tensor in tensors.items()
        )
        return cls(structure, tuple(leaves), tuple(tensors.values()), themselves)

    @property
    def modules(self) -> list[nn.Module]:
        """The modules among them."""
        return [leaf for leaf in self.leaves if isinstance(leaf, nn.Module)]

    def build(self, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
        """Build the arguments with other tensors in the places of their own."""
        instead = {id(old): new for old, new in zip(self.tensors, tensors, strict=True)}
        built: tuple[Any, ...] = self.structure.build([instead.get(id(leaf), leaf) for leaf in self.leaves])
        return built

    def stand_ins(self) -> list[Tensor]:
        """Make leaves for autograd: tensors with a history are stood in for by their memory without it."""
        return [
            tensor if itself or not tensor.requires_grad else tensor.detach().requires_grad_()
            for tensor, itself in zip(self.tensors, self.themselves, strict=True)
        ]


@dataclass(frozen=True)
class LoopArguments:
    """What a loop is run on."""

    tensors: list[Tensor]
    values: tuple[Any, ...]
    """the plain ones, which with the tensors are the initial state"""
    inputs: list[Tensor]
    params: Params

    @property
    def differentiable(self) -> bool:
        """Whether anything of it has a gradient."""
        return any(tensor.requires_grad for tensor in (*self.tensors, *self.inputs, *self.params.tensors))


def read_inputs(inputs: Any, steps: int) -> tuple[Structure | None, list[Tensor]]:
    """Read the per-step inputs: tensors whose first axis is time."""
    if inputs is None:
        return None, []
    structure = Structure.of(inputs)
    leaves = structure.leaves(inputs, "inputs")
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise StateError(f"inputs hold a {type(leaf).__name__}: give tensors whose first axis is time")
        if leaf.dim() < 1 or leaf.shape[0] != steps:
            raise StateError(
                f"an input has the shape {list(leaf.shape)}: its first axis must have {steps} entries, one a step"
            )
    return structure, leaves
