"""What a step reaches beside its arguments: buffers, which it must not change, and what must be as it was later."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import optree
import torch
from torch import Tensor, nn

from forebay.errors import ForebayError, StateError
from forebay.torch.compat import TorchDispatchMode, version_of
from forebay.torch.mover import storage_of


class ChangedError(ForebayError, RuntimeError):
    """A tensor that is needed to run steps again, and is no longer what it was."""


def _parts(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, str]]:
    """List all modules once, each with what its names begin with as a user would write them."""
    parts = {id(part): (part, path) for module in modules for path, part in module.named_modules()}
    return [(part, f"{path}." if path else "") for part, path in parts.values()]


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
        self._buffers = [
            _Buffer(part, name, path + name, b, b._version, b.detach().clone() if copied else None)
            for part, path in _parts(modules)
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


class CapturedState:
    """Modules and tensors as they are now, for the steps that run again later.

    It refers to tensors weakly: one of them may be the result of an earlier loop, with all that this one holds.
    """

    def __init__(self, modules: Iterable[nn.Module], tensors: Iterable[weakref.ref[Tensor]]) -> None:
        parts = _parts(modules)
        self._modes = [(part, part.training) for part, _ in parts]
        self._held = [
            (named, name, path + name, version_of(tensor), weakref.ref(tensor))
            for part, path in parts
            for named in (part._buffers, part._parameters, vars(part))
            for name, tensor in named.items()
            if isinstance(tensor, Tensor)
        ]
        self._tensors = [(refer, version_of(tensor)) for refer in tensors if (tensor := refer()) is not None]

    @contextmanager
    def for_replay(self) -> Iterator[None]:
        """Set the modes again, and refuse operations on tensors that have changed."""
        changed = self._changed()
        now = [(part, part.training) for part, _ in self._modes]
        _set_modes(self._modes)
        try:
            with _Refusing(changed) if changed else nullcontext():
                yield
        finally:
            _set_modes(now)

    def _changed(self) -> dict[int, str]:
        """Name the tensors that were changed or replaced, by the address of their memory."""
        changed = {}
        for named, name, path, version, refer in self._held:
            present = named.get(name)
            if isinstance(present, Tensor) and (present is not refer() or version_of(present) != version):
                changed[_address(present)] = f"{path} of a module"
        for refer, version in self._tensors:
            if (tensor := refer()) is not None and version_of(tensor) != version:
                changed[_address(tensor)] = f"a tensor of shape {list(tensor.shape)}"
        changed.pop(0, None)  # has no memory
        return changed


class _Refusing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations on memory that has changed. What no step uses may change."""

    def __init__(self, changed: Mapping[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._named = changed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given: Any = args, kwargs
        for leaf in optree.tree_leaves(given):
            if isinstance(leaf, Tensor) and (name := self._named.get(_address(leaf))) is not None:
                raise ChangedError(
                    f"{name} was changed or replaced after the loop ran forward, and a step needs it as it was to run "
                    "again: change it after the backward pass, or pass a copy of it in params="
                )
        return func(*args, **kwargs)


def _set_modes(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    for part, training in modes:
        if part.training is not training:
            part.training = training


def _address(tensor: Tensor) -> int:
    storage = storage_of(tensor)
    return 0 if storage is None else storage.data_ptr()
