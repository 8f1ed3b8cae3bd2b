"""The buffers of a block: which are copied before it runs, and copies of them that lie alike."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from operator import is_
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn

from forebay.torch.compat import copy_all

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run, changed or not."""

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


class BufferLayout:
    """How the buffers of a block lie in memory: found once, as long as they are the same and stay there."""

    def __init__(self, parts: Mapping[int, nn.Module], placement: BufferPlacement) -> None:
        self._lie = placement.lie
        self._tensors = [
            None if tensor is None else ref(tensor) for tensor in placement.tensors
        ]  # nobody else may need them later
        self.places = [(number, name) for number, part in parts.items() for name in part._buffers]
        # One that wants gradients is a parameter but in name: it is read where it is, and must not change.
        buffers = {
            number: buffer
            for number, buffer in enumerate(placement.tensors)
            if buffer is not None and not buffer.requires_grad
        }
        self.large = [number for number, buffer in buffers.items() if buffer.numel() * buffer.element_size() >= SMALL]
        self.beyond = self._find_beyond(buffers)
        """why none of this can be copied as it lies; None where it can"""
        self._sorts = {
            number: (buffer.dtype, buffer.device) if _in_one_piece(buffer) else number
            for number, buffer in buffers.items()
        }

    def _find_beyond(self, buffers: Mapping[int, torch.Tensor]) -> str | None:
        whole = {id(buffer): (buffer, self.places[number][1]) for number, buffer in buffers.items()}
        spans = []
        for buffer, name in whole.values():
            if _in_one_piece(buffer):
                if buffer.is_conj() or buffer.is_neg():
                    return f"has a buffer ({name}) that stands for another, conjugated or negated"
                if torch.empty_like(buffer, device="meta").stride() != buffer.stride():
                    return f"has a buffer ({name}) with gaps"
                storage = buffer.untyped_storage()
                spans.append((str(buffer.device), storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name))
        spans.sort()
        for (device, _, end, name), (other, start, _, second) in pairwise(spans):
            if device == other and start < end:
                return f"has buffers in the same memory ({name}, {second})"
        return None

    def holds(self, placement: BufferPlacement) -> bool:
        """Tell whether all is as it was found."""
        if self._lie != placement.lie:
            return False
        before = [reference if reference is None else reference() for reference in self._tensors]
        return identical(placement.tensors, before)

    def groups(self, changing: set[BufferName] | None) -> list[list[int]]:
        """Choose those to copy, together where they are of one type and device: one call copies them.

        Parameters
        ----------
        changing
            The places of large ones that runs have changed, to be copied besides the small ones; None copies all.
        """
        left_out = set() if changing is None else {n for n in self.large if self.places[n] not in changing}
        alike: dict[Any, list[int]] = defaultdict(list)
        for number, sort in self._sorts.items():
            if number not in left_out:
                alike[sort].append(number)
        return list(alike.values())


def copies_of(tensors: Mapping[int, torch.Tensor], groups: Sequence[Sequence[int]]) -> dict[int, torch.Tensor]:
    """Copy those of some tensors that are in these groups; one that is there by several names is one again."""
    copies: dict[int, torch.Tensor] = {}
    for group in groups:
        own = {id(tensors[number]): tensors[number] for number in group if number in tensors}
        originals = list(own.values())
        if originals and _in_one_piece(originals[0]):
            fresh = [torch.empty_like(tensor) for tensor in originals]
            with torch.no_grad():
                copy_all(fresh, originals)
        else:
            fresh = [tensor.detach().clone() for tensor in originals]
        made = dict(zip(own, fresh, strict=True))
        copies.update({number: made[id(tensors[number])] for number in group if number in tensors})
    return copies


def _in_one_piece(buffer: torch.Tensor) -> bool:
    """Tell whether a tensor is a window onto a storage, and not sparse, nested, quantized or made of others."""
    plain = type(buffer).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and buffer.layout is torch.strided and not buffer.is_nested and not buffer.is_quantized


def same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    """Tell whether a buffer has the values of its copy, where that can be told."""
    return not _in_one_piece(copy) or torch.equal(copy, buffer)  # others do not compare


def identical(objects: Sequence[Any], others: Sequence[Any]) -> bool:
    """Tell whether these are the very same objects, one by one."""
    return len(objects) == len(others) and all(map(is_, objects, others))
