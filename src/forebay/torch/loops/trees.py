"""Trees of tensors and plain values in tuples, lists and dicts: taken apart into leaves, and put together again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optree
import torch
from torch import Tensor

from forebay.engine.trees import flatten
from forebay.errors import StateError


@dataclass(frozen=True)
class Structure:
    """How a tree is built, without its leaves."""

    spec: optree.PyTreeSpec
    paths: tuple[tuple[Any, ...], ...]
    """of its leaves: the keys and numbers that lead to each"""

    @classmethod
    def of(cls, tree: Any) -> "Structure":
        """Read the structure of a tuple, list or dict, nested or not; anything else is a leaf."""
        _, spec = flatten(tree, _is_leaf)
        return cls(spec, tuple(spec.paths()))

    def leaves(self, tree: Any, who: str) -> list[Any]:
        """Take a tree apart, refusing one that is built otherwise; a list may stand in the place of a tuple."""
        leaves, spec = flatten(tree)
        if spec == self.spec:
            return leaves
        leaves, spec = flatten(tree, _is_leaf)
        at = dict(zip(spec.paths(), leaves, strict=True))
        if at.keys() != set(self.paths):
            raise StateError(f"{who} is {_text(spec)} where {_text(self.spec)} belongs")
        return [at[path] for path in self.paths]

    def build(self, leaves: Sequence[Any]) -> Any:
        """Put leaves together."""
        return self.spec.unflatten(leaves)


def _is_leaf(tree: Any) -> bool:
    return not isinstance(tree, tuple | list | dict)


def _text(spec: optree.PyTreeSpec) -> str:
    """Write how a tree is built, its leaves as stars."""
    if spec.is_leaf():
        return "a tensor or a value"
    return repr(spec).removeprefix("PyTreeSpec(").rpartition(", NoneIsLeaf")[0]


@dataclass(frozen=True)
class OutputForm:
    """What the outputs of all steps have in common."""

    structure: Structure
    kinds: tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
    """of each tensor"""

    @classmethod
    def of(cls, output: Any) -> "OutputForm":
        """Read the form of one output."""
        return cls(
            Structure.of(output), tuple((leaf.shape, leaf.dtype, leaf.device) for leaf in output_leaves(output, True))
        )

    def leaves(self, output: Any, step: int) -> list[Tensor]:
        """Take the output of a step apart, refusing one of another form."""
        if OutputForm.of(output) != self:
            raise StateError(
                f"step {step} put out something else than step 0: every step puts out the same shapes and types"
            )
        return output_leaves(output, True)

    def empty(self, count: int) -> list[Tensor]:
        """Allocate room for the outputs of so many steps."""
        return [torch.empty((count, *shape), dtype=dtype, device=device) for shape, dtype, device in self.kinds]


def put(leaves: Sequence[Tensor], wholes: Sequence[Tensor], step: int) -> None:
    """Put the output of a step to its place."""
    for leaf, whole in zip(leaves, wholes, strict=True):
        whole[step].copy_(leaf)


def output_leaves(output: Any, wanted: bool) -> list[Tensor]:
    """Take the output of a step apart."""
    if not wanted:
        return []
    leaves = Structure.of(output).leaves(output, "an output")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise StateError(f"a step put out a {type(leaf).__name__}: outputs are tensors, in tuples, lists and dicts")
    return leaves
