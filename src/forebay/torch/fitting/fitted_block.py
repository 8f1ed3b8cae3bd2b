"""A block of a fitted model, and what it is called with."""

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import nn

from forebay.torch.fitting.blocks import Call, compiled
from forebay.torch.fitting.record import BlockRecord, Signature
from forebay.torch.replay.module_state import ModuleState


@dataclass(frozen=True, eq=False)
class FittedBlock:
    """A block of the model."""

    name: str
    call: Call
    module_state: ModuleState
    module: nn.Module
    count: int = 1
    """the blocks of the model that it is made of"""

    @cached_property
    def kind(self) -> tuple[Any, ...]:
        """What blocks that are alike have in common, besides their inputs."""
        return type(self.module), tuple(parameter.shape for parameter in self.module.parameters())

    @cached_property
    def identity(self) -> int:
        """What tells it from others: its module, or those that it is made of."""
        return id(self.module) if self.count == 1 else hash(tuple(map(id, self.module.children())))

    @property
    def compiled(self) -> bool:
        """Whether torch.compile made its call, whose operations cannot be seen one by one."""
        return compiled(self.module)

    def record(self, signature: Signature) -> BlockRecord:
        """Begin the record of a call with inputs of this signature."""
        return BlockRecord(self.name, self.identity, signature, self.compiled, (self.kind, signature), self.count)


class Inputs(NamedTuple):
    """What a block is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    """those among them"""


def differentiable(block: FittedBlock, tensors: list[torch.Tensor]) -> bool:
    """Tell whether somebody may differentiate a block that is given these tensors."""
    if any([tensor.requires_grad for tensor in tensors]):  # noqa: C419 - faster
        return True
    # Modules may have been added since, which the block's own list does not know of; that one is faster.
    parameters = chain(block.module_state.parameters(), block.module.parameters())
    return any(parameter.requires_grad for parameter in parameters)
