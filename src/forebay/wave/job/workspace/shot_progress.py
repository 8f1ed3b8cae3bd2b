"""The progress of shots that are under way, handed on by a run that has ended to the next one.

    run-<token>/progress/<identity>-00012/      what `forebay.reverse` keeps of a shot
    run-<token>/progress/<identity>-00012.npz   the data of a shot that was modelled
    progress/                                   both, between two runs

A run takes what is there by renaming it. So what is left of a dead run finds nowhere to write any more.
"""

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forebay.errors import CorruptionError
from forebay.files import remove, whole
from forebay.locks import OWNER
from forebay.wave.files.npy import load_arrays
from forebay.wave.files.seal import open_archive, seal_archive

FOLDER = "progress"
OURS = re.compile(r"([0-9a-f]{32})-([0-9]{5,})(\.npz)?")
"""The name of what is kept of a shot: the identity of its job, and its number."""


def progress_of(drafts: Path, identity: str, shot: int) -> Path:
    """Return the folder in which the progress of a shot is kept."""
    return drafts / FOLDER / f"{identity}-{shot:05d}"


def keep_data(progress: Path, data: NDArray[np.floating]) -> None:
    """Write the data of a shot that was modelled, which is not done twice."""
    with whole(_data_of(progress)) as path:
        with path.open("wb") as file:
            np.savez(file, data=data)
        seal_archive(path, file=progress.name)


def kept_data(progress: Path) -> NDArray[np.floating] | None:
    """Read the data of a shot that an earlier run had modelled, if they are there and whole."""
    path = _data_of(progress)
    if not path.exists():
        return None
    with suppress(CorruptionError):
        open_archive(path, file=progress.name)
        (data,) = load_arrays(path, "data")
        return data
    return None


def forget(progress: Path) -> None:
    """Remove what was kept of a shot."""
    remove(progress)
    remove(_data_of(progress))


def rescue(run: Path, root: Path) -> None:
    """Take progress out of the folder of a run that is over, to where the next one looks for it."""
    kept, place = run / FOLDER, root / FOLDER
    if not kept.is_dir():
        return
    place.mkdir(mode=0o700, exist_ok=True)
    for entry in [path for path in kept.iterdir() if OURS.fullmatch(path.name)]:
        remove(place / entry.name)
        entry.replace(place / entry.name)
        if entry.suffix != ".npz":
            for name in ("lock", f"lock{OWNER}"):  # a process that still holds it has lost its place
                remove(place / entry.name / name)
    with suppress(OSError):  # it is empty, or somebody else's files are there
        place.rmdir()


def hand_on(root: Path, drafts: Path, identity: str, shots: set[int]) -> None:
    """Make the folder of a run, with the progress of its shots; remove that of finished ones and of other jobs."""
    place = root / FOLDER
    drafts.mkdir(mode=0o700)
    if not place.is_dir():
        (drafts / FOLDER).mkdir(mode=0o700)
        return
    for path in place.iterdir():
        name = OURS.fullmatch(path.name)
        if name is not None and (name[1] != identity or int(name[2]) not in shots):
            remove(path)
    place.replace(drafts / FOLDER)


def _data_of(progress: Path) -> Path:
    return progress.with_name(f"{progress.name}.npz")
