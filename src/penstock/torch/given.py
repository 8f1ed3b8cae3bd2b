"""What blocks are given and give: the tensors in it, however nested, and what it takes to give it once more."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from copy import copy
from enum import Enum
from operator import is_
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.torch.saved import Keep

MOST = 1000
"""What holds more things than that is nobody's input: it is not looked into, and given again as it is."""


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Give the tensors of arguments or results, however nested, in containers and in objects with attributes.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> x = torch.ones(2)
    >>> [len(tensors_in(one)) for one in (x, [x, {"more": (x, 3)}], SimpleNamespace(x=[x]), "none")]
    [1, 2, 1, 0]
    """
    if isinstance(tree, torch.Tensor):
        return [tree]
    if type(tree) in _PLAIN:  # what nearly all blocks take: it is asked for each of them, several times a step
        found: list[torch.Tensor] = []
        for item in tree.values() if type(tree) is dict else tree:
            if isinstance(item, torch.Tensor):
                found.append(item)
            elif item is not None:
                found += tensors_in(item)
        return found
    if _kind_of(tree).closed:
        return []
    return [one for leaf in tree_flatten(tree)[0] for one in _looked_into(leaf) if isinstance(one, torch.Tensor)]


def direct_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Give those tensors of arguments that are not inside of objects."""
    return [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]


class Given:
    """The arguments of a call, to be given again: tensors kept in some way, and objects as they are now.

    Objects are the very same for a second run, unless the first one changed them, as a block does that sets attributes
    of its input or puts keys and values into a cache: then it is given others, in the state that the first run found.

    Parameters
    ----------
    args, kwargs
        The arguments.
    keep
        Keeps a tensor.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Keep) -> None:
        leaves, self._structure = _flatten(args, kwargs)
        inputs: dict[int, _Input] = {}  # what is there twice is one again, as queries, keys and values often are
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and id(leaf) not in inputs:
                inputs[id(leaf)] = _Input(leaf, keep)
        self._leaves: list[Any] = [inputs.get(id(leaf), leaf) for leaf in leaves]
        others = [leaf for leaf in leaves if not isinstance(leaf, _LEAVES)]
        objects = [one for leaf in others for one in _looked_into(leaf)]
        if any(isinstance(one, Iterator) and type(one).__module__ in _OWN for one in objects):
            raise RuntimeError(
                "a block is given an iterator, which cannot be run through once more: give it a list, or leave the "
                "block out with blocks=..."
            )
        self._states = [_State(one) for one in objects if not isinstance(one, torch.Tensor)]

    def look(self) -> None:
        """Notice which objects the first run has changed."""
        if all(state.holds for state in self._states):
            self._states = []
            return
        states, self._states = {id(state.thing): state for state in self._states}, []
        anew = {key for key, state in states.items() if not state.holds}
        while more := {key for key, state in states.items() if key not in anew and state.holds_one_of(anew)}:
            anew |= more
        shells = {key: _Shell(states[key], anew) for key in anew}
        self._leaves = [_Made(id(leaf), shells) if id(leaf) in anew else leaf for leaf in self._leaves]

    def again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments for another call, their tensors without history."""
        known: dict[int, Any] = {}
        leaves = []
        for leaf in self._leaves:
            if isinstance(leaf, _Input):
                if id(leaf) not in known:
                    known[id(leaf)] = leaf.tensor()
                leaves.append(known[id(leaf)])
            else:
                leaves.append(leaf.thing(known) if isinstance(leaf, _Made) else leaf)
        if self._structure is None:
            return tuple(leaves), {}
        args, kwargs = tree_unflatten(leaves, self._structure)
        return args, kwargs


class _Input:
    """A tensor that a block was given."""

    __slots__ = ("_kept", "_wanted")

    def __init__(self, tensor: torch.Tensor, keep: Keep) -> None:
        self._kept, self._wanted = keep(tensor), tensor.requires_grad

    def tensor(self) -> torch.Tensor:
        return self._kept.tensor().detach().requires_grad_(self._wanted)


class _State:
    """What an object or a container holds."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.attributes, self.slots, self.keys, self.items = _held_by(thing)

    @property
    def values(self) -> list[Any]:
        return [*self.attributes.values(), *(one for _, one in self.slots), *self.items]

    @property
    def holds(self) -> bool:
        """Whether it still holds the very same."""
        attributes, slots, keys, items = _held_by(self.thing)
        now = [*attributes.values(), *(one for _, one in slots), *items]
        return (
            len(keys) == len(self.keys)
            and len(now) == len(values := self.values)
            and all(map(is_, now, values))
            and attributes.keys() == self.attributes.keys()
            and all(map(is_, keys, self.keys))
        )

    def holds_one_of(self, keys: set[int]) -> bool:
        return any(id(one) in keys for one in self.values)


class _Shell:
    """Makes an object in the state that another was in, of which it holds no more than it needs to."""

    def __init__(self, state: _State, anew: set[int]) -> None:
        def marked(one: Any) -> Any:
            return _Anew(id(one)) if id(one) in anew else one

        self._kind = type(state.thing)
        self._base, self._native = _kind_of(state.thing)[1:3]
        self._attributes = {name: marked(one) for name, one in state.attributes.items()}
        self._slots = [(member, marked(one)) for member, one in state.slots]
        self._keys, self._items = state.keys, [marked(one) for one in state.items]
        self._pattern: Any = None
        if self._kind in _COPIED:  # what else it knows, such as a greatest length, goes along
            self._pattern = copy(state.thing)
            self._pattern.clear()
        try:
            self._empty()
            if hasattr(self._kind, "__del__"):
                raise TypeError("it has an end of its own")
        except TypeError as error:
            raise RuntimeError(
                f"a block changes a {self._kind.__name__} that it is given, of which no second one can be made to run "
                "it again with: give it another each time, or leave the block out with blocks=..."
            ) from error

    def _empty(self) -> Any:
        return self._native.__new__(self._kind) if self._pattern is None else copy(self._pattern)

    def make(self, key: int, shells: "dict[int, _Shell]", known: dict[int, Any]) -> Any:
        def value(one: Any) -> Any:
            if type(one) is not _Anew:
                return one
            return known[one.key] if one.key in known else shells[one.key].make(one.key, shells, known)

        base = self._base
        if base is tuple:
            known[key] = tuple.__new__(self._kind, map(value, self._items))
            return known[key]
        new = known[key] = self._empty()
        items = map(value, self._items)
        if base is dict or base is OrderedDict:
            for name, item in zip(self._keys, items, strict=True):
                base.__setitem__(new, name, item)
        elif base is set:
            set.update(new, items)
        elif base is not None:
            base.extend(new, items)
        for name, one in self._attributes.items():
            new.__dict__[name] = value(one)
        for member, one in self._slots:
            member.__set__(new, value(one))
        return new


class _Anew:
    """Stands for an object that is made anew."""

    __slots__ = ("key",)

    def __init__(self, key: int) -> None:
        self.key = key


class _Made(_Anew):
    """Stands for an argument that is made anew, with all that makes it."""

    __slots__ = ("_shells",)

    def __init__(self, key: int, shells: dict[int, _Shell]) -> None:
        super().__init__(key)
        self._shells = shells

    def thing(self, known: dict[int, Any]) -> Any:
        return known[self.key] if self.key in known else self._shells[self.key].make(self.key, self._shells, known)


_OWN = ("builtins", "itertools")
"""Whose iterators do not tell where they are."""
_PLAIN = (tuple, list, dict)
_LEAVES = (torch.Tensor, float, int, str, type(None))
_SIMPLE = frozenset((float, int, bool, str, type(None)))
_CONTAINERS = (OrderedDict, dict, list, tuple, set, deque)
_COPIED = (dict, list, set, deque, OrderedDict, defaultdict, Counter)
_CLOSED = (
    nn.Module,
    torch.Generator,
    torch.device,
    torch.dtype,
    torch.Size,
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    Enum,
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
)
"""What nobody looks into."""


class _Kind(NamedTuple):
    """What has to be known of a class."""

    closed: bool
    base: Any
    """the container that it is a kind of; None where it is none"""
    native: Any
    """the class of Python's own that makes its objects"""
    slots: tuple[Any, ...]
    """what reads and writes them"""


_kinds: dict[type, _Kind] = {}
_MOST_KINDS = 1000
_HEAP = 1 << 9
"""Marks, among the flags of a class, those that a class statement made."""


def _kind_of(thing: Any) -> _Kind:
    kind = type(thing)
    found = _kinds.get(kind)
    if found is None:
        if len(_kinds) > _MOST_KINDS:  # classes may be made as a program runs
            _kinds.clear()
        owners = [one for one in kind.__mro__ if "__slots__" in vars(one)]
        found = _kinds[kind] = _Kind(
            issubclass(kind, _CLOSED),
            next((base for base in _CONTAINERS if issubclass(kind, base)), None),
            next(one for one in kind.__mro__ if not one.__flags__ & _HEAP),
            tuple(one for owner in owners for one in vars(owner).values() if isinstance(one, MemberDescriptorType)),
        )
    return found


def _flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec | None]:
    """Give the leaves of arguments, and their structure where they are more than a few that follow each other."""
    for one in args:
        if not isinstance(one, _LEAVES):
            return tree_flatten((args, kwargs))
    return tree_flatten((args, kwargs)) if kwargs else (list(args), None)


def _looked_into(leaf: Any) -> list[Any]:
    """Give a thing and all that it holds, each once, tensors included; nothing where that is too much."""
    found: dict[int, Any] = {}
    waiting = [leaf]
    while waiting:
        thing = waiting.pop()
        kind = _kind_of(thing)
        if kind.closed or id(thing) in found:
            continue
        found[id(thing)] = thing
        if len(found) > MOST or (kind.base is not None and kind.base.__len__(thing) > MOST):
            return []
        if not isinstance(thing, torch.Tensor):
            attributes, slots, _, items = _held_by(thing)
            held = [*attributes.values(), *(one for _, one in slots), *items]
            waiting += [one for one in reversed(held) if type(one) not in _SIMPLE]
    return list(found.values())


Holding = tuple[dict[str, Any], list[tuple[Any, Any]], list[Any], list[Any]]
"""Attributes, slots with their values, and the keys and items of a container."""


def _held_by(thing: Any) -> Holding:
    """Give what an object holds, without calling anything of its own."""
    if isinstance(thing, torch.Tensor):
        return {}, [], [], []
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        attributes = {}
    slots = []
    kind = _kind_of(thing)
    for member in kind.slots:
        try:
            slots.append((member, member.__get__(thing)))
        except AttributeError:
            continue  # nothing is there
    base = kind.base
    if base is None:
        return dict(attributes), slots, [], []
    if base is dict or base is OrderedDict:
        return dict(attributes), slots, list(base.keys(thing)), list(base.values(thing))
    return dict(attributes), slots, [], list(base.__iter__(thing))
