"""A plugin of workers: it has functions measured where they run, and leaves the graphs that hold them plain."""

import warnings
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import distributed

from forebay.dask.compat import with_functions
from forebay.dask.measuring import (
    RUNNING_TASKS,
    MeasuredFunction,
    Observation,
    WatchedCall,
    outgrown,
    topic_of,
    watched_call,
)
from forebay.footprint.errors import FootprintWarning

UNFINISHED = ("cancelled", "resumed")
"""States of tasks that may run on although nobody wants their results, or that somebody wants again."""

_WATCHED: WeakKeyDictionary[distributed.Client, set[str]] = WeakKeyDictionary()
"""The functions whose observations each client listens to."""


class ChunkPlugin(distributed.WorkerPlugin):  # type: ignore[misc]
    """Measures the blocks of calls.

    The names of tasks say all that there is to know, so one plugin serves all calls of all users of a cluster.
    """

    name = "forebay-chunks-1"  # of this kind of marks: workers may serve users of several versions
    idempotent = True

    def setup(self, worker: Any) -> None:
        """Begin on a worker."""
        self._worker = worker

    def transition(self, key: Any, start: str, finish: str, **how: Any) -> None:
        """Note what runs; where it is a block of ours, have it measured."""
        task = (self._worker.address, key)
        if finish == "executing":
            RUNNING_TASKS.enter(task)
            state = self._worker.state.tasks[key]
            state.run_spec = with_functions(state.run_spec, _measured)
        elif finish not in UNFINISHED:
            RUNNING_TASKS.leave(task)


def _measured(layer: str, function: Any) -> MeasuredFunction | None:
    """Return what runs in the place of a function of a task; None where it is to run as it is."""
    call = watched_call(layer)
    return None if call is None or isinstance(function, MeasuredFunction) else MeasuredFunction(function, call)


def watch(client: distributed.Client, call: WatchedCall, name: str) -> None:
    """Have the workers of a cluster measure the blocks of a call, those that come later too.

    The client is told, once a call, where a block has outgrown its room.
    """
    watched = _WATCHED.setdefault(client, set())
    if not watched:
        client.register_plugin(ChunkPlugin())
    if call.digest not in watched:
        client.subscribe_topic(topic_of(call.digest), partial(_warn_once, name, set()))
        watched.add(call.digest)


def _warn_once(name: str, calls: set[int], event: tuple[float, dict[str, Any]]) -> None:
    """Warn of the first block of a call that has outgrown its room; calls of one function differ by that."""
    _, seen = event
    text = outgrown(name, Observation.of(seen), seen["room"])
    if text and seen["room"] not in calls:
        calls.add(seen["room"])
        warnings.warn(text, FootprintWarning, stacklevel=2)
