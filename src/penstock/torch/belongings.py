"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
        self._changing: dict[tuple[bool, ...], set[Place]] = {}  # by modes; those that have not run are not known
        self._scratch: dict[Place, torch.Tensor] = {}

    def note(self) -> Noted:
        """Take note of what the block has now."""
        parameters, buffers, values = [], {}, {}
        training = tuple(part.training for part in self._parts)
        changing = self._changing.get(training)
        for number, part in enumerate(self._parts):
            for name, tensor in part._parameters.items():
                if tensor is not None:
                    parameters.append((part, name, tensor, tensor._version))
            for name, buffer in part._buffers.items():
                if buffer is None or _only_written(part):
                    continue
                place = number, name
                buffers[place] = buffer, buffer._version
                if changing is None or place in changing or _small(buffer):
                    values[place] = buffer.detach().clone()
        return Noted(parameters, buffers, values, training)

    @contextmanager
    def watched(self, noted: Noted) -> Iterator[None]:
        """Notice which large buffers a run changes, in place or by assigning another, and drop the copies of others."""
        yield
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

        def lend(table: Any, name: str, tensor: torch.Tensor | None) -> None:
            own = table.get(name, _MISSING)
            if own is not tensor:
                before.append((table, name, own))
                table[name] = tensor

        modes = [part.training for part in self._parts]
        try:
            for number, (part, mode) in enumerate(zip(self._parts, noted.training, strict=True)):
                if part.training != mode:
                    part.training = mode
                if _only_written(part):
                    for name, buffer in part._buffers.items():
                        if buffer is not None:
                            lend(part._buffers, name, self._lent(part, (number, name), buffer))
            for part, name, tensor, version in noted.parameters:
                _check(name, tensor, version)
                lend(part._parameters, name, tensor)  # torch.func.functional_call has others for a call
            for place, (buffer, version) in noted.buffers.items():
                number, name = place
                if place not in noted.values:
                    _check(name, buffer, version)
                value = noted.values[place].clone() if place in noted.values else buffer
                lend(self._parts[number]._buffers, name, value)
            yield
        finally:
            for table, name, own in before:
                if own is _MISSING:
                    table.pop(name, None)
                elif table.get(name) is not own:
                    table[name] = own
            for part, mode in zip(self._parts, modes, strict=True):
                if part.training != mode:
                    part.training = mode

    def _lent(self, part: nn.Module, place: Place, buffer: torch.Tensor) -> torch.Tensor | None:
        """Give what a second run may write instead of a buffer that it does not read: any values do."""
        if place[1] == "num_batches_tracked" and type(part).forward is _BatchNorm.forward and part.momentum is not None:
            return None  # it counts where there is something to count with
        scratch = self._scratch.get(place)
        if scratch is None or _kind(scratch) != _kind(buffer):
            scratch = self._scratch[place] = torch.zeros_like(buffer)
        return scratch


_MISSING = object()
_LOST = (
    "a block changed a large buffer of its own ({}) for the first time after it had run without that, so there is no "
    "copy to run it again with. From the next iteration on there is one: skip this one, or leave the block out with "
    "blocks=..."
)
_WRITING = frozenset({_BatchNorm.forward, SyncBatchNorm.forward, _InstanceNorm.forward})


def _only_written(part: nn.Module) -> bool:
    return part.training and type(part).forward in _WRITING  # a subclass with another forward may read them


def _kind(buffer: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return buffer.shape, buffer.dtype, buffer.device


def _small(buffer: torch.Tensor) -> bool:
    return buffer.numel() * buffer.element_size() < SMALL


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    return copy.layout is not torch.strided or torch.equal(copy, buffer)  # others do not compare


def _check(name: str, tensor: torch.Tensor, version: int) -> None:
    if tensor._version != version:
        raise RuntimeError(
            f"a parameter or buffer of a block ({name}) was changed between its forward and its backward pass: its "
            "forward cannot be run again as it was. Change it after backward, or leave the block out with blocks=..."
        )
