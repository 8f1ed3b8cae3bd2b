"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Small buffers are copied before each run, so that those that a block changes as it runs, such as the statistics of
BatchNorm, are changed once, however often it runs. A block that changes a large one is kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, pairwise, repeat
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import nn

from forebay.torch.compat import copy_all, version_of
from forebay.torch.execution_context import NOTHING

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run; larger ones in the iteration that measures."""


class Parameters(NamedTuple):
    """The parameters of some modules, one after another."""

    counts: list[int]
    """of each module"""
    names: list[str]
    tensors: Sequence[torch.Tensor | None]
    states: list[tuple[int, bool] | None]
    """how often these had been changed, and whether they wanted gradients"""

    @classmethod
    def of(cls, parts: Iterable[nn.Module]) -> "Parameters":
        """Look at those of some modules."""
        counts, names, tensors = _listed(parts)
        return cls(counts, names, tensors, _states(tensors))

    def stand(self, parts: Iterable[nn.Module]) -> bool:
        """Tell whether modules have the very same by the same names, and nothing has become of them."""
        counts, names, tensors = _listed(parts)
        alike = self.counts == counts and self.names == names and _identical(self.tensors, tensors)
        return alike and self.states == _states(self.tensors)  # others need not count their changes

    @contextmanager
    def lend(self, parts: Sequence[nn.Module]) -> Iterator[None]:
        """Let modules have these, and put back what they have now."""
        owners = chain.from_iterable(map(repeat, parts, self.counts))  # each module as often as it has one
        rows = zip(owners, self.names, self.tensors, self.states, strict=True)
        lent = [(part, name, tensor, *state) for part, name, tensor, state in rows if tensor is not None and state]
        had = {(part, name) for part, name, _, _, _ in lent}
        for part in parts:
            for name, now in part._parameters.items():
                if now is not None and (part, name) not in had:
                    raise _changed(name)
        before: list[tuple[Any, str, Any]] = []
        wanting: list[tuple[torch.Tensor, bool]] = []
        try:
            for part, name, tensor, version, wanted in lent:
                if tensor._version != version:
                    raise _changed(name)
                table: Any = part._parameters
                own = table.get(name, _MISSING)
                if own is not tensor:  # torch.func.functional_call has others for a call
                    before.append((table, name, own))
                    table[name] = tensor
                if tensor.requires_grad != wanted and tensor.is_leaf:  # frozen or thawed since
                    wanting.append((tensor, not wanted))
                    tensor.requires_grad_(wanted)
            yield
        finally:
            for table, name, own in before:
                if own is _MISSING:
                    table.pop(name, None)
                elif table.get(name) is not own:
                    table[name] = own
            for tensor, wanted in wanting:
                tensor.requires_grad_(wanted)


def _listed(parts: Iterable[nn.Module]) -> tuple[list[int], list[str], Sequence[torch.Tensor | None]]:
    tables = [part._parameters for part in parts]
    tensors = list(chain.from_iterable([table.values() for table in tables]))
    return list(map(len, tables)), list(chain.from_iterable(tables)), tensors


def _states(tensors: Iterable[torch.Tensor | None]) -> list[tuple[int, bool] | None]:
    return [None if tensor is None else (tensor._version, tensor.requires_grad) for tensor in tensors]


@dataclass(eq=False, slots=True)
class InitialModuleState:
    """What a block had when its first run began."""

    parts: Sequence[nn.Module]
    """its modules"""
    training: tuple[bool, ...]
    parameters: Parameters
    buffers: list[dict[str, torch.Tensor | None]]
    """of each module, by name"""
    copies: dict[int, torch.Tensor]
    """of buffers, by their identities"""
    sorts: Mapping[int, Any]
    """types and devices of those that are in one piece, by their identities"""
    large: list[tuple[str, torch.Tensor, int | None]]
    """buffers that are read where they are, and how often these had been changed"""

    def buffers_again(self) -> list[dict[str, torch.Tensor | None]]:
        """Return what each module is to find in a second run."""
        for name, buffer, version in self.large:
            if id(buffer) not in self.copies and version_of(buffer) != version:
                raise _changed(name)
        fresh = copies_of(self.copies, self.sorts)
        return [{name: fresh.get(id(buffer), buffer) for name, buffer in table.items()} for table in self.buffers]


class ModuleState:
    """The parameters, buffers and modes of a block."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.sets_attributes = False
        """whether its forward sets plain attributes, as counters are, which a second run has to leave as they are"""
        self._runs = count()
        self._lie: list[tuple[int, int, bool]] = []  # its buffers and their addresses, which have been looked at
        self._sorts: dict[int, Any] = {}
        self._apart: set[int] = set()  # the buffers that are not copied before every run
        self._find_parts()

    def _find_parts(self) -> None:
        self._parts = list(self._module.modules())
        self._tree = _Tree(self._parts)

    def next_run(self) -> int:
        """Return the number of the run that begins."""
        return next(self._runs)

    def parameters(self) -> Iterator[torch.Tensor]:
        """Yield the parameters of the modules that it had when it ran last."""
        for part in self._parts:
            yield from (parameter for parameter in part._parameters.values() if parameter is not None)

    def beyond(self) -> str | None:
        """Tell why the block's buffers cannot be copied as they lie; None where they can."""
        named = [pair for part in self._module.modules() for pair in part._buffers.items()]
        return _beyond({id(buffer): (name, buffer) for name, buffer in named if buffer is not None}.values())

    def note(self, measured: bool) -> InitialModuleState:
        """Take note of what the block has now, for a second run; of large buffers too where it is measured."""
        if not self._tree.stands():
            self._find_parts()
        parts = self._parts
        tables = [part._buffers.copy() for part in parts]
        named = [(name, buffer) for table in tables for name, buffer in table.items() if buffer is not None]
        lie = [
            (id(b), b.data_ptr() if type(b) is torch.Tensor and b.layout is torch.strided else 0, b.requires_grad)
            for _, b in named
        ]
        if self._lie != lie:
            if (beyond := self.beyond()) is not None:
                raise RuntimeError(f"a block {beyond}: clone what lies so, or leave it out with blocks=...")
            self._lie, self._sorts = lie, {id(b): (b.dtype, b.device) for _, b in named if _in_one_piece(b)}
            # One that wants gradients is a parameter but in name: it is read where it is, and must not change.
            self._apart = {id(b) for _, b in named if b.requires_grad or b.numel() * b.element_size() >= SMALL}
        apart = self._apart
        large = [(name, buffer, version_of(buffer)) for name, buffer in named if id(buffer) in apart] if apart else []
        copied = {id(b): b for _, b in named if id(b) not in apart or (measured and not b.requires_grad)}
        copies = copies_of(copied, self._sorts)
        return InitialModuleState(parts, _modes(parts), Parameters.of(parts), tables, copies, self._sorts, large)

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
        if initial.parts is not self._parts or not self._tree.stands():
            raise _changed("a module of it")
        parts, modes = initial.parts, _modes(initial.parts)
        tables = [part._buffers for part in parts]
        own = [table.copy() for table in tables]
        with NOTHING if initial.parameters.stand(parts) else initial.parameters.lend(parts):
            try:
                _set_modes(parts, initial.training)
                _fill(tables, initial.buffers_again())
                yield
            finally:
                _fill(tables, own)
                _set_modes(parts, modes)


def _fill(tables: Iterable[dict[str, torch.Tensor | None]], rows: Iterable[dict[str, torch.Tensor | None]]) -> None:
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
    """Copy tensors, those of one sort in one call."""
    alike: dict[Any, dict[int, torch.Tensor]] = defaultdict(dict)
    for key, tensor in tensors.items():
        alike[sorts.get(key, key)][key] = tensor
    copies: dict[int, torch.Tensor] = {}
    for sort, group in alike.items():
        if sort in tensors:  # of no sort, and alone
            copies[sort] = tensors[sort].detach().clone()
            continue
        fresh = [torch.empty_like(tensor) for tensor in group.values()]
        with torch.no_grad():
            copy_all(fresh, list(group.values()))
        copies.update(zip(group, fresh, strict=True))
    return copies


def _in_one_piece(buffer: torch.Tensor) -> bool:
    """Tell whether a tensor is a window onto a storage, and not sparse, nested, quantized or made of others."""
    plain = type(buffer).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and buffer.layout is torch.strided and not buffer.is_nested and not buffer.is_quantized


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Tell whether a buffer has the values of its copy, where that can be told."""
    return not _in_one_piece(copy) or torch.equal(copy, buffer)  # others do not compare


def _identical(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether these are the very same objects, one by one."""
    return len(objects) == len(others) and all(map(is_, objects, others))


def _modes(parts: Iterable[nn.Module]) -> tuple[bool, ...]:
    return tuple([part.training for part in parts])


def _set_modes(parts: Iterable[nn.Module], modes: tuple[bool, ...]) -> None:
    for part, mode in zip(parts, modes, strict=True):
        if part.training != mode:
            part.training = mode


def flags_of(states: Iterable[ModuleState]) -> tuple[bytes, bytes]:
    """Return the modes of some blocks, and which parameters want gradients: what they save depends on them."""
    parts = list(chain.from_iterable([state._parts for state in states]))
    parameters = chain.from_iterable([part._parameters.values() for part in parts])
    wanted = [parameter.requires_grad for parameter in parameters if parameter is not None]
    return bytes([bool(part.training) for part in parts]), bytes(wanted)


class _Tree:
    """Which modules those of a block have, and by which names."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self._leaves, self._parents = [], []
        for part in parts:
            if part._modules:
                self._parents.append((part, list(part._modules), list(part._modules.values())))
            else:
                self._leaves.append(part)

    def stands(self) -> bool:
        """Tell whether it is still so."""
        if any([leaf._modules for leaf in self._leaves]):  # noqa: C419 - faster
            return False
        for part, names, modules in self._parents:
            if list(part._modules) != names or not _identical(modules, list(part._modules.values())):
                return False
        return True


_MISSING = object()


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed or added since its forward pass began: it cannot be "
        "run again as it was. Have it there before fit and change it after backward, or leave the block out with "
        "blocks=..."
    )
