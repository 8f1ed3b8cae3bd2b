"""One shot of a job, from its directory and its number: data, migration, and the image kept on disk."""

import json
import math
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError, ForebayError, PlanError, StateError, WaveError
from forebay.files import remove
from forebay.units import Budget
from forebay.wave.advice import WaveWarning
from forebay.wave.earth.strips import in_strips
from forebay.wave.files.formats import read_shot
from forebay.wave.imaging import imaging_interval
from forebay.wave.job.inputs import data_dialect, medium_of
from forebay.wave.job.place import budget_of, putter
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.input_files import check_unchanged
from forebay.wave.job.workspace.pilot_files import pilot_of
from forebay.wave.job.workspace.shot_progress import keep_data, kept_data
from forebay.wave.kernels.arrays import on_host
from forebay.wave.migrate import Migration, migrate
from forebay.wave.simulate import simulate
from forebay.wave.survey.geometry import part_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.wavelet import highest_of_shots

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
    try:
        with alone(threads):
            return _run(workspace, number, budget, tell or (lambda shot, done: None))
    except BaseException:  # a shot that Ctrl-C or SIGTERM ended is marked, too
        with suppress(WaveError, OSError):  # of a run that is over nobody wants to know, and a full disk is told anyway
            workspace.fail(number, traceback.format_exc())
        raise


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


def _run(workspace: Workspace, number: int, budget: Budget | None, tell: StepListener) -> dict[str, Any]:
    described, start = workspace.described, perf_counter()
    job = described.job
    shot = shot_of(workspace, number)
    data, dropped = data_of(workspace, number, shot), 0
    if job.data.file is not None:
        data, dropped = without_spoilt(data)
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
        model_of(workspace, number),
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
    part = PartialImage(on_host(migration.image), on_host(migration.illumination), workspace.boxes[number])
    check_finite(part, shot)
    if plan is None and migration.result.plan.steps == steps:  # not that of a segment
        workspace.freeze(migration.result.plan, migration.result.metrics, number)
    seconds = {"seconds": perf_counter() - start, "data": recorded - start}
    told = {"steps": steps, "strength": part.strength, "dropped": dropped}
    summary = {"shot": number} | seconds | _told(migration) | told
    workspace.keep(number, faded(part, workspace), summary)
    return dict(json.loads(json.dumps(summary)))


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


def model_of(workspace: Workspace, number: int) -> Any:
    """Return what the waves of a shot are migrated through, where they are computed."""
    described, box = workspace.described, workspace.boxes[number]
    fields = workspace.fields("model", box)
    return medium_of(described.job, fields, part_of(described.grid, box), putter(described.device))


def options_of(workspace: Workspace) -> dict[str, Any]:
    """Return what `migrate` is told of every shot, whatever is kept of its history."""
    described = workspace.described
    job = described.job
    frequency = highest_of_shots(workspace.wavelet, described.sampling)
    directory = job.memory.directory or workspace.root
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {
        "dt": described.step,
        "order": job.physics.order,
        "every": job.imaging.every or imaging_interval(frequency, described.step),  # of all shots, which share a plan
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


def _told(migration: Migration) -> dict[str, Any]:
    """Return what a summary tells of a shot's reversal."""
    result, metrics = migration.result, migration.result.metrics
    return {
        "reversal": metrics.seconds,
        "every": migration.every,
        "phases": dict(metrics.phases),
        "peak": dict(metrics.peak),
        "moved": dict(metrics.moved),
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


def data_of(workspace: Workspace, number: int, shot: Shot) -> NDArray[Any]:
    """Read what a shot's receivers heard, or model it, and mute the direct wave where that is asked for."""
    described = workspace.described
    job = described.job
    if job.data.file is not None:
        dialect, traces = data_dialect(job, described.sampling), workspace.geometry.traces_of(number)
        data = read_shot(job.data.file, number, traces, dialect, shot.samples - described.lead)
        check_unchanged([job.data.file], described.marks)
        data = np.pad(data, ((described.lead, 0), (0, 0)))  # nothing was heard before time zero
    else:
        data = _modelled(workspace, number, shot)
    if job.data.mute_velocity is None:
        return data
    return mute(data, shot, job.data.mute_velocity, job.data.mute_delay, described.lead * shot.dt)


def _modelled(workspace: Workspace, number: int, shot: Shot) -> NDArray[Any]:
    """Model what a shot's receivers hear in the true model; where progress is kept, once."""
    described, box = workspace.described, workspace.boxes[number]
    job, progress = described.job, workspace.progress(number)
    if (kept := kept_data(progress)) is not None:
        return kept
    put = putter(described.device)
    model = medium_of(job, workspace.fields("true", box), part_of(described.grid, box), put)
    data = simulate(shot, model, dt=described.step, order=job.physics.order)
    if job.memory.checkpoint and workspace.run:
        keep_data(progress, data)
    return data


def without_spoilt(data: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Return data with zeros, which send nothing back, in traces that are not finite, and how many those are."""
    spoilt = ~np.isfinite(data).all(axis=0)
    if spoilt.all():
        raise WaveError(
            "none of its traces is finite: look at its data; of SEG-Y, data.sample_format and data.byte_order say how "
            "samples are read"
        )
    return np.where(spoilt, np.float32(0), data), int(spoilt.sum())


def mute(
    data: NDArray[Any], shot: Shot, velocity: float, delay: float | None = None, time_zero: float = 0.0
) -> NDArray[Any]:
    """Silence each trace until the direct wave has passed.

    Parameters
    ----------
    data
        Samples by receivers.
    shot
        With their positions and the wavelet.
    velocity
        Of the direct wave, in metres per second.
    delay
        Seconds from the wave's time zero to its end; unless told, until the wavelet has had 99.9 % of its energy.
    time_zero
        Seconds after the first sample.
    """
    energy = np.cumsum(np.sum(np.reshape(shot.wavelet, (shot.samples, -1)) ** 2, axis=1))
    if delay is None:
        begin, end = (float(np.searchsorted(energy, share * energy[-1])) * shot.dt for share in (0.001, 0.999))
        ramp = end - begin
    else:
        ramp, end = 0.5 * delay, time_zero + delay
    away = np.linalg.norm(shot.receivers - shot.source.mean(axis=0), axis=1)
    passed = away / velocity + end
    times, muted = np.arange(len(data))[:, None] * shot.dt, np.empty_like(data)

    def silence(part: slice) -> None:
        late = np.clip((times - passed[part]) / max(ramp, shot.dt), 0, 1)
        muted[:, part] = data[:, part] * np.sin(np.pi / 2 * late) ** 2

    in_strips(silence, data.shape, axis=1)
    return muted
