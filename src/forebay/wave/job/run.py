"""Many shots: in this process or on a Dask cluster, resumed where an earlier run ended, summed in a fixed order."""

import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, WaveError
from forebay.report.console import say
from forebay.tier.capacity import host_capacity
from forebay.units import Budget
from forebay.wave.advice import WaveWarning
from forebay.wave.imaging import laplacian_filter, normalise
from forebay.wave.job.job import Job
from forebay.wave.job.place import check_tools, too_much
from forebay.wave.job.prepare import prepare
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.stack import PartialImage, tree_sum
from forebay.wave.job.work import hopeless, steps_of, try_shot
from forebay.wave.job.workspace import Workspace, locked


@dataclass(frozen=True, eq=False)
class Survey:
    """The image of many shots, and how it came about."""

    workspace: Workspace
    stack: PartialImage
    """the sums of all images and illuminations, on the whole model"""
    image: NDArray[Any]
    """divided by the illumination, rid of its smooth part and faded out at the top"""
    failed: dict[int, str]
    """the shots that are missing, and why"""
    resumed: int
    """shots that an earlier run had finished"""
    seconds: float
    """of this run"""
    summaries: list[dict[str, Any]] = field(default_factory=list)
    """what each finished shot told of itself"""


def run_job(job: Job, console: Console | None = None) -> Survey:
    """Migrate all shots of a job and sum their images; the same job again goes on where it ended.

    Parameters
    ----------
    job
        See `read_job`.
    console
        Where progress is shown, and what the job might do better; without one, a `WaveWarning` tells the latter.
    """
    console, start = console or Console(quiet=True), perf_counter()
    check_tools(job)
    with locked(job.output.directory), ExitStack() as opened:
        client, gpus = None, gpu_count()
        if job.run.scheduler:
            from forebay.wave.job.cluster import existing  # Dask is optional

            client = opened.enter_context(existing(job.run))
            gpus = client.gpus()
        with console.status("preparing the model"):
            workspace = prepare(job, gpus)
        for note in workspace.notes:
            if console.quiet:
                warnings.warn(note, WaveWarning, stacklevel=2)
            else:
                say(console, note, "yellow")
        done, count = workspace.finished(), workspace.geometry.count
        todo = [shot for shot in range(count) if shot not in done]
        if done:
            say(console, f"{len(done)} of {count} shots were finished before")
        if job.run.workers:
            from forebay.wave.job.cluster import local

            client = opened.enter_context(local(job.run, workspace.device))
        shown = opened.enter_context(ProgressBars(console, count, len(done), steps_of(workspace)[1]))
        failed: dict[int, str] = {}
        if todo:  # a finished job keeps its plan, however little memory there is now
            budget = Budget(host=host_capacity().free) if client is None else client.budget(workspace)
            _settle(workspace, budget, console)
            failed = _here(workspace, todo, shown) if client is None else client.shots(workspace, todo, budget, shown)
        if client is not None:
            stack = client.stack(workspace)
        else:
            finished = workspace.finished()
            stack = tree_sum(workspace.part(shot) if shot in finished else None for shot in range(count))
    if stack is None:
        raise WaveError(f"none of the {count} shots could be migrated; the first failed: {next(iter(failed.values()))}")
    stack = stack.spread(workspace.grid.shape)
    return Survey(
        workspace,
        stack,
        finish(stack, workspace),
        failed,
        len(done),
        perf_counter() - start,
        [workspace.summary(shot) for shot in sorted(workspace.finished())],
    )


def finish(stack: PartialImage, workspace: Workspace) -> NDArray[Any]:
    """Make the image from the sums: even light, nothing smooth, and a quiet top."""
    grid, depth = workspace.grid, workspace.job.imaging.mute
    image = laplacian_filter(normalise(stack.image, stack.illumination), grid)
    if depth:
        rows = np.arange(grid.shape[0]) * grid.spacing[0]
        fade = np.sin(np.pi / 2 * np.clip(2 * rows / depth - 1, 0, 1)) ** 2
        image = image * fade.reshape(-1, *[1] * (grid.ndim - 1)).astype(image.dtype)
    return np.asarray(image)


def _settle(workspace: Workspace, budget: Budget, console: Console) -> None:
    """Drop a plan that was made where there was more memory, unless the job itself says how much there is."""
    plan = workspace.plan()
    if plan is None or workspace.job.memory.budget is not None:
        return
    if reason := too_much(plan, budget):
        say(console, f"the plan of an earlier run takes {reason}: another one is made")
        workspace.forget_plan()


def _here(workspace: Workspace, todo: list[int], shown: ProgressBars) -> dict[int, str]:
    """Migrate shots one after the other in this process."""
    failed: dict[int, str] = {}
    retries = workspace.job.run.retries
    for shot in todo:
        for attempt in range(retries + 1):
            try:
                summary = try_shot(workspace.root, shot, tell=shown.steps)
            except Exception as error:
                if isinstance(error, BudgetError) and workspace.plan() is None:
                    raise  # and all others would fail alike
                failed[shot], again = f"{type(error).__name__}: {error}", attempt < retries and not hopeless(error)
                shown.failed(shot, failed[shot], again)
                if again:
                    continue
                break
            failed.pop(shot, None)
            shown.finished(shot, summary["seconds"])
            break
    return failed
