"""The beginning of a run, of whatever kind: its directory, its cluster, what is told first, and what shots may keep."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from forebay.cuda.available import gpu_count
from forebay.report.console import say
from forebay.tasks import Workers
from forebay.tier.capacity import host_capacity
from forebay.units import Budget
from forebay.wave.advice import WaveWarning
from forebay.wave.job.checks import sampled
from forebay.wave.job.job import Job
from forebay.wave.job.place import check_tools, too_much
from forebay.wave.job.prepare import prepare
from forebay.wave.job.progress import ProgressBars
from forebay.wave.job.shots.first import FIRST
from forebay.wave.job.shots.here import shots_here
from forebay.wave.job.shots.waking import woken
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.lock import locked

if TYPE_CHECKING:  # Dask is optional
    from forebay.wave.job.shots.cluster import ShotCluster


Ran = TypeVar("Ran")
"""What a run returns."""


def run_held(
    job: Job, run: Callable[[Console], Ran], console: Console | None, write: Callable[[Ran], None] | None
) -> Ran:
    """Run a job and write what it leaves behind, in its directory, where no other run can begin meanwhile."""
    check_tools(job)
    with locked(job.output.directory):
        survey = run(console or Console(quiet=True))
        if write is not None:
            write(survey)
        return survey


@contextmanager
def begun(
    job: Job, console: Console, damage: list[str], ended: Callable[[str], None] = lambda phase: None
) -> Iterator[tuple[Workspace, "ShotCluster | None"]]:
    """Prepare a job and begin a run: yield its workspace, and the cluster that computes its shots, if any.

    What was damaged is added to `damage`, for the caller to tell; `ended` hears of each phase that is over.
    """
    with ExitStack() as opened:
        client, gpus = None, gpu_count()
        if job.run.scheduler:
            from forebay.wave.job.shots.cluster import existing

            client = opened.enter_context(existing(job.run))
            gpus = client.gpus()
        apart = job.command == "rtm" and not job.run.workers and not job.run.scheduler  # no other process takes shots
        with console.status("preparing the model"), woken(job, gpus) as awake:
            beside = opened.enter_context(closing(Workers(1 + FIRST, "forebay-first", awake))) if apart else None
            prepared = prepare(job, gpus, damage.append, ended, beside)
            opened.callback(prepared.settled)  # whatever else is done
            workspace = opened.enter_context(prepared.running())
            ended("inputs")
        described = workspace.described
        shots, samples = workspace.geometry, len(workspace.wavelet) - described.lead
        say(console, f"shots: {sampled(shots, samples, described.sampling)}; {shots.extents()}")
        if job.run.workers:
            from forebay.wave.job.shots.cluster import local

            client = opened.enter_context(local(job.run, described.device, workspace.drafts))
        yield workspace, client


def tell_notes(console: Console, notes: list[str]) -> None:
    """Say what was damaged, and what the job might do better; by a warning where there is no console."""
    for note in notes:
        if console.quiet:
            warnings.warn(note, WaveWarning, stacklevel=6)  # the line that called for the run
        else:
            say(console, note, "yellow")


def compute_shots(
    workspace: Workspace,
    client: "ShotCluster | None",
    todo: list[int],
    bars: ProgressBars,
    console: Console,
    taken: Callable[..., None] = lambda *about: None,
) -> dict[int, str]:
    """Do the work on shots, here or on a cluster, and tell which failed and why; `taken` hears of those here.

    It is called with each and its image, if it is one; and with nothing first, since an earlier run may have left some.
    """
    if not todo:  # what is finished keeps its plan, however little memory there is now
        return {}
    budget = Budget(host=host_capacity().free) if client is None else client.budget(workspace)
    _settle(workspace, budget, console)
    if client is None:
        taken()
        return shots_here(workspace, todo, bars, taken)
    return client.shots(workspace, todo, budget, bars)


def _settle(workspace: Workspace, budget: Budget, console: Console) -> None:
    """Drop a plan that was made for another budget, or where there was more memory."""
    plan, told = workspace.plan(), workspace.described.job.memory.budget
    if plan is None:
        return
    reason = too_much(plan, budget)
    reason = reason and f"takes {reason}"
    if told is not None and not reason:
        # Where the job leaves the device open, the plan has half of what was free on it.
        tiers = [tier for tier in plan.budget.tiers if tier in told.tiers or tier != "device"]
        made = {tier: plan.budget[tier] for tier in tiers}
        reason = "" if made == {tier: told[tier] for tier in told.tiers} else f"was made for {plan.budget}"
    if reason:
        say(console, f"the plan of an earlier run {reason}: another one is made")
        workspace.forget_plan()
