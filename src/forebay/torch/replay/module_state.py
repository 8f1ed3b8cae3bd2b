"""What a block has besides its inputs: parameters, buffers and modes. A second run finds them as the first did.

Buffers that a block changes as it runs, such as the statistics of BatchNorm, are changed once, however often it runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Any, NamedTuple

import torch
from torch import nn

from forebay.torch.compat import version_of
from forebay.torch.execution_context import NOTHING
from forebay.torch.replay.buffers import BufferLayout, BufferName, BufferPlacement, copies_of, identical, same


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
        alike = self.counts == counts and self.names == names and identical(self.tensors, tensors)
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
class Buffers:
    """The buffers of a block when its first run began, by number."""

    tensors: dict[int, torch.Tensor]
    versions: dict[int, int | None]
    """how often these had been changed"""
    copies: dict[int, torch.Tensor]
    """of those that are small, or that it changes"""
    layout: BufferLayout
    groups: list[list[int]]
    """which were copied"""

    def for_another_run(self) -> dict[int, dict[str, torch.Tensor | None]]:
        """Return what each module is to find in a second run, by its number."""
        lent: dict[int, dict[str, torch.Tensor | None]] = {place: {} for place, _ in self.layout.places}
        copies = copies_of(self.copies, self.groups)
        for number, (place, name) in enumerate(self.layout.places):
            buffer = self.tensors.get(number)
            if buffer is not None and number not in copies and version_of(buffer) != self.versions[number]:
                raise _changed(name)
            lent[place][name] = copies.get(number, buffer)
        return lent


@dataclass(eq=False, slots=True)
class InitialModuleState:
    """What a block had when its first run began."""

    parts: Sequence[nn.Module]
    """its modules"""
    parameters: Parameters
    buffers: Buffers | None
    """None where it has none"""
    training: tuple[bool, ...]
    lost: set[str] = field(default_factory=set)
    """names of buffers that the run has changed without there being a copy"""


class ModuleState:
    """The parameters, buffers and modes of a block.

    Which large buffers its forward changes is noticed when it runs: all of them are copied before the first run in each
    combination of modes, and only those that have changed before later ones. Small ones are always copied: some change
    now and then, and `torch.nn.functional.batch_norm` changes without counting.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.sets_attributes = False
        """whether its forward sets plain attributes, as counters are, which a second run has to leave as they are"""
        self._runs = count()
        self._find_parts()

    def _find_parts(self) -> None:
        self._parts = list(self._module.modules())
        self._tree = _Tree(self._parts)
        self._changing: dict[tuple[bool, ...], set[BufferName]] = {}  # by modes; those that have not run are not known
        self._layout: BufferLayout | None = None

    def next_run(self) -> int:
        """Return the number of the run that begins."""
        return next(self._runs)

    def parameters(self) -> Iterator[torch.Tensor]:
        """Yield the parameters of the modules that it had when it ran last."""
        for part in self._parts:
            yield from (parameter for parameter in part._parameters.values() if parameter is not None)

    def beyond(self) -> str | None:
        """Tell why the block cannot be run again as it is; None where it can."""
        having = {number: part for number, part in enumerate(self._module.modules()) if part._buffers}
        return BufferLayout(having, BufferPlacement.of(having)).beyond

    def note(self) -> InitialModuleState:
        """Take note of what the block has now, for a second run."""
        if not self._tree.stands():
            self._find_parts()
        parts = self._parts
        training = _modes(parts)
        having = {number: part for number, part in enumerate(parts) if part._buffers}
        buffers = self._note_buffers(having, training) if having else None
        return InitialModuleState(parts, Parameters.of(parts), buffers, training)

    def _note_buffers(self, having: Mapping[int, nn.Module], training: tuple[bool, ...]) -> Buffers:
        placement = BufferPlacement.of(having)
        if self._layout is None or not self._layout.holds(placement):
            self._layout = BufferLayout(having, placement)
        if self._layout.beyond is not None:
            raise RuntimeError(f"a block {self._layout.beyond}: clone what lies so, or leave it out with blocks=...")
        tensors = {number: buffer for number, buffer in enumerate(placement.tensors) if buffer is not None}
        versions = {number: version_of(buffer) for number, buffer in tensors.items()}
        groups = self._layout.groups(self._changing.get(training))
        return Buffers(tensors, versions, copies_of(tensors, groups), self._layout, groups)

    def look(self, initial: InitialModuleState) -> None:
        """Notice which large buffers a run has changed, in place or by assigning another; drop the copies of others."""
        if initial.parts is not self._parts:
            return
        first = initial.training not in self._changing
        changing = self._changing.setdefault(initial.training, set())
        if initial.buffers is None:
            return
        had = initial.buffers
        for number in had.layout.large:
            part, name = place = had.layout.places[number]
            buffer = had.tensors[number]
            moved = version_of(buffer) != had.versions[number]
            if moved and number not in had.copies:
                initial.lost.add(name)
            # Not all that changes a buffer counts that: the first time values are compared.
            other = initial.parts[part]._buffers.get(name) is not buffer
            if moved or other or (first and not same(had.copies[number], buffer)):
                changing.add(place)
            elif place not in changing:
                had.copies.pop(number, None)

    @contextmanager
    def for_replay(self, initial: InitialModuleState) -> Iterator[None]:
        """Let a second run find what the first one had, and put all back as it is now."""
        if initial.lost:
            raise RuntimeError(_LOST.format(", ".join(sorted(initial.lost))))
        if initial.parts is not self._parts or not self._tree.stands():
            raise _changed("a module of it")
        parts, modes = initial.parts, _modes(initial.parts)
        tables = [part._buffers for part in parts]
        own = [table.copy() for table in tables]
        with NOTHING if initial.parameters.stand(parts) else initial.parameters.lend(parts):
            try:
                if modes != initial.training:
                    _set_modes(parts, initial.training)
                lent = {} if initial.buffers is None else initial.buffers.for_another_run()
                for place, table in enumerate(tables):
                    if table or place in lent:
                        table.clear()
                        table.update(lent.get(place, {}))
                yield
            finally:
                for table, all_own in zip(tables, own, strict=True):
                    if table or all_own:
                        table.clear()
                        table.update(all_own)
                if _modes(parts) != modes:
                    _set_modes(parts, modes)


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
            if list(part._modules) != names or not identical(modules, list(part._modules.values())):
                return False
        return True


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
