"""The buffers of a block: how they lie in memory, and copies of them that lie alike."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn

from forebay.torch.mover import as_bytes

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run, changed or not."""
_ALIGNED = 512
"""What torch's allocators align memory to, at most: a copy is read as fast, and summed in the same order."""

BufferName = tuple[int, str]
"""The number of a module in the block, and the name of one of its buffers."""


class BufferPlacement(NamedTuple):
    """What tells whether buffers are still those that they were, and where they were."""

    tensors: list[torch.Tensor | None]
    lie: tuple[list[int], list[int], list[str], list[Any]]
    """which modules have how many, their names, and how those lie that are in one piece"""

    @classmethod
    def of(cls, parts: Mapping[int, nn.Module]) -> "BufferPlacement":
        """Look at the buffers of some modules of a block, by their numbers in it."""
        tables = [part._buffers for part in parts.values()]
        tensors = list(chain.from_iterable([table.values() for table in tables]))
        lie = [
            None
            if tensor is None or not _in_one_piece(tensor)
            else (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.requires_grad)
            for tensor in tensors
        ]
        return cls(tensors, (list(parts), [len(table) for table in tables], list(chain.from_iterable(tables)), lie))


class Groups(NamedTuple):
    """The numbers of buffers that are copied."""

    alike: list[list[int]]
    """of one type and device each: one call copies them, and normalisations have many"""
    sharing: list[list[int]]
    """in the same memory each: who changes one changes the others; or single ones with gaps"""
    odd: list[int]
    """not in one piece"""


class BufferLayout:
    """How the buffers of a block lie in memory: found once, as long as they are the same and stay there."""

    def __init__(self, parts: Mapping[int, nn.Module], placement: BufferPlacement) -> None:
        self._lie = placement.lie
        self._tensors = [
            None if tensor is None else ref(tensor) for tensor in placement.tensors
        ]  # nobody else may need them later
        self.places = [(number, name) for number, part in parts.items() for name in part._buffers]
        # One that wants gradients is a parameter but in name: it is read where it is, and must not change.
        buffers = [
            (number, buffer)
            for number, buffer in enumerate(placement.tensors)
            if buffer is not None and not buffer.requires_grad
        ]
        self.large = [number for number, buffer in buffers if buffer.numel() * buffer.element_size() >= SMALL]
        self._odd = [number for number, buffer in buffers if not _in_one_piece(buffer)]
        self._sharing = _sharing(buffers)
        self._single = {numbers[0] for numbers in self._sharing if len(numbers) == 1}
        self._alike = {
            number: (buffer.dtype, buffer.device)
            for number, buffer in buffers
            if number in self._single and _dense(buffer)
        }
        self._groups_by_changing: dict[frozenset[BufferName] | None, Groups] = {}

    def holds(self, placement: BufferPlacement) -> bool:
        """Tell whether all is as it was found."""
        if self._lie != placement.lie:
            return False
        before = [reference if reference is None else reference() for reference in self._tensors]
        return identical(placement.tensors, before)

    def alone(self, number: int) -> bool:
        """Tell whether no other buffer is in the same memory."""
        return number in self._single or number in self._odd

    def groups(self, changing: set[BufferName] | None) -> Groups:
        """Choose those to copy: all, or those that are small, that change, or that share memory with such.

        Parameters
        ----------
        changing
            The places of large ones that runs have changed; None where nobody knows.
        """
        key = None if changing is None else frozenset(changing)
        if key not in self._groups_by_changing:
            large = set() if key is None else {number for number in self.large if self.places[number] not in key}
            self._groups_by_changing[key] = self._grouped(large)
        return self._groups_by_changing[key]

    def _grouped(self, left_out: set[int]) -> Groups:
        alike: dict[Any, list[int]] = defaultdict(list)
        copied = [numbers for numbers in self._sharing if not left_out.issuperset(numbers)]
        for numbers in copied:
            if numbers[0] in self._alike:
                alike[self._alike[numbers[0]]] += numbers
        odd = [number for number in self._odd if number not in left_out]
        return Groups(list(alike.values()), [numbers for numbers in copied if numbers[0] not in self._alike], odd)


def _sharing(buffers: Sequence[tuple[int, torch.Tensor]]) -> list[list[int]]:
    """Group the numbers of those in the same memory: of one storage, or of several that NumPy laid over one array."""
    spans = []
    for number, buffer in buffers:
        if _in_one_piece(buffer):
            storage = buffer.untyped_storage()
            spans.append((str(buffer.device), storage.data_ptr(), storage.data_ptr() + storage.nbytes(), number))
    groups: list[list[int]] = []
    end: tuple[str, int] = "", 0
    for device, first, last, number in sorted(spans):
        if device == end[0] and first < end[1]:
            groups[-1].append(number)
            end = device, max(end[1], last)
        else:
            groups.append([number])
            end = device, last
    return groups


def copies_of(tensors: Mapping[int, torch.Tensor], groups: Groups) -> dict[int, torch.Tensor]:
    """Copy those of some tensors that are in these groups."""
    copies: dict[int, torch.Tensor] = {}
    for alike in groups.alike:
        numbers = [number for number in alike if number in tensors]
        own = [tensors[number] for number in numbers]
        fresh = [torch.empty_like(tensor) for tensor in own]
        if fresh:
            with torch.no_grad():
                torch._foreach_copy_(fresh, own)
        copies.update(zip(numbers, fresh, strict=True))
    for sharing in groups.sharing:
        copies |= _windows({number: tensors[number] for number in sharing if number in tensors})
    for number in groups.odd:
        if number in tensors:
            copies[number] = tensors[number].detach().clone()
    return copies


def _windows(sharing: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Copy the memory that tensors share, and make a window onto the copy for each.

    One that is there under several names is one tensor again.
    """
    filled = [tensor for tensor in sharing.values() if tensor.numel()]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in filled}
    ends = [
        tensor.data_ptr()
        + tensor.element_size() * (1 + sum((n - 1) * by for n, by in zip(tensor.shape, tensor.stride(), strict=True)))
        for tensor in filled
    ]
    lowest = min((tensor.data_ptr() for tensor in filled), default=0)
    first = lowest // _ALIGNED * _ALIGNED
    if any((tensor.data_ptr() - first) % tensor.element_size() for tensor in filled):  # as NumPy may lay them
        first = lowest
    if any((tensor.data_ptr() - first) % tensor.element_size() for tensor in filled):
        raise RuntimeError("two buffers of a block lie over each other by less than an element: clone one of them")
    last = max(ends, default=first)
    windows: dict[int, torch.Tensor] = {}
    device = next((tensor.device for tensor in sharing.values()), None)
    memory = torch.empty(last - first, dtype=torch.uint8, device=device)
    for storage in storages.values():
        start = storage.data_ptr()
        low, high = max(first, start), min(last, start + storage.nbytes())
        memory[low - first : high - first].copy_(as_bytes(storage)[low - start : high - start])
    copied: dict[int, torch.Tensor] = {}
    for number, tensor in sharing.items():
        if id(tensor) not in copied:
            offset = (tensor.data_ptr() - first) // tensor.element_size() if tensor.numel() else 0
            window = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            window = window.set_(memory.untyped_storage(), offset, tensor.shape, tensor.stride())
            window = window.conj() if tensor.is_conj() else window
            copied[id(tensor)] = torch._neg_view(window) if tensor.is_neg() else window
        windows[number] = copied[id(tensor)]
    return windows


def _in_one_piece(buffer: torch.Tensor) -> bool:
    """Tell whether a tensor is a window onto a storage, and not sparse, nested, quantized or made of others."""
    plain = type(buffer).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and buffer.layout is torch.strided and not buffer.is_nested and not buffer.is_quantized


def _dense(buffer: torch.Tensor) -> bool:
    """Tell whether a copy of a tensor would have the same strides, and so be summed in the same order."""
    return torch.empty_like(buffer, device="meta").stride() == buffer.stride()


def same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Tell whether a buffer has the values of its copy, where that can be told."""
    return not _in_one_piece(copy) or torch.equal(copy, buffer)  # others do not compare


def identical(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether these are the very same objects, one by one."""
    return len(objects) == len(others) and all(map(is_, objects, others))
