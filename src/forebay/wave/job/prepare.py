"""Preparing a job: everything is read, checked and written down before the first shot."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.checksums import checksum_of
from forebay.errors import CorruptionError, DiskError, DiskFullError, WaveError
from forebay.files import FULL, remove, sync, whole
from forebay.processors import processors
from forebay.tasks import Workers, at_once
from forebay.wave.files.chunked import checksum_with
from forebay.wave.files.npy import parts_of
from forebay.wave.files.seal import is_unsealed, open_archive
from forebay.wave.job.checks import check_directory, checked_inputs
from forebay.wave.job.job import Job
from forebay.wave.job.place import check_memory, check_tools, device_of, maker
from forebay.wave.job.shots.first import Unwritten, begin_first
from forebay.wave.job.verify import damaged_plan, damaged_shots, described_in, no_folder, stray_files
from forebay.wave.job.workspace import Workspace
from forebay.wave.job.workspace.description import Description, frozen, written
from forebay.wave.job.workspace.input_files import Mark, check_unchanged, files_of, marks_of
from forebay.wave.survey.geometry import Geometry

AGAIN = "the pilot is run again"
REMADE = {
    "pilot.json": AGAIN,
    "pilot.npz": AGAIN,
    "plan.json": "the next shot makes another",
    "timeline.json": "it comes again with another plan only",
}
"""What becomes of such a file where it is damaged."""


def prepare(
    job: Job,
    gpus: int = 0,
    tell: Callable[[str], None] = lambda damage: None,
    ended: Callable[[str], None] = lambda phase: None,
    threads: Workers | None = None,
) -> Workspace:
    """Make a job's directory, or find it as an earlier run left it; refuse one that belongs to another job.

    What is damaged is told. Model, geometry, wavelet and description are made again. Damaged shots stay where they are
    until another file takes their place, so that a repair that is killed can go on.

    Of a new job, a thread may bring to the disk what was written, while its first shots are computed: none is taken
    before. A machine that fails meanwhile leaves nothing that is not made again: every file is sealed. Another one may
    model the data of the first shots while all is written, see `begin_first`.

    Parameters
    ----------
    job
        See `read_job`.
    gpus
        How many there are where its shots will be computed.
    tell
        Hears of what is damaged, and what becomes of it.
    ended
        Hears when the model is made.
    threads
        Do both; without them all is on the disk when this returns.
    """
    check_tools(job)
    root, device = job.output.directory, device_of(job, gpus)
    check_memory(job, device)
    check_directory(job)
    marks = marks_of(files_of(job))  # before files are read, and looked at again when they are
    described, damage = described_in(job, device)
    if blocked := no_folder(root):
        raise WaveError(blocked)
    workspace = Workspace(root)
    workspace.sweep()  # first of all, so that nobody of a dead run takes part any more
    for sentence in damage.values():
        tell(f"{sentence}: it is made again")
    later = threads if described is None and not damage else None
    if described is None or damage:
        described = _write_inputs(workspace, job, device, marks, ended, later)
    check_unchanged(files_of(job), marks)
    # Where files lie and shots are computed may have changed.
    with _room_in(root), whole(root / "job.json", synced=later is None) as path:
        path.write_text(replace(described, job=job, marks=marks).to_json())
    if later is not None:
        workspace = replace(workspace, settled=later.submit(_sync, root, [*described.inputs, "job.json"]).result)
    (root / "shots").mkdir(mode=0o700, exist_ok=True)
    for path, sentence in damaged_plan(workspace).items():
        tell(f"{sentence}: {REMADE[path.name]}")
        remove(path)
    for shot, sentence in damaged_shots(workspace).items():
        tell(f"{sentence}: it is computed again")
        workspace.damaged.add(shot)
    for sentence in stray_files(workspace):
        tell(f"{sentence}: it is left out")
    return workspace


def _sync(root: Path, names: Sequence[str]) -> None:
    """Bring files of a job to the disk, and then their names."""
    paths = [root / name for name in names]
    with _room_in(root):
        at_once([partial(sync, path) for path in paths], processors(), "forebay-disk")
        for folder in {path.parent for path in paths}:
            sync(folder)


def _write_inputs(
    workspace: Workspace,
    job: Job,
    device: str,
    marks: dict[str, Mark],
    ended: Callable[[str], None],
    later: Workers | None,
) -> Description:
    """Read or make model, geometry and wavelet, check and write them, and say what follows; begin the first shot."""
    root = workspace.root
    ours = [(root / name).resolve() for name in written()]
    if taken := [path for path in files_of(job) if path.resolve() in ours]:
        raise WaveError(f"output.directory: {taken[0]} would be overwritten there: choose another one")
    parameters = frozen(job)
    with maker(job, device) as gpu:
        inputs = checked_inputs(job, gpu)
    ended("model")
    check_unchanged(files_of(job), marks)
    grid, sampling, geometry = inputs.grid, inputs.acquisition.dt, inputs.acquisition.geometry
    described = Description(
        job=job,
        frozen=parameters,
        grid=grid,
        sampling=sampling,
        lead=inputs.wavelet.lead,
        step=inputs.step,
        every=inputs.every,
        device=device,
        notes=inputs.notes,
        inputs={},
        contents="",
        marks=marks,
    )
    if later is not None:
        workspace.ahead.update(begin_first(Unwritten(root, says=described, made=inputs), later))
    arrays: dict[str, NDArray[Any]] = {"wavelet.npy": inputs.wavelet.values}
    for medium, fields in inputs.media.items():
        arrays |= {f"{medium}/{name}.npy": values for name, values in fields.items()}
    described = replace(described, contents=_contents_of(arrays | vars(geometry)))
    _refuse_others(root, described.identity)
    return replace(described, inputs=_replaced_inputs(root, arrays, geometry, synced=later is None))


def _contents_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a checksum of arrays and their names, however they are written."""
    checksums = dict.fromkeys(sorted(arrays), "")

    def check(name: str) -> None:
        checksums[name] = checksum_with(np.asarray(arrays[name]), name)

    at_once([partial(check, name) for name in checksums], processors(), "forebay-inputs")
    return "".join(checksums.values())


def _replaced_inputs(
    root: Path, arrays: dict[str, NDArray[Any]], geometry: Geometry, *, synced: bool
) -> dict[str, str]:
    """Write the inputs of a job, all at a time, and return the checksum of each.

    Those of another job are removed, with what it said of shots that failed.
    """
    for name in written():
        remove(root / name)
    parts = {name: parts_of(values) for name, values in arrays.items()}
    with BytesIO() as file:
        geometry.save(file)
        parts["geometry.npz"] = [file.getvalue()]
    names, checksums = sorted(parts), dict[str, str]()

    def write(name: str) -> None:
        with whole(root / name, synced=synced) as path, path.open("wb") as file:
            file.writelines(parts[name])

    def check(name: str) -> None:
        checksums[name] = checksum_of(parts[name])

    with _room_in(root):
        for name in names:
            (root / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        calls = [partial(call, name) for call in (write, check) for name in names]
        at_once(calls, processors(), "forebay-inputs")
    for path in (root / "shots").glob("*.error"):
        if path.stem.isdigit():
            path.unlink()
    return {name: checksums[name] for name in names}


@contextmanager
def _room_in(root: Path) -> Iterator[None]:
    """Say in our words that a disk does not take what the job begins with."""
    try:
        yield
    except OSError as error:
        kind = DiskFullError if error.errno in FULL else DiskError
        raise kind(
            f"output.directory: {root} does not take the model, geometry and wavelet of the job ({error.strerror}): "
            "free some room there, or choose another folder"
        ) from error


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
