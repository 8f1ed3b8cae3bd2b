"""What a whole graph needs on each worker, and how long it takes, before it runs."""

from dataclasses import dataclass, replace
from typing import Any

import distributed

from forebay.dask.clusters import ask_workers
from forebay.dask.graphs.nodes import TaskGraph, named, task_graph
from forebay.dask.graphs.rates import Rates, rates_of, sized_tasks, source_bytes
from forebay.dask.graphs.sampling import sample
from forebay.dask.graphs.simulate import Cluster, simulate
from forebay.dask.limits import WorkerLimits, limits_of, resident_bytes
from forebay.drawing import Chart, Series, Subplot
from forebay.drawing.tables import preformatted
from forebay.errors import PlanError
from forebay.units import UNITS, seconds_to_text, to_text

BANDWIDTH = 500e6
"""bytes a second from one worker to another"""
OVERHEAD = 0.01
"""seconds that a task costs besides its work"""
MARGIN = 0.1
"""of what tasks hold, which the bound adds"""
MOST_TASKS = 200
"""of a collection that are run to learn from it"""
HELD, BOUND, BUDGET = "#2b7bba", "#e3a008", "#c0392b"


@dataclass(frozen=True)
class GraphForecast:
    """What is predicted of a graph."""

    bytes: int
    """the most that a worker holds, with what its process holds before"""
    upper: int
    seconds: float
    task: str
    """the kind of task that runs while a worker holds the most"""
    tasks: int
    budget: int
    """what a worker may hold, with what its process holds before"""
    history: tuple[tuple[float, int], ...]
    """seconds, and what the worker that holds the most is predicted to hold from then on"""

    def plot(self) -> Chart:
        """Draw what the worker that holds the most is predicted to hold over time, below bound and budget."""
        most = max(self.upper, self.budget)
        unit = next((unit for unit in ("TB", "GB", "MB", "kB") if most >= UNITS[unit]), "B")
        size, end, before = UNITS[unit], max(self.seconds, 1e-9), 0
        line: list[tuple[float, float]] = []
        for seconds, held in self.history:
            line += [(seconds, before / size), (seconds, held / size)]
            before = held
        area = [(0.0, 0.0), *line, (end, before / size), (end, 0.0)]
        marks = [Series("held", HELD, [area], filled=True, about=f"up to {to_text(self.bytes)} while {self.task} runs")]
        for name, colour, level in (("bound", BOUND, self.upper), ("budget", BUDGET, self.budget)):
            marks.append(Series(name, colour, [[(0, level / size), (end, level / size)]], about=to_text(level)))
        return Chart([Subplot(marks, f"a worker, {unit}", 1.08 * most / size)], "seconds", end)

    def _repr_html_(self) -> str:
        return preformatted(self.explain()) + self.plot().markup

    def explain(self) -> str:
        """Return what is predicted, in words."""
        return (
            f"{self.tasks} tasks in {seconds_to_text(self.seconds)}; a worker holds {to_text(self.bytes)}, "
            f"{to_text(self.upper)} at most, while {self.task} runs"
        )


def forecast(collection: Any, client: distributed.Client | None = None) -> GraphForecast:
    """Predict what each worker needs for a whole graph, and how long that takes.

    Parameters
    ----------
    collection : dask collection
        What is going to be computed. Its first tasks of every kind are run beside a worker, one after the other; what
        they write is written then, too.
    client : distributed.Client, optional
        Of the cluster; the current one otherwise.
    """
    client = cluster_of(client)
    limits = limits_of(client)
    graph = task_graph(collection)
    first = _first_of_each_kind(graph)
    rates = rates_of(sample(first, source_bytes(first, None), client, apart=True))
    return forecast_of(graph, rates, None, limits, held_by_workers(client))


def cluster_of(client: distributed.Client | None) -> distributed.Client:
    """Return the client that was given, or the current one."""
    try:
        return client or distributed.get_client()
    except ValueError:
        raise PlanError(
            "there is no cluster to ask: start one with distributed.Client(), or give client=. Small parts of the "
            "graph run on one of its workers"
        ) from None


def _first_of_each_kind(graph: TaskGraph) -> TaskGraph:
    """Return the tasks up to the second of every kind, and what they need; kinds that come late are left out."""
    wanted: set[int] = set()
    often: dict[str, int] = {}
    reads = _reads(graph)
    for place, task in enumerate(graph.tasks):
        if often.get(task.kind, 0) >= 2:
            continue
        needed, ahead = {place}, list(reads[place])
        while ahead:
            read = ahead.pop()
            if read not in wanted and read not in needed:
                needed.add(read)
                ahead += reads[read]
        if len(wanted) + len(needed) > MOST_TASKS:
            continue
        wanted |= needed
        often[task.kind] = often.get(task.kind, 0) + 1
    if not wanted:
        raise PlanError("a graph without tasks needs nothing: compute() returns at once")
    places = sorted(wanted)
    at = {place: new for new, place in enumerate(places)}
    tasks = []
    for place in places:
        task = graph.tasks[place]
        tasks.append(replace(task, reads=tuple(at[read] for read in task.reads)))
    return TaskGraph(tuple(tasks), tuple(graph.nodes[place] for place in places), frozenset())


def _reads(graph: TaskGraph) -> list[list[int]]:
    """Return what each task reads, data that the graph carries among it."""
    places = {node.key: place for place, node in enumerate(graph.nodes)}
    return [[places[key] for key in node.dependencies if key in places] for node in graph.nodes]


def forecast_of(
    graph: TaskGraph, rates: dict[str, Rates], source: Any | None, limits: WorkerLimits, held: int
) -> GraphForecast:
    """Predict what a graph needs of which the rates are known, on workers that hold something already."""
    tasks = sized_tasks(graph, rates, source)
    run = simulate(tasks, graph.results, Cluster(limits.workers, limits.threads, BANDWIDTH, OVERHEAD))
    return GraphForecast(
        bytes=held + run.peak,
        upper=held + int((1 + MARGIN) * run.peak),
        seconds=run.seconds,
        task=named(graph.tasks[run.task].kind),
        tasks=len(tasks),
        budget=held + limits.budget,
        history=tuple((seconds, held + size) for seconds, size in run.history),
    )


def held_by_workers(client: distributed.Client) -> int:
    """Return what the processes of workers hold now, the most of any."""
    return int(max(ask_workers(client, resident_bytes).values()))
