"""What a step is made of and reaches beside its arguments: what a plan depends on, and what must be as it was later."""

import functools
import types
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import optree
import torch
from torch import Tensor, nn

from forebay.errors import ForebayError, StateError
from forebay.torch.compat import Dispatching, TorchDispatchMode, version_of
from forebay.torch.replay.hidden_state import GENERATORS
from forebay.torch.storage.mover import storage_of


class ChangedError(ForebayError, RuntimeError):
    """A tensor that is needed to run steps again, and is no longer what it was."""


class StepSignature(NamedTuple):
    """What a step and its arguments are made of, as far as a plan depends on it.

    Functions are alike where their code is and what they close over; tensors where their kinds are; numbers with a
    fraction always, as they change with every iteration and not what a step does. Anything else has to be the same
    object, with the same flags, strings and integers, the same modes of the modules and the same kinds of the tensors
    that it holds.
    """

    key: Hashable
    modules: list[nn.Module]
    """all modules that were met: steps may change their buffers"""
    tensors: list[weakref.ref[Tensor]]
    """all tensors that were met by themselves, which need not live on"""
    generators: list[Any]
    """all generators of random numbers that were met: steps may draw from them"""

    @classmethod
    def of(cls, values: Iterable[Any]) -> "StepSignature":
        """Look at a step and what it is given."""
        met, visited = cls((), [], [], []), set[int]()
        return met._replace(key=tuple([_key(value, met, visited) for value in values]))


def _key(value: Any, met: StepSignature, visited: set[int]) -> Hashable:
    """Return what tells a value from others, and note what is met on the way."""

    def every(values: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple(_key(each, met, visited) for each in values)

    if value is None or isinstance(value, bool | int | str | bytes):
        return type(value), value
    if isinstance(value, float | complex):
        return (type(value),)
    if isinstance(value, Tensor):
        met.tensors.append(weakref.ref(value))
        return tuple(value.shape), value.dtype, value.device, value.requires_grad
    if id(value) in visited:
        return _Identity.of(value)
    visited.add(id(value))
    if isinstance(value, GENERATORS):
        met.generators.append(value)
        return _Identity.of(value)
    if isinstance(value, nn.Module):
        met.modules.append(value)
        met.generators.extend(_generators(own for part in value.modules() for own in vars(part).values()))
        modes = tuple(_flags(part) for part in value.modules())
        return _Identity.of(value), modes, tuple(tensor.requires_grad for tensor in value.parameters())
    if (compiled := getattr(value, "_torchdynamo_orig_callable", None)) is not None:
        return "compiled", *every([compiled])
    if isinstance(value, functools.partial):
        return every((value.func, *value.args, len(value.args), *_flat(sorted(value.keywords.items()))))
    if isinstance(value, types.MethodType):
        return every([value.__func__, value.__self__])
    if isinstance(value, types.FunctionType):
        met.generators.extend(_generators(value.__globals__.get(name) for name in value.__code__.co_names))
        defaults = (*(value.__defaults__ or ()), *_flat(sorted((value.__kwdefaults__ or {}).items())))
        return value.__code__, every(defaults), every(map(_inside, value.__closure__ or ()))
    if isinstance(value, tuple):
        return type(value), every(value)
    return _Identity.of(value), every(_parts_of(value))


@dataclass(frozen=True, eq=False, slots=True)
class _Identity:
    """Equal for one object alone, which it does not keep alive where that can be helped.

    Lists, dicts and the like cannot be referred to weakly. They may hold much, so they are known by their address
    alone; that another one takes it over is caught where it changes a gradient.
    """

    kind: type
    address: int
    refer: weakref.ref[Any] | None

    @classmethod
    def of(cls, value: Any) -> "_Identity":
        try:
            return cls(type(value), id(value), weakref.ref(value))
        except TypeError:
            return cls(type(value), id(value), None)

    def __hash__(self) -> int:
        return hash((self.kind, self.address))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity) or (self.kind, self.address) != (other.kind, other.address):
            return False
        return self.refer is None or (other.refer is not None and self.refer() is other.refer() is not None)


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _flags(module: nn.Module) -> Hashable:
    """Return the modes of a module, its training and what its author added; integers may count its calls."""
    return tuple((name, value) for name, value in vars(module).items() if isinstance(value, bool | str))


def _parts_of(value: Any) -> Iterable[Any]:
    """Return what is to be the same in an object: of a list or set, which may be long, no numbers and no strings."""
    if isinstance(value, list | set | frozenset):
        return (part for part in value if isinstance(part, (Tensor, nn.Module, *GENERATORS)))
    named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return _flat(
        pair for pair in named.items() if isinstance(pair[1], (Tensor, nn.Module, bool, int, str, *GENERATORS))
    )


def _generators(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, GENERATORS)]


def _flat(pairs: Iterable[tuple[str, Any]]) -> Iterable[Any]:
    """Return names and values one after the other: the address of a pair that is made for the look says nothing."""
    return chain.from_iterable(pairs)


# Buffers.


class _Buffer(NamedTuple):
    module: nn.Module
    name: str
    path: str
    """as a user would write it"""
    tensor: Tensor
    version: int
    values: Tensor | None
    """a copy, where it is to be put back"""

    def changed(self) -> bool:
        """Tell whether it was changed in place, or another tensor was put in its place."""
        if self.module._buffers.get(self.name) is not self.tensor or self.tensor._version != self.version:
            return True
        # Kernels such as batch_norm's write their statistics without counting a version.
        return self.values is not None and not torch.equal(
            *(row(x).view(torch.uint8) for x in (self.tensor, self.values))
        )


def row(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor one after the other."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)


def _named_parts(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, str]]:
    """List all modules once, each with what its names begin with as a user would write them."""
    parts = {id(part): (part, path) for module in modules for path, part in module.named_modules()}
    return [(part, f"{path}." if path else "") for part, path in parts.values()]


def buffers_of(modules: Iterable[nn.Module], *, copied: bool) -> list[_Buffer]:
    """Take note of the buffers of some modules as they are now."""
    return [
        _Buffer(part, name, path + name, b, b._version, b.detach().clone() if copied else None)
        for part, path in _named_parts(modules)
        for name, b in part._buffers.items()
        if b is not None
    ]


def put_back(buffers: list[_Buffer]) -> list[str]:
    """Put back what has changed, and name it."""
    changed = [buffer.path for buffer in buffers if buffer.changed()]
    with torch.no_grad():
        for buffer in buffers if changed else []:  # all: some are changed beside without being counted
            buffer.module._buffers[buffer.name] = buffer.tensor
            if buffer.values is not None:
                buffer.tensor.copy_(buffer.values)
    return changed


def check_buffers(buffers: list[_Buffer]) -> None:
    """Refuse steps that have changed some, putting back what can be."""
    if changed := put_back(buffers):
        raise StateError(
            f"the step changes {', '.join(changed)} of a module: steps are run again, and would change it again; "
            "carry it in the state, or call eval() on the module"
        )


# What later runs need as it was.


class CapturedState(NamedTuple):
    """Modules and tensors as they were, for the steps that run again later.

    It refers to tensors weakly: one of them may be the result of an earlier loop, with all that this one holds.
    """

    modes: list[tuple[nn.Module, bool]]
    held: list[tuple[dict[str, Any], str, str, int | None, weakref.ref[Tensor]]]
    """where tensors of modules are and by which name, their names for users, and how often they had been changed"""
    tensors: list[tuple[weakref.ref[Tensor], int | None]]

    @classmethod
    def now(cls, signature: StepSignature) -> "CapturedState":
        """Take note of what a step reaches."""
        parts = _named_parts(signature.modules)
        held = [
            (named, name, path + name, version_of(tensor), weakref.ref(tensor))
            for part, path in parts
            for named in (part._buffers, part._parameters, vars(part))
            for name, tensor in named.items()
            if isinstance(tensor, Tensor)
        ]
        tensors = [(refer, version_of(tensor)) for refer in signature.tensors if (tensor := refer()) is not None]
        return cls([(part, part.training) for part, _ in parts], held, tensors)

    @contextmanager
    def for_replay(self) -> Iterator[None]:
        """Set the modes again, and refuse operations on tensors that have changed."""
        changed = self._changed()
        now = [(part, part.training) for part, _ in self.modes]
        _set_modes(self.modes)
        try:
            with _refusing(changed) if changed else nullcontext():
                yield
        finally:
            _set_modes(now)

    def _changed(self) -> dict[int, str]:
        """Name the tensors that were changed or replaced, by the address of their memory."""
        changed = {}
        for named, name, path, version, refer in self.held:
            present = named.get(name)
            if isinstance(present, Tensor) and (present is not refer() or version_of(present) != version):
                changed[_address(present)] = f"{path} of a module"
        for refer, version in self.tensors:
            if (tensor := refer()) is not None and version_of(tensor) != version:
                changed[_address(tensor)] = f"a tensor of shape {list(tensor.shape)}"
        changed.pop(0, None)  # has no memory
        return changed


def _refusing(changed: Mapping[int, str]) -> TorchDispatchMode:
    """Refuse operations on memory that has changed. What no step uses may change."""

    def run(operation: Any, args: Any, kwargs: Any) -> Any:
        given: Any = args, kwargs
        for leaf in optree.tree_leaves(given):
            if isinstance(leaf, Tensor) and (name := changed.get(_address(leaf))) is not None:
                raise ChangedError(
                    f"{name} was changed or replaced after the loop ran forward, and a step needs it as it was to run "
                    "again: change it after the backward pass, or pass a copy of it in params="
                )
        return operation(*args, **kwargs)

    return Dispatching(run)


def _set_modes(modes: Iterable[tuple[nn.Module, bool]]) -> None:
    for part, training in modes:
        if part.training is not training:
            part.training = training


def _address(tensor: Tensor) -> int:
    storage = storage_of(tensor)
    return 0 if storage is None else storage.data_ptr()
