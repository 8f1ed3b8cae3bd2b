"""Preparing a job: everything is read, checked and written down before the first shot."""

import json
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import planner
from forebay.errors import BudgetError, WaveError
from forebay.files import whole
from forebay.machine.packing import in_a_row, snapshot_bytes
from forebay.machine.spec import ArraySpec
from forebay.wave.advice import advice
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.stability import check_dispersion, check_dt, choose_dt
from forebay.wave.imaging import imaging_interval
from forebay.wave.job.inputs import Acquisition, Fields, acquisition_of, layered, media_of, medium_of, wavelet_of
from forebay.wave.job.job import Job
from forebay.wave.job.place import check_memory, check_tools, device_of
from forebay.wave.job.workspace import Workspace, describe, differences, files_of, frozen, written
from forebay.wave.physics import Physics, physics_of
from forebay.wave.survey.geometry import part_of, windows
from forebay.wave.survey.points import locate
from forebay.wave.survey.wavelet import highest_frequency


def prepare(job: Job, gpus: int = 0) -> Workspace:
    """Make a job's directory, or find it as an earlier run left it; refuse one that belongs to another job.

    Parameters
    ----------
    job
        See `read_job`.
    gpus
        How many there are where its shots will be computed.
    """
    check_tools(job)
    root, device = job.output.directory, device_of(job, gpus)
    check_memory(job, device)
    check_directory(job)
    if (root / "job.json").exists():
        old = json.loads((root / "job.json").read_text())["frozen"]
        changed = differences(old, json.loads(json.dumps(frozen(job))))
        if changed:
            raise WaveError(
                f"{root} holds a job with other {', '.join(changed)}: choose another output.directory, or remove it"
            )
        workspace = Workspace(root)
        if workspace.device != device:
            raise WaveError(
                f"the shots of {root} were begun on a {workspace.device.upper()}, and a {device.upper()} rounds "
                "differently: go on there, set run.device, or choose another output.directory"
            )
        workspace.sweep()
        text = describe(job, workspace.grid, workspace.sampling, workspace.step, device, workspace.notes)
        with whole(root / "job.json") as path:  # where shots are computed may have changed
            path.write_text(text)
        return Workspace(root)
    ours = [(root / name).resolve() for name in written()]
    if taken := [path for path in files_of(job) if path.resolve() in ours]:
        raise WaveError(f"output.directory: {taken[0]} would be overwritten there: choose another one")
    grid, media = media_of(job)
    acquisition = acquisition_of(job, grid)
    wavelet = wavelet_of(job, acquisition)
    grid = layered(job, grid, media, acquisition, wavelet)
    step = check(job, grid, media, acquisition, wavelet)
    Workspace(root).clear()
    for medium, fields in media.items():
        (root / medium).mkdir(parents=True, exist_ok=True)
        for name, values in fields.items():
            with whole(root / medium / f"{name}.npy") as path, path.open("wb") as file:
                np.save(file, values)
    with whole(root / "geometry.npz") as path, path.open("wb") as file:
        acquisition.geometry.save(file)
    with whole(root / "wavelet.npy") as path, path.open("wb") as file:
        np.save(file, wavelet)
    (root / "shots").mkdir(exist_ok=True)
    with whole(root / "job.json") as path:
        advised = notes(job, grid, media, acquisition.dt, wavelet, step)
        path.write_text(describe(job, grid, acquisition.dt, step, device, advised))
    return Workspace(root)


def inspect(job: Job, gpus: int = 0) -> str:
    """Check a job without leaving anything behind, and tell what it will do."""
    check_tools(job)
    device = device_of(job, gpus)
    check_memory(job, device)
    check_directory(job)
    frozen(job)
    grid, media = media_of(job)
    acquisition = acquisition_of(job, grid)
    wavelet = wavelet_of(job, acquisition)
    grid = layered(job, grid, media, acquisition, wavelet)
    step = check(job, grid, media, acquisition, wavelet)
    geometry, boxes = acquisition.geometry, windows(acquisition.geometry, grid, job.imaging.aperture)
    part = " x ".join(str(side.stop - side.start) for side in boxes[0])
    velocity, spacing = media["model"]["velocity"], " x ".join(f"{step:.6g}" for step in grid.spacing)
    frequency = highest_frequency(wavelet, acquisition.dt)
    every = job.imaging.every or imaging_interval(frequency, step)
    where = "on what the cluster's workers have" if job.run.scheduler else f"on the {device.upper()}"
    return "\n".join(
        [
            f"model     {' x '.join(map(str, grid.shape))} points, {spacing} m, "
            f"{velocity.min():.0f} to {velocity.max():.0f} m/s",
            f"shots     {geometry.count}, of {len(geometry.receivers) / geometry.count:.0f} receivers on average, "
            f"{acquisition.samples} samples of {acquisition.dt * 1000:.6g} ms"
            + (", modelled" if "true" in media else ""),
            f"wavelet   up to {frequency:.4g} Hz",
            f"steps     {math.ceil(acquisition.samples * acquisition.dt / step - 1e-6)} of {step * 1000:.6g} ms, "
            f"imaged every {every}",
            f"parts     each shot migrates in {part} points inside layers of {grid.absorb}, {where}",
            *(f"note      {note}" for note in notes(job, grid, media, acquisition.dt, wavelet, step)),
        ]
    )


def notes(
    job: Job, grid: Grid, media: dict[str, Fields], sampling: float, wavelet: NDArray[Any], step: float
) -> list[str]:
    """Say what a job might do better, once for all its shots."""
    fastest = max((medium_of(job, fields, grid) for fields in media.values()), key=lambda medium: float(medium.fastest))
    return advice(fastest, wavelet, sampling, step, job.imaging.every)


def check(job: Job, grid: Grid, media: dict[str, Fields], acquisition: Acquisition, wavelet: NDArray[Any]) -> float:
    """Refuse what would fail at the first step of some shot; give the step that suits all."""
    order, frequency = job.physics.order, highest_frequency(wavelet, acquisition.dt)
    mediums = [medium_of(job, fields, grid) for fields in media.values()]
    for medium in mediums:
        check_dispersion(medium, frequency, order)
    step = job.physics.dt or min(choose_dt(medium, acquisition.dt, frequency, order) for medium in mediums)
    for medium in mediums:
        check_dt(medium, step, order, frequency)
    if "segy" in job.output.formats:
        from forebay.wave.files.segy import check_volume

        check_volume(grid.shape[0], grid.spacing, grid.origin)
    for key, kind in (("sends", job.physics.sends), ("hears", job.physics.hears)):
        if grid.ndim == 2 and kind.endswith(" y"):
            raise WaveError(f"physics.{key}: expected z or x of a section, which has no y, not {kind!r}")
    for shot in range(acquisition.geometry.count):
        try:
            for places in (acquisition.geometry.sources[shot], acquisition.geometry.receivers_of(shot)):
                locate(places, grid, order // 2, mirrored=job.physics.kind == "acoustic")
        except WaveError as error:
            raise WaveError(f"shot {shot}: {error}") from error
    steps = math.ceil(acquisition.samples * acquisition.dt / step - 1e-6)
    every = job.imaging.every or imaging_interval(frequency, step)
    part = part_of(grid, windows(acquisition.geometry, grid, job.imaging.aperture)[0])
    check_budget(job, physics_of(mediums[0]), part, steps, every)
    return step


def check_budget(job: Job, physics: type[Physics], part: Grid, steps: int, every: int) -> None:
    """Refuse a budget without room to reverse the waves in a shot's part of the model.

    What a codec makes of snapshots is seen when it runs.
    """
    budget = job.memory.budget
    if budget is None or job.memory.codec is not None:
        return
    state = _kept(part.fields(job.physics.order // 2), len(physics.state_fields(part.ndim)))
    record = _kept(part.shape, len(physics.record_fields(part.ndim, (job.imaging.image,))))
    try:
        planner.check_budget(steps, state, budget, record_bytes=record, every=every, schedule=job.memory.schedule)
    except BudgetError as error:
        raise BudgetError(f"memory: {error}. Give more, or set imaging.aperture") from error


def _kept(shape: tuple[int, ...], count: int) -> int:
    """Return the bytes of a snapshot of fields of a shape."""
    return snapshot_bytes(in_a_row([ArraySpec(shape, np.dtype(np.float32)).nbytes] * count))


def check_directory(job: Job) -> None:
    """Refuse a memory.directory that is not there and cannot be made; that of a cluster's workers is theirs."""
    path = job.memory.directory
    if path is None or job.run.scheduler is not None:
        return
    folder = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise WaveError(f"memory.directory: {path} cannot be written, since {folder} cannot: choose another folder")
