"""One shot of a job, from its directory and its number: data, migration, and the image kept on disk."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError, PlanError, StateError
from forebay.files import remove
from forebay.planner import Plan
from forebay.tasks import ThreadTask, at_once
from forebay.units import Budget
from forebay.wave.earth.arrays import on_host
from forebay.wave.files.formats import read_shot
from forebay.wave.job.inputs import Fields, data_dialect, medium_of
from forebay.wave.job.place import budget_of, putter, wait_for
from forebay.wave.job.shots.kind import StepListener
from forebay.wave.job.stack import PartialImage, check_finite
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.input_files import check_unchanged
from forebay.wave.job.workspace.pilot_files import pilot_of
from forebay.wave.job.workspace.shot_progress import keep_data, kept_data
from forebay.wave.migrate import Migration, migrate
from forebay.wave.simulate import simulate
from forebay.wave.survey.geometry import part_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.traces import mute, without_spoilt


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
    """where it was computed"""
    summary: dict[str, Any]
    """what it tells of itself, but for its strength"""
    shot: Shot

    def write(self, workspace: Workspace) -> PartialImage:
        """Write its image for the run to take, and return it as it was written; refuse one that is not finite."""
        part = PartialImage(on_host(self.part.image), on_host(self.part.illumination), self.part.box)
        check_finite(part, self.shot)
        written = faded(part, workspace)
        workspace.keep(self.number, written.arrays, self.summary | {"strength": part.strength})
        return written


def inputs_of(workspace: Workspace, number: int, *, models: bool = False) -> ShotInputs:
    """Read a shot's part of the model, and its data, muted and without traces that are not finite; or model them."""
    media, box = dict[str, Fields](), workspace.boxes[number]

    def read(medium: str) -> None:
        media[medium] = workspace.fields(medium, box)

    at_once([partial(read, "model"), partial(read, "true")], 2, "forebay-fields")
    shot, is_read = shot_of(workspace, number), workspace.described.job.data.file is not None
    data = data_of(workspace, number, shot, media["true"]) if is_read or models else None
    return ShotInputs(media, *(without_spoilt(data) if is_read and data is not None else (data, 0)))


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
    """Return a shot whose image other threads may read, with what it tells of itself.

    `seconds` are of all and of its data.
    """
    wait_for(workspace.described.device)
    part = PartialImage(migration.image, migration.illumination, workspace.boxes[number])
    is_modelled = workspace.described.job.data.file is None
    told = {"shot": number, "seconds": seconds[0], "data": seconds[1]} | _told(migration, is_modelled, together)
    summary = told | {"steps": steps_of(workspace)[0], "dropped": dropped, "together": together}
    return MigratedShot(number, part, dict(json.loads(json.dumps(summary))), shot)


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
    if workspace.described.job.data.file is not None:
        data = recorded(workspace, number, shot)
    else:
        fields = workspace.fields("true", workspace.boxes[number]) if true is None else true
        data = _modelled(workspace, number, shot, fields)
    return muted(workspace, data, shot)


def recorded(workspace: Workspace, number: int, shot: Shot) -> NDArray[Any]:
    """Read what a shot's receivers heard; nothing was heard before time zero."""
    described = workspace.described
    job = described.job
    assert job.data.file is not None
    dialect, traces = data_dialect(job, described.sampling), workspace.geometry.traces_of(number)
    data = read_shot(job.data.file, number, traces, dialect, shot.samples - described.lead)
    check_unchanged([job.data.file], described.marks)
    return np.pad(data, ((described.lead, 0), (0, 0)))


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


def _together(
    workspace: Workspace, numbers: Sequence[int], plan: Plan | None, tell: StepListener
) -> tuple[list[MigratedShot], Plan]:
    """Migrate shots that advance together, by the plan of as many or by another one, which is returned too."""
    described, start, count = workspace.described, perf_counter(), len(numbers)
    job, all_steps = described.job, steps_of(workspace)[1]
    inputs = [inputs_of(workspace, number) for number in numbers]
    shots = [shot_of(workspace, number) for number in numbers]
    data = [own.data for own in inputs]
    if job.data.file is None:
        true = [model_of(workspace, each, own.media["true"]) for each, own in zip(numbers, inputs, strict=True)]
        heard = simulate(shots, true, dt=described.step, order=job.physics.order)
        data = [muted(workspace, own, shot) for own, shot in zip(heard, shots, strict=True)]
    shots = [shot.with_data(own) for shot, own in zip(shots, data, strict=True)]
    recorded = perf_counter()
    migrations = migrate(
        shots,
        [model_of(workspace, each, own.media["model"]) for each, own in zip(numbers, inputs, strict=True)],
        **options_of(workspace),
        condition=lambda source, receiver, step: tell(numbers[0], count * (all_steps - step)),  # the first for all
        plan=plan,
        budget=budget_of(job, described.device, None) if plan is None else None,
        schedule=job.memory.schedule,
        reversals=-(-workspace.geometry.count // count),
    )
    seconds = (perf_counter() - start) / count, (recorded - start) / count
    about = zip(numbers, shots, migrations, inputs, strict=True)
    done = [
        finished_shot(workspace, number, shot, migration, seconds, own.dropped, count)
        for number, shot, migration, own in about
    ]
    return done, migrations[0].result.plan


class Migrating:
    """The migration of shots, as a `ShotKind`."""

    reverses = True

    def steps(self, workspace: Workspace) -> int:
        """Return the steps of a shot: modelled where it is, forward and back."""
        return steps_of(workspace)[1]

    def inputs(self, workspace: Workspace, number: int, *, models: bool = False) -> ShotInputs:
        """Read a shot's part of the model, and its data; or model them."""
        return inputs_of(workspace, number, models=models)

    def compute(
        self,
        workspace: Workspace,
        number: int,
        budget: Budget | None,
        tell: StepListener,
        ahead: ThreadTask[ShotInputs] | None,
    ) -> MigratedShot:
        """Migrate one shot."""
        return _run(workspace, number, budget, tell, ahead)

    def together(
        self, workspace: Workspace, numbers: Sequence[int], plan: Plan | None, tell: StepListener
    ) -> tuple[list[MigratedShot], Plan]:
        """Migrate shots that advance together."""
        return _together(workspace, numbers, plan, tell)

    def check(self, workspace: Workspace, number: int) -> None:
        """Read a shot's image, and what it told."""
        workspace.part(number), workspace.summary(number)
