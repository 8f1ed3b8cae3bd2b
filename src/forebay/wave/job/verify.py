"""Verifying a job's directory: whose it is, what is there, and what of it is damaged."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from forebay.errors import CorruptionError, WaveError
from forebay.wave.files.npy import load_array
from forebay.wave.files.seal import open_archive
from forebay.wave.job.inversion.asked import FOLDER
from forebay.wave.job.job import Job
from forebay.wave.job.shots.kinds import kind_of
from forebay.wave.job.workspace import Workspace, locked
from forebay.wave.job.workspace.description import Description, differences, frozen
from forebay.wave.job.workspace.pilot_files import exact_parts, pilot_of
from forebay.wave.job.workspace.results_seal import check_result, sealed_results

Name = TypeVar("Name")


def verify(job: Job) -> tuple[list[str], str]:
    """Say what of a job's directory is damaged, and how much is there; change nothing."""
    root = job.output.directory
    if not root.is_dir():
        raise WaveError(f"there is no {root} to verify: run the job first")
    # Where no lock is, nobody runs, and a look leaves none behind.
    with locked(root) if (root / "lock").exists() else nullcontext():
        return _verified(job)


def _verified(job: Job) -> tuple[list[str], str]:
    root = job.output.directory
    described, damage = described_in(job)
    told = list(damage.values())
    if described is None:
        if not damage:
            raise WaveError(f"{root} holds no job to verify: run it first")
        return told, "without its job.json, shots are not looked at"
    if root / "geometry.npz" in damage:
        return told, "without its geometry.npz, shots are not looked at"
    workspace = Workspace(root)
    if job.command != "rtm":
        return _verified_passes(workspace, told)
    count, there, damaged = workspace.geometry.count, workspace.finished(), damaged_shots(workspace)
    told += [*damaged_plan(workspace).values(), *damaged.values(), *stray_files(workspace)]
    results, spoilt = _damaged_results(workspace)
    told += [f"{sentence}: run the job to write it again, or give --repair" for sentence in spoilt]
    if blocked := no_folder(root):
        told.append(blocked)
    if len(there) < count:
        told.append(f"{count - len(there)} of {count} shots are missing: run the job to compute them")
    sound = f"{len(there - damaged.keys())} of {count} shots are there and whole"
    return told, f"{sound}, and so are {results - len(spoilt)} of {results} results" if results else sound


def _verified_passes(workspace: Workspace, told: list[str]) -> tuple[list[str], str]:
    """Say what of the passes over shots is damaged, and of the results, and how much is there."""
    told += damaged_plan(workspace).values()
    files: dict[Path, Callable[[], Any]] = {}
    for path in sorted((workspace.root / "shots").glob("*/*.npz")):
        files[path] = partial(open_archive, path, job=workspace.identity)
    for path in sorted((workspace.root / FOLDER).glob("*.npz")):
        files[path] = partial(open_archive, path, inversion=workspace.identity)
    damage = _damage_of(files)
    results, spoilt = _damaged_results(workspace)
    told += [*damage.values(), *(f"{sentence}: run the job to write it again" for sentence in spoilt)]
    sound = f"{len(files) - len(damage)} of {len(files)} files of its passes are there and whole"
    return told, f"{sound}, and so are {results - len(spoilt)} of {results} results" if results else sound


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
    damage = _damage_of({root / name: partial(workspace.input, name) for name in described.inputs})
    velocity = root / "model" / "velocity.npy"
    if velocity not in damage and load_array(velocity).shape != described.grid.shape:
        return None, {path: f"{path} is damaged: its grid is not that of the model"}
    return described, damage


def damaged_plan(workspace: Workspace) -> dict[Path, str]:
    """Say what is wrong with pilot, plan and timeline, by their files."""
    root = workspace.root
    readers: dict[Path, Callable[[], Any]] = {
        root / "plan.json": workspace.plan,
        root / "timeline.json": workspace.timeline,
    }
    if workspace.described.job.memory.image_error is not None:
        readers |= {root / "pilot.json": partial(pilot_of, workspace), root / "pilot.npz": partial(_images, workspace)}
    return _damage_of(readers)


def _images(workspace: Workspace) -> None:
    """Read the pilot's images, as far as its text can be read, which tells whose they are."""
    found = None
    with suppress(CorruptionError):
        found = pilot_of(workspace)
    exact_parts(workspace, found.shots if found is not None else [])


def damaged_shots(workspace: Workspace) -> dict[int, str]:
    """Say of finished shots what is wrong with them."""
    check = kind_of(workspace.work).check
    return _damage_of({shot: partial(check, workspace, shot) for shot in sorted(workspace.finished())})


def _damaged_results(workspace: Workspace) -> tuple[int, list[str]]:
    """Count the results of the last run, and say of those that are damaged what is wrong with them."""
    try:
        results = sealed_results(workspace.root, workspace.identity)
    except CorruptionError as error:
        return 1, [str(error)]
    damage = _damage_of({path: partial(check_result, path, checksum) for path, checksum in results.items()})
    return len(results), list(damage.values())


def stray_files(workspace: Workspace) -> list[str]:
    """Say which files have the name of no shot of the job."""
    count = workspace.geometry.count
    strays = [path for path in workspace.shot_files() if workspace.shot_of(path) is None]
    return [f"{path} belongs to none of the job's {count} shots, and can be removed" for path in strays]


def no_folder(root: Path) -> str:
    """Say what to do with a file in the place of the folder of shots, if there is one."""
    shots = root / "shots"
    return f"{shots} is no folder: move it away, and shots are computed again" if shots.is_file() else ""


def _damage_of(readers: Mapping[Name, Callable[[], Any]]) -> dict[Name, str]:
    """Read everything; say of what is damaged why it cannot be read."""
    damage = {}
    for name, read in readers.items():
        try:
            read()
        except CorruptionError as error:
            damage[name] = str(error)
    return damage
