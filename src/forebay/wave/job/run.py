"""Many shots: in this process or on a Dask cluster, resumed where an earlier run ended, summed in a fixed order."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from rich.console import Console

from forebay.errors import CorruptionError, WaveError
from forebay.report.console import say
from forebay.wave.job.begin import begun, compute_shots, run_held, tell_notes
from forebay.wave.job.job import Job
from forebay.wave.job.pilot import ImageCheck, check_images, run_pilot
from forebay.wave.job.progress import PhaseClock, ProgressBars
from forebay.wave.job.shots.summing import RunningSum
from forebay.wave.job.stack import PartialImage, finish, outliers
from forebay.wave.job.work import steps_of
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.pilot_files import PilotResult, pilot_of, take_pilot


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
    aside: dict[int, str]
    """the shots that stand out and are not summed, and how"""
    damage: list[str]
    """what was damaged when this run began, and what became of it"""
    resumed: int
    """shots that an earlier run had finished"""
    seconds: float
    """of this run"""
    phases: dict[str, float] = field(default_factory=dict)
    """of these, what each phase took; whoever writes what the job leaves behind adds its own, which come afterwards"""
    summaries: list[dict[str, Any]] = field(default_factory=list)
    """what each finished shot told of itself"""
    pilot: PilotResult | None = None
    """where the job says how far images may be from exact ones: how the bound was found"""
    check: ImageCheck | None = None
    """how far they are"""


def run_job(
    job: Job,
    console: Console | None = None,
    *,
    repair: bool = False,
    write: Callable[[Survey], None] | None = None,
) -> Survey:
    """Migrate all shots of a job and sum their images; the same job again goes on where it ended.

    What is damaged is told and computed again.

    Parameters
    ----------
    job
        See `read_job`.
    console
        Where progress is shown, what was damaged, and what the job might do better; without one, a `WaveWarning` tells
        the latter two.
    repair
        Compute only those shots that were damaged, and none that an earlier run had left to do.
    write
        Writes what the job leaves behind, while no other run can begin in its directory.
    """
    return run_held(job, lambda shown: _survey(job, shown, repair), console, write)


def _survey(job: Job, console: Console, repair: bool) -> Survey:
    """Do what `run_job` does, in a directory that is held."""
    clock = PhaseClock()
    damage: list[str] = []
    failed: dict[int, str] = {}
    with ExitStack() as opened:
        workspace, client = opened.enter_context(begun(job, console, damage, clock.end))
        clock.end("devices")
        tell_notes(console, [*damage, *workspace.described.notes])
        done, count = workspace.finished(), workspace.geometry.count
        if done:
            say(console, f"{len(done)} of {count} shots were finished before")
        if job.memory.image_error is not None:
            _lead(workspace, client, console)
            clock.end("pilot")
        bars = opened.enter_context(ProgressBars(console, count, len(done), steps_of(workspace)[1]))
        todo = [shot for shot in range(count) if shot not in done]
        if repair:
            unasked = [shot for shot in todo if shot not in workspace.damaged]
            failed |= dict.fromkeys(unasked, "it was not computed before: run the job without --repair")
            todo = [shot for shot in todo if shot in workspace.damaged]
        sums = opened.enter_context(RunningSum(workspace))
        failed |= compute_shots(workspace, client, todo, bars, console, sums.advance)
        clock.end("shots")
        summaries = _summaries(workspace, failed)
        tell_notes(console, [*_silenced(summaries), *_empty(summaries)])
        aside = {} if job.imaging.include_outliers else _aside(summaries)
        chosen = summaries.keys() - aside.keys()
        stack = sums.total(chosen, failed) if client is None else client.stack(workspace, chosen, failed)
        clock.end("sum")
    if stack is None:
        raise WaveError(f"none of the {count} shots could be migrated; the first failed: {next(iter(failed.values()))}")
    stack, grid = stack.spread(workspace.described.grid.shape), workspace.described.grid
    found = pilot_of(workspace) if job.memory.image_error is not None else None
    check = check_images(workspace, found, stack, chosen - failed.keys()) if found is not None else None
    tell_notes(console, _too_far(check, job.memory.image_error))
    image = finish(stack, grid, job.imaging.mute)
    clock.end("image")
    return Survey(
        workspace,
        stack,
        image,
        failed=failed,
        aside=aside,
        damage=damage,
        resumed=len(done),
        seconds=clock.seconds,
        phases=clock.phases,
        summaries=[summary for shot, summary in summaries.items() if shot not in failed],
        pilot=found,
        check=check,
    )


def _lead(workspace: Workspace, client: Any, console: Console) -> None:
    """Have the pilot find the bound for all shots, unless an earlier run has."""
    workspace.settled()
    if pilot_of(workspace) is None or not (workspace.root / "pilot.npz").exists():
        order = workspace.geometry.outwards()
        which = f"shot {order[0]}" + (f", and then shot {order[-1]}" if len(order) > 1 else "")
        say(console, f"pilot: {which}, with an exact history, to find a bound for all")
        with console.status("running the pilot"):
            if client is None:
                run_pilot(workspace.root, workspace.run)
            else:
                client.pilot(workspace)
        take_pilot(workspace)
    found = pilot_of(workspace)
    assert found is not None
    for sentence in found.explain():
        say(console, f"pilot: {sentence}")


def _too_far(check: ImageCheck | None, allowed: float | None) -> list[str]:
    """Say which images are farther from exact ones than the job allows."""
    errors = check.errors if check is not None and allowed is not None else {}
    return [
        f"the image of shot {shot} is {error:.2%} from the exact one, more than memory.image_error allows: "
        "give a smaller one, or leave it out"
        for shot, error in errors.items()
        if error > (allowed or 0)
    ]


def _summaries(workspace: Workspace, failed: dict[int, str]) -> dict[int, dict[str, Any]]:
    """Read what each finished shot told of itself; add to `failed` those that were damaged since."""
    summaries = {}
    for shot in sorted(workspace.finished()):
        try:
            summaries[shot] = workspace.summary(shot)
        except CorruptionError as error:
            failed[shot] = str(error)
    return summaries


def _silenced(summaries: dict[int, dict[str, Any]]) -> list[str]:
    """Say how many traces were dropped because of their samples."""
    dropped = {shot: summary["dropped"] for shot, summary in summaries.items() if summary["dropped"]}
    if not dropped:
        return []
    return [f"{sum(dropped.values())} traces were dropped, which are not finite: of shots {_few(list(dropped))}"]


def _empty(summaries: dict[int, dict[str, Any]]) -> list[str]:
    """Say which shots add nothing to the image."""
    empty = [shot for shot, summary in summaries.items() if not summary["strength"]]
    why = "their data are zero, or data.mute_velocity and data.mute_delay mute all of them"
    return (
        [f"{len(empty)} of {len(summaries)} shots have an image of zeros: {why}: shots {_few(empty)}"] if empty else []
    )


def _few(shots: list[int]) -> str:
    return ", ".join(map(str, shots[:10])) + (", ..." if len(shots) > 10 else "")


def _aside(summaries: dict[int, dict[str, Any]]) -> dict[int, str]:
    """Say of shots that stand out by how much."""
    found = outliers({shot: summary["strength"] for shot, summary in summaries.items()})
    return {
        shot: f"its image is {times:.3g} times as strong as the median of all: look at its data, "
        "or set imaging.include_outliers"
        for shot, times in found.items()
    }
