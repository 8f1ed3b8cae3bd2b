"""Objects among the arguments of a block: what they hold is noted, and given again as it was."""

import pickle
import random
from collections import defaultdict, deque
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any
from weakref import ref

import numpy as np
import torch

from forebay.torch.replay.buffers import identical
from forebay.torch.replay.contents import METHODS, Contents, contents_of, reachable_objects, traits_of, write
from forebay.torch.saved_tensors import Keep, check_version, version_of


class Input:
    """Stands for a tensor that a block was given directly."""

    __slots__ = ("_kept", "_more", "_wanted", "there")

    def __init__(self, tensor: torch.Tensor, keep: Keep) -> None:
        self._kept, self._wanted, self.there = keep(tensor), tensor.requires_grad, ref(tensor)
        self._more = dict(tensor.__dict__)  # what others have set on it

    def tensor(self) -> torch.Tensor:
        """Give it again, without history."""
        found: torch.Tensor = self._kept.tensor().detach().requires_grad_(self._wanted)
        for name, one in self._more.items():  # those that are made of others have some of their own by now
            found.__dict__.setdefault(name, one)
        return found


class _ObjectMark:
    """Stands for an object that was noted."""

    __slots__ = ("key",)

    def __init__(self, key: int) -> None:
        self.key = key


class _WeakMark(_ObjectMark):
    """Stands for a weak reference to one."""

    __slots__ = ("reference",)

    def __init__(self, key: int, reference: Any) -> None:
        super().__init__(key)
        self.reference = reference


class _MethodMark(_ObjectMark):
    """Stands for a method of one: a function, or the name of one of Python's own."""

    __slots__ = ("function",)

    def __init__(self, key: int, function: Any) -> None:
        super().__init__(key)
        self.function = function


def _function_of(method: Any) -> Any:
    return method.__func__ if type(method) is MethodType else method.__name__


def _marked(one: Any, noted: Container[int], inputs: Mapping[int, Input]) -> Any:
    """Give what stands for a thing where it was noted, or leads to one that was; else itself."""
    if id(one) in inputs:
        return inputs[id(one)]
    if id(one) in noted:
        return _ObjectMark(id(one))
    if type(one) is ref and id(one()) in noted:
        return _WeakMark(id(one()), one)
    if type(one) in METHODS and id(one.__self__) in noted:
        return _MethodMark(id(one.__self__), _function_of(one))
    return one


class Objects:
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
        things = reachable_objects(root)
        noted = {key for key, (one, held) in things.items() if held is not None and traits_of(one).open}
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
                now = contents_of(thing)
                if now[:-1] != held[:-1] or not identical(now.values, held.values):
                    write(thing, held)

    def _unchanged(self) -> dict[int, tuple[Any, Contents]]:
        """Give the objects that are still there and hold what they held, down to the last, with that."""
        nodes = self._nodes
        there = {key: node.there() for key, node in nodes.items() if node.there is not None}
        candidates = {key: thing for key, thing in there.items() if thing is not None}
        held: dict[int, Contents] = {}
        waiting = list(candidates)
        while waiting:
            key = waiting.pop()
            held[key] = contents_of(candidates[key])
            for mark, now in zip(nodes[key].values, held[key].values, strict=False):
                if type(mark) is not _ObjectMark or mark.key in candidates:
                    continue
                if nodes[mark.key].there is None and type(now) is nodes[mark.key].held.kind:
                    candidates[mark.key] = now
                    waiting.append(mark.key)
        holders: dict[int, list[int]] = defaultdict(list)
        for key, node in nodes.items():
            for one in node.values:
                if isinstance(one, _ObjectMark):
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
            write(known[key], node.held._replace(values=[value_of(one, known) for one in node.values]))
        return known

    def _make_tuple(self, key: int, known: dict[int, Any]) -> None:
        node = self._nodes[key]
        items = node.values[node.held.first :]
        for one in items:
            if isinstance(one, _ObjectMark) and one.key not in known:
                self._make_tuple(one.key, known)
        known[key] = tuple.__new__(node.held.kind, [value_of(one, known) for one in items])


def value_of(one: Any, known: dict[int, Any]) -> Any:
    """Give what a mark stands for."""
    if type(one) is Input:
        if id(one) not in known:
            known[id(one)] = one.tensor()
        return known[id(one)]
    if not isinstance(one, _ObjectMark):
        return one
    found = known[one.key]
    if type(one) is _WeakMark:
        return ref(found)
    if type(one) is not _MethodMark:
        return found
    name = one.function
    return object.__getattribute__(found, name) if isinstance(name, str) else MethodType(name, found)


class _Node:
    """What an object or a container held when it was noted."""

    def __init__(self, thing: Any, held: Contents, noted: Container[int], inputs: Mapping[int, Input]) -> None:
        kind = traits_of(thing)
        self.base, self._native, self._made = kind.base, kind.native, kind.made
        try:
            self.there: Any = ref(thing) if self._made else lambda: thing
        except TypeError:
            self.there = None  # as dicts and lists: whoever holds them tells which they are
        self._more = thing.maxlen if held.kind is deque else thing.default_factory if held.kind is defaultdict else None
        self.values = [_marked(one, noted, inputs) for one in held.values]
        self.held = held._replace(values=[])
        self._inputs = any(type(one) is Input for one in self.values)

    def like(self, held: Contents, candidates: dict[int, Any]) -> bool:
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
    if not isinstance(mark, _ObjectMark):
        return mark is now
    if type(mark) is _WeakMark:
        return mark.reference is now
    there = candidates.get(mark.key)
    if type(mark) is _MethodMark:
        return type(now) in METHODS and now.__self__ is there and _function_of(now) == mark.function
    return there is not None and there is now


def _state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    return pickle.dumps(_bits(generator).state)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        _bits(generator).state = pickle.loads(state)


def _bits(generator: Any) -> Any:
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
