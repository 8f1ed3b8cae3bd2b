"""What this door knows of Dask's insides, as they were seen in dask and distributed 2026.8.0.

A task of a worker is a node whose function and arguments are its own; one that Dask has fused holds the nodes of its
tasks in a dictionary among its arguments. The key of each begins with the name of its layer.
"""

import re
from collections.abc import Callable
from typing import Any

from dask._task_spec import Task

PAUSE = 0.8
"""The share of its memory at which a worker pauses, where it does not say: it is ended at 95 %."""
FUSED = re.compile(r"(_\.\d+)+$")
"""What Dask appends to the name of a layer whose blocks it has fused."""


def with_functions(node: Any, replaced: Callable[[str, Any], Any]) -> Any:
    """Return a task whose functions were replaced; `replaced(name, function)` gets the name without its token."""
    if type(node) is not Task:
        return node
    function = node.func if node.has_subgraph() else replaced(_name(node.key), node.func)
    arguments = tuple(_inner(argument, replaced) for argument in node.args)
    same = all(new is old for new, old in zip(arguments, node.args, strict=True))
    if function is node.func and same:
        return node
    return Task(node.key, function, *arguments, _data_producer=node.data_producer, **node.kwargs)


def _inner(argument: Any, replaced: Callable[[str, Any], Any]) -> Any:
    if type(argument) is not dict:
        return argument
    inner = {key: with_functions(node, replaced) for key, node in argument.items()}
    return argument if all(inner[key] is argument[key] for key in inner) else inner


def _name(key: Any) -> str:
    """Return the name of a task's layer, without the token that tells layers of one name apart."""
    layer = str(key[0] if isinstance(key, tuple) else key)
    return FUSED.sub("", layer).rpartition("-")[0]


def memory_stop(worker: Any) -> int | None:
    """Return what the process of a worker must not hold, before Dask ends it; None where nothing would."""
    manager = worker.memory_manager
    if not manager.memory_limit or worker.address.startswith("inproc://"):  # a thread of somebody's process
        return None
    return int((manager.memory_pause_fraction or PAUSE) * manager.memory_limit)
