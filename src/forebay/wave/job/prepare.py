"""Preparing a job: everything is read, checked and written down before the first shot."""

import math
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import planner
from forebay.errors import BudgetError, CorruptionError, WaveError
from forebay.files import remove, whole
from forebay.machine.packing import in_a_row, snapshot_bytes
from forebay.machine.spec import ArraySpec
from forebay.wave.advice import advice
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.stability import check_dispersion, check_dt, choose_dt
from forebay.wave.files.chunked import checksum_with
from forebay.wave.files.npy import load_array
from forebay.wave.imaging import imaging_interval
from forebay.wave.job.description import Description, check_unchanged, differences, files_of, frozen, written
from forebay.wave.job.inputs import Acquisition, Fields, acquisition_of, layered, media_of, medium_of, wavelet_of
from forebay.wave.job.job import Job
from forebay.wave.job.place import check_memory, check_tools, device_of
from forebay.wave.job.seal import checksum_of_file, is_unsealed, open_archive
from forebay.wave.job.workspace import Workspace, locked
from forebay.wave.physics import Physics, physics_of
from forebay.wave.survey.geometry import part_of, windows
from forebay.wave.survey.points import locate
from forebay.wave.survey.wavelet import highest_frequency

Tell = Callable[[str, int | None], None]
"""``tell(sentence, shot)`` hears of a damaged file, and of which shot it is, if of one."""


def prepare(job: Job, gpus: int = 0, tell: Tell | None = None) -> Workspace:
    """Make a job's directory, or find it as an earlier run left it; refuse one that belongs to another job.

    What is damaged is told. Model, geometry, wavelet and description are made again. Damaged shots stay where they are
    until another file takes their place, so that a repair that is killed can go on.

    Parameters
    ----------
    job
        See `read_job`.
    gpus
        How many there are where its shots will be computed.
    tell
        Hears of what is damaged.
    """
    check_tools(job)
    root, device, tell = job.output.directory, device_of(job, gpus), tell or (lambda sentence, shot: None)
    check_memory(job, device)
    check_directory(job)
    described, damage = described_in(job, device)
    if no_folder := _no_folder(root):
        raise WaveError(no_folder)
    workspace = Workspace(root)
    workspace.sweep()  # first of all, so that nobody of a dead run takes part any more
    for sentence in damage.values():
        tell(f"{sentence}: it is made again", None)
    if described is None or damage:
        described = _write_inputs(job, device)
    with whole(root / "job.json") as path:  # where shots are computed may have changed
        path.write_text(replace(described, job=job).to_json())
    (root / "shots").mkdir(mode=0o700, exist_ok=True)
    for path, sentence in damaged_results(workspace).items():
        shot = workspace.shot_of(path) if path.suffix == ".npz" else None
        if path.suffix == ".npz" and shot is None:
            tell(f"{sentence}: it is left out", None)
            continue
        what = {"plan.json": "the next shot makes another", "timeline.json": "it comes again with another plan only"}
        tell(f"{sentence}: {what.get(path.name, 'it is computed again')}", shot)
        if shot is None:
            remove(path)
        else:
            workspace.damaged.add(shot)
    return workspace


def described_in(job: Job, device: str | None = None) -> tuple[Description | None, dict[Path, str]]:
    """Return what a job's directory says of it, if anything, and what of that and of its inputs is damaged.

    Refuse a directory of another job, or of shots that were begun on another device, where one is told.
    """
    root = job.output.directory
    path = root / "job.json"
    if not path.exists():
        lost = any((root / "shots").glob("[0-9]*.npz"))
        return None, {path: f"{path} is missing, and shots are there"} if lost else {}
    workspace = Workspace(root)
    try:
        described = workspace.described
    except CorruptionError as error:
        return None, {path: str(error)}
    if changed := differences(described.frozen, frozen(job)):
        raise WaveError(
            f"{root} holds a job with other {', '.join(changed)}: choose another output.directory, or remove it"
        )
    if device is not None and described.device != device:
        raise WaveError(
            f"the shots of {root} were begun on a {described.device.upper()}, and a {device.upper()} rounds "
            "differently: go on there, set run.device, or choose another output.directory"
        )
    damage = _damage({root / name: partial(workspace.input, name) for name in described.inputs})
    velocity = root / "model" / "velocity.npy"
    if velocity not in damage and load_array(velocity).shape != described.grid.shape:
        return None, {path: f"{path} is damaged: its grid is not that of the model"}
    return described, damage


def _no_folder(root: Path) -> str:
    """Say what to do with a file in the place of the folder of shots, if there is one."""
    shots = root / "shots"
    return f"{shots} is no folder: move it away, and shots are computed again" if shots.is_file() else ""


def damaged_results(workspace: Workspace) -> dict[Path, str]:
    """Say of plan, timeline and shots what is damaged, and what has the name of no shot of the job."""
    root = workspace.root
    checks: dict[Path, Callable[[], Any]] = {
        root / "plan.json": workspace.plan,
        root / "timeline.json": workspace.timeline,
    }
    strays = {}
    for path in workspace.shot_files():
        shot = workspace.shot_of(path)
        if shot is None:
            strays[path] = f"{path} belongs to none of the job's {workspace.geometry.count} shots, and can be removed"
        else:
            checks[path] = partial(_check_shot, workspace, shot)
    return _damage(checks) | strays


def verify(job: Job) -> tuple[list[str], str]:
    """Say what of a job's directory is damaged, and how much is there; change nothing."""
    root = job.output.directory
    if not root.is_dir():
        raise WaveError(f"there is no {root} to verify: run the job first")
    # Where no lock is, nobody runs, and a look leaves none behind.
    with locked(root) if (root / "lock").exists() else nullcontext():
        return _verified(job, *described_in(job))


def _verified(job: Job, described: Description | None, damage: dict[Path, str]) -> tuple[list[str], str]:
    root = job.output.directory
    if described is None:
        if not damage:
            raise WaveError(f"{root} holds no job to verify: run it first")
        return list(damage.values()), "without its job.json, shots are not looked at"
    workspace = Workspace(root)
    geometry = root / "geometry.npz"
    if geometry not in damage:
        damage |= damaged_results(workspace)
        there, count = workspace.finished(), workspace.geometry.count
        whole_ones = there - {workspace.shot_of(path) for path in damage if path.suffix == ".npz"}
        missing = f"{count - len(there)} of {count} shots are missing: run the job to compute them"
        told = [*damage.values(), _no_folder(root), missing if len(there) < count else ""]
        return list(filter(None, told)), f"{len(whole_ones)} of {count} shots are there and whole"
    return list(damage.values()), "without its geometry.npz, shots are not looked at"


def _check_shot(workspace: Workspace, shot: int) -> None:
    workspace.part(shot), workspace.summary(shot)


def _damage(checks: Mapping[Path, Callable[[], Any]]) -> dict[Path, str]:
    damage = {}
    for path, check in checks.items():
        try:
            check()
        except CorruptionError as error:
            damage[path] = str(error)
    return damage


def _write_inputs(job: Job, device: str) -> Description:
    """Read or make model, geometry and wavelet, check and write them, and say what follows."""
    root = job.output.directory
    ours = [(root / name).resolve() for name in written()]
    if taken := [path for path in files_of(job) if path.resolve() in ours]:
        raise WaveError(f"output.directory: {taken[0]} would be overwritten there: choose another one")
    marked = frozen(job)  # before files are read, and looked at again when they are
    grid, media = media_of(job)
    acquisition = acquisition_of(job, grid)
    wavelet = wavelet_of(job, acquisition)
    grid = layered(job, grid, media, acquisition, wavelet)
    step = check(job, grid, media, acquisition, wavelet)
    arrays = {f"{medium}/{name}.npy": values for medium, fields in media.items() for name, values in fields.items()}
    arrays["wavelet.npy"] = wavelet
    everything = arrays | vars(acquisition.geometry)
    contents = "".join(checksum_with(np.asarray(everything[name]), name) for name in sorted(everything))
    advised = notes(job, grid, media, acquisition.dt, wavelet, step)
    for path in files_of(job):
        check_unchanged(path, marked["files"])
    described = Description(job, marked, grid, acquisition.dt, step, device, advised, {}, contents)
    _refuse_others(root, described.identity)
    for name in written():
        remove(root / name)
    for medium in media:
        (root / medium).mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, values in arrays.items():
        with whole(root / name) as path, path.open("wb") as file:
            np.save(file, values)
    with whole(root / "geometry.npz") as path, path.open("wb") as file:
        acquisition.geometry.save(file)
    for path in (root / "shots").glob("*.error"):
        if path.stem.isdigit():
            path.unlink()
    return replace(described, inputs={name: checksum_of_file(root / name) for name in (*arrays, "geometry.npz")})


def _refuse_others(root: Path, identity: str) -> None:
    """Refuse a directory in which only others have left shots that are whole: another job, or an earlier version."""
    whose = set()
    for path in Workspace(root).shot_files():
        try:
            whose.add(open_archive(path)["job"])
        except CorruptionError:
            if is_unsealed(path):
                whose.add(None)
    if whose and identity not in whose:
        others = "another version of Forebay" if whose == {None} else "another job"
        raise WaveError(
            f"{root} holds shots of {others}, and no description of it: choose another output.directory, or remove "
            "its folder shots"
        )


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
