"""Trees of arrays in tuples, lists and dicts, and in classes derived from them, taken apart by optree."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import optree

NAMESPACE = "forebay"
# Held for good, and for our namespace alone: values of a dict come in the order in which they were put there.
_ORDERED = ExitStack()
_ORDERED.enter_context(optree.dict_insertion_ordered(True, namespace=NAMESPACE))

_registered: set[type[Any]] = set()
_lock = threading.Lock()


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], optree.PyTreeSpec]:
    """Take a tree apart into its leaves and its structure; None is a leaf.

    Derived lists and tuples are built again as what they are, derived dicts as dicts.

    Examples
    --------
    >>> leaves, structure = flatten({"b": 1, "a": (2, None)})
    >>> leaves, structure.unflatten(leaves)
    ([1, 2, None], {'b': 1, 'a': (2, None)})
    """
    leaves, structure = optree.tree_flatten(tree, is_leaf, none_is_leaf=True, namespace=NAMESPACE)
    if derived := {type(leaf) for leaf in leaves if isinstance(leaf, tuple | list | dict)}:
        _register(derived)
        return flatten(tree, is_leaf)
    return leaves, structure


def _register(kinds: set[type[Any]]) -> None:
    """Tell optree about types that it takes for leaves; other threads may meet them at the same time."""
    with _lock:
        for kind in kinds - _registered:
            if issubclass(kind, dict):
                optree.register_pytree_node(kind, _take_dict, _build_dict, namespace=NAMESPACE)
            else:
                optree.register_pytree_node(kind, _take_items, _items_builder(kind), namespace=NAMESPACE)
            _registered.add(kind)


def _take_dict(tree: Any) -> tuple[Any, Any, Any]:
    return tuple(tree.values()), tuple(tree), tuple(tree)


def _build_dict(keys: Any, values: Any) -> Any:
    return dict(zip(keys, values, strict=True))


def _take_items(tree: Any) -> tuple[Any, Any]:
    return tuple(tree), None


def _items_builder(kind: type[Any]) -> Callable[[Any, Any], Any]:
    return lambda _, items: kind(items)
