"""The files that a job reads, known by what is in them: where they lie and when they were written decides nothing."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from forebay.checksums import checksum_of
from forebay.errors import WaveError
from forebay.wave.files.seal import checksum_of_file
from forebay.wave.job.job import Job

Mark = list[int | str]
"""Size and date of a file; of a folder, the size of all files below it and a digest of their dates."""


def files_of(job: Job) -> list[Path]:
    """List the files and folders that a job reads; refuse one that is not there."""
    files = [job.model.velocity, job.model.true, job.data.file, job.wavelet.file]
    files += [job.physics.vs, job.physics.density, job.physics.epsilon, job.physics.delta]
    files += [job.physics.tilt, job.physics.azimuth, job.physics.q]
    files += [job.geometry.sources, job.geometry.receivers, *job.memory.weights]
    files += [] if job.inversion is None else [job.inversion.fixed]
    named = [path for path in files if path is not None]
    for path in named:
        if not path.exists():
            raise WaveError(f"there is no {path}")
        if not path.is_file() and not path.is_dir():
            raise WaveError(f"{path} is neither a file nor a folder")
    return named


def with_contents(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a job with the checksum of each file's content in place of its path."""
    checksums: dict[Path, str] = {}  # one file may be named twice

    def walk(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: walk(entry) for name, entry in value.items()}
        if not isinstance(value, Path):
            return value
        if value not in checksums:
            checksums[value] = content_of(value)
        return checksums[value]

    return {name: walk(table) for name, table in tables.items()}


def content_of(path: Path) -> str:
    """Return a checksum of all bytes of a file; of a folder, of the names and bytes of all files below it."""
    try:
        if not path.is_dir():
            return checksum_of_file(path)
        below = [[file.relative_to(path).as_posix(), checksum_of_file(file)] for file in _below(path)]
    except OSError as error:
        raise WaveError(f"{path} cannot be read: {error.strerror}") from error
    return checksum_of([json.dumps(below).encode()])


def marks_of(paths: Iterable[Path]) -> dict[str, Mark]:
    """Return the marks of files, by which a run sees that one was changed under its hands."""
    return {str(path): _mark(path) for path in paths}


def check_unchanged(paths: Iterable[Path], marks: Mapping[str, Mark]) -> None:
    """Refuse files whose size or date is not that of their marks any more."""
    for path in paths:
        if not path.exists() or marks.get(str(path)) != _mark(path):
            raise WaveError(
                f"{path} was changed after the job had begun to read it: put it back, or choose another "
                "output.directory"
            )


def _mark(path: Path) -> Mark:
    if not path.is_dir():
        return [path.stat().st_size, path.stat().st_mtime_ns]
    below = [(file.relative_to(path).as_posix(), file.stat()) for file in _below(path)]
    listing = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in below)
    return [sum(stat.st_size for _, stat in below), sha256(listing.encode()).hexdigest()]


def _below(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file()]


def state_of(path: Path) -> tuple[int, ...]:
    """Return what is another one after whatever is done to a file."""
    about = path.stat()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
