"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from penstock.torch.mover import as_bytes

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run, changed or not."""

Place = tuple[int, str]
"""The number of a module in the block, and the name of one of its buffers."""


@dataclass(frozen=True, eq=False)
class Noted:
    """What a block had when its first run began."""

    parameters: Sequence[tuple[nn.Module, str, torch.Tensor, int, bool]]
    """modules, names, tensors, how often these had been changed, and whether they wanted gradients"""
    buffers: dict[Place, tuple[torch.Tensor, int]]
    """those that it reads"""
    values: dict[Place, torch.Tensor]
    """copies of those that are small, or that it changes"""
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
        self._parts = list(module.modules())
        self._changing: dict[tuple[bool, ...], set[Place]] = {}  # by modes; those that have not run are not known

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
        storages = {place: one.untyped_storage()._cdata for place, one in found.items() if _strided(one)}
        changing = self._changing.get(training)
        copied = {place: one for place, one in found.items() if changing is None or place in changing or _small(one)}
        touched = {storages[place] for place in copied if place in storages}
        copied |= {place: one for place, one in found.items() if storages.get(place) in touched}
        buffers = {place: (one, one._version) for place, one in found.items()}
        return Noted(parameters, buffers, _copied(copied), training)

    def look(self, noted: Noted) -> None:
        """Notice which large buffers a run has changed, in place or by assigning another; drop the copies of others."""
        first = noted.training not in self._changing
        changing = self._changing.setdefault(noted.training, set())
        for place, (buffer, version) in noted.buffers.items():
            number, name = place
            if _small(buffer) and place in noted.values:
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
            copies = _copied(noted.values)
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


def _copied(several: dict[Place, torch.Tensor]) -> dict[Place, torch.Tensor]:
    """Copy tensors; those that share memory go on sharing it: who changes one changes the others."""
    sharing: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for one in several.values():
        sharing[one.untyped_storage()._cdata if _strided(one) else id(one)].append(one)
    copies: dict[int, torch.Tensor] = {}
    alone: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for those in sharing.values():
        if len(those) > 1:
            copies |= _windows(those)
        elif _strided(those[0]):
            alone[those[0].dtype, those[0].device].append(those[0])
        else:
            copies[id(those[0])] = those[0].detach().clone()
    for alike in alone.values():
        fresh = [torch.empty_like(one, requires_grad=False) for one in alike]
        with torch.no_grad():
            torch._foreach_copy_(fresh, alike)  # normalisations have many small ones: one call copies them all
        copies |= {id(one): copy for one, copy in zip(alike, fresh, strict=True)}
    return {place: copies[id(one)] for place, one in several.items()}


def _windows(sharing: list[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Copy the memory that tensors share, and give each its window onto the copy, by its identity.

    One that is there under several names is one tensor again.
    """
    starts = {id(one): one.storage_offset() * one.element_size() for one in sharing}
    ends = [
        starts[id(one)]
        + one.element_size() * (1 + sum((n - 1) * by for n, by in zip(one.shape, one.stride(), strict=True)))
        for one in sharing
        if one.numel()
    ]
    first = min(starts.values()) // _ALIGNED * _ALIGNED
    memory = as_bytes(sharing[0].untyped_storage())[first : max(ends, default=first)].clone().untyped_storage()
    windows = {}
    for one in sharing:
        offset = (starts[id(one)] - first) // one.element_size()
        window = torch.empty(0, dtype=one.dtype, device=one.device).set_(memory, offset, one.shape, one.stride())
        window = window.conj() if one.is_conj() else window
        windows[id(one)] = torch._neg_view(window) if one.is_neg() else window
    return windows


def _strided(buffer: torch.Tensor) -> bool:
    return buffer.layout is torch.strided


_ALIGNED = 512
"""What torch's allocators align memory to, at most: a copy is read as fast, and summed in the same order."""
_MISSING = object()
_LOST = (
    "a block changed a large buffer of its own ({}) for the first time after it had run without that, so there is no "
    "copy to run it again with. From the next iteration on there is one: skip this one, or leave the block out with "
    "blocks=..."
)


def _small(buffer: torch.Tensor) -> bool:
    return buffer.numel() * buffer.element_size() < SMALL


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    return copy.layout is not torch.strided or torch.equal(copy, buffer)  # others do not compare


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed between its forward and its backward pass: its forward "
        "cannot be run again as it was. Change it after backward, or leave the block out with blocks=..."
    )
