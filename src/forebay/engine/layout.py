"""States as trees of arrays, and where each array of a snapshot lies in one region."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.engine.trees import flatten
from forebay.errors import StateError
from forebay.machine.arrays.dispatch import describe
from forebay.machine.region import aligned
from forebay.machine.spec import ArraySpec, Leaf
from forebay.tier.sectors import SECTOR, whole_sectors


@dataclass(frozen=True)
class Layout:
    """The shape of a tree of arrays: how to take it apart, and how to put it together again."""

    leaves: tuple[Leaf, ...]
    nbytes: int
    """of a snapshot, rounded up to whole sectors of a disk"""
    build: Callable[[Sequence[Any]], Any]
    """makes the tree from its arrays"""

    @classmethod
    def of(cls, tree: Any) -> "Layout":
        """Lay out a tree of arrays of any library."""
        leaves: list[Leaf] = []
        offset = 0
        arrays, structure = flatten(tree)
        for array in arrays:
            spec = describe(array)
            leaves.append(Leaf(spec, offset, spec.nbytes))
            offset += aligned(spec.nbytes)
        if not leaves:
            raise StateError("the state holds no arrays: give a tuple, list or dict of arrays")
        return cls(tuple(leaves), max(SECTOR, whole_sectors(offset)), structure.unflatten)

    def check(self, tree: Any) -> list[Any]:
        """Take a tree that forward returned apart, refusing one that differs from this layout."""
        arrays = arrays_of(tree)
        described = list(map(describe, arrays))
        if [spec[:2] for spec in described] != [leaf.spec[:2] for leaf in self.leaves]:
            expected = _text(leaf.spec for leaf in self.leaves)
            raise StateError(f"forward returned arrays of {_text(described)}, but the state has {expected}")
        return arrays


def arrays_of(tree: Any) -> list[Any]:
    """List the arrays of a tuple, list or dict, nested or not; a lone array is its own only one."""
    return flatten(tree)[0]


def _text(specs: Iterable[ArraySpec]) -> str:
    return ", ".join(str(spec._replace(kind=None)) for spec in specs)
