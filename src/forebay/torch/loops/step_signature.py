"""Telling whether a step is like one that was planned before, though it may be a function made anew."""

import functools
import types
import weakref
from collections.abc import Callable, Hashable, Iterable
from itertools import chain
from typing import Any

from torch import Tensor, nn

from forebay.torch.replay.hidden_state import GENERATORS


class StepSignature:
    """What a step and its arguments are made of, as far as a plan depends on it.

    Functions are alike where their code is and what they close over; tensors where their kinds are; numbers with a
    fraction always, as they change with every iteration and not what a step does. Anything else has to be the same
    object, with the same flags, strings and integers, the same modes of the modules and the same kinds of the tensors
    that it holds.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self.modules: list[nn.Module] = []
        """all modules that were met: steps may change their buffers"""
        self.tensors: list[weakref.ref[Tensor]] = []
        """all tensors that were met by themselves, which need not live on"""
        self.generators: list[Any] = []
        """all generators of random numbers that were met: steps may draw from them"""
        self._met: set[int] = set()
        self.key = tuple(map(self._of, values))

    def _of(self, value: Any) -> Hashable:
        if value is None or isinstance(value, bool | int | str | bytes):
            return type(value), value
        if isinstance(value, float | complex):
            return (type(value),)
        if isinstance(value, Tensor):
            self.tensors.append(weakref.ref(value))
            return tuple(value.shape), value.dtype, value.device, value.requires_grad
        if id(value) in self._met:
            return _Identity(value)
        self._met.add(id(value))
        if isinstance(value, GENERATORS):
            self.generators.append(value)
            return _Identity(value)
        if isinstance(value, nn.Module):
            self.modules.append(value)
            self.generators += _generators(attribute for part in value.modules() for attribute in vars(part).values())
            modes = tuple(_flags(part) for part in value.modules())
            return _Identity(value), modes, tuple(tensor.requires_grad for tensor in value.parameters())
        if (compiled := getattr(value, "_torchdynamo_orig_callable", None)) is not None:
            return "compiled", self._of(compiled)
        if isinstance(value, functools.partial):
            return self._of(value.func), self._all(value.args), self._all(_flat(sorted(value.keywords.items())))
        if isinstance(value, types.MethodType):
            return self._of(value.__func__), self._of(value.__self__)
        if isinstance(value, types.FunctionType):
            self.generators += _generators(value.__globals__.get(name) for name in value.__code__.co_names)
            defaults = (*(value.__defaults__ or ()), *_flat(sorted((value.__kwdefaults__ or {}).items())))
            return value.__code__, self._all(defaults), self._all(map(_inside, value.__closure__ or ()))
        if isinstance(value, tuple):
            return type(value), self._all(value)
        return _Identity(value), self._all(_parts(value))

    def _all(self, values: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple(map(self._of, values))


class _Identity:
    """Equal for one object alone, which it does not keep alive where that can be helped.

    Lists, dicts and the like cannot be referred to weakly. They may hold much, so they are known by their address
    alone; that another one takes it over is caught where it changes a gradient.
    """

    def __init__(self, value: Any) -> None:
        self._hash = hash((type(value), id(value)))
        try:
            self._refer: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._refer = _no_reference

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity) or self._hash != other._hash:
            return False
        return self._refer() is other._refer() is not None


def _no_reference() -> bool:
    return True


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _flags(module: nn.Module) -> Hashable:
    """Return the modes of a module, its training and what its author added; integers may count its calls."""
    return tuple((name, value) for name, value in vars(module).items() if isinstance(value, bool | str))


def _parts(value: Any) -> Iterable[Any]:
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
