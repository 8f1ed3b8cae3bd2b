"""States as trees of arrays, and where each array of a snapshot lies in one block of bytes."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.errors import StateError
from forebay.machine.region import aligned

BLOCK = 4096
"""Bytes to whose multiples snapshots are rounded up: a block of a disk."""


@dataclass(frozen=True)
class Leaf:
    """One array of a state."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    """where it starts in a snapshot"""

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """The shape of a tree of arrays: how to take it apart, and how to put it together again."""

    leaves: tuple[Leaf, ...]
    nbytes: int
    """of a snapshot, rounded up to whole blocks"""
    build: Callable[[Sequence[Any]], Any]
    """makes the tree from its arrays"""

    @classmethod
    def of(cls, tree: Any, describe: Callable[[Any], tuple[tuple[int, ...], np.dtype[Any]]]) -> "Layout":
        """Lay out a tree whose arrays `describe` gives shape and dtype of."""
        leaves, offset = [], 0
        for array in arrays_of(tree):
            shape, dtype = describe(array)
            leaves.append(Leaf(shape, dtype, offset))
            offset += aligned(leaves[-1].nbytes)
        if not leaves:
            raise StateError("the state holds no arrays: give a tuple, list or dict of arrays")
        return cls(tuple(leaves), max(BLOCK, -(-offset // BLOCK) * BLOCK), builder_of(tree))

    def check(self, tree: Any, describe: Callable[[Any], tuple[tuple[int, ...], np.dtype[Any]]], who: str) -> list[Any]:
        """Take a tree apart, refusing one that differs from this layout."""
        arrays = list(arrays_of(tree))
        described = [describe(array) for array in arrays]
        expected = [(leaf.shape, leaf.dtype) for leaf in self.leaves]
        if described != expected:
            raise StateError(f"{who} returned arrays of {_text(described)}, but the state has {_text(expected)}")
        return arrays


def arrays_of(tree: Any) -> Iterable[Any]:
    """Yield the arrays of a tuple, list or dict, nested or not; a lone array is its own only one."""
    if isinstance(tree, tuple | list):
        for item in tree:
            yield from arrays_of(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from arrays_of(item)
    else:
        yield tree


def builder_of(tree: Any) -> Callable[[Sequence[Any]], Any]:
    """Give a function that puts arrays together as they are in `tree`."""

    def build(node: Any, arrays: Any) -> Any:
        if isinstance(node, dict):
            return {key: build(item, arrays) for key, item in node.items()}
        if isinstance(node, tuple) and hasattr(node, "_fields"):
            return type(node)(*(build(item, arrays) for item in node))
        if isinstance(node, tuple | list):
            return type(node)(build(item, arrays) for item in node)
        return next(arrays)

    skeleton = _skeleton(tree)
    return lambda arrays: build(skeleton, iter(arrays))


def _skeleton(tree: Any) -> Any:
    """Keep the structure and let go of the arrays, which would otherwise stay in memory."""
    if isinstance(tree, dict):
        return {key: _skeleton(item) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(_skeleton, tree))
    if isinstance(tree, tuple | list):
        return type(tree)(map(_skeleton, tree))
    return None


def _text(described: Iterable[tuple[tuple[int, ...], np.dtype[Any]]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in described)
