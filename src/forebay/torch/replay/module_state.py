"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Small buffers are copied before each run, so that those that a block changes as it runs, such as the statistics of
BatchNorm, are changed once, however often it runs. A block that changes a large one is kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import nn

from forebay.torch.compat import copy_all, version_of

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run; larger ones in the iteration that measures."""

Table = dict[str, Any]
"""Parameters or buffers of a module, by name."""


class ModulePart(NamedTuple):
    """A module of a block, and what it has."""

    module: nn.Module
    children: list[tuple[str, nn.Module | None]]
    training: bool
    parameters: Table
    buffers: Table

    def put(self, buffers: Table) -> None:
        """Let the module have this again, with such buffers; nothing is touched that is the same."""
        module: Any = self.module
        if module.training != self.training:
            module.training = self.training
        for table, row in ((module._parameters, self.parameters), (module._buffers, buffers)):
            if list(table) != list(row) or not all(map(is_, table.values(), row.values())):
                table.clear()
                table.update(row)


def _parts_of(module: nn.Module) -> list[ModulePart]:
    """List the modules of a block, and what each has; faster than torch does, for every run asks."""
    parts: list[ModulePart] = []
    visited: set[nn.Module] = set()
    waiting: list[Any] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and part not in visited:
            visited.add(part)
            children = list(part._modules.items())
            parts.append(ModulePart(part, children, part.training, part._parameters.copy(), part._buffers.copy()))
            waiting += part._modules.values()
    return parts


@dataclass(frozen=True, eq=False, slots=True)
class InitialModuleState:
    """What a block had when its first run began."""

    parts: list[ModulePart]
    states: list[tuple[int, bool] | None]
    """of the parameters, how often they had been changed, and whether they wanted gradients"""
    copies: dict[int, torch.Tensor]
    """of buffers, by their identities"""
    sorts: Mapping[int, Any]
    """types and devices of those that are in one piece, by their identities"""
    large: list[tuple[str, torch.Tensor, int | None]]
    """buffers that are read where they are, and how often these had been changed"""

    @property
    def modules(self) -> list[nn.Module]:
        """Its modules."""
        return [part.module for part in self.parts]

    def buffers_again(self) -> list[Table]:
        """Return what each module is to find in a second run."""
        for name, buffer, version in self.large:
            if id(buffer) not in self.copies and version_of(buffer) != version:
                raise _changed(name)
        fresh = copies_of(self.copies, self.sorts)
        return [{name: fresh.get(id(buffer), buffer) for name, buffer in part.buffers.items()} for part in self.parts]


class _Buffers(NamedTuple):
    """The buffers of a block that have been looked at."""

    lie: list[tuple[int, int, bool]]
    """their identities and addresses, and whether they want gradients"""
    sorts: dict[int, Any]
    """types and devices of those in one piece, by their identities"""
    apart: frozenset[int]
    """those that are not copied before every run"""


class ModuleState:
    """The parameters, buffers and modes of a block."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.sets_attributes = False
        """whether its forward sets plain attributes, as counters are, which a second run has to leave as they are"""
        self._looked_at = _Buffers([], {}, frozenset())
        self.modules = [part.module for part in _parts_of(module)]
        """those that it had when it ran last"""

    def parameters(self) -> Iterator[torch.Tensor]:
        """Yield the parameters of these."""
        for part in self.modules:
            yield from (parameter for parameter in part._parameters.values() if parameter is not None)

    def beyond(self) -> str | None:
        """Tell why the block cannot be run again with its parameters and buffers as they lie; None where it can."""
        parts = list(self._module.modules())
        if any(isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None for part in parts):
            return "scales rows of its parameters as it runs (max_norm)"
        named = [pair for part in parts for pair in part._buffers.items()]
        return _beyond({id(buffer): (name, buffer) for name, buffer in named if buffer is not None}.values())

    def note(self, measured: bool) -> InitialModuleState:
        """Take note of what the block has now, for a second run; of large buffers too where it is measured."""
        parts = _parts_of(self._module)
        self.modules = [part.module for part in parts]
        named = [(name, buffer) for part in parts for name, buffer in part.buffers.items() if buffer is not None]
        lie = [
            (id(b), b.data_ptr() if type(b) is torch.Tensor and b.layout is torch.strided else 0, b.requires_grad)
            for _, b in named
        ]
        if self._looked_at.lie != lie:
            if (beyond := self.beyond()) is not None:
                raise RuntimeError(f"a block {beyond}: clone what lies so, or leave it out with blocks=...")
            sorts = {id(b): (b.dtype, b.device) for _, b in named if _in_one_piece(b)}
            # One that wants gradients is a parameter but in name: it is read where it is, and must not change.
            apart = frozenset(id(b) for _, b in named if b.requires_grad or b.numel() * b.element_size() >= SMALL)
            self._looked_at = _Buffers(lie, sorts, apart)
        _, sorts, apart = self._looked_at
        large = [(name, buffer, version_of(buffer)) for name, buffer in named if id(buffer) in apart] if apart else []
        copied = {id(b): b for _, b in named if id(b) not in apart or (measured and not b.requires_grad)}
        parameters = chain.from_iterable([part.parameters.values() for part in parts])
        states = [None if p is None else (p._version, p.requires_grad) for p in parameters]
        return InitialModuleState(parts, states, copies_of(copied, sorts), sorts, large)

    @staticmethod
    def changed(initial: InitialModuleState) -> str | None:
        """Name a large buffer that a run has changed in place; let go of the copies of all others."""
        changed = None
        for name, buffer, version in initial.large:
            copy = initial.copies.get(id(buffer))
            # Not all that changes a buffer counts that, such as batch_norm: where there is a copy, that is compared.
            if version_of(buffer) != version or (copy is not None and not _same(copy, buffer)):
                changed = name
            else:
                initial.copies.pop(id(buffer), None)
        return changed

    @contextmanager
    def for_replay(self, initial: InitialModuleState) -> Iterator[None]:
        """Let a second run find what the first one had, and put all back as it is now."""
        now = _parts_of(self._module)
        if [part[:2] for part in now] != [part[:2] for part in initial.parts]:
            raise _changed("a module of it")
        turned = _other_gradients(initial, now)
        try:
            for tensor in turned:
                tensor.requires_grad_(not tensor.requires_grad)
            for part, buffers in zip(initial.parts, initial.buffers_again(), strict=True):
                part.put(buffers)
            yield
        finally:
            for part in now:
                part.put(part.buffers)
            for tensor in turned:
                tensor.requires_grad_(not tensor.requires_grad)


def _other_gradients(initial: InitialModuleState, now: list[ModulePart]) -> list[torch.Tensor]:
    """List the parameters that were frozen or thawed since, refusing those that were changed or added."""
    for part, had in zip(now, initial.parts, strict=True):
        for name, parameter in part.parameters.items():
            if parameter is not None and had.parameters.get(name) is None:
                raise _changed(name)
    turned = []
    named = chain.from_iterable([part.parameters.items() for part in initial.parts])
    for (name, tensor), state in zip(named, initial.states, strict=True):
        if tensor is not None and state is not None:
            if tensor._version != state[0]:
                raise _changed(name)
            if tensor.requires_grad != state[1] and tensor.is_leaf:
                turned.append(tensor)
    return turned


def _beyond(named: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    """Tell why none of some buffers can be copied as it lies; None where they can."""
    spans = []
    for name, buffer in named:
        if _in_one_piece(buffer) and not buffer.requires_grad:
            if buffer.is_conj() or buffer.is_neg():
                return f"has a buffer ({name}) that stands for another, conjugated or negated"
            if torch.empty_like(buffer, device="meta").stride() != buffer.stride():
                return f"has a buffer ({name}) with gaps"
            storage = buffer.untyped_storage()
            spans.append((str(buffer.device), storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name))
    for (device, _, end, name), (other, start, _, second) in pairwise(sorted(spans)):
        if device == other and start < end:
            return f"has buffers in the same memory ({name}, {second})"
    return None


def copies_of(tensors: Mapping[int, torch.Tensor], sorts: Mapping[int, Any]) -> dict[int, torch.Tensor]:
    """Copy tensors, those of one sort in one call, and those of none by themselves."""
    copies = {key: tensor.detach().clone() for key, tensor in tensors.items() if key not in sorts}
    alike: dict[Any, list[int]] = defaultdict(list)
    for key in tensors:
        if key in sorts:
            alike[sorts[key]].append(key)
    for keys in alike.values():
        originals = [tensors[key] for key in keys]
        fresh = [torch.empty_like(tensor) for tensor in originals]
        with torch.no_grad():
            copy_all(fresh, originals)
        copies.update(zip(keys, fresh, strict=True))
    return copies


def _in_one_piece(buffer: torch.Tensor) -> bool:
    """Tell whether a tensor is a window onto a storage, and not sparse, nested, quantized or made of others."""
    plain = type(buffer).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and buffer.layout is torch.strided and not buffer.is_nested and not buffer.is_quantized


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Tell whether a buffer has the values of its copy, where that can be told."""
    return not _in_one_piece(copy) or torch.equal(copy, buffer)  # others do not compare


def flags_of(states: Iterable[ModuleState]) -> tuple[bytes, bytes]:
    """Return the modes of some blocks, and which parameters want gradients: what they save depends on them."""
    parts = list(chain.from_iterable([state.modules for state in states]))
    parameters = chain.from_iterable([part._parameters.values() for part in parts])
    wanted = [parameter.requires_grad for parameter in parameters if parameter is not None]
    return bytes([bool(part.training) for part in parts]), bytes(wanted)


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed or added since its forward pass began: it cannot be "
        "run again as it was. Have it there before fit and change it after backward, or leave the block out with "
        "blocks=..."
    )
