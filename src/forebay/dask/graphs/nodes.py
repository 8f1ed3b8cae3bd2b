"""A graph of Dask as tasks in the order of their priority, with the kinds of work that they are."""

import math
import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask
from dask._task_spec import Alias, DataNode, GraphNode, Task, convert_legacy_graph
from dask.core import flatten
from dask.order import order
from dask.utils import key_split


@dataclass(frozen=True)
class GraphTask:
    """One task of a graph."""

    kind: str
    """what it does: tasks of a kind need as much for as much input"""
    reads: tuple[int, ...]
    """the places of the tasks that it reads, in the order of priority"""
    block: tuple[int, ...]
    """which block of its layer it is"""
    part: tuple[Any, ...] | None = None
    """of a task that cuts a part out of a block: the slices; none where it hands the block on"""
    source: int = 0
    """bytes that it reads of arrays that are no tasks, as far as the slices in it tell"""


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a collection, most urgent first."""

    tasks: tuple[GraphTask, ...]
    nodes: tuple[GraphNode, ...]
    """the same tasks, as Dask runs them"""
    results: frozenset[int]
    """what leaves the graph, and is held until it does"""

    @property
    def persisted(self) -> list[Any]:
        """The keys of what tasks read, and a cluster has already."""
        return sorted({key for node in self.nodes for key in node.dependencies} - {node.key for node in self.nodes})

    @property
    def kinds(self) -> list[str]:
        """The kind of each task."""
        return [task.kind for task in self.tasks]


def task_graph(collection: Any) -> TaskGraph:
    """Return the tasks that Dask would run for a collection.

    Arrays that tasks carry along are no tasks here: what reads nothing else is a root.
    """
    (optimized,) = dask.optimize(collection)
    graph: Mapping[Any, GraphNode] = convert_legacy_graph(dict(optimized.__dask_graph__()))
    priorities = order(graph)
    keys = sorted(graph, key=priorities.__getitem__)
    places = {key: place for place, key in enumerate(keys)}
    kinds = _kinds(keys)
    tasks = tuple(_task(graph, key, kinds[_layer(key)], places) for key in keys)
    results = frozenset(places[key] for key in flatten(optimized.__dask_keys__()) if key in places)
    return TaskGraph(tasks, tuple(graph[key] for key in keys), results)


def _task(graph: Mapping[Any, GraphNode], key: Any, kind: str, places: Mapping[Any, int]) -> GraphTask:
    part = _part(graph[key])
    if part is not None:
        kind = f"{kind} {part}"  # what one part has of its block tells nothing of another
    elif _is_root(graph, key):
        kind = f"{kind} of a source"
    return GraphTask(
        kind,
        tuple(sorted(places[read] for read in graph[key].dependencies if _is_work(graph, read))),
        tuple(map(round, key[1:])) if isinstance(key, tuple) else (),  # parts have fractions beside their block
        part,
        _read_of_sources(graph, graph[key]),
    )


def _read_of_sources(graph: Mapping[Any, GraphNode], node: GraphNode) -> int:
    """Count the bytes that a task cuts out of data that the graph carries."""
    sources = [graph[read].value for read in node.dependencies if isinstance(graph.get(read), DataNode)]
    itemsize = max((getattr(getattr(source, "dtype", None), "itemsize", 1) for source in sources), default=0)
    return itemsize * sum(_elements(node)) if sources else 0


def _elements(value: Any) -> Iterator[int]:
    """Yield how many elements slices cut out, of all tuples of slices in a task and in those that it joins."""
    if isinstance(value, tuple) and value and all(isinstance(each, slice) for each in value):
        if not any(each.start is None or each.stop is None for each in value):
            yield math.prod(len(range(each.start, each.stop, each.step or 1)) for each in value)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _elements(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _elements(each)
    elif isinstance(value, DataNode):
        yield from _elements(value.value)
    elif isinstance(value, Task):
        yield from _elements(value.args)


def _is_root(graph: Mapping[Any, GraphNode], key: Any) -> bool:
    return not any(_is_work(graph, read) for read in graph[key].dependencies)


def _is_work(graph: Mapping[Any, GraphNode], key: Any) -> bool:
    """Return whether a key is a task to run: neither data that the graph carries, nor what a cluster has persisted."""
    return key in graph and not isinstance(graph[key], DataNode)


def _layer(key: Any) -> str:
    return str(key[0] if isinstance(key, tuple) else key)


def _kinds(keys: list[Any]) -> dict[str, str]:
    """Name the layers without their tokens; the second of a name is the second in any chunking."""
    kinds: dict[str, str] = {}
    alike: dict[str, int] = defaultdict(int)
    for key in keys:
        layer = _layer(key)
        if layer not in kinds:
            name = key_split(key)
            alike[name] += 1 if isinstance(key, tuple) else 0  # single tasks have a layer each
            kinds[layer] = f"{name} {alike[name]}" if alike[name] > 1 else name
    return kinds


def _part(node: GraphNode) -> tuple[Any, ...] | None:
    """Return the slices of a task that does nothing but cut a part out of a block, or hand it on."""
    if isinstance(node, Alias):
        return ()
    if getattr(node, "func", None) is not operator.getitem or len(node.dependencies) != 1:
        return None
    index = node.args[1]
    slices = tuple(index) if isinstance(index, tuple | list) else (index,)
    return slices if all(isinstance(each, slice) for each in slices) else None


def named(kind: str) -> str:
    """Return what people call a kind of task: its name, without what tells it from its like."""
    return kind.partition(" ")[0]


def share(part: tuple[Any, ...], shape: tuple[int, ...]) -> float:
    """Return the share of a block that slices cut out of it: all of it where there are none."""
    pairs = zip(part, shape, strict=False)
    return math.prod(len(range(*each.indices(length))) / max(1, length) for each, length in pairs)
