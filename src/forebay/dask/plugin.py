"""A plugin of workers: it has functions measured where they run, and leaves the graphs that hold them plain."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import distributed

from forebay.dask.compat import memory_stop, with_functions
from forebay.dask.measuring import COMPANY, MeasuredFunction, WatchedCall
from forebay.dask.rescue import guard

CALLS = 64
"""Calls of a client that its workers know of; the oldest are forgotten, and run unmeasured."""
STILL = ("cancelled", "resumed")
"""States of tasks that may run on although nobody wants their results, or that somebody wants again."""

_TOLD: WeakKeyDictionary[distributed.Client, OrderedDict[str, WatchedCall]] = WeakKeyDictionary()


class ChunkPlugin(distributed.WorkerPlugin):  # type: ignore[misc]
    """Measures the blocks of calls, found by the names of tasks, and watches the memory of the process meanwhile."""

    def __init__(self, name: str, calls: Mapping[str, WatchedCall]) -> None:
        self.name = name
        self.calls = dict(calls)

    def setup(self, worker: Any) -> None:
        """Begin on a worker."""
        self._worker = worker
        stop = memory_stop(worker)
        if stop is not None:
            guard(stop)

    def transition(self, key: Any, start: str, finish: str, **how: Any) -> None:
        """Note what runs; where it is a block of ours, have it measured."""
        task = (self._worker.address, key)
        if finish == "executing":
            COMPANY.enter(task)
            state = self._worker.state.tasks[key]
            state.run_spec = with_functions(state.run_spec, self._measured)
        elif finish not in STILL:
            COMPANY.leave(task)

    def _measured(self, name: str, function: Any) -> Any:
        """Return what runs in the place of a function of a task."""
        call = self.calls.get(name)
        return function if call is None or isinstance(function, MeasuredFunction) else MeasuredFunction(function, call)


def watch(client: distributed.Client, call: WatchedCall) -> None:
    """Have the workers of a cluster measure the blocks of a call, those that come later too."""
    calls = _TOLD.setdefault(client, OrderedDict())
    if calls.get(call.name) == call:
        return
    calls[call.name] = call
    while len(calls) > CALLS:
        calls.popitem(last=False)
    client.register_plugin(ChunkPlugin(f"forebay-{client.id}", calls))
