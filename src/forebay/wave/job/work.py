"""One shot of a job, from its directory and its number: data, migration, and the image kept on disk."""

import json
import math
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError, ForebayError, PlanError, StateError, WaveError
from forebay.files import remove
from forebay.tasks import ThreadTask
from forebay.units import Budget
from forebay.wave.advice import WaveWarning
from forebay.wave.earth.arrays import on_host
from forebay.wave.files.formats import read_shot
from forebay.wave.job.inputs import Fields, data_dialect, medium_of
from forebay.wave.job.place import budget_of, putter
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.input_files import check_unchanged
from forebay.wave.job.workspace.pilot_files import pilot_of
from forebay.wave.job.workspace.shot_progress import keep_data, kept_data
from forebay.wave.migrate import Migration, migrate
from forebay.wave.simulate import simulate
from forebay.wave.survey.geometry import part_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import mute, without_spoilt

_ONE = threading.Lock()
"""A process works on one shot at a time: its loops take all its threads already."""

StepListener = Callable[[int, int], None]
"""``tell(shot, done)`` hears how many steps of a shot are done."""


def try_shot(
    root: Path | str,
    number: int,
    run: str,
    budget: Budget | None = None,
    threads: int | None = None,
    tell: StepListener | None = None,
) -> dict[str, Any]:
    """Migrate one shot, write its image for the run to take, and tell how it went; write down what goes wrong.

    Parameters
    ----------
    root
        The job's directory.
    number
        Of the shot.
    run
        The token of the run that asks for it, and takes it afterwards.
    budget
        Of the snapshots, where the job does not say.
    threads
        Of the loops; None leaves them as they are.
    tell
        Hears of the progress.
    """
    workspace = Workspace(Path(root), run)
    with writing_down(workspace, number):
        migrated = migrated_shot(workspace, number, budget, threads, tell)
        migrated.write(workspace)
    return migrated.summary


@contextmanager
def writing_down(workspace: Workspace, number: int) -> Iterator[None]:
    """Write down what goes wrong with a shot, for the run to take."""
    try:
        yield
    except BaseException:  # a shot that Ctrl-C or SIGTERM ended is marked, too
        with suppress(WaveError, OSError):  # of a run that is over nobody wants to know, and a full disk is told anyway
            workspace.fail(number, traceback.format_exc())
        raise


@dataclass(frozen=True, eq=False)
class ShotInputs:
    """What is read of a shot before it is computed."""

    media: dict[str, Fields]
    """its part of the "model" that is migrated through and, where its data are modelled, of the "true" one"""
    data: NDArray[Any] | None
    """what its receivers heard, unless that is still to be modelled"""
    dropped: int
    """traces that are not finite"""


@dataclass(frozen=True, eq=False)
class MigratedShot:
    """A shot that is computed, and not yet written."""

    number: int
    part: PartialImage
    summary: dict[str, Any]
    """what it tells of itself, but for its strength"""

    def write(self, workspace: Workspace) -> None:
        """Write its image for the run to take."""
        summary = self.summary | {"strength": self.part.strength}
        workspace.keep(self.number, faded(self.part, workspace), summary)


def migrated_shot(
    workspace: Workspace,
    number: int,
    budget: Budget | None = None,
    threads: int | None = None,
    tell: StepListener | None = None,
    ahead: ThreadTask[ShotInputs] | None = None,
) -> MigratedShot:
    """Migrate one shot, of which `ahead` has what is read, or is reading it; parameters are those of `try_shot`."""
    with alone(threads):
        return _run(workspace, number, budget, tell or (lambda shot, done: None), ahead)


def inputs_of(workspace: Workspace, number: int, *, models: bool = False) -> ShotInputs:
    """Read a shot's part of the model, and its data, muted and without traces that are not finite; or model them."""
    media = {medium: workspace.fields(medium, workspace.boxes[number]) for medium in ("model", "true")}
    shot, is_read = shot_of(workspace, number), workspace.described.job.data.file is not None
    data = data_of(workspace, number, shot, media["true"]) if is_read or models else None
    return ShotInputs(media, *(without_spoilt(data) if is_read and data is not None else (data, 0)))


@contextmanager
def alone(threads: int | None) -> Iterator[None]:
    """Work on one shot in this process, with so many threads, and without what the job's notes have told."""
    with _ONE, warnings.catch_warnings():
        warnings.simplefilter("ignore", WaveWarning)  # once for all shots
        if threads is not None:
            import numba

            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        yield


def hopeless(error: BaseException) -> bool:
    """Tell whether trying a shot again would fail again: what is wrong was said, and lies not in a device or a disk."""
    return isinstance(error, ForebayError) and not isinstance(error, OSError | RuntimeError)


def steps_of(workspace: Workspace) -> tuple[int, int]:
    """Return the steps of one way through a shot, and of all its ways: modelled where it is, forward and back."""
    described = workspace.described
    steps = math.ceil(len(workspace.wavelet) * described.sampling / described.step - 1e-6)
    return steps, (2 if described.job.data.file is not None else 3) * steps


def _run(
    workspace: Workspace,
    number: int,
    budget: Budget | None,
    tell: StepListener,
    ahead: ThreadTask[ShotInputs] | None,
) -> MigratedShot:
    described, start = workspace.described, perf_counter()
    job = described.job
    try:
        inputs = inputs_of(workspace, number) if ahead is None else ahead.result()
    except MemoryError:  # alone it may have room
        inputs = inputs_of(workspace, number)
    shot, data = shot_of(workspace, number), inputs.data
    if data is None:
        data = data_of(workspace, number, shot, inputs.media["true"])
    shot = shot.with_data(data)
    recorded = perf_counter()
    steps, all_steps = steps_of(workspace)
    tell(number, all_steps - 2 * steps)
    plan, codec = workspace.plan(), codec_of(workspace)
    # A shot whose progress is kept has a plan of its own, which is kept with it.
    shared = None if job.memory.checkpoint else plan
    migrated = partial(
        migrate,
        shot,
        model_of(workspace, number, inputs.media["model"]),
        **options_of(workspace),
        # It is seen here only to count.
        condition=lambda source, receiver, step: tell(number, all_steps - step),
        turn=lambda state: tell(number, all_steps - steps),
        plan=shared,
        budget=budget_of(job, described.device, budget) if shared is None else None,
        codec=codec,
        encode_states=job.memory.image_error is None,
        schedule=job.memory.schedule,
        reversals=workspace.geometry.count,
    )
    migration = _resumed(migrated, workspace.progress(number)) if job.memory.checkpoint else migrated()
    seconds = perf_counter() - start, recorded - start
    finished = finished_shot(workspace, number, shot, migration, seconds, inputs.dropped)
    if plan is None and migration.result.plan.steps == steps:  # not that of a segment
        workspace.freeze(migration.result.plan, migration.result.metrics, number)
    return finished


def finished_shot(
    workspace: Workspace,
    number: int,
    shot: Shot,
    migration: Migration,
    seconds: tuple[float, float],
    dropped: int,
    together: int = 1,
) -> MigratedShot:
    """Return a shot whose image is finite, with what it tells of itself; `seconds` are of all and of its data."""
    part = PartialImage(on_host(migration.image), on_host(migration.illumination), workspace.boxes[number])
    check_finite(part, shot)
    is_modelled = workspace.described.job.data.file is None
    told = {"shot": number, "seconds": seconds[0], "data": seconds[1]} | _told(migration, is_modelled, together)
    summary = told | {"steps": steps_of(workspace)[0], "dropped": dropped, "together": together}
    return MigratedShot(number, part, dict(json.loads(json.dumps(summary))))


def _resumed(migrated: Callable[..., Migration], progress: Path) -> Migration:
    """Migrate a shot from where it was; from its beginning where what was kept cannot be gone on with here."""
    begun = any(progress.glob("*"))
    try:
        return migrated(resume=progress)
    except (BudgetError, PlanError, StateError):  # another budget, less memory, or a processor that rounds differently
        if not begun:
            raise
    remove(progress)
    return migrated(resume=progress)


def codec_of(workspace: Workspace) -> str | None:
    """Return the codec that the job names, or the one that its pilot found."""
    memory = workspace.described.job.memory
    found = None if memory.image_error is None else pilot_of(workspace)
    return memory.codec if found is None else found.codec


def model_of(workspace: Workspace, number: int, fields: Fields) -> Any:
    """Return what the waves of a shot travel through, where they are computed, from its part of the fields."""
    described = workspace.described
    return medium_of(described.job, fields, part_of(described.grid, workspace.boxes[number]), putter(described.device))


def options_of(workspace: Workspace) -> dict[str, Any]:
    """Return what `migrate` is told of every shot, whatever is kept of its history."""
    described = workspace.described
    job = described.job
    directory = job.memory.directory or workspace.root
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "dt": described.step,
        "order": job.physics.order,
        "every": described.every,
        "images": (job.imaging.image,),
        "zero_phase": job.imaging.zero_phase,
        "directory": directory,
        "progress": False,
    }


def faded(part: PartialImage, workspace: Workspace) -> PartialImage:
    """Fade a shot's image out over half of what lies beyond its source and receivers, along the horizontal axes."""
    grid, aperture = workspace.described.grid, workspace.described.job.imaging.aperture or 0.0
    return part.faded([0, *(int(aperture / 2 / step) for step in grid.spacing[1:])], grid.shape)


def check_finite(part: PartialImage, shot: Shot) -> None:
    """Refuse an image that would spoil the sum of all."""
    if not np.isfinite(part.image).all() or not np.isfinite(part.illumination).all():
        largest = np.abs(np.asarray(shot.data)).max()
        raise WaveError(
            f"its image is not finite, and is set aside: look at its data, whose largest sample is {largest:.3g}"
        )


def _told(migration: Migration, is_modelled: bool, together: int = 1) -> dict[str, Any]:
    """Return what a summary tells of a shot's reversal, or of its part in that of several shots together.

    Its data were modelled by one way forward more.
    """
    result, metrics = migration.result, migration.result.metrics
    phases = {name: seconds / together for name, seconds in metrics.phases.items()}
    if is_modelled and metrics.advanced:
        phases["modelled"] = phases["forward"] * result.plan.schedule.steps / metrics.advanced
    return {
        "reversal": metrics.seconds / together,
        "every": migration.every,
        "phases": phases,
        "peak": dict(metrics.peak),
        "moved": {link: nbytes // together for link, nbytes in metrics.moved.items()},
        "ratio": metrics.mean_ratio if metrics.ratios else None,
        "worst": metrics.ratios.worst if metrics.ratios else None,
        "error": max((sample.relative for sample in metrics.samples), default=None),
        "note": result.note,
    }


def shot_of(workspace: Workspace, number: int) -> Shot:
    """Return the geometry and wavelet of a shot."""
    described, geometry = workspace.described, workspace.geometry
    return Shot(
        geometry.sources[number],
        geometry.receivers_of(number),
        workspace.wavelet if workspace.wavelet.ndim == 1 else workspace.wavelet[:, number],
        described.sampling,
        sends=described.job.physics.sends,
        hears=described.job.physics.hears,
    )


def data_of(workspace: Workspace, number: int, shot: Shot, true: Fields | None = None) -> NDArray[Any]:
    """Read what a shot's receivers heard, or model it, and mute the direct wave where that is asked for.

    Its part of the true model is read, unless it is given.
    """
    described = workspace.described
    job = described.job
    if job.data.file is not None:
        dialect, traces = data_dialect(job, described.sampling), workspace.geometry.traces_of(number)
        data = read_shot(job.data.file, number, traces, dialect, shot.samples - described.lead)
        check_unchanged([job.data.file], described.marks)
        data = np.pad(data, ((described.lead, 0), (0, 0)))  # nothing was heard before time zero
    else:
        fields = workspace.fields("true", workspace.boxes[number]) if true is None else true
        data = _modelled(workspace, number, shot, fields)
    return muted(workspace, data, shot)


def muted(workspace: Workspace, data: NDArray[Any], shot: Shot) -> NDArray[Any]:
    """Mute the direct wave in modelled or recorded data, where that is asked for."""
    table, zero = workspace.described.job.data, workspace.described.lead * shot.dt
    return data if table.mute_velocity is None else mute(data, shot, table.mute_velocity, table.mute_delay, zero)


def _modelled(workspace: Workspace, number: int, shot: Shot, true: Fields) -> NDArray[Any]:
    """Model what a shot's receivers hear in its part of the true model; where progress is kept, once."""
    described = workspace.described
    job, progress = described.job, workspace.progress(number)
    if (kept := kept_data(progress)) is not None:
        return kept
    data = simulate(shot, model_of(workspace, number, true), dt=described.step, order=job.physics.order)
    if job.memory.checkpoint and workspace.run:
        keep_data(progress, data)
    return data
