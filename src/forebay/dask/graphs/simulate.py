"""A graph run in mind on workers with threads: what each holds at any time, and when it is done.

Tasks go as Dask sends them: where most of what they read is, the most urgent first. What reads nothing waits until a
thread is free, and one such task more is sent ahead. What a worker gets next reaches it a little after the scheduler
has heard that it may: meanwhile its threads go on with what was sent ahead. It knows no arrays.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

LATENCY = 0.01
"""seconds from the end of a task until what became ready with it can begin"""
AHEAD = 1.1
"""roots that Dask sends to a worker for each of its threads, rounded up"""


@dataclass(frozen=True)
class SizedTask:
    """A task, and what it needs."""

    reads: tuple[int, ...]
    output: int
    """bytes that live until all that read them are done"""
    peak: int
    """bytes above what it reads while it runs, output included"""
    seconds: float
    view: bool = False
    """whether the output is a part of what it reads"""


@dataclass(frozen=True)
class Cluster:
    """What runs a graph."""

    workers: int
    threads: int
    """of each worker"""
    bandwidth: float
    """bytes a second from one worker to another"""
    overhead: float
    """seconds that a task costs besides its work"""


@dataclass(frozen=True)
class SimulatedRun:
    """What a run comes to."""

    peak: int
    """the most that one worker holds"""
    seconds: float
    task: int
    """one that ran when a worker held the most"""
    history: tuple[tuple[float, int], ...]
    """seconds, and the bytes that this worker held from then on"""


def simulate(tasks: Sequence[SizedTask], results: frozenset[int], cluster: Cluster) -> SimulatedRun:
    """Run tasks in mind, in the order of their priority; what results are stays held until the end."""
    run = _Run(tasks, results, cluster)
    run.go()
    most, task, worker = run.highest
    return SimulatedRun(most, run.now, task, tuple(run.workers[worker].history))


class _Worker:
    """What one worker does and holds."""

    def __init__(self, threads: int) -> None:
        self.free = threads
        self.queue: list[int] = []
        """ready, and arrived"""
        self.roots = 0
        """of what was sent and has not ended, tasks that read nothing"""
        self.running: set[int] = set()
        self.held: dict[int, int] = {}
        self.history: list[tuple[float, int]] = []


class _Holding:
    """Which workers hold which results, and for how many tasks that have not ended yet."""

    def __init__(self, tasks: Sequence[SizedTask], results: frozenset[int]) -> None:
        self.tasks, self.results = tasks, results
        self.homes: dict[int, list[_Worker]] = {}
        self.left = [0] * len(tasks)
        for task in tasks:
            for read in task.reads:
                self.left[read] += 1

    def hold(self, place: int, worker: _Worker, size: int) -> None:
        self.homes.setdefault(place, []).append(worker)
        worker.held[place] = size

    def end(self, place: int) -> None:
        """Let go of what a task has read, unless its own result keeps that alive."""
        if not self.tasks[place].view:
            self._let_go(place)
        if not self.left[place] and place not in self.results:
            self._release(place)

    def _let_go(self, place: int) -> None:
        for read in self.tasks[place].reads:
            self.left[read] -= 1
            if not self.left[read] and read not in self.results:
                self._release(read)

    def _release(self, place: int) -> None:
        for worker in self.homes.pop(place, ()):
            del worker.held[place]
        if self.tasks[place].view:
            self._let_go(place)


class _Run:
    def __init__(self, tasks: Sequence[SizedTask], results: frozenset[int], cluster: Cluster) -> None:
        self.tasks, self.cluster = tasks, cluster
        self.holding = _Holding(tasks, results)
        self.workers = [_Worker(cluster.threads) for _ in range(cluster.workers)]
        self.missing = [len(task.reads) for task in tasks]
        self.readers: list[list[int]] = [[] for _ in tasks]
        for place, task in enumerate(tasks):
            for read in task.reads:
                self.readers[read].append(place)
        self.roots = [place for place, task in enumerate(tasks) if not task.reads]
        self.now, self.highest = 0.0, (0, 0, 0)
        self.ticket = count()
        self.events: list[tuple[float, int, bool, int, _Worker]] = []
        """when, in which order, whether a task ends or arrives, which, and where"""

    def go(self) -> None:
        for _ in range(math.ceil(AHEAD * self.cluster.threads)):
            for worker in self.workers:
                self._send_root(worker, self.now)
        while self.events:
            self.now, _, ends, place, worker = heapq.heappop(self.events)
            if ends:
                self._end(place, worker)
            else:
                heapq.heappush(worker.queue, place)
            if not self.events or self.events[0][0] > self.now:
                self._fill()

    def _send_root(self, worker: _Worker, when: float) -> None:
        if self.roots and worker.roots < math.ceil(AHEAD * self.cluster.threads):
            worker.roots += 1
            self._note(when, False, heapq.heappop(self.roots), worker)

    def _note(self, when: float, ends: bool, place: int, worker: _Worker) -> None:
        heapq.heappush(self.events, (when, next(self.ticket), ends, place, worker))

    def _fill(self) -> None:
        """Begin the most urgent task that there is for every free thread."""
        busy = True
        while busy:
            busy = False
            for worker in sorted(self.workers, key=lambda worker: -worker.free):
                queue = self._queue_for(worker) if worker.free else []
                if queue:
                    self._begin(heapq.heappop(queue), worker)
                    busy = True

    def _queue_for(self, worker: _Worker) -> list[int]:
        """Return the queue that a worker takes from: its own, or one that it steals from."""
        if worker.queue or self.roots:
            return worker.queue
        longest = max(self.workers, key=lambda other: len(other.queue) - other.free)
        return longest.queue if len(longest.queue) > longest.free else []

    def _begin(self, place: int, worker: _Worker) -> None:
        task, moved = self.tasks[place], 0
        for read in task.reads:
            if worker not in self.holding.homes[read]:
                moved += self.tasks[read].output
                self.holding.hold(read, worker, self.tasks[read].output)
        worker.free -= 1
        worker.running.add(place)
        held = self._note_held(worker)
        self.highest = max(self.highest, (held, place, self.workers.index(worker)))
        seconds = task.seconds + self.cluster.overhead + moved / self.cluster.bandwidth
        self._note(self.now + seconds, True, place, worker)

    def _end(self, place: int, worker: _Worker) -> None:
        task = self.tasks[place]
        worker.free += 1
        worker.running.discard(place)
        self.holding.hold(place, worker, 0 if task.view else task.output)
        for reader in self.readers[place]:
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self._note(self.now + LATENCY, False, reader, self._home(reader))
        if not task.reads:
            worker.roots -= 1
            self._send_root(worker, self.now + LATENCY)
        self.holding.end(place)
        self._note_held(worker)

    def _note_held(self, worker: _Worker) -> int:
        held = sum(worker.held.values()) + sum(self.tasks[running].peak for running in worker.running)
        worker.history.append((self.now, held))
        return held

    def _home(self, place: int) -> _Worker:
        """Choose the worker that has most of what a task reads; among equals the one with least to do."""

        def rank(worker: _Worker) -> tuple[int, int]:
            reads = self.tasks[place].reads
            has = sum(self.tasks[read].output for read in reads if worker in self.holding.homes[read])
            return -has, len(worker.queue) - worker.free

        return min(self.workers, key=rank)
