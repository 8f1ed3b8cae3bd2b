"""What a step reaches beside its arguments, between the passes: modes are set again, and changed tensors refused."""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn

from forebay.errors import ForebayError
from forebay.torch.compat import TorchDispatchMode, tree_leaves, version_of
from forebay.torch.mover import storage_of


class ChangedError(ForebayError, RuntimeError):
    """A tensor that is needed to run steps again, and is no longer what it was."""


class CapturedState:
    """Modules and tensors as they are now, for the steps that run again later.

    It refers to tensors weakly: one of them may be the result of an earlier loop, with all that this one holds.
    """

    def __init__(self, modules: Iterable[nn.Module], tensors: Iterable[weakref.ref[Tensor]]) -> None:
        parts = {id(part): (part, path) for module in modules for path, part in module.named_modules()}
        self._modes = [(part, part.training) for part, _ in parts.values()]
        self._held = [
            (named, name, f"{path}.{name}" if path else name, version_of(tensor), weakref.ref(tensor))
            for part, path in parts.values()
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
        for leaf in tree_leaves((args, kwargs)):
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
