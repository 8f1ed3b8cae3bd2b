"""Copies of buffers: those that share memory go on sharing it, and many small ones are copied by one call."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import torch

from penstock.torch.mover import as_bytes

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run, changed or not."""

Place = tuple[int, str]
"""The number of a module in the block, and the name of one of its buffers."""


class Pack:
    """Small buffers, each in memory of its own, that are copied into one piece of memory.

    Normalisations have many, and a call for each would take longer than all else that a block needs to be run again.

    Examples
    --------
    >>> pack = Pack({(1, "mean"): torch.ones(3), (1, "count"): torch.tensor(7)})
    >>> pack.buffers(pack.copy())
    {(1, 'mean'): tensor([1., 1., 1.]), (1, 'count'): tensor(7)}
    """

    def __init__(self, buffers: Mapping[Place, torch.Tensor]) -> None:
        self.places = frozenset(buffers)
        self._windows: list[tuple[Place, torch.dtype, int, torch.Size, tuple[int, ...]]] = []
        self._lines: list[torch.Tensor] = []
        start = 0
        for place, one in buffers.items():
            line = one.detach().view(-1).view(torch.uint8)
            gap = -line.numel() % _ALIGNED
            self._lines += [line, torch.zeros(gap, dtype=torch.uint8, device=one.device)]
            self._windows.append((place, one.dtype, start // one.element_size(), one.shape, one.stride()))
            start += line.numel() + gap

    def copy(self) -> torch.Tensor:
        """Copy all of them as they are now, as bytes."""
        with torch.no_grad():
            return torch.cat(self._lines)

    def buffers(self, copy: torch.Tensor) -> dict[Place, torch.Tensor]:
        """Give the buffers that a copy holds."""
        memory, device = copy.untyped_storage(), copy.device
        return {
            place: torch.empty(0, dtype=dtype, device=device).set_(memory, offset, shape, strides)
            for place, dtype, offset, shape, strides in self._windows
        }


def packs_of(buffers: Mapping[Place, torch.Tensor]) -> list[Pack]:
    """Pack the small buffers that are plain and share memory with no other, by their devices."""
    sharing = Counter(memory_of(one) for one in buffers.values())
    alike: dict[torch.device, dict[Place, torch.Tensor]] = defaultdict(dict)
    for place, one in buffers.items():
        plain = strided(one) and one.is_contiguous() and type(one) is torch.Tensor and not one.is_quantized
        if plain and small(one) and sharing[memory_of(one)] == 1 and not (one.is_conj() or one.is_neg()):
            alike[one.device][place] = one
    return [Pack(several) for several in alike.values()]


def copied(several: Mapping[Place, torch.Tensor]) -> dict[Place, torch.Tensor]:
    """Copy tensors; those that share memory go on sharing it: who changes one changes the others."""
    sharing: dict[int, list[torch.Tensor]] = defaultdict(list)
    for one in several.values():
        sharing[memory_of(one)].append(one)
    copies: dict[int, torch.Tensor] = {}
    for those in sharing.values():
        copies |= _windows(those) if len(those) > 1 else {id(those[0]): those[0].detach().clone()}
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
        empty = torch.empty(0, dtype=one.dtype, device=one.device)
        windows[id(one)] = empty.set_(memory, offset, one.shape, one.stride())
    return windows


def memory_of(buffer: torch.Tensor) -> int:
    """Give the identity of a buffer's memory: that of its storage where it is in one piece."""
    return buffer.untyped_storage()._cdata if strided(buffer) else id(buffer)


def strided(buffer: torch.Tensor) -> bool:
    """Tell whether a buffer is in one piece of memory."""
    return buffer.layout is torch.strided


def small(buffer: torch.Tensor) -> bool:
    """Tell whether a buffer is copied before every run."""
    return buffer.numel() * buffer.element_size() < SMALL


_ALIGNED = 512
"""What torch's allocators align memory to, at most: a copy is read as fast, and summed in the same order."""
