"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import is_
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn

from penstock.torch.mover import as_bytes
from penstock.torch.saved import version_of

SMALL = 10**6
"""Buffers of fewer bytes are copied before every run, changed or not."""


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
    layout: "_Layout"
    groups: "_Groups"
    """which were copied"""
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
        self._changing: dict[tuple[bool, ...], set[_Place]] = {}  # by modes; those that have not run are not known
        self._layout: _Layout | None = None

    def note(self) -> Noted:
        """Take note of what the block has now."""
        if not self._tree.stands(self._parts):
            self._find_parts()
        parameters = [
            (part, name, tensor, tensor._version, tensor.requires_grad)
            for part in self._parts
            for name, tensor in part._parameters.items()
            if tensor is not None
        ]
        training = tuple([part.training for part in self._parts])
        seen = _Seen.of(self._parts)
        if self._layout is None or not self._layout.holds(seen):
            self._layout = _Layout(self._parts, seen)
        layout = self._layout
        buffers = {number: one for number, one in enumerate(seen.tensors) if one is not None}
        versions = {number: version_of(one) for number, one in buffers.items()}
        groups = layout.groups(self._changing.get(training))
        copies = _copies(buffers, groups)
        return Noted(self._parts, parameters, buffers, versions, copies, layout, groups, training)

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
            if moved or other or (first and not _same(noted.copies[number], buffer)):
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
            copies = _copies(noted.copies, noted.groups)
            for number, (place, name) in enumerate(noted.layout.places):
                buffer = noted.buffers.get(number)
                if buffer is not None and number not in copies and version_of(buffer) != noted.versions[number]:
                    raise _changed(name)
                lent[place][name] = copies.get(number, buffer)
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

    def _set_modes(self, modes: tuple[bool, ...]) -> None:
        for part, mode in zip(self._parts, modes, strict=True):
            if part.training != mode:
                part.training = mode


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
        return self.counts == now.counts and self.names == now.names and _identical(self.modules, now.modules)


def _check_added(noted: Noted) -> None:
    """Refuse parameters that were not there when the first run began."""
    now = [one for part in noted.parts for one in part._parameters.values() if one is not None]
    if _identical(now, [one for _, _, one, _, _ in noted.parameters]):
        return
    had = {(part, name) for part, name, _, _, _ in noted.parameters}
    for part in noted.parts:
        for name, one in part._parameters.items():
            if one is not None and (part, name) not in had:
                raise _changed(name)


def _identical(several: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(several) == len(others) and all(map(is_, several, others))


_Place = tuple[int, str]
"""The number of a module in the block, and the name of one of its buffers."""


class _Seen(NamedTuple):
    """What tells whether buffers are still those that they were, and where they were."""

    tensors: list[torch.Tensor | None]
    lie: tuple[list[int], list[str], list[Any]]
    """how many modules have, their names, and how those lie that are in one piece"""

    @classmethod
    def of(cls, parts: Sequence[nn.Module]) -> "_Seen":
        tables = [part._buffers for part in parts]
        tensors = list(chain.from_iterable([table.values() for table in tables]))
        lie = [
            None
            if one is None or not _in_one_piece(one)
            else (one.data_ptr(), one.shape, one.stride(), one.requires_grad)
            for one in tensors
        ]
        return cls(tensors, ([len(table) for table in tables], list(chain.from_iterable(tables)), lie))


class _Groups(NamedTuple):
    """The numbers of buffers that are copied."""

    alike: list[list[int]]
    """of one type and device each: one call copies them, and normalisations have many"""
    sharing: list[list[int]]
    """in the same memory each: who changes one changes the others; or single ones with gaps"""
    odd: list[int]
    """not in one piece"""


class _Layout:
    """How the buffers of a block lie in memory: found once, as long as they are the same and stay there."""

    def __init__(self, parts: Sequence[nn.Module], seen: _Seen) -> None:
        self._lie = seen.lie
        self._tensors = [None if one is None else ref(one) for one in seen.tensors]  # nobody else may need them later
        self.places = [(number, name) for number, part in enumerate(parts) for name in part._buffers]
        # One that wants gradients is a parameter but in name: it is read where it is, and must not change.
        found = [(number, one) for number, one in enumerate(seen.tensors) if one is not None and not one.requires_grad]
        self.large = [number for number, one in found if one.numel() * one.element_size() >= SMALL]
        self._odd = [number for number, one in found if not _in_one_piece(one)]
        self._sharing = _sharing(found)
        self._single = {several[0] for several in self._sharing if len(several) == 1}
        self._alike = {
            number: (one.dtype, one.device) for number, one in found if number in self._single and _dense(one)
        }
        self._known: dict[frozenset[_Place] | None, _Groups] = {}

    def holds(self, seen: _Seen) -> bool:
        """Tell whether all is as it was found."""
        if self._lie != seen.lie:
            return False
        before = [one if one is None else one() for one in self._tensors]
        return _identical(seen.tensors, before)

    def alone(self, number: int) -> bool:
        """Tell whether no other buffer is in the same memory."""
        return number in self._single or number in self._odd

    def groups(self, changing: set[_Place] | None) -> _Groups:
        """Give those that are to be copied: all, or those that are small, that change, or that share memory with such.

        Parameters
        ----------
        changing
            The places of large ones that runs have changed; None where nobody knows.
        """
        key = None if changing is None else frozenset(changing)
        if key not in self._known:
            large = set() if key is None else {number for number in self.large if self.places[number] not in key}
            self._known[key] = self._grouped(large)
        return self._known[key]

    def _grouped(self, left_out: set[int]) -> _Groups:
        alike: dict[Any, list[int]] = defaultdict(list)
        copied = [several for several in self._sharing if not left_out.issuperset(several)]
        for several in copied:
            if several[0] in self._alike:
                alike[self._alike[several[0]]] += several
        odd = [number for number in self._odd if number not in left_out]
        return _Groups(list(alike.values()), [several for several in copied if several[0] not in self._alike], odd)


def _sharing(buffers: Sequence[tuple[int, torch.Tensor]]) -> list[list[int]]:
    """Give the numbers of those in the same memory: of one storage, or of several that NumPy laid over one array."""
    spans = []
    for number, one in buffers:
        if _in_one_piece(one):
            storage = one.untyped_storage()
            spans.append((str(one.device), storage.data_ptr(), storage.data_ptr() + storage.nbytes(), number))
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


def _copies(several: Mapping[int, torch.Tensor], groups: _Groups) -> dict[int, torch.Tensor]:
    """Copy those of some tensors that are in these groups."""
    copies: dict[int, torch.Tensor] = {}
    for alike in groups.alike:
        numbers = [number for number in alike if number in several]
        own = [several[number] for number in numbers]
        fresh = [torch.empty_like(one) for one in own]
        if fresh:
            with torch.no_grad():
                torch._foreach_copy_(fresh, own)
        copies.update(zip(numbers, fresh, strict=True))
    for sharing in groups.sharing:
        copies |= _windows({number: several[number] for number in sharing if number in several})
    for number in groups.odd:
        if number in several:
            copies[number] = several[number].detach().clone()
    return copies


def _windows(sharing: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Copy the memory that tensors share, and give each its window onto the copy.

    One that is there under several names is one tensor again.
    """
    there = [one for one in sharing.values() if one.numel()]
    storages = {one.untyped_storage()._cdata: one.untyped_storage() for one in there}
    ends = [
        one.data_ptr()
        + one.element_size() * (1 + sum((n - 1) * by for n, by in zip(one.shape, one.stride(), strict=True)))
        for one in there
    ]
    lowest = min((one.data_ptr() for one in there), default=0)
    first = lowest // _ALIGNED * _ALIGNED
    if any((one.data_ptr() - first) % one.element_size() for one in there):  # as NumPy may lay them
        first = lowest
    if any((one.data_ptr() - first) % one.element_size() for one in there):
        raise RuntimeError("two buffers of a block lie over each other by less than an element: clone one of them")
    last = max(ends, default=first)
    windows: dict[int, torch.Tensor] = {}
    device = next((one.device for one in sharing.values()), None)
    memory = torch.empty(last - first, dtype=torch.uint8, device=device)
    for storage in storages.values():
        start = storage.data_ptr()
        low, high = max(first, start), min(last, start + storage.nbytes())
        memory[low - first : high - first].copy_(as_bytes(storage)[low - start : high - start])
    known: dict[int, torch.Tensor] = {}
    for number, one in sharing.items():
        if id(one) not in known:
            offset = (one.data_ptr() - first) // one.element_size() if one.numel() else 0
            window = torch.empty(0, dtype=one.dtype, device=one.device)
            window = window.set_(memory.untyped_storage(), offset, one.shape, one.stride())
            window = window.conj() if one.is_conj() else window
            known[id(one)] = torch._neg_view(window) if one.is_neg() else window
        windows[number] = known[id(one)]
    return windows


def _in_one_piece(buffer: torch.Tensor) -> bool:
    """Tell whether a tensor is a window onto a storage, and not sparse, nested, quantized or made of others."""
    plain = type(buffer).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return plain and buffer.layout is torch.strided and not buffer.is_nested and not buffer.is_quantized


def _dense(buffer: torch.Tensor) -> bool:
    """Tell whether a copy of a tensor would have the same strides, and so be summed in the same order."""
    return torch.empty_like(buffer, device="meta").stride() == buffer.stride()


_ALIGNED = 512
"""What torch's allocators align memory to, at most: a copy is read as fast, and summed in the same order."""
_MISSING = object()
_LOST = (
    "a block changed a large buffer of its own ({}) for the first time after it had run without that, so there is no "
    "copy to run it again with. From the next iteration on there is one: skip this one, or leave the block out with "
    "blocks=..."
)


def _same(copy: torch.Tensor, buffer: torch.Tensor) -> bool:
    return not _in_one_piece(copy) or torch.equal(copy, buffer)  # others do not compare


def _changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"a parameter or buffer of a block ({name}) was changed or added since its forward pass began: it cannot be "
        "run again as it was. Have it there before fit and change it after backward, or leave the block out with "
        "blocks=..."
    )
