"""Where the waves of a job are computed, what must be there for it, and what they may keep."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np

from forebay.cuda.available import gpu_count, why_not
from forebay.errors import WaveError, needs
from forebay.planner import Plan
from forebay.tier.capacity import device_capacity
from forebay.units import Budget, to_text
from forebay.wave.earth.grid import Grid
from forebay.wave.job.job import Job

GPU_ORDER = 8
"""The highest order that kernels on a GPU have, of each physics."""
NEEDS = {"zarr": ("zarr", "wave")}
"""The library of a format, and the extra that brings it."""
FULL = 12_000_000
"""Points that fill a GPU: with a quarter of these, an H200 is as fast as it gets within a tenth."""
TOGETHER = {"acoustic": 1, "visco": 2}
"""Kinds of waves whose shots may advance together, in two dimensions, and the most fields of a record of theirs."""
FIELDS = 12
"""Arrays of the fields' size that a shot works with, beside what it keeps."""
BYTES = 4
"""of a number"""
ROOM = 1.5
"""Of what a plan expects: how much a reversal takes at most where sizes are a guess."""


def check_tools(job: Job) -> None:
    """Refuse a job that asks for what is not installed."""
    for name in job.output.formats:
        library, extra = NEEDS.get(name, ("numpy", ""))
        if find_spec(library) is None:
            raise WaveError(
                f"output.formats: {name} needs {library}: install Forebay with its extra {extra}, or leave it out"
            )
    if (job.run.workers or job.run.scheduler) and find_spec("distributed") is None:
        raise WaveError(
            "run.workers, run.scheduler: they need Dask: install Forebay with its extra dask, or leave them out"
        )
    if job.model.smooth and find_spec("scipy") is None:
        raise WaveError(f"model.smooth: {needs('it', 'scipy', 'wave')}, or leave it out")
    if job.run.scheduler is None and find_spec("numba") is None:  # what a cluster's workers have is seen there
        raise WaveError(needs("computing waves", "numba", "wave"))


def device_of(job: Job, gpus: int) -> str:
    """Choose "cpu" or "gpu"; refuse a GPU that is not there or has no kernels of the job's order."""
    wanted, order = job.run.device, job.physics.order
    unable = f"physics.order is {order}, and at most {GPU_ORDER} there" if order > GPU_ORDER else ""
    if wanted == "gpu" and (unable or not gpus):
        raise WaveError(
            f"run.device: a GPU cannot be used ({unable or why_not() or 'the workers have none'}): take 'cpu'"
        )
    return "gpu" if gpus and not unable and wanted != "cpu" else "cpu"


def check_memory(job: Job, device: str) -> None:
    """Refuse a budget that does not begin in the memory where waves are computed."""
    memory = job.memory
    if device == "cpu" and memory.device is not None:
        raise WaveError("memory.device: waves are computed on the CPU here: give memory.host, or run.device = 'gpu'")
    if device == "cpu" and memory.host is None and memory.disk is not None:
        raise WaveError("memory.host: expected beside memory.disk, which is filled from it")


def putter(device: str) -> Callable[[Any], Any]:
    """Return what brings arrays to where waves are computed."""
    if device == "cpu":
        return np.asarray
    import cupy

    return cupy.asarray  # type: ignore[no-any-return]


@contextmanager
def maker(job: Job, device: str) -> Iterator[Any]:
    """Lend the GPU that makes and smooths a job's model, where this process computes its shots on one; else None."""
    if device == "cpu" or job.run.workers or job.run.scheduler or not gpu_count():
        yield None
        return
    from forebay.wave.kernels.device import Device

    gpu = Device()
    yield gpu
    gpu.arrays.get_default_memory_pool().free_all_blocks()  # shots take memory for other streams


def stream_apart(device: str, *, first: bool = False) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which a thread computes on this thread's GPU: before what others do there, or beside it."""
    if device == "cpu":
        return nullcontext
    from forebay.cuda.driver import current_device, on_device
    from forebay.cuda.stream import Urgency, current, kept_streams

    index, urgency = current_device().device_id, Urgency.FIRST if first else Urgency.BESIDE

    @contextmanager
    def entered() -> Iterator[None]:
        with on_device(index), kept_streams(urgency) as streams, current(streams.compute):
            yield

    return entered


def wait_for(device: str) -> None:
    """Wait until what this thread has asked of its current stream is done, so that others may read it."""
    if device == "gpu":
        import cupy

        cupy.cuda.get_current_stream().synchronize()


def budget_of(job: Job, device: str, fallback: Budget | None) -> Budget | None:
    """Return the job's budget, or the one that its worker was given, with half of what is free on the GPU it uses."""
    budget = job.memory.budget or fallback
    if budget is None or budget.device is not None or device == "cpu":
        return budget
    free = device_capacity()
    return budget.with_tier("device", free.free // 2) if free is not None else budget


def batch_of(job: Job, device: str, grid: Grid, steps: int, every: int) -> int:
    """Return how many shots shall advance together: as fill a GPU, and as the budget keeps the whole history of.

    Grids are those of the shots' parts of the model. A lossy codec takes shots one at a time: its bound belongs to one.
    """
    memory, kind = job.memory, job.physics.kind
    lossy = memory.codec is not None or memory.image_error is not None
    if device == "cpu" or grid.ndim != 2 or kind not in TOGETHER or lossy or memory.checkpoint:
        return 1
    budget = budget_of(job, device, None)
    free = device_capacity()
    kept = sum(budget[tier] for tier in budget.tiers) if budget is not None else free.free // 2 if free else 0
    points = math.prod(grid.fields(job.physics.order // 2))
    history = BYTES * points * (TOGETHER[kind] * -(-steps // every) + FIELDS)
    return max(1, min(-(-FULL // points), kept // history))


def too_much(plan: Plan, budget: Budget) -> str:
    """Say what of a plan made elsewhere does not fit into a budget, in the tiers that the budget names."""
    for tier, peak in plan.peak_bytes.items():
        needed = min(plan.budget[tier], int(ROOM * peak))
        if tier in budget.tiers and needed > budget[tier]:
            return f"{to_text(needed)} of the {tier}, where {to_text(budget[tier])} are left"
    return ""


def leaves(plan: Plan, tier: str, nbytes: int) -> bool:
    """Tell whether a plan leaves so many bytes of its budget in a tier; one that has no budget leaves any."""
    kept = (ROOM if plan.codec else 1) * plan.peak_bytes.get(tier, 0)
    return tier not in plan.budget.tiers or kept + nbytes <= plan.budget[tier]
