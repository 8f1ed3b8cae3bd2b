"""Telling whether a step is like one that was planned before, though it may be a function made anew."""

import functools
import random
import types
import weakref
from collections.abc import Hashable, Iterable
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
"""Types of what random numbers are drawn from."""


class StepSignature:
    """What a step and its arguments are made of, as far as a plan depends on it.

    Functions are alike where their code is and what they close over; tensors where their kinds are; numbers with a
    fraction always, as they change with every iteration and not what a step does. Anything else has to be the same
    object, with the same flags, strings and integers, the same modes of the modules and the same kinds of the tensors
    that it holds.
    """

    def __init__(self, things: Iterable[Any]) -> None:
        self.modules: list[nn.Module] = []
        """all modules that were met: steps may change their buffers"""
        self.tensors: list[weakref.ref[Tensor]] = []
        """all tensors that were met by themselves, which need not live on"""
        self.generators: list[Any] = []
        """all generators of random numbers that were met: steps may draw from them"""
        self._met: set[int] = set()
        self.key = tuple(map(self._of, things))

    def _of(self, thing: Any) -> Hashable:
        if thing is None or isinstance(thing, bool | int | str | bytes):
            return type(thing), thing
        if isinstance(thing, float | complex):
            return (type(thing),)
        if isinstance(thing, Tensor):
            self.tensors.append(weakref.ref(thing))
            return tuple(thing.shape), thing.dtype, thing.device, thing.requires_grad
        if id(thing) in self._met:
            return _Identity(thing)
        self._met.add(id(thing))
        if isinstance(thing, GENERATORS):
            self.generators.append(thing)
            return _Identity(thing)
        if isinstance(thing, nn.Module):
            self.modules.append(thing)
            self.generators += _generators(value for part in thing.modules() for value in vars(part).values())
            modes = tuple(_flags(part) for part in thing.modules())
            return _Identity(thing), modes, tuple(tensor.requires_grad for tensor in thing.parameters())
        if (compiled := getattr(thing, "_torchdynamo_orig_callable", None)) is not None:
            return "compiled", self._of(compiled)
        if isinstance(thing, functools.partial):
            return (
                "partial",
                self._of(thing.func),
                self._all(thing.args),
                self._all(_flat(sorted(thing.keywords.items()))),
            )
        if isinstance(thing, types.MethodType):
            return self._of(thing.__func__), self._of(thing.__self__)
        if isinstance(thing, types.FunctionType):
            self.generators += _generators(thing.__globals__.get(name) for name in thing.__code__.co_names)
            defaults = (*(thing.__defaults__ or ()), *_flat(sorted((thing.__kwdefaults__ or {}).items())))
            return thing.__code__, self._all(defaults), self._all(map(_inside, thing.__closure__ or ()))
        if isinstance(thing, tuple):
            return type(thing), self._all(thing)
        return _Identity(thing), self._all(_parts(thing))

    def _all(self, things: Iterable[Any]) -> tuple[Hashable, ...]:
        return tuple(map(self._of, things))


class _Identity:
    """Equal for one object alone, which it does not keep alive where that can be helped."""

    def __init__(self, thing: Any) -> None:
        self._hash = hash((type(thing), id(thing)))
        try:
            self._refer = weakref.ref(thing)
        except TypeError:
            # Lists, dicts and the like cannot be referred to weakly. They may hold much, so they are known by their
            # address alone; that another one takes it over is caught where it changes a gradient.
            self._refer = functools.partial(_address, id(thing))  # type: ignore[assignment]

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity) or self._hash != other._hash:
            return False
        mine, theirs = self._refer(), other._refer()
        return mine is not None and (mine is theirs or (isinstance(mine, int) and mine == theirs))


def _address(address: int) -> int:
    return address


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _flags(module: nn.Module) -> Hashable:
    """Return the modes of a module, its training and what its author added; integers may count its calls."""
    return tuple((name, value) for name, value in vars(module).items() if isinstance(value, bool | str))


def _parts(thing: Any) -> Iterable[Any]:
    """Return what is to be the same in an object: of a list or set, which may be long, no numbers and no strings."""
    if isinstance(thing, list | set | frozenset):
        return (part for part in thing if isinstance(part, (Tensor, nn.Module, *GENERATORS)))
    named = thing if isinstance(thing, dict) else getattr(thing, "__dict__", {})
    return _flat(
        pair for pair in named.items() if isinstance(pair[1], (Tensor, nn.Module, bool, int, str, *GENERATORS))
    )


def _generators(things: Iterable[Any]) -> list[Any]:
    return [thing for thing in things if isinstance(thing, GENERATORS)]


def _flat(pairs: Iterable[tuple[str, Any]]) -> Iterable[Any]:
    """Return names and values one after the other: the address of a pair that is made for the look says nothing."""
    return chain.from_iterable(pairs)
