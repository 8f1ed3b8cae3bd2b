"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from penstock.torch.copies import Pack, Place, copied, memory_of, packs_of, small, strided


@dataclass(frozen=True, eq=False)
class Noted:
    """What a block had when its first run began."""

    parameters: Sequence[tuple[nn.Module, str, torch.Tensor, int, bool]]
    """modules, names, tensors, how often these had been changed, and whether they wanted gradients"""
    buffers: dict[Place, tuple[torch.Tensor, int]]
    """those that it reads"""
    packed: list[tuple[Pack, torch.Tensor]]
    """copies of those that are small"""
    values: dict[Place, torch.Tensor]
    """copies of others that are small, or that it changes"""
    training: tuple[bool, ...]
    lost: set[str] = field(default_factory=set)
    """names of those that the run has changed without there being a copy"""

    def copies(self) -> dict[Place, torch.Tensor]:
        """Copy the copies, for a run that may change them."""
        found = copied(self.values) if self.values else {}
        for pack, copy in self.packed:
            found |= pack.buffers(copy.clone())
        return found


class Belongings:
    """The parameters, buffers and modes of a block.

    Which large buffers its forward changes is noticed when it runs: all of them are copied before the first run in each
    combination of modes, and only those that have changed before later ones. Small ones are always copied: some change
    now and then, and `torch.nn.functional.batch_norm` changes without counting.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = list(module.modules())
        self._changing: dict[tuple[bool, ...], set[Place]] = {}  # by modes; those that have not run are not known
        self._packs: list[Pack] = []
        self._packed: frozenset[Place] = frozenset()
        self._where: list[tuple[int, int, torch.Size]] = []  # the buffers that the packs were made for

    def note(self) -> Noted:
        """Take note of what the block has now."""
        parameters = [
            (part, name, tensor, tensor._version, tensor.requires_grad)
            for part in self._parts
            for name, tensor in part._parameters.items()
            if tensor is not None
        ]
        training = tuple([part.training for part in self._parts])
        found = {
            (number, name): buffer
            for number, part in enumerate(self._parts)
            for name, buffer in part._buffers.items()
            if buffer is not None
        }
        where = [(id(one), one.data_ptr() if strided(one) else 0, one.shape) for one in found.values()]
        if where != self._where:
            self._packs, self._where = packs_of(found), where
            self._packed = frozenset().union(*(pack.places for pack in self._packs))
        packed = [(pack, pack.copy()) for pack in self._packs]
        buffers = {place: (one, one._version) for place, one in found.items()}
        values = self._copied(found, training) if len(found) > len(self._packed) else {}
        return Noted(parameters, buffers, packed, values, training)

    def _copied(self, found: dict[Place, torch.Tensor], training: tuple[bool, ...]) -> dict[Place, torch.Tensor]:
        """Copy the buffers that are in no pack, but for large ones that do not change."""
        others = {place: one for place, one in found.items() if place not in self._packed}
        changing = self._changing.get(training)
        chosen = {place: one for place, one in others.items() if changing is None or place in changing or small(one)}
        touched = {memory_of(one) for one in chosen.values()}
        return copied({place: one for place, one in others.items() if memory_of(one) in touched})

    def look(self, noted: Noted) -> None:
        """Notice which large buffers a run has changed, in place or by assigning another; drop the copies of others."""
        first = noted.training not in self._changing
        changing = self._changing.setdefault(noted.training, set())
        packed = frozenset().union(*(pack.places for pack, _ in noted.packed))
        if len(packed) == len(noted.buffers):
            return
        for place, (buffer, version) in noted.buffers.items():
            number, name = place
            if place in packed or (small(buffer) and place in noted.values):
                continue
            moved = buffer._version != version
            if moved and place not in noted.values:
                noted.lost.add(name)
            # Not all that changes a buffer counts that: the first time values are compared.
            other = self._parts[number]._buffers.get(name) is not buffer
            if moved or other or (first and not _same(noted.values[place], buffer)):
                changing.add(place)
            elif place not in changing:
                noted.values.pop(place, None)

    @contextmanager
    def again(self, noted: Noted) -> Iterator[None]:
        """Let a second run find what the first one had, and put all back as it is now."""
        if noted.lost:
            raise RuntimeError(_LOST.format(", ".join(sorted(noted.lost))))
        before: list[tuple[Any, str, Any]] = []
        wanting: list[tuple[torch.Tensor, bool]] = []
        modes = tuple([part.training for part in self._parts])
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
            copies = noted.copies()
            for place, (buffer, version) in noted.buffers.items():
                if place not in copies and buffer._version != version:
                    raise _changed(place[1])
                number, name = place
                table = self._parts[number]._buffers
                before.append((table, name, table.get(name, _MISSING)))
                table[name] = copies.get(place, buffer)
            yield
        finally:
            for table, name, own in before:
                if own is _MISSING:
                    table.pop(name, None)
                elif table.get(name) is not own:
                    table[name] = own
            for tensor, wanted in wanting:
                tensor.requires_grad_(wanted)
            self._set_modes(modes)

    def _set_modes(self, modes: tuple[bool, ...]) -> None:
        for part, mode in zip(self._parts, modes, strict=True):
            if part.training != mode:
                part.training = mode


_MISSING = object()
_LOST = (
    "a block changed a large buffer of its own ({}) for the first time after it had run without that, so there is no "
    "copy to run it again with. From the next iteration on there is one: skip this one, or leave the block out with "
    "blocks=..."
)


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    return copy.layout is not torch.strided or torch.equal(copy, buffer)  # others do not compare


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed between its forward and its backward pass: its forward "
        "cannot be run again as it was. Change it after backward, or leave the block out with blocks=..."
    )
