"""What the workers of a cluster have: memory before Dask interferes, threads, and declared resources."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import dask.config
import distributed
import psutil  # type: ignore[import-untyped]
from dask.system import CPU_COUNT

from forebay.dask.clusters import ask_workers
from forebay.errors import BudgetError
from forebay.footprint.measure.process import MMAP_THRESHOLD
from forebay.units import to_text

ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD)}
"""For new clusters: ``dask.config.set({"distributed.nanny.pre-spawn-environ": ...})``; footprints are learned so."""

_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
SAFE_SHARE = 0.6
"""The share of its memory that a process may use where no threshold says more."""
_STEPS = 32
_PROCESS = uuid4().hex
"""names this process: a worker in another has another name"""


@dataclass(frozen=True)
class WorkerLimits:
    """What the tasks of one worker may use, the tightest of all workers."""

    budget: int
    """bytes above what the process holds already, before Dask spills, pauses or ends anything"""
    threads: int
    workers: int
    """as many such workers as give the threads of the cluster"""
    declared: int | None = None
    """bytes of the resource named memory, where all workers declare it: the least of them"""

    def __str__(self) -> str:
        return f"{self.workers} workers of {self.threads} threads, each with {to_text(self.budget)} for its tasks"


def limits_of(client: distributed.Client | None = None, *functions: Callable[..., Any]) -> WorkerLimits:
    """Ask the workers for their limits and thresholds, and make them allocate as footprints were learned.

    Without a client the limits are those of this process, with as many threads as Dask is configured to start in it.
    Its allocator is the caller's, and stays as it is.

    Parameters
    ----------
    client : distributed.Client, optional
        Of the cluster.
    *functions : callable
        What will run there; their modules are imported first, so that this memory is counted.
    """
    if client is None:
        return _of_this_process()
    answers = list(ask_workers(client, _describe, functions, _PROCESS).values())
    if not answers:
        raise BudgetError("the cluster has no workers: start some, or wait for them with client.wait_for_workers(1)")
    tightest = min(answers, key=lambda worker: worker["bytes"] / worker["threads"])
    if tightest["bytes"] <= 0:
        raise BudgetError(
            f"a worker holds {to_text(tightest['held'])} of its {to_text(tightest['limit'])} already, more than the "
            f"{tightest['share']:.0%} at which Dask begins to spill: release what it holds, or give it more memory"
        )
    threads = sum(worker["threads"] for worker in answers)
    declared = [worker["declared"] for worker in answers]
    least = None if None in declared else int(min(declared))
    return WorkerLimits(
        budget=tightest["bytes"] if least is None else min(tightest["bytes"], least),
        threads=tightest["threads"],
        workers=max(1, threads // tightest["threads"]),
        declared=least,
    )


def _of_this_process() -> WorkerLimits:
    limit = _memory()
    step = max(1, limit // _STEPS)
    held = -(-resident_bytes() // step) * step
    return WorkerLimits(max(0, int(SAFE_SHARE * limit) - held), _threads(), 1)


def _threads() -> int:
    """Count the chunks that Dask's schedulers run at once in this process, as it was configured."""
    pool = dask.config.get("pool", None)
    threads = getattr(pool, "_max_workers", None) or dask.config.get("num_workers", None) or CPU_COUNT
    return 1 if dask.config.get("scheduler", None) in ("sync", "synchronous", "single-threaded") else int(threads)


def _fix_allocation() -> None:
    """Have the allocator give large allocations back at once, in the process of a worker, where it can be told to."""
    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD)
    except (AttributeError, OSError, TypeError):  # not glibc
        return


def _describe(functions: tuple[Callable[..., Any], ...], caller: str, dask_worker: Any) -> dict[str, Any]:
    """Return what a worker has; runs there. That the functions arrived has imported their modules: none is called."""
    if caller != _PROCESS:  # workers may be threads of the caller's process, which stays as it is
        _fix_allocation()
    manager = dask_worker.memory_manager
    fractions = (manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction)
    share = min((fraction for fraction in fractions if fraction), default=SAFE_SHARE)
    # A worker without a limit shares the machine with all others.
    limit = manager.memory_limit or _memory() // CPU_COUNT * dask_worker.state.nthreads
    # Rounded up, so that the same question gets the same answer although a process never holds quite the same twice.
    step = max(1, limit // _STEPS)
    held = -(-dask_worker.monitor.get_process_memory() // step) * step
    return {
        "bytes": int(share * limit) - held,
        "limit": limit,
        "share": share,
        "held": held,
        "threads": dask_worker.state.nthreads,
        "declared": dask_worker.state.total_resources.get("memory"),
    }


def resident_bytes() -> int:
    """Return what this process holds."""
    return int(psutil.Process().memory_info().rss)


def _memory() -> int:
    """Return the bytes of this machine, or of the container that it is."""
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)
