"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import nn

from penstock.torch.buffers import Groups, Layout, Place, Seen, copies_of, identical, same
from penstock.torch.mover import bytes_by_storage
from penstock.torch.norms import only_adds, thrown_away
from penstock.torch.saved import version_of


@dataclass(frozen=True, eq=False)
class Noted:
    """What a block had when its first run began."""

    parts: Sequence[nn.Module]
    """its modules"""
    parameters: Sequence[tuple[nn.Module, str, torch.Tensor, int, bool]]
    """modules, names, tensors, how often these had been changed, and whether they wanted gradients"""
    buffers: dict[int, torch.Tensor]
    """those that it reads, by number"""
    versions: dict[int, int | None]
    """how often these had been changed"""
    copies: dict[int, torch.Tensor]
    """of those that are small, or that it changes"""
    layout: Layout
    groups: Groups
    """which were copied"""
    unread: Mapping[int, nn.Module]
    """those of its modules that only add to their buffers: of these nothing is noted"""
    training: tuple[bool, ...]
    lost: set[str] = field(default_factory=set)
    """names of those that the run has changed without there being a copy"""


class Belongings:
    """The parameters, buffers and modes of a block.

    Which large buffers its forward changes is noticed when it runs: all of them are copied before the first run in each
    combination of modes, and only those that have changed before later ones. Small ones are always copied: some change
    now and then, and `torch.nn.functional.batch_norm` changes without counting.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._find_parts()

    def _find_parts(self) -> None:
        self._parts = list(self._module.modules())
        self._tree = _Tree.of(self._parts)
        self._changing: dict[tuple[bool, ...], set[Place]] = {}  # by modes; those that have not run are not known
        self._unread: dict[tuple[bool, ...], dict[int, nn.Module]] = {}  # by modes; those that were not watched are not
        self._layout: Layout | None = None

    def parameters(self) -> Iterator[torch.Tensor]:
        """Give the parameters of the modules that it had when it ran last."""
        for part in self._parts:
            yield from (one for one in part._parameters.values() if one is not None)

    def note(self, watched: bool = False) -> Noted:
        """Take note of what the block has now, for a second run that may be watched."""
        if not self._tree.stands(self._parts):
            self._find_parts()
        parameters = [
            (part, name, tensor, tensor._version, tensor.requires_grad)
            for part in self._parts
            for name, tensor in part._parameters.items()
            if tensor is not None
        ]
        training = tuple([part.training for part in self._parts])
        unread = self._unread.get(training, {})
        if watched or not all(map(only_adds, unread.values())):
            unread = {}
        having = {number: one for number, one in enumerate(self._parts) if one._buffers and number not in unread}
        seen = Seen.of(having)
        if self._layout is None or not self._layout.holds(seen):
            self._layout = Layout(having, seen)
        layout = self._layout
        buffers = {number: one for number, one in enumerate(seen.tensors) if one is not None}
        versions = {number: version_of(one) for number, one in buffers.items()}
        groups = layout.groups(self._changing.get(training))
        copies = copies_of(buffers, groups)
        return Noted(self._parts, parameters, buffers, versions, copies, layout, groups, unread, training)

    def look(self, noted: Noted) -> None:
        """Notice which large buffers a run has changed, in place or by assigning another; drop the copies of others."""
        if noted.parts is not self._parts:
            return
        first = noted.training not in self._changing
        changing = self._changing.setdefault(noted.training, set())
        for number in noted.layout.large:
            part, name = place = noted.layout.places[number]
            buffer = noted.buffers[number]
            moved = version_of(buffer) != noted.versions[number]
            if moved and number not in noted.copies:
                noted.lost.add(name)
            # Not all that changes a buffer counts that: the first time values are compared.
            other = noted.parts[part]._buffers.get(name) is not buffer
            if moved or other or (first and not same(noted.copies[number], buffer)):
                changing.add(place)
            elif place not in changing and noted.layout.alone(number):
                noted.copies.pop(number, None)

    @contextmanager
    def again(self, noted: Noted) -> Iterator[None]:
        """Let a second run find what the first one had, and put all back as it is now."""
        if noted.lost:
            raise RuntimeError(_LOST.format(", ".join(sorted(noted.lost))))
        if noted.parts is not self._parts or not self._tree.stands(self._parts):
            raise _changed("a module of it")
        _check_added(noted)
        before: list[tuple[Any, str, Any]] = []
        tables = [(part._buffers, dict(part._buffers)) for part in noted.parts]
        wanting: list[tuple[torch.Tensor, bool]] = []
        modes = tuple([part.training for part in noted.parts])
        try:
            if modes != noted.training:
                self._set_modes(noted.training)
            for part, name, tensor, version, wanted in noted.parameters:
                if tensor._version != version:
                    raise _changed(name)
                own = part._parameters.get(name, _MISSING)
                if own is not tensor:  # torch.func.functional_call has others for a call
                    before.append((part._parameters, name, own))
                    vars(part)["_parameters"][name] = tensor
                if tensor.requires_grad != wanted and tensor.is_leaf:  # frozen or thawed since
                    wanting.append((tensor, not wanted))
                    tensor.requires_grad_(wanted)
            lent: list[dict[str, torch.Tensor | None]] = [{} for _ in tables]
            copies = copies_of(noted.copies, noted.groups)
            for number, (place, name) in enumerate(noted.layout.places):
                buffer = noted.buffers.get(number)
                if buffer is not None and number not in copies and version_of(buffer) != noted.versions[number]:
                    raise _changed(name)
                lent[place][name] = copies.get(number, buffer)
            for place, part in noted.unread.items():
                lent[place] = thrown_away(part)
            for (table, own), other in zip(tables, lent, strict=True):
                if own or other:
                    table.clear()
                    table.update(other)
            yield
        finally:
            for table, name, own in before:
                if own is _MISSING:
                    table.pop(name, None)
                elif table.get(name) is not own:
                    table[name] = own
            for table, all_own in tables:
                if table or all_own:
                    table.clear()
                    table.update(all_own)
            for tensor, wanted in wanting:
                tensor.requires_grad_(wanted)
            self._set_modes(modes)

    def watches(self, noted: Noted) -> bool:
        """Tell whether it matters what a second run reads."""
        return any(map(only_adds, noted.parts))

    def note_read(self, noted: Noted, storages: Set[int]) -> None:
        """Take note of the storages that a second run has read, as long as what it was lent is in place."""
        found = {}
        for number, part in enumerate(noted.parts):
            buffers = [one for one in part._buffers.values() if one is not None]
            if only_adds(part) and storages.isdisjoint(bytes_by_storage(buffers)):
                found[number] = part
        known = self._unread.setdefault(noted.training, found)
        self._unread[noted.training] = {number: part for number, part in found.items() if number in known}

    def _set_modes(self, modes: tuple[bool, ...]) -> None:
        for part, mode in zip(self._parts, modes, strict=True):
            if part.training != mode:
                part.training = mode


def flags_of(several: Iterable[Belongings]) -> tuple[bytes, bytes]:
    """Give the modes of some blocks, and which parameters want gradients: what they save depends on them."""
    parts = list(chain.from_iterable([one._parts for one in several]))
    parameters = chain.from_iterable([part._parameters.values() for part in parts])
    wanted = [one.requires_grad for one in parameters if one is not None]
    return bytes([bool(part.training) for part in parts]), bytes(wanted)


class _Tree(NamedTuple):
    """Which modules those of a block have, and by which names."""

    counts: list[int]
    names: list[str]
    modules: list[nn.Module | None]

    @classmethod
    def of(cls, parts: Iterable[nn.Module]) -> "_Tree":
        tables = [part._modules for part in parts]
        modules = list(chain.from_iterable([table.values() for table in tables]))
        return cls([len(table) for table in tables], list(chain.from_iterable(tables)), modules)

    def stands(self, parts: Iterable[nn.Module]) -> bool:
        """Tell whether it is still so."""
        now = _Tree.of(parts)
        return self.counts == now.counts and self.names == now.names and identical(self.modules, now.modules)


def _check_added(noted: Noted) -> None:
    """Refuse parameters that were not there when the first run began."""
    now = [one for part in noted.parts for one in part._parameters.values() if one is not None]
    if identical(now, [one for _, _, one, _, _ in noted.parameters]):
        return
    had = {(part, name) for part, name, _, _, _ in noted.parameters}
    for part in noted.parts:
        for name, one in part._parameters.items():
            if one is not None and (part, name) not in had:
                raise _changed(name)


_MISSING = object()
_LOST = (
    "a block changed a large buffer of its own ({}) for the first time after it had run without that, so there is no "
    "copy to run it again with. From the next iteration on there is one: skip this one, or leave the block out with "
    "blocks=..."
)


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed or added since its forward pass began: it cannot be "
        "run again as it was. Have it there before fit and change it after backward, or leave the block out with "
        "blocks=..."
    )
