"""What blocks are given and give: the tensors in it, however nested, and what it takes to give it once more."""

from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from enum import Enum
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from penstock.torch.saved import Keep

DEEP = 4
"""Objects are looked into, and what they hold, down to so many below each other."""
MOST = 1000
"""Those that hold more than that are nobody's input: they are given again as they are."""


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
    if isinstance(tree, _CLOSED):
        return []
    found = [one for leaf in tree_flatten(tree)[0] for one in islice(_things(leaf, {}), MOST)]
    return [one for one in found if isinstance(one, torch.Tensor)]


class Given:
    """The arguments of a call, to be given again: tensors kept in some way, and objects as they are now.

    A block may set attributes of an object that it is given: a second run has to find those that the first one found.

    Parameters
    ----------
    args, kwargs
        The arguments.
    keep
        Keeps a tensor.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: Keep) -> None:
        leaves, self._structure = _flatten(args, kwargs)
        known: dict[int, Any] = {}
        self._leaves = [_replaced(leaf, torch.Tensor, lambda one: _Input(one, keep), known) for leaf in leaves]

    def again(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments for another call, their tensors without history."""
        known: dict[int, Any] = {}
        leaves = [_replaced(leaf, _Input, _Input.tensor, known) for leaf in self._leaves]
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


_PLAIN = (tuple, list, dict)
_LEAVES = (torch.Tensor, float, int, str, type(None))
_CONTAINERS = (dict, list, tuple, set, deque)
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
"""What nobody looks into: it holds nothing, or has to be the very same in a second run."""


def _flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec | None]:
    """Give the leaves of arguments, and their structure where they are more than a few that follow each other."""
    for one in args:
        if not isinstance(one, _LEAVES):
            return tree_flatten((args, kwargs))
    return tree_flatten((args, kwargs)) if kwargs else (list(args), None)


def _replaced(thing: Any, kind: type, change: Callable[[Any], Any], known: dict[int, Any], depth: int = 0) -> Any:
    """Give a copy of a thing with all of a kind in it changed; what cannot hold any is itself.

    What is there twice is one thing in the copy too, as queries, keys and values often are.
    """
    if isinstance(thing, kind):
        if id(thing) not in known:
            known[id(thing)] = change(thing)
        return known[id(thing)]
    if isinstance(thing, _CLOSED) or depth > DEEP:
        return thing
    if id(thing) in known:
        return known[id(thing)]
    if not isinstance(thing, _CONTAINERS) and not _attributes(thing):
        return thing
    if not depth and len(list(islice(_things(thing, {}), MOST + 1))) > MOST:
        return thing

    def replaced(one: Any) -> Any:
        return _replaced(one, kind, change, known, depth + 1)

    if isinstance(thing, tuple):
        named = hasattr(type(thing), "_fields")
        if named or type(thing) is tuple:
            known[id(thing)] = tuple.__new__(type(thing), map(replaced, thing))
        return known.get(id(thing), thing)
    new = known[id(thing)] = _copied(thing)
    if new is thing:
        return thing
    if isinstance(thing, dict):
        for key, value in thing.items():
            dict.__setitem__(new, key, replaced(value))
    elif isinstance(thing, list | deque):
        new.clear()
        new.extend(map(replaced, thing))
    for name, value in _attributes(new):
        other = replaced(value)
        if other is not value:
            object.__setattr__(new, name, other)
    return new


def _copied(thing: Any) -> Any:
    """Copy a thing, but not what it holds; where it refuses that, or is the only one of its kind, it is itself."""
    try:
        return copy(thing)
    except Exception:
        return thing


def _things(thing: Any, known: dict[int, Any], depth: int = 0) -> Iterator[Any]:
    """Give a thing and what it holds, each once; tensors are not looked into."""
    if isinstance(thing, _CLOSED) or depth > DEEP or id(thing) in known:
        return
    known[id(thing)] = thing
    yield thing
    if isinstance(thing, torch.Tensor):
        return
    if isinstance(thing, _CONTAINERS):
        for one in list(thing.values() if isinstance(thing, dict) else thing):
            yield from _things(one, known, depth + 1)
    for _, one in _attributes(thing):
        yield from _things(one, known, depth + 1)


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    """Give the names and values of what an object holds."""
    found = list(getattr(thing, "__dict__", {}).items())
    for one in type(thing).__mro__:
        slots = one.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found.append((name, getattr(thing, name)))
    return found
