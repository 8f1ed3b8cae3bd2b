"""A block of a fitted model: what is called, what it has, and where it computes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from itertools import count as counted
from typing import Any

import torch
from torch import nn

from forebay.torch.replay.module_state import ModuleState

Call = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class FittedBlock:
    """A block of the model."""

    name: str
    call: Call
    """its own forward"""
    module: nn.Module
    count: int = 1
    """the blocks of the model that it is made of"""
    runs: Iterator[int] = field(default_factory=counted)
    """the numbers of its runs to come, of those that may be made again"""

    @cached_property
    def module_state(self) -> ModuleState:
        """Its parameters, buffers and modes."""
        return ModuleState(self.module)

    @cached_property
    def identity(self) -> int:
        """What tells it from others: its module, or those that it is made of."""
        return id(self.module) if self.count == 1 else hash(tuple(map(id, self.module.children())))

    @property
    def compiled(self) -> bool:
        """Whether torch.compile made its call, whose operations cannot be seen one by one."""
        return compiled(self.module)

    def device(self, tensors: Iterable[torch.Tensor]) -> torch.device:
        """Return the first GPU among these inputs and its parameters, and the host if there is none.

        An input that is on the host, such as lengths, does not mean that the block is.
        """
        for tensor in chain(tensors, self.module_state.parameters()):
            if not tensor.is_cpu:
                return tensor.device
        return torch.device("cpu")

    def differentiable(self, tensors: list[torch.Tensor]) -> bool:
        """Tell whether somebody may differentiate it when it is given these tensors."""
        if any([tensor.requires_grad for tensor in tensors]):  # noqa: C419 - faster
            return True
        # Modules may have been added since, which the block's own list does not know of; that one is faster.
        parameters = chain(self.module_state.parameters(), self.module.parameters())
        return any(parameter.requires_grad for parameter in parameters)


def wraps(module: nn.Module) -> bool:
    """Tell whether torch.compile has put a module around another: it wraps every kind in one of its own."""
    return "_orig_mod" in module._modules


def compiled(module: nn.Module) -> bool:
    """Tell whether torch.compile made a module's call."""
    return wraps(module) or vars(module).get("_compiled_call_impl") is not None  # that is asked for all in every step
