"""Running tasks of a graph one after the other, on inputs of their own making, and measuring what each needs."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from forebay.footprint.measure.resident import CLEAR_REFS, peaks_can_be_reset, read_status, trim_heap

PATIENCE, LOOKS = 0.2, 20
"""seconds that are waited for memory to be given back, and how often is looked meanwhile"""
UNEVEN = 2**17
"""bytes that a process holds more or less without a reason"""


@dataclass(frozen=True)
class TaskSample:
    """One task that was run."""

    kind: str
    input: int
    """bytes that it read, of other tasks or of a source"""
    output: int
    peak: int
    """above its inputs, output included"""
    seconds: float
    view: bool
    """whether the output is a part of an input, and keeps all of that alive"""


def run_tasks(
    nodes: Sequence[Any],
    kinds: Sequence[str],
    given: Sequence[int],
    persisted: Mapping[Any, Any] | None = None,
    begin: Callable[[str], None] = lambda kind: None,
) -> list[TaskSample]:
    """Run tasks in their order, measuring each, and say of which kind one is as it begins.

    Every kind is warmed first, so that nothing is measured that only the first of its kind pays for.
    """
    gc.collect()
    ours = not gc.get_freeze_count()  # whoever has frozen objects wants them to stay so: there is one such set alone
    if ours:
        gc.freeze()  # what the process held before is no garbage; looking for some in it takes longer than a task
    try:
        return [*_measured(nodes, kinds, given, dict(persisted or {}), begin)]
    finally:
        if ours:
            gc.unfreeze()


def _measured(
    nodes: Sequence[Any],
    kinds: Sequence[str],
    given: Sequence[int],
    results: dict[Any, Any],
    begin: Callable[[str], None],
) -> Iterator[TaskSample]:
    exact = peaks_can_be_reset()
    left: dict[Any, int] = {}
    for node in nodes:
        for key in node.dependencies:
            left[key] = left.get(key, 0) + 1
    warmed: set[str] = set()
    owned = dict.fromkeys(results, 0)
    floor = read_status("VmRSS") if exact else 0
    for node, kind, read in zip(nodes, kinds, given, strict=True):
        begin(kind)
        inputs: Mapping[Any, Any] = {key: results[key] for key in node.dependencies}
        if kind not in warmed:
            node(inputs)
            warmed.add(kind)
        before = 0
        if exact:
            trim_heap()  # what is free in the heap would hide what the task needs
            before = _settled(floor + sum(owned.values()))
            floor = before - sum(owned.values())
            CLEAR_REFS.write_text("5")
        begun = time.perf_counter() - waited()
        result = node(inputs)
        seconds = max(0.0, time.perf_counter() - waited() - begun)
        peak = max(0, read_status("VmHWM") - before) if exact else 0
        view = any(_shares(result, value) for value in inputs.values())
        size = read + sum(map(size_of, inputs.values()))
        yield TaskSample(kind, size, size_of(result), peak, seconds, view)
        results[node.key] = result
        owned[node.key] = 0 if view else size_of(result)
        del inputs, result
        for key in node.dependencies:
            left[key] -= 1
            if not left[key]:
                del results[key], owned[key]


def _settled(expected: int) -> int:
    """Return what is resident once it is what was expected, or after a while.

    Threads of libraries hold what they have written a moment longer than the task that wrote it.
    """
    for _ in range(LOOKS):
        resident = read_status("VmRSS")
        if resident <= expected + UNEVEN:
            break
        time.sleep(PATIENCE / LOOKS)
    return resident


def run_pickled(payload: bytes, persisted: Sequence[Any]) -> list[TaskSample]:
    """Run what was pickled: Dask would take tasks among the arguments of a task for some of its own.

    What is persisted is copied first: it is all users', and tasks may change what they are given.
    """
    nodes, kinds, given, keys = cloudpickle.loads(payload)
    copies = cloudpickle.loads(cloudpickle.dumps(list(persisted)))
    samples = run_tasks(nodes, kinds, given, dict(zip(keys, copies, strict=True)))
    trim_heap()
    return samples


def waited() -> float:
    """Return the seconds that this thread has waited for a processor, which others had; 0 where no kernel tells."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def size_of(value: Any) -> int:
    """Count the bytes of what a task returned."""
    if hasattr(value, "__array_ufunc__"):  # an array in memory, not one in a file
        return int(value.nbytes)
    if isinstance(value, dict):
        return sum(map(size_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return 64


def _shares(result: Any, value: Any) -> bool:
    return isinstance(result, np.ndarray) and isinstance(value, np.ndarray) and np.may_share_memory(result, value)
