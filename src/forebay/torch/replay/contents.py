"""What objects hold: attributes, slots and items, read and written without calling anything of theirs."""

import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from enum import Enum
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import ProxyTypes, ref

import numpy as np
import torch
from torch import nn

MOST = 1000
"""So many objects in arguments are looked into, those that are nearest first, and no container of more than that."""

METHODS = (MethodType, BuiltinMethodType)
GENERATORS = torch.Generator, random.Random, np.random.Generator, np.random.RandomState
_OWN = ("builtins", "itertools")
"""Whose iterators do not tell where they are."""
PLAIN = (tuple, list, dict)
_SIMPLE = frozenset((float, int, bool, str, type(None)))
_CONTAINERS = (OrderedDict, dict, list, tuple, set, deque)
_MADE = frozenset((object, SimpleNamespace, OrderedDict, dict, list, tuple, set))
_CLOSED = (
    nn.Module,
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
    random.SystemRandom,
    *ProxyTypes,
)
"""What nobody looks into."""


class ClassTraits(NamedTuple):
    """What has to be known of a class."""

    closed: bool
    base: Any
    """the container that it is a kind of; None where it is none"""
    native: Any
    """the class of Python's own that makes its objects"""
    made: bool
    """whether another can be made without calling anything of it"""
    slots: tuple[Any, ...]
    """what reads and writes them"""
    open: bool
    """whether its objects can hold something that is seen"""
    leaf: bool
    """whether it is a tensor or a generator, which are known in other ways"""


_traits: dict[type, ClassTraits] = {}
_MOST_CLASSES = 1000
_HEAP = 1 << 9
"""Marks, among the flags of a class, those that a class statement made."""


def _can_make(kind: Any, native: Any) -> bool:
    if kind is deque or kind is defaultdict:
        return True
    if native not in _MADE or hasattr(kind, "__del__") or issubclass(kind, _CLOSED):
        return False
    try:
        native.__new__(kind)
    except TypeError:
        return False
    return True


def traits_of(instance: Any) -> ClassTraits:
    """Return what has to be known of an object's class."""
    kind = type(instance)
    traits = _traits.get(kind)
    if traits is None:
        if len(_traits) > _MOST_CLASSES:  # classes may be made as a program runs
            _traits.clear()
        owners = [base_class for base_class in kind.__mro__ if "__slots__" in vars(base_class)]
        base = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
        native = next(base_class for base_class in kind.__mro__ if not base_class.__flags__ & _HEAP)
        members = [
            member for owner in owners for member in vars(owner).values() if isinstance(member, MemberDescriptorType)
        ]
        visible = base is not None or bool(members) or kind.__dictoffset__ != 0
        leaf = issubclass(kind, (torch.Tensor, *GENERATORS))
        traits = _traits[kind] = ClassTraits(
            issubclass(kind, _CLOSED), base, native, _can_make(kind, native), tuple(members), visible, leaf
        )
    return traits


def reachable_objects(root: Any) -> "dict[int, tuple[Any, Contents | None]]":
    """List an object and all that it holds, as far as they are looked into; tensors and generators are not."""
    objects: dict[int, tuple[Any, Contents | None]] = {}
    waiting = deque([(root, True)])
    while waiting and len(objects) < MOST:
        instance, direct = waiting.popleft()
        if type(instance) in METHODS:
            instance = instance.__self__
        elif type(instance) is ref:
            instance = instance()
        kind = traits_of(instance)
        if kind.closed or id(instance) in objects:
            continue
        if kind.leaf:
            objects[id(instance)] = instance, None
            continue
        if isinstance(instance, Iterator) and type(instance).__module__ in _OWN:
            raise RuntimeError(
                "a block is given an iterator, or an object that holds one, which cannot be run through once more: "
                "give it a list, or leave the block out with blocks=..."
            )
        direct = direct and type(instance) in PLAIN
        if kind.base is not None and not direct and kind.base.__len__(instance) > MOST:
            continue
        held = contents_of(instance)
        objects[id(instance)] = instance, held
        waiting += [(value, direct) for value in held.values if type(value) not in _SIMPLE]
    return objects


def tensors_held(instance: Any) -> list[torch.Tensor]:
    """List the tensors that an object is or holds."""
    if traits_of(instance).closed:
        return []
    objects = reachable_objects(instance).values()
    return [leaf for leaf, held in objects if held is None and isinstance(leaf, torch.Tensor)]


class Contents(NamedTuple):
    """What an object holds."""

    kind: Any
    """its class"""
    names: tuple[str, ...]
    """of its attributes"""
    members: tuple[Any, ...]
    """what reads and writes its slots"""
    keys: tuple["_Key", ...]
    """of a dict"""
    itself: bool
    """whether its attributes are its items"""
    values: list[Any]
    """of all of these, and the items of other containers"""

    @property
    def first(self) -> int:
        """The place of the first item among the values."""
        return len(self.names) + len(self.members)


class _Key:
    """A key, which is the same where it is the very same, whatever it says itself."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.key is other.key

    __hash__ = None  # type: ignore[assignment]


def _attributes(instance: Any) -> Any:
    try:
        return object.__getattribute__(instance, "__dict__")
    except AttributeError:
        return {}


def _filled(member: Any, instance: Any) -> bool:
    try:
        member.__get__(instance)
    except AttributeError:
        return False
    return True


def contents_of(instance: Any) -> Contents:
    """Read what an object holds, without calling anything of its own."""
    attributes = _attributes(instance)
    itself = attributes is instance
    names = () if itself else tuple(attributes)
    values = [] if itself else list(attributes.values())
    kind = traits_of(instance)
    members = tuple([member for member in kind.slots if _filled(member, instance)])
    values += [member.__get__(instance) for member in members]
    base = kind.base
    keys: tuple[_Key, ...] = ()
    if base is dict or base is OrderedDict:
        keys = tuple(map(_Key, base.keys(instance)))
        values += base.values(instance)
    elif base is not None:
        values += base.__iter__(instance)
    return Contents(type(instance), names, members, keys, itself, values)


def write(instance: Any, held: Contents) -> None:
    """Have an object hold this and nothing else, without calling anything of its class."""
    if type(instance) is not held.kind:
        object.__setattr__(instance, "__class__", held.kind)
    attributes = _attributes(instance)
    if held.itself:
        object.__setattr__(instance, "__dict__", instance)
    elif held.names or attributes:
        attributes.clear()
        attributes.update(zip(held.names, held.values, strict=False))
    for member in traits_of(instance).slots:
        if member in held.members:
            member.__set__(instance, held.values[len(held.names) + held.members.index(member)])
        elif _filled(member, instance):
            member.__delete__(instance)
    items, base = held.values[held.first :], traits_of(instance).base
    if base is dict or base is OrderedDict:
        base.clear(instance)
        for key, item in zip(held.keys, items, strict=True):
            base.__setitem__(instance, key.key, item)
    elif base is set:
        set.clear(instance)
        set.update(instance, items)
    elif base is list or base is deque:
        base.clear(instance)
        base.extend(instance, items)
