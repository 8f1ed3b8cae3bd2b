"""Lanes to test waits with: what is on them runs in random order, honouring only events.

A task on such a lane happens in two steps, and in between its targets hold NaN (every bit set). It starts as late or as
early as the seed has it, but never before the events it waits for. So a wait that is missing shows as a wrong result
for some seed.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.errors import EngineError
from forebay.machine.machine import Wait


@dataclass(eq=False)
class Event:
    """Done, or not yet."""

    done: bool = False


@dataclass(eq=False, kw_only=True)
class Task(Event):
    """Something on a lane, and the event of its end."""

    targets: Sequence[NDArray[np.uint8]]
    sources: Sequence[NDArray[np.uint8]]
    act: Callable[[], None]
    after: list[Event]
    check: Callable[[], None] = lambda: None
    """what must hold before it begins"""
    begun: bool = False


class Lanes:
    """Queues of tasks without a clock: a seed says in which order they go on, and one wait may be left out by name."""

    def __init__(self, seed: int, without: str | None = None) -> None:
        self._random = random.Random(seed)
        # Some seeds starve the lanes until something waits for them, others let them run far ahead.
        self._eagerness = self._random.choice((0.0, 0.1, 0.5, 3.0))
        self._without = without
        self._queues: dict[str, deque[Task]] = {}
        self.waits: set[str] = set()
        """The names of all waits so far."""

    def put(self, lane: str, task: Task) -> Event:
        """Queue a task."""
        self._queues.setdefault(lane, deque()).append(task)
        return task

    def waiting(self, lane: str | None = None) -> list[Task]:
        """List the tasks of a lane, or of all, that have not ended."""
        return [task for name, queue in self._queues.items() if lane in (None, name) for task in queue]

    def needed(self, after: Sequence[Wait]) -> list[Event]:
        """Return the events of waits, but for the one that is left out."""
        self.waits.update(wait.why for wait in after)
        return [wait.event for wait in after if wait.why != self._without]

    def run_some(self) -> None:
        """Let them go on, as far as the seed has it."""
        while self._random.random() < self._eagerness / (1 + self._eagerness) and self._run_one():
            pass

    def _run_until(self, reached: Callable[[], bool]) -> None:
        """Let them go on until something holds."""
        while not reached():
            if not self._run_one():
                raise EngineError("the lanes wait for each other: nothing can start")

    def wait(self, events: Sequence[Event]) -> None:
        """Let them go on until events are done."""
        self._run_until(lambda: all(event.done for event in events))

    def finish(self) -> None:
        """Let them go on to their end."""
        self._run_until(lambda: not any(self._queues.values()))

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Let things happen inside, and take them back."""
        queues = {name: deque(queue) for name, queue in self._queues.items()}
        before = [(task, task.begun, [target.copy() for target in task.targets]) for task in self.waiting()]
        state = self._random.getstate()
        yield
        for task, begun, contents in before:
            task.begun, task.done = begun, False
            for target, content in zip(task.targets, contents, strict=True):
                target[:] = content
        self._queues = queues
        self._random.setstate(state)
        self._random.random()  # so that what happens is not always what was rehearsed

    def _run_one(self) -> bool:
        """Take one step of one lane, any that can be taken."""
        ready = [
            queue
            for queue in self._queues.values()
            if queue and (queue[0].begun or all(event.done for event in queue[0].after))
        ]
        if not ready:
            return False
        queue = self._random.choice(ready)
        task = queue[0]
        if not task.begun:
            task.check()
            for target in task.targets:
                target[:] = 0xFF
            task.begun = True
        else:
            task.act()
            task.done = True
            queue.popleft()
        return True
