"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Small buffers are copied before each run, so that those that a block changes as it runs, such as the statistics of
BatchNorm, are changed once, however often it runs. A block that changes a large one is kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, pairwise
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import nn

from forebay.torch.compat import copy_all, version_of

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run; larger ones in the iteration that measures."""


Table = dict[str, Any]
"""Parameters or buffers of a module, by name."""
Layout = list[tuple[nn.Module, list[tuple[str, nn.Module | None]]]]
"""The modules of a block, and which each of them has by which names."""


@dataclass(frozen=True, eq=False, slots=True)
class InitialModuleState:
    """What a block had when its first run began."""

    layout: Layout
    training: list[bool]
    parameters: list[Table]
    """of each module, by name"""
    states: list[tuple[int, bool] | None]
    """of the parameters, how often they had been changed, and whether they wanted gradients"""
    buffers: list[Table]
    copies: dict[int, torch.Tensor]
    """of buffers, by their identities"""
    sorts: Mapping[int, Any]
    """types and devices of those that are in one piece, by their identities"""
    large: list[tuple[str, torch.Tensor, int | None]]
    """buffers that are read where they are, and how often these had been changed"""

    @property
    def parts(self) -> list[nn.Module]:
        """Its modules."""
        return [part for part, _ in self.layout]

    def buffers_again(self) -> list[Table]:
        """Return what each module is to find in a second run."""
        for name, buffer, version in self.large:
            if id(buffer) not in self.copies and version_of(buffer) != version:
                raise _changed(name)
        fresh = copies_of(self.copies, self.sorts)
        return [{name: fresh.get(id(buffer), buffer) for name, buffer in table.items()} for table in self.buffers]


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
        self._runs = count()
        self._looked_at = _Buffers([], {}, frozenset())
        self._layout = _layout_of(module)

    def next_run(self) -> int:
        """Return the number of the run that begins."""
        return next(self._runs)

    @property
    def parts(self) -> list[nn.Module]:
        """The modules that it had when it ran last."""
        return [part for part, _ in self._layout]

    def parameters(self) -> Iterator[torch.Tensor]:
        """Yield the parameters of these."""
        for part, _ in self._layout:
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
        layout = self._layout = _layout_of(self._module)
        parts = self.parts
        tables = [part._buffers.copy() for part in parts]
        named = [(name, buffer) for table in tables for name, buffer in table.items() if buffer is not None]
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
        copies = copies_of(copied, sorts)
        parameters = [part._parameters.copy() for part in parts]
        states = [None if p is None else (p._version, p.requires_grad) for table in parameters for p in table.values()]
        modes = [part.training for part in parts]
        return InitialModuleState(layout, modes, parameters, states, tables, copies, sorts, large)

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
        if _layout_of(self._module) != initial.layout:
            raise _changed("a module of it")
        parts = initial.parts
        modes = [part.training for part in parts]
        buffers, parameters = [part._buffers for part in parts], [part._parameters for part in parts]
        turned = _other_gradients(initial, parameters)
        # Where torch.func.functional_call had others for a call: else nothing is touched, which others may swap, too.
        lent = [pair for pair in zip(parameters, initial.parameters, strict=True) if not _same_items(*pair)]
        own, own_buffers = [table.copy() for table, _ in lent], [table.copy() for table in buffers]
        try:
            for tensor in turned:
                tensor.requires_grad_(not tensor.requires_grad)
            _set_modes(parts, initial.training)
            _fill((table for table, _ in lent), (row for _, row in lent))
            _fill(buffers, initial.buffers_again())
            yield
        finally:
            _fill(buffers, own_buffers)
            _fill((table for table, _ in lent), own)
            _set_modes(parts, modes)
            for tensor in turned:
                tensor.requires_grad_(not tensor.requires_grad)


def _other_gradients(initial: InitialModuleState, tables: Iterable[Any]) -> list[torch.Tensor]:
    """List the parameters that were frozen or thawed since, refusing those that were changed or added."""
    for table, had in zip(tables, initial.parameters, strict=True):
        for name, now in table.items():
            if now is not None and had.get(name) is None:
                raise _changed(name)
    turned = []
    named = chain.from_iterable(table.items() for table in initial.parameters)
    for (name, tensor), state in zip(named, initial.states, strict=True):
        if tensor is not None and state is not None:
            if tensor._version != state[0]:
                raise _changed(name)
            if tensor.requires_grad != state[1] and tensor.is_leaf:
                turned.append(tensor)
    return turned


def _same_items(table: Any, row: Table) -> bool:
    """Tell whether a module has the very same by the same names."""
    return list(table) == list(row) and all(map(is_, table.values(), row.values()))


def _fill(tables: Iterable[Any], rows: Iterable[Table]) -> None:
    for table, row in zip(tables, rows, strict=True):
        if table or row:
            table.clear()
            table.update(row)


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


def _set_modes(parts: Iterable[nn.Module], modes: Iterable[bool]) -> None:
    for part, mode in zip(parts, modes, strict=True):
        if part.training != mode:
            part.training = mode


def flags_of(states: Iterable[ModuleState]) -> tuple[bytes, bytes]:
    """Return the modes of some blocks, and which parameters want gradients: what they save depends on them."""
    parts = list(chain.from_iterable([state.parts for state in states]))
    parameters = chain.from_iterable([part._parameters.values() for part in parts])
    wanted = [parameter.requires_grad for parameter in parameters if parameter is not None]
    return bytes([bool(part.training) for part in parts]), bytes(wanted)


def _layout_of(module: nn.Module) -> Layout:
    """List the modules of a block, and what each has by which names; faster than torch does, for every run asks."""
    layout: Layout = []
    visited: set[nn.Module] = set()
    waiting = [module]
    while waiting:
        part = waiting.pop()
        if part not in visited:
            visited.add(part)
            children: Any = part._modules
            layout.append((part, list(children.items())))
            waiting += [child for child in children.values() if child is not None]
    return layout


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed or added since its forward pass began: it cannot be "
        "run again as it was. Have it there before fit and change it after backward, or leave the block out with "
        "blocks=..."
    )
