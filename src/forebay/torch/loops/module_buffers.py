"""Buffers of modules that a step must not change: running it again would change them again."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from forebay.errors import StateError


@dataclass(frozen=True)
class _Buffer:
    module: nn.Module
    name: str
    path: str
    """as a user would write it"""
    tensor: Tensor
    version: int
    values: Tensor | None
    """a copy, where it is to be put back"""

    @property
    def changed(self) -> bool:
        """That it was changed in place, or that another tensor was put in its place."""
        if self.module._buffers.get(self.name) is not self.tensor or self.tensor._version != self.version:
            return True
        # Kernels such as batch_norm's write their statistics without counting a version.
        return self.values is not None and not _same_values(self.tensor, self.values)


def _same_values(first: Tensor, second: Tensor) -> bool:
    """Compare tensors, taking what is no number for equal to itself."""
    return torch.equal(first, second) or bool(((first == second) | ((first != first) & (second != second))).all())


class ModuleBuffers:
    """The buffers of some modules as they are now."""

    def __init__(self, modules: Iterable[nn.Module], *, copied: bool) -> None:
        parts = {id(part): (part, path) for module in modules for path, part in module.named_modules()}
        self._buffers = [
            _Buffer(
                part, name, f"{path}.{name}" if path else name, b, b._version, b.detach().clone() if copied else None
            )
            for part, path in parts.values()
            for name, b in part._buffers.items()
            if b is not None
        ]

    def put_back(self) -> list[str]:
        """Put back what has changed, and name it."""
        changed = [buffer for buffer in self._buffers if buffer.changed]
        with torch.no_grad():
            for buffer in self._buffers if changed else []:  # all: some are changed beside without being counted
                buffer.module._buffers[buffer.name] = buffer.tensor
                if buffer.values is not None:
                    buffer.tensor.copy_(buffer.values)
        return [buffer.path for buffer in changed]

    def check(self) -> None:
        """Refuse steps that have changed some, putting back what can be."""
        if changed := self.put_back():
            raise StateError(
                f"the step changes {', '.join(changed)} of a module: steps are run again, and would change it again; "
                "carry it in the state, or call eval() on the module"
            )
