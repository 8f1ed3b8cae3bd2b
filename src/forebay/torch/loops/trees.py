"""Trees of tensors and plain values: taken apart into leaves, and put together again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.errors import StateError


@dataclass(frozen=True)
class Structure:
    """How a tree is built, without its leaves."""

    kind: type | None = None
    """the type of a node; None for a leaf"""
    keys: tuple[Any, ...] = ()
    """of a dict"""
    children: tuple["Structure", ...] = ()

    @classmethod
    def of(cls, tree: Any) -> "Structure":
        """Read the structure of a tuple, list or dict, nested or not; anything else is a leaf."""
        if isinstance(tree, dict):
            return cls(dict, tuple(tree), tuple(map(cls.of, tree.values())))
        if isinstance(tree, tuple | list):
            return cls(type(tree), (), tuple(map(cls.of, tree)))
        return LEAF

    def leaves(self, tree: Any, who: str) -> list[Any]:
        """Take a tree apart, refusing one that is built otherwise."""
        found: list[Any] = []
        self._collect(tree, found, who)
        return found

    def _collect(self, tree: Any, found: list[Any], who: str) -> None:
        if self.kind is None:
            if isinstance(tree, tuple | list | dict):
                raise StateError(f"{who} is a {type(tree).__name__} where a tensor or a value belongs")
            found.append(tree)
        elif self.kind is dict:
            if not isinstance(tree, dict) or set(tree) != set(self.keys):
                has = f"the keys {sorted(map(str, tree))}" if isinstance(tree, dict) else f"a {type(tree).__name__}"
                raise StateError(f"{who} is {has} where a dict with the keys {sorted(map(str, self.keys))} belongs")
            for key, child in zip(self.keys, self.children, strict=True):
                child._collect(tree[key], found, who)
        else:
            if not isinstance(tree, tuple | list) or len(tree) != len(self.children):
                has = f"{len(tree)} items" if isinstance(tree, tuple | list) else f"a {type(tree).__name__}"
                raise StateError(f"{who} is {has} where a {self.kind.__name__} of {len(self.children)} items belongs")
            for child, item in zip(self.children, tree, strict=True):
                child._collect(item, found, who)

    def build(self, leaves: Sequence[Any]) -> Any:
        """Put leaves together."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        children = [child._build(leaves) for child in self.children]
        if self.kind is dict:
            return dict(zip(self.keys, children, strict=True))
        return self.kind(*children) if hasattr(self.kind, "_fields") else self.kind(children)


LEAF = Structure()
