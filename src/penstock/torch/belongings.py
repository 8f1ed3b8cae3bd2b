"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run, changed or not."""

Place = tuple[int, str]
"""The number of a module in the block, and the name of one of its buffers."""


@dataclass(frozen=True, eq=False)
class Noted:
    """What a block had when its first run began."""

    parameters: Sequence[tuple[nn.Module, str, torch.Tensor, int]]
    """modules, names, tensors, and how often these had been changed"""
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
    now and then, and `torch.nn.functional.batch_norm` changes without counting. The statistics of torch's own
    normalisations are only written while these train.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts = list(module.modules())
        self._norms = [part for part in self._parts if _writes(part)]
        self._changing: dict[tuple[bool, ...], set[Place]] = {}  # by modes; those that have not run are not known
        self._lent: dict[nn.Module, tuple[dict[str, Any], dict[str, Any]]] = {}  # buffers, and what stands in for them

    def note(self) -> Noted:
        """Take note of what the block has now."""
        parameters = [
            (part, name, tensor, tensor._version)
            for part in self._parts
            for name, tensor in part._parameters.items()
            if tensor is not None
        ]
        buffers, values = {}, {}
        training = tuple([part.training for part in self._parts])
        changing = self._changing.get(training)
        for number, part in enumerate(self._parts):
            if not part._buffers or (part.training and _writes(part)):
                continue
            for name, buffer in part._buffers.items():
                if buffer is None:
                    continue
                place = number, name
                buffers[place] = buffer, buffer._version
                if changing is None or place in changing or _small(buffer):
                    values[place] = buffer.detach().clone()
        return Noted(parameters, buffers, values, training)

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
        modes = tuple([part.training for part in self._parts])
        try:
            if modes != noted.training:
                self._set_modes(noted.training)
            for part in self._norms:
                if part.training and part._buffers:
                    before.append((vars(part), "_buffers", part._buffers))
                    vars(part)["_buffers"] = self._scratch(part)
            for part, name, tensor, version in noted.parameters:
                if tensor._version != version:
                    raise _changed(name)
                own = part._parameters.get(name, _MISSING)
                if own is not tensor:  # torch.func.functional_call has others for a call
                    before.append((part._parameters, name, own))
                    vars(part)["_parameters"][name] = tensor
            for place, (buffer, version) in noted.buffers.items():
                number, name = place
                if place not in noted.values and buffer._version != version:
                    raise _changed(name)
                table = self._parts[number]._buffers
                before.append((table, name, table.get(name, _MISSING)))
                table[name] = noted.values[place].clone() if place in noted.values else buffer
            yield
        finally:
            for table, name, own in before:
                if own is _MISSING:
                    table.pop(name, None)
                elif table.get(name) is not own:
                    table[name] = own
            self._set_modes(modes)

    def _set_modes(self, modes: tuple[bool, ...]) -> None:
        for part, mode in zip(self._parts, modes, strict=True):
            if part.training != mode:
                part.training = mode

    def _scratch(self, part: nn.Module) -> dict[str, Any]:
        """Give what a second run may write instead of buffers that it does not read: any values do."""
        own = part._buffers
        known, lent = self._lent.get(part, ({}, {}))
        if len(known) != len(own) or not all(map(is_, known.values(), own.values())):
            lent = {name: None if one is None else torch.zeros_like(one) for name, one in own.items()}
            if type(part).forward is _BatchNorm.forward and part.momentum is not None:
                lent["num_batches_tracked"] = None  # it counts where there is something to count with
            self._lent[part] = dict(own), lent
        return lent


_MISSING = object()
_LOST = (
    "a block changed a large buffer of its own ({}) for the first time after it had run without that, so there is no "
    "copy to run it again with. From the next iteration on there is one: skip this one, or leave the block out with "
    "blocks=..."
)
_WRITING = frozenset({_BatchNorm.forward, SyncBatchNorm.forward, _InstanceNorm.forward})


def _writes(part: nn.Module) -> bool:
    """Tell whether a module only writes its buffers while it trains; a subclass with another forward may read them."""
    return type(part).forward in _WRITING


def _small(buffer: torch.Tensor) -> bool:
    return buffer.numel() * buffer.element_size() < SMALL


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    return copy.layout is not torch.strided or torch.equal(copy, buffer)  # others do not compare


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed between its forward and its backward pass: its forward "
        "cannot be run again as it was. Change it after backward, or leave the block out with blocks=..."
    )
