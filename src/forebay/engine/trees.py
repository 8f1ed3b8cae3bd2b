"""Trees of arrays in tuples, lists, dicts and what else is registered, taken apart by optree."""

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any

import optree

from forebay.engine.states import dataclass, registered
from forebay.engine.states.plain import attributes
from forebay.errors import StateError

NAMESPACE = "forebay"
# Held for good, and for our namespace alone: values of a dict come in the order in which they were put there.
_ORDERED = ExitStack()
_ORDERED.enter_context(optree.dict_insertion_ordered(True, namespace=NAMESPACE))

_registered: set[type[Any]] = set()
_leaves: set[type[Any]] = set()  # classes that have been met, and are taken as they are
_lock = threading.Lock()


def register_state(
    kind: type[Any], flatten: Callable[[Any], tuple[Any, ...]], unflatten: Callable[[Any, Any], Any]
) -> None:
    """Tell how instances of a class are taken apart into arrays, so that they may be states or parts of one.

    Tuples, named tuples, lists, dicts, dataclasses, and datasets and arrays of xarray are known without this.

    Parameters
    ----------
    kind
        The class; those derived from it are told by themselves.
    flatten
        ``flatten(instance)`` returns the arrays, or trees of arrays, in a tuple, and all else that makes up the
        instance. That must not change in a loop: states are the same kind of thing where it is equal. What cannot be
        hashed, such as a dict, is copied. A tuple of names may come third, for messages.
    unflatten
        ``unflatten(rest, arrays)`` makes an instance from the two, without copying.

    Examples
    --------
    >>> import numpy as np
    >>> class Field:
    ...     def __init__(self, values, unit):
    ...         self.values, self.unit = values, unit
    >>> register_state(Field, lambda f: ((f.values,), f.unit), lambda unit, arrays: Field(arrays[0], unit))
    >>> import forebay as fb
    >>> units = set()
    >>> _ = fb.reverse(
    ...     lambda field, start, stop: Field(field.values + (stop - start), field.unit),
    ...     lambda field, step: units.add(field.unit),
    ...     Field(np.zeros(3), "Pa"),
    ...     steps=10,
    ...     budget="64kB",
    ... )
    >>> units
    {'Pa'}
    """
    with _lock:
        if kind in _registered:
            optree.unregister_pytree_node(kind, namespace=NAMESPACE)
            _registered.discard(kind)
        try:
            take, build = registered.taker(kind, flatten), registered.builder(kind, unflatten)
            optree.register_pytree_node(kind, take, build, namespace=NAMESPACE)
        except (TypeError, ValueError) as error:
            raise StateError(f"{kind!r} cannot be registered: {error}") from error
        _registered.add(kind)
        _leaves.discard(kind)


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
    if not _leaves.issuperset(map(type, leaves)):
        new = {type(leaf) for leaf in leaves if is_leaf is None or not is_leaf(leaf)} - _leaves
        if _learn(new):
            return flatten(tree, is_leaf)
    return leaves, structure


def _learn(kinds: Iterable[type[Any]]) -> bool:
    """Tell optree about classes that it takes for leaves; other threads may meet them at the same time."""
    any_new = False
    with _lock:
        for kind in kinds:
            if kind not in _registered and not _register(kind):
                _leaves.add(kind)
            else:
                _registered.add(kind)
                any_new = True
    return any_new


def _register(kind: type[Any]) -> bool:
    register = partial(optree.register_pytree_node, kind, namespace=NAMESPACE)
    if issubclass(kind, dict):
        register(_take_dict, _build_dict)
    elif issubclass(kind, tuple | list):
        register(_take_items, lambda _, items: kind(items))
    elif kind.__module__.partition(".")[0] == "xarray" and kind.__name__ in ("Dataset", "DataArray"):
        from forebay.engine.states import labelled  # it needs xarray

        register(labelled.take, labelled.build)
    elif dataclass.is_tree_class(kind):
        register(dataclass.take, partial(dataclass.build, kind), path_entry_type=optree.GetAttrEntry)
    else:
        return False
    return True


def _take_dict(tree: Any) -> tuple[Any, Any, Any]:
    return tuple(tree.values()), tuple(tree), tuple(tree)


def _build_dict(keys: Any, values: Any) -> Any:
    return dict(zip(keys, values, strict=True))


def _take_items(tree: Any) -> tuple[Any, Any]:
    if own := attributes(tree):
        kind = type(tree).__name__
        raise StateError(f"the attributes {list(own)} of a {kind} would be lost: tell how with forebay.register_state")
    return tuple(tree), None
