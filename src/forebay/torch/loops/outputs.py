"""What the steps of a loop put out: the same kinds of tensors in every step, stacked along a first axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from forebay.errors import StateError
from forebay.torch.loops.trees import Structure


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
