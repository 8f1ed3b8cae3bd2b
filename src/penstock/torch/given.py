"""What blocks are given and give: the tensors in it, however nested, and what it takes to give it once more."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Iterable, Iterator
from enum import Enum
from operator import is_
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.torch.saved import Keep

MOST = 1000
"""So many things in arguments are looked into, those that are nearest first, and no container of more than that."""


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
    return [one for one, held in _things(tree_flatten(tree)[0]).values() if held is None]


def direct_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Give those tensors of arguments that are not inside of objects."""
    return [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]


class Given:
    """The arguments of a call, to be given again: tensors kept in some way, and objects as they are now.

    A block may set attributes of an object that it is given, or put keys and values into a cache, and so may the model
    behind it. A second run is given the very same object where nobody has, and otherwise another in the state that the
    first run found. Objects are not held, for they may hold what the block gives: only what they hold is.

    Parameters
    ----------
    args, kwargs
        The arguments.
    keep
        Keeps a tensor.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Keep) -> None:
        leaves, self._structure = _flatten(args, kwargs)
        inputs: dict[int, Any] = {}  # what is there twice is one again, as queries, keys and values often are
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and id(leaf) not in inputs:
                inputs[id(leaf)] = _Input(leaf, keep)
        objects = [leaf for leaf in leaves if not isinstance(leaf, _LEAVES)]
        self._nodes = _nodes(objects) if objects else {}
        self._leaves = [inputs.get(id(leaf)) or _marked(leaf, self._nodes) for leaf in leaves]

    def again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments for another call, their tensors without history."""
        known = _unchanged(self._nodes) if self._nodes else {}
        leaves = [_value(leaf, self._nodes, known) for leaf in self._leaves]
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
    """Stands for a method of one."""

    __slots__ = ("function",)

    def __init__(self, key: int, function: Any) -> None:
        super().__init__(key)
        self.function = function


def _marked(one: Any, noted: "Container[int]") -> Any:
    """Give what stands for a thing where it was noted, or leads to one that was; else itself."""
    if id(one) in noted:
        return _Anew(id(one))
    if type(one) is ref and id(one()) in noted:
        return _Weak(id(one()), one)
    if type(one) is MethodType and id(one.__self__) in noted:
        return _Bound(id(one.__self__), one.__func__)
    return one


def _value(one: Any, nodes: "dict[int, _Node]", known: dict[int, Any]) -> Any:
    """Give what stands in the place of a tensor or of an object, making that where nobody has."""
    if type(one) is _Input:
        if id(one) not in known:
            known[id(one)] = one.tensor()
        return known[id(one)]
    if not isinstance(one, _Anew):
        return one
    if one.key not in known:
        nodes[one.key].make(one.key, nodes, known)
    if type(one) is _Weak:
        return ref(known[one.key])
    return MethodType(one.function, known[one.key]) if type(one) is _Bound else known[one.key]


class _Node:
    """What an object or a container held when it was noted."""

    def __init__(self, thing: Any, held: "_Held", noted: "Container[int]") -> None:
        self.kind, self._base, self._native, self._made = type(thing), *_kind_of(thing)[1:4]
        try:
            self.there: Any = ref(thing) if _kind_of(thing).made else lambda: thing
        except TypeError:
            self.there = None  # as dicts and lists: whoever holds them tells which they are
        self._more = thing.maxlen if self.kind is deque else thing.default_factory if self.kind is defaultdict else None
        self._names, self._members, self._keys = held.names, held.members, held.keys
        self.values = [_marked(one, noted) for one in held.values]

    def like(self, held: "_Held", candidates: dict[int, Any]) -> bool:
        """Tell whether it holds the same now."""
        return (
            (len(held.values), held.names, held.members) == (len(self.values), self._names, self._members)
            and len(held.keys) == len(self._keys)
            and all(map(is_, held.keys, self._keys))
            and all(_stands_for(mark, now, candidates) for mark, now in zip(self.values, held.values, strict=True))
        )

    def make(self, key: int, nodes: "dict[int, _Node]", known: dict[int, Any]) -> None:
        """Make another in the state that was noted, without calling anything of its class."""
        count = len(self._names) + len(self._members)
        if self._base is tuple:
            known[key] = new = tuple.__new__(self.kind, [_value(one, nodes, known) for one in self.values[count:]])
        else:
            known[key] = new = self._empty()
        values = [_value(one, nodes, known) for one in self.values]
        for name, one in zip(self._names, values, strict=False):
            new.__dict__[name] = one
        for member, one in zip(self._members, values[len(self._names) :], strict=False):
            member.__set__(new, one)
        items, base = values[count:], self._base
        if base is dict or base is OrderedDict:
            for name, one in zip(self._keys, items, strict=True):
                base.__setitem__(new, name, one)
        elif base is set:
            set.update(new, items)
        elif base is list or base is deque:
            base.extend(new, items)

    def _empty(self) -> Any:
        if self.kind is deque:
            return deque(maxlen=self._more)
        if self.kind is defaultdict:
            return defaultdict(self._more)
        if not self._made:
            raise RuntimeError(
                f"a block was given a {self.kind.__name__} that has changed since, and no second one can be made to "
                "run it again with: give it another each time, or leave the block out with blocks=..."
            )
        return self._native.__new__(self.kind)


def _stands_for(mark: Any, now: Any, candidates: dict[int, Any]) -> bool:
    if not isinstance(mark, _Anew):
        return mark is now
    if type(mark) is _Weak:
        return mark.reference is now
    there = candidates.get(mark.key)
    if type(mark) is _Bound:
        return type(now) is MethodType and now.__func__ is mark.function and now.__self__ is there
    return there is not None and there is now


def _nodes(leaves: list[Any]) -> dict[int, _Node]:
    """Take note of the objects among arguments, and of all that they hold."""
    things = _things(leaves)
    if any(isinstance(one, Iterator) and type(one).__module__ in _OWN for one, _ in things.values()):
        raise RuntimeError(
            "a block is given an iterator, which cannot be run through once more: give it a list, or leave the block "
            "out with blocks=..."
        )
    noted = {key for key, (one, held) in things.items() if held is not None and _kind_of(one).open}
    return {key: _Node(one, held, noted) for key, (one, held) in things.items() if held is not None and key in noted}


def _unchanged(nodes: dict[int, _Node]) -> dict[int, Any]:
    """Give the objects that are still there and hold what they held, down to the last."""
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
            if nodes[mark.key].there is None and type(now) is nodes[mark.key].kind:
                candidates[mark.key] = now
                waiting.append(mark.key)
    changed = {key for key, node in nodes.items() if key not in held or not node.like(held[key], candidates)}
    while more := {
        key
        for key, node in nodes.items()
        if key not in changed and any(isinstance(one, _Anew) and one.key in changed for one in node.values)
    }:
        changed |= more
    return {key: thing for key, thing in candidates.items() if key not in changed}


_OWN = ("builtins", "itertools")
"""Whose iterators do not tell where they are."""
_PLAIN = (tuple, list, dict)
_LEAVES = (torch.Tensor, float, int, str, type(None))
_SIMPLE = frozenset((float, int, bool, str, type(None)))
_CONTAINERS = (OrderedDict, dict, list, tuple, set, deque)
_MADE = frozenset((object, SimpleNamespace, OrderedDict, dict, list, tuple, set))
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
    made: bool
    """whether another can be made without calling anything of it"""
    slots: tuple[Any, ...]
    """what reads and writes them"""
    open: bool
    """whether its objects can hold something that is seen"""


_kinds: dict[type, _Kind] = {}
_MOST_KINDS = 1000
_HEAP = 1 << 9
"""Marks, among the flags of a class, those that a class statement made."""


def _can_make(kind: Any, native: Any) -> bool:
    if kind is deque or kind is defaultdict:
        return True
    if native not in _MADE or hasattr(kind, "__del__") or issubclass(kind, (*_CLOSED, torch.Tensor)):
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
        found = _kinds[kind] = _Kind(
            issubclass(kind, _CLOSED), base, native, _can_make(kind, native), tuple(members), seen
        )
    return found


def _flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec | None]:
    """Give the leaves of arguments, and their structure where they are more than a few that follow each other."""
    for one in args:
        if not isinstance(one, _LEAVES):
            return tree_flatten((args, kwargs))
    return tree_flatten((args, kwargs)) if kwargs else (list(args), None)


def _things(leaves: Iterable[Any]) -> "dict[int, tuple[Any, _Held | None]]":
    """Give some things and all that they hold, with that, as far as they are looked into; tensors are not."""
    found: dict[int, tuple[Any, _Held | None]] = {}
    waiting = deque(leaves)
    while waiting and len(found) < MOST:
        thing = waiting.popleft()
        kind = _kind_of(thing)
        if kind.closed or id(thing) in found or (kind.base is not None and kind.base.__len__(thing) > MOST):
            continue
        held = None if isinstance(thing, torch.Tensor) else _held_by(thing)
        found[id(thing)] = thing, held
        if held is not None:
            waiting += [one for one in held.values if type(one) not in _SIMPLE]
    return found


class _Held(NamedTuple):
    """What an object holds."""

    names: tuple[str, ...]
    """of its attributes"""
    members: tuple[Any, ...]
    """what reads and writes its slots"""
    keys: tuple[Any, ...]
    """of a dict"""
    values: list[Any]
    """of all of these, and the items of other containers"""


def _held_by(thing: Any) -> _Held:
    """Give what an object holds, without calling anything of its own."""
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        attributes = {}
    kind, members = _kind_of(thing), []
    values = list(attributes.values())
    for member in kind.slots:
        try:
            values.append(member.__get__(thing))
        except AttributeError:
            continue  # nothing is there
        members.append(member)
    base, keys = kind.base, ()
    if base is dict or base is OrderedDict:
        keys = tuple(base.keys(thing))
        values += base.values(thing)
    elif base is not None:
        values += base.__iter__(thing)
    return _Held(tuple(attributes), tuple(members), keys, values)
