"""Taking a tree apart in the order of another: dicts by their keys, all else by its place."""

from typing import Any

import optree

from forebay.engine.trees import NAMESPACE
from forebay.errors import StateError


def aligned_leaves(structure: optree.PyTreeSpec, tree: Any, who: str, path: str) -> list[Any]:
    """List the leaves of a tree in the order of a structure, refusing a tree that is built otherwise.

    Keys of a dict may come in another order. A list may stand for a tuple and the other way round, and a plain one for
    a named tuple; what is in them is known by its place.

    Examples
    --------
    >>> from forebay.engine.trees import flatten
    >>> aligned_leaves(flatten({"p": 0, "q": (0, 0)})[1], {"q": [3, 4], "p": 5}, "forward returned", "state")
    [5, 3, 4]
    """
    if structure.is_leaf():
        if not optree.tree_is_leaf(tree, none_is_leaf=True, namespace=NAMESPACE):
            raise StateError(f"{who} {path} is a {type(tree).__name__}, where an array belongs")
        return [tree]
    children = _children(structure, tree, who, path)
    paths = [accessor.codify(path) for accessor in _level(structure).accessors()]
    nested = (
        aligned_leaves(child, part, who, where)
        for child, part, where in zip(structure.children(), children, paths, strict=True)
    )
    return [leaf for leaves in nested for leaf in leaves]


def _children(structure: optree.PyTreeSpec, tree: Any, who: str, path: str) -> list[Any]:
    """List what is directly inside of a tree, in the order of a structure."""
    kind: Any = structure.type
    if issubclass(kind, dict) and isinstance(tree, dict):
        keys = structure.entries()
        missing = [str(key) for key in keys if key not in tree]
        unknown = [str(key) for key in tree if key not in set(keys)]
        if missing or unknown:
            lacks = [f"{', '.join(missing)} is missing"] if missing else []
            lacks += [f"{', '.join(unknown)} is not in the state"] if unknown else []
            raise StateError(f"{who} {path} with other keys: {', and '.join(lacks)}")
        return [tree[key] for key in keys]
    if issubclass(kind, tuple | list) and _stands_for(type(tree), kind):
        if len(tree) != structure.num_children:
            raise StateError(f"{who} {path} with {len(tree)} parts, where {structure.num_children} belong")
        return list(tree)
    if tree is None:
        raise StateError(f"{who} None, where {path} belongs: return it")
    if type(tree) is not kind:
        raise StateError(f"{who} {path} is a {type(tree).__name__}, where a {kind.__name__} belongs")
    other = optree.tree_structure(tree, lambda part: part is not tree, none_is_leaf=True, namespace=NAMESPACE)
    if other != _level(structure):
        raise StateError(f"{who} {path} as {_text(other)}, where {_text(_level(structure))} belongs")
    return list(optree.tree_flatten_one_level(tree, namespace=NAMESPACE)[0])


def _stands_for(kind: type[Any], wanted: type[Any]) -> bool:
    """Tell whether a tuple or list may be returned for another."""
    return kind in (tuple, list, wanted) or (wanted in (tuple, list) and issubclass(kind, tuple | list))


def _level(structure: optree.PyTreeSpec) -> optree.PyTreeSpec:
    """Return a structure without what is inside of its parts."""
    level = structure.one_level()
    assert level is not None  # it is no leaf
    return level


def _text(structure: optree.PyTreeSpec) -> str:
    return repr(structure).removeprefix("PyTreeSpec(").partition(", NoneIsLeaf")[0][:400]
