"""What this door knows of Dask's insides, as they were seen in dask and distributed 2026.8.0.

A task of a worker is a node whose function and arguments are its own; one that Dask has fused holds the nodes of its
tasks in a dictionary among its arguments. The key of each begins with the name of its layer.
"""

import re
from collections.abc import Callable
from typing import Any

from dask._task_spec import Task

FUSED = re.compile(r"(_\.\d+)+$")
"""What Dask appends to the name of a layer whose blocks it has fused."""

Replaced = Callable[[str, Any], Any]


def with_functions(node: Any, replaced: Replaced) -> Any:
    """Return a task whose functions were replaced; the task itself where none was.

    Parameters
    ----------
    node
        the task
    replaced
        ``replaced(layer, function)`` returns what runs in the function's place, or None where it stays
    """
    if type(node) is not Task:
        return node
    if node.has_subgraph():
        arguments = tuple(_inner(argument, replaced) for argument in node.args)
        if all(new is old for new, old in zip(arguments, node.args, strict=True)):
            return node
        return Task(node.key, node.func, *arguments, _data_producer=node.data_producer, **node.kwargs)
    function = replaced(_layer(node.key), node.func)
    if function is None:
        return node
    return Task(node.key, function, *node.args, _data_producer=node.data_producer, **node.kwargs)


def _inner(argument: Any, replaced: Replaced) -> Any:
    if type(argument) is not dict:
        return argument
    new = {key: changed for key, node in argument.items() if (changed := with_functions(node, replaced)) is not node}
    return argument | new if new else argument


def _layer(key: Any) -> str:
    return FUSED.sub("", str(key[0] if isinstance(key, tuple) else key))
