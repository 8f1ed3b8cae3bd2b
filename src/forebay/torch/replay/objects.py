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
from forebay.torch.saved_tensors import Keep
from forebay.torch.tensor_versions import check_version, version_of


class Input:
    """Stands for a tensor that a block was given directly."""

    __slots__ = ("_kept", "_more", "_wanted", "original")

    def __init__(self, tensor: torch.Tensor, keep: Keep) -> None:
        self._kept, self._wanted, self.original = keep(tensor), tensor.requires_grad, ref(tensor)
        self._more = dict(tensor.__dict__)  # what others have set on it

    def tensor(self) -> torch.Tensor:
        """Return the tensor again, without history."""
        tensor: torch.Tensor = self._kept.tensor().detach().requires_grad_(self._wanted)
        for name, value in self._more.items():  # those that are made of others have some of their own by now
            tensor.__dict__.setdefault(name, value)
        return tensor


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


def _marked(instance: Any, noted: Container[int], inputs: Mapping[int, Input]) -> Any:
    """Return the mark of an object that was noted, or leads to one that was; else the object itself."""
    if id(instance) in inputs:
        return inputs[id(instance)]
    if id(instance) in noted:
        return _ObjectMark(id(instance))
    if type(instance) is ref and id(instance()) in noted:
        return _WeakMark(id(instance()), instance)
    if type(instance) in METHODS and id(instance.__self__) in noted:
        return _MethodMark(id(instance.__self__), _function_of(instance))
    return instance


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
        reachable = reachable_objects(root)
        noted = {key for key, (instance, held) in reachable.items() if held is not None and traits_of(instance).open}
        self._nodes: dict[int, _Node] = {}
        self._versions: list[tuple[torch.Tensor, int | None]] = []
        self._generators: list[tuple[Any, Any]] = []
        for key, (instance, held) in reachable.items():
            if held is not None:
                if key in noted:
                    self._nodes[key] = _Node(instance, held, noted, inputs)
            elif not isinstance(instance, torch.Tensor):
                self._generators.append((instance, state_of(instance)))
            elif key not in inputs:
                self._versions.append((instance, version_of(instance)))

    @contextmanager
    def for_replay(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Yield the arguments for another call, and put back what that call does to those that were there."""
        for tensor, version in self._versions:
            if version is not None:
                check_version(tensor, version)
        unchanged = self._unchanged()
        made = self._made({key: instance for key, (instance, _) in unchanged.items()})
        drawn = [state_of(generator) for generator, _ in self._generators]
        try:
            for generator, state in self._generators:
                set_state(generator, state)
            yield made[self._root]
        finally:
            for (generator, _), state in zip(self._generators, drawn, strict=True):
                set_state(generator, state)
            for instance, held in unchanged.values():
                now = contents_of(instance)
                if now[:-1] != held[:-1] or not identical(now.values, held.values):
                    write(instance, held)

    def _unchanged(self) -> dict[int, tuple[Any, Contents]]:
        """Find the objects that are still there and hold what they held, down to the last, with that."""
        nodes = self._nodes
        originals = {key: node.original() for key, node in nodes.items() if node.original is not None}
        candidates = {key: instance for key, instance in originals.items() if instance is not None}
        held: dict[int, Contents] = {}
        waiting = list(candidates)
        while waiting:
            key = waiting.pop()
            held[key] = contents_of(candidates[key])
            for mark, now in zip(nodes[key].values, held[key].values, strict=False):
                if type(mark) is not _ObjectMark or mark.key in candidates:
                    continue
                if nodes[mark.key].original is None and type(now) is nodes[mark.key].held.kind:
                    candidates[mark.key] = now
                    waiting.append(mark.key)
        holders: dict[int, list[int]] = defaultdict(list)
        for key, node in nodes.items():
            for mark in node.values:
                if isinstance(mark, _ObjectMark):
                    holders[mark.key].append(key)
        changed = {key for key, node in nodes.items() if key not in held or not node.like(held[key], candidates)}
        waiting = list(changed)
        while waiting:
            more = {key for key in holders[waiting.pop()] if key not in changed}
            changed |= more
            waiting += more
        return {key: (instance, held[key]) for key, instance in candidates.items() if key not in changed}

    def _made(self, unchanged: dict[int, Any]) -> dict[int, Any]:
        """Make all objects again, others in the place of those that are not there as they were."""
        missing = [(key, node) for key, node in self._nodes.items() if key not in unchanged]
        made = unchanged | {key: node.empty() for key, node in missing if node.base is not tuple}
        for key, _ in missing:
            if key not in made:
                self._make_tuple(key, made)
        for key, node in sorted(missing, key=lambda pair: pair[1].base is set):  # which ask objects for their hashes
            write(made[key], node.held._replace(values=[value_of(mark, made) for mark in node.values]))
        return made

    def _make_tuple(self, key: int, made: dict[int, Any]) -> None:
        node = self._nodes[key]
        items = node.values[node.held.first :]
        for mark in items:
            if isinstance(mark, _ObjectMark) and mark.key not in made:
                self._make_tuple(mark.key, made)
        made[key] = tuple.__new__(node.held.kind, [value_of(mark, made) for mark in items])


def value_of(mark: Any, made: dict[int, Any]) -> Any:
    """Return what a mark stands for."""
    if type(mark) is Input:
        if id(mark) not in made:
            made[id(mark)] = mark.tensor()
        return made[id(mark)]
    if not isinstance(mark, _ObjectMark):
        return mark
    instance = made[mark.key]
    if type(mark) is _WeakMark:
        return ref(instance)
    if type(mark) is not _MethodMark:
        return instance
    name = mark.function
    return object.__getattribute__(instance, name) if isinstance(name, str) else MethodType(name, instance)


class _Node:
    """What an object or a container held when it was noted."""

    def __init__(self, instance: Any, held: Contents, noted: Container[int], inputs: Mapping[int, Input]) -> None:
        kind = traits_of(instance)
        self.base, self._native, self._made = kind.base, kind.native, kind.made
        try:
            self.original: Any = ref(instance) if self._made else lambda: instance
        except TypeError:
            self.original = None  # as dicts and lists: whoever holds them tells which they are
        self._more = (
            instance.maxlen if held.kind is deque else instance.default_factory if held.kind is defaultdict else None
        )
        self.values = [_marked(value, noted, inputs) for value in held.values]
        self.held = held._replace(values=[])
        self._inputs = any(type(value) is Input for value in self.values)

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
        return mark.original() is now
    if not isinstance(mark, _ObjectMark):
        return mark is now
    if type(mark) is _WeakMark:
        return mark.reference is now
    instance = candidates.get(mark.key)
    if type(mark) is _MethodMark:
        return type(now) in METHODS and now.__self__ is instance and _function_of(now) == mark.function
    return instance is not None and instance is now


def state_of(generator: Any) -> Any:
    """Read a generator of torch, Python or NumPy."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    return pickle.dumps(_bits(generator).state)


def set_state(generator: Any, state: Any) -> None:
    """Set one again."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        _bits(generator).state = pickle.loads(state)


def _bits(generator: Any) -> Any:
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
