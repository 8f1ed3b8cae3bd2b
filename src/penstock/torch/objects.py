"""Objects among the arguments of a block: what they hold is noted, and given again as it was."""

import pickle
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from types import BuiltinMethodType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import ProxyTypes, ref

import numpy as np
import torch
from torch import nn

from penstock.torch.buffers import identical
from penstock.torch.saved import Kept, check_version, version_of

MOST = 1000
"""So many things in arguments are looked into, those that are nearest first, and no container of more than that."""


class Input:
    """Stands for a tensor that a block was given directly."""

    __slots__ = ("_kept", "_more", "_wanted", "there")

    def __init__(self, tensor: torch.Tensor, keep: Any = Kept) -> None:
        self._kept, self._wanted, self.there = keep(tensor), tensor.requires_grad, ref(tensor)
        self._more = dict(tensor.__dict__)  # what others have set on it

    def tensor(self) -> torch.Tensor:
        """Give it again, without history."""
        found: torch.Tensor = self._kept.tensor().detach().requires_grad_(self._wanted)
        if self._more:
            found.__dict__.update(self._more)
        return found


class _Anew:
    """Stands for an object that was noted."""

    __slots__ = ("key",)

    def __init__(self, key: int) -> None:
        self.key = key


class _Weak(_Anew):
    """Stands for a weak reference to one."""

    __slots__ = ("reference",)

    def __init__(self, key: int, reference: Any) -> None:
        super().__init__(key)
        self.reference = reference


class _Bound(_Anew):
    """Stands for a method of one: a function, or the name of one of Python's own."""

    __slots__ = ("function",)

    def __init__(self, key: int, function: Any) -> None:
        super().__init__(key)
        self.function = function


_METHODS = (MethodType, BuiltinMethodType)


def _function_of(method: Any) -> Any:
    return method.__func__ if type(method) is MethodType else method.__name__


def _marked(one: Any, noted: "Container[int]", inputs: Mapping[int, Input]) -> Any:
    """Give what stands for a thing where it was noted, or leads to one that was; else itself."""
    if id(one) in inputs:
        return inputs[id(one)]
    if id(one) in noted:
        return _Anew(id(one))
    if type(one) is ref and id(one()) in noted:
        return _Weak(id(one()), one)
    if type(one) in _METHODS and id(one.__self__) in noted:
        return _Bound(id(one.__self__), _function_of(one))
    return one


class Noted:
    """The arguments of a call with all that they hold.

    Parameters
    ----------
    args, kwargs
        The arguments.
    inputs
        What stands for their tensors, by identity.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Mapping[int, Input]) -> None:
        root = args, kwargs
        self._root = id(root)
        things = _things(root)
        noted = {key for key, (one, held) in things.items() if held is not None and _kind_of(one).open}
        self._nodes: dict[int, _Node] = {}
        self._versions: list[tuple[torch.Tensor, int | None]] = []
        self._generators: list[tuple[Any, Any]] = []
        for key, (one, held) in things.items():
            if held is not None:
                if key in noted:
                    self._nodes[key] = _Node(one, held, noted, inputs)
            elif not isinstance(one, torch.Tensor):
                self._generators.append((one, _state(one)))
            elif key not in inputs:
                self._versions.append((one, version_of(one)))

    @contextmanager
    def again(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Give the arguments for another call, and put back what that call does to those of them that were there."""
        for tensor, version in self._versions:
            if version is not None:
                check_version(tensor, version)
        there = self._unchanged()
        known = self._made({key: thing for key, (thing, _) in there.items()})
        drawn = [_state(one) for one, _ in self._generators]
        try:
            for one, state in self._generators:
                _set_state(one, state)
            yield known[self._root]
        finally:
            for (one, _), state in zip(self._generators, drawn, strict=True):
                _set_state(one, state)
            for thing, held in there.values():
                now = _held_by(thing)
                if now[:-1] != held[:-1] or not identical(now.values, held.values):
                    _write(thing, held)

    def _unchanged(self) -> "dict[int, tuple[Any, _Held]]":
        """Give the objects that are still there and hold what they held, down to the last, with that."""
        nodes = self._nodes
        there = {key: node.there() for key, node in nodes.items() if node.there is not None}
        candidates = {key: thing for key, thing in there.items() if thing is not None}
        held: dict[int, _Held] = {}
        waiting = list(candidates)
        while waiting:
            key = waiting.pop()
            held[key] = _held_by(candidates[key])
            for mark, now in zip(nodes[key].values, held[key].values, strict=False):
                if type(mark) is not _Anew or mark.key in candidates:
                    continue
                if nodes[mark.key].there is None and type(now) is nodes[mark.key].held.kind:
                    candidates[mark.key] = now
                    waiting.append(mark.key)
        holders: dict[int, list[int]] = defaultdict(list)
        for key, node in nodes.items():
            for one in node.values:
                if isinstance(one, _Anew):
                    holders[one.key].append(key)
        changed = {key for key, node in nodes.items() if key not in held or not node.like(held[key], candidates)}
        waiting = list(changed)
        while waiting:
            more = {key for key in holders[waiting.pop()] if key not in changed}
            changed |= more
            waiting += more
        return {key: (thing, held[key]) for key, thing in candidates.items() if key not in changed}

    def _made(self, there: dict[int, Any]) -> dict[int, Any]:
        """Give all things, others in the place of those that are not there as they were."""
        missing = [(key, node) for key, node in self._nodes.items() if key not in there]
        known = there | {key: node.empty() for key, node in missing if node.base is not tuple}
        for key, _ in missing:
            if key not in known:
                self._make_tuple(key, known)
        for key, node in sorted(missing, key=lambda pair: pair[1].base is set):  # which ask things for their hashes
            _write(known[key], node.held._replace(values=[value_of(one, known) for one in node.values]))
        return known

    def _make_tuple(self, key: int, known: dict[int, Any]) -> None:
        node = self._nodes[key]
        items = node.values[node.held.first :]
        for one in items:
            if isinstance(one, _Anew) and one.key not in known:
                self._make_tuple(one.key, known)
        known[key] = tuple.__new__(node.held.kind, [value_of(one, known) for one in items])


def value_of(one: Any, known: dict[int, Any]) -> Any:
    """Give what a mark stands for."""
    if type(one) is Input:
        if id(one) not in known:
            known[id(one)] = one.tensor()
        return known[id(one)]
    if not isinstance(one, _Anew):
        return one
    found = known[one.key]
    if type(one) is _Weak:
        return ref(found)
    if type(one) is not _Bound:
        return found
    name = one.function
    return object.__getattribute__(found, name) if isinstance(name, str) else MethodType(name, found)


class _Node:
    """What an object or a container held when it was noted."""

    def __init__(self, thing: Any, held: "_Held", noted: "Container[int]", inputs: Mapping[int, Input]) -> None:
        self.base, self._native, self._made = _kind_of(thing)[1:4]
        try:
            self.there: Any = ref(thing) if self._made else lambda: thing
        except TypeError:
            self.there = None  # as dicts and lists: whoever holds them tells which they are
        self._more = thing.maxlen if held.kind is deque else thing.default_factory if held.kind is defaultdict else None
        self.values = [_marked(one, noted, inputs) for one in held.values]
        self.held = held._replace(values=[])
        self._inputs = any(type(one) is Input for one in self.values)

    def like(self, held: "_Held", candidates: dict[int, Any]) -> bool:
        """Tell whether that is what is held now, and is still so where inputs are given without their history."""
        return (
            not (self._made and self._inputs)
            and held[:-1] == self.held[:-1]
            and len(held.values) == len(self.values)
            and all(_stands_for(mark, now, candidates) for mark, now in zip(self.values, held.values, strict=True))
        )

    def empty(self) -> Any:
        """Make another that holds nothing yet, without calling anything of its class."""
        kind = self.held.kind
        if kind is deque:
            return deque(maxlen=self._more)
        if kind is defaultdict:
            return defaultdict(self._more)
        if not self._made:
            raise RuntimeError(
                f"a block was given a {kind.__name__} that has changed since, and no second one can be made to run it "
                "again with: give it another each time, or leave the block out with blocks=..."
            )
        return self._native.__new__(kind)


def _stands_for(mark: Any, now: Any, candidates: dict[int, Any]) -> bool:
    if type(mark) is Input:
        return mark.there() is now
    if not isinstance(mark, _Anew):
        return mark is now
    if type(mark) is _Weak:
        return mark.reference is now
    there = candidates.get(mark.key)
    if type(mark) is _Bound:
        return type(now) in _METHODS and now.__self__ is there and _function_of(now) == mark.function
    return there is not None and there is now


# What generators are at.

_GENERATORS = torch.Generator, random.Random, np.random.Generator, np.random.RandomState


def _state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    own = generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
    return pickle.dumps(own.state)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        own = generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
        own.state = pickle.loads(state)


# What things hold.

_OWN = ("builtins", "itertools")
"""Whose iterators do not tell where they are."""
_PLAIN = (tuple, list, dict)
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


class _Kind(NamedTuple):
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


_kinds: dict[type, _Kind] = {}
_MOST_KINDS = 1000
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


def _kind_of(thing: Any) -> _Kind:
    kind = type(thing)
    found = _kinds.get(kind)
    if found is None:
        if len(_kinds) > _MOST_KINDS:  # classes may be made as a program runs
            _kinds.clear()
        owners = [one for one in kind.__mro__ if "__slots__" in vars(one)]
        base = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
        native = next(one for one in kind.__mro__ if not one.__flags__ & _HEAP)
        members = [one for owner in owners for one in vars(owner).values() if isinstance(one, MemberDescriptorType)]
        seen = base is not None or bool(members) or kind.__dictoffset__ != 0
        leaf = issubclass(kind, (torch.Tensor, *_GENERATORS))
        found = _kinds[kind] = _Kind(
            issubclass(kind, _CLOSED), base, native, _can_make(kind, native), tuple(members), seen, leaf
        )
    return found


def _things(root: Any) -> "dict[int, tuple[Any, _Held | None]]":
    """Give a thing and all that it holds, with that, as far as they are looked into; tensors and generators are not."""
    found: dict[int, tuple[Any, _Held | None]] = {}
    waiting = deque([(root, True)])
    while waiting and len(found) < MOST:
        thing, direct = waiting.popleft()
        if type(thing) in _METHODS:
            thing = thing.__self__
        elif type(thing) is ref:
            thing = thing()
        kind = _kind_of(thing)
        if kind.closed or id(thing) in found:
            continue
        if kind.leaf:
            found[id(thing)] = thing, None
            continue
        if isinstance(thing, Iterator) and type(thing).__module__ in _OWN:
            raise RuntimeError(
                "a block is given an iterator, or an object that holds one, which cannot be run through once more: "
                "give it a list, or leave the block out with blocks=..."
            )
        direct = direct and type(thing) in _PLAIN
        if kind.base is not None and not direct and kind.base.__len__(thing) > MOST:
            continue
        held = _held_by(thing)
        found[id(thing)] = thing, held
        waiting += [(one, direct) for one in held.values if type(one) not in _SIMPLE]
    return found


def tensors_held(thing: Any) -> list[torch.Tensor]:
    """Give the tensors that a thing is or holds."""
    if _kind_of(thing).closed:
        return []
    return [one for one, held in _things(thing).values() if held is None and isinstance(one, torch.Tensor)]


class _Held(NamedTuple):
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


def _attributes(thing: Any) -> Any:
    try:
        return object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}


def _filled(member: Any, thing: Any) -> bool:
    try:
        member.__get__(thing)
    except AttributeError:
        return False
    return True


def _held_by(thing: Any) -> _Held:
    """Give what an object holds, without calling anything of its own."""
    attributes = _attributes(thing)
    itself = attributes is thing
    names = () if itself else tuple(attributes)
    values = [] if itself else list(attributes.values())
    kind = _kind_of(thing)
    members = tuple([member for member in kind.slots if _filled(member, thing)])
    values += [member.__get__(thing) for member in members]
    base = kind.base
    keys: tuple[_Key, ...] = ()
    if base is dict or base is OrderedDict:
        keys = tuple(map(_Key, base.keys(thing)))
        values += base.values(thing)
    elif base is not None:
        values += base.__iter__(thing)
    return _Held(type(thing), names, members, keys, itself, values)


def _write(thing: Any, held: _Held) -> None:
    """Have a thing hold this and nothing else, without calling anything of its class."""
    if type(thing) is not held.kind:
        object.__setattr__(thing, "__class__", held.kind)
    attributes = _attributes(thing)
    if held.itself:
        object.__setattr__(thing, "__dict__", thing)
    elif held.names or attributes:
        attributes.clear()
        attributes.update(zip(held.names, held.values, strict=False))
    for member in _kind_of(thing).slots:
        if member in held.members:
            member.__set__(thing, held.values[len(held.names) + held.members.index(member)])
        elif _filled(member, thing):
            member.__delete__(thing)
    items, base = held.values[held.first :], _kind_of(thing).base
    if base is dict or base is OrderedDict:
        base.clear(thing)
        for one, item in zip(held.keys, items, strict=True):
            base.__setitem__(thing, one.key, item)
    elif base is set:
        set.clear(thing)
        set.update(thing, items)
    elif base is list or base is deque:
        base.clear(thing)
        base.extend(thing, items)
