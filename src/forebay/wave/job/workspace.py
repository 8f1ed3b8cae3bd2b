"""The directory of a job: its parameters, model and plan, frozen once, and every shot that is finished.

    job.json        the parameters and what follows from them; written last, so that what is there is whole
    model/, true/   the fields that are migrated through and, where shots are modelled, the true ones
    geometry.npz, wavelet.npy
    plan.json       of the first shot, for all others
    shots/00012.npz one finished shot; 00012.error tells why one failed

All of it can be read from any process that sees the directory, so a shot's task is the directory and a number.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import DiskError, WaveError
from forebay.files import remove, whole
from forebay.locks import DirectoryLock
from forebay.metrics import Metrics, Span
from forebay.planner import Plan
from forebay.version import __version__
from forebay.wave.earth.grid import Grid
from forebay.wave.files.npy import load_array, load_arrays
from forebay.wave.job.job import Job
from forebay.wave.job.stack import PartialImage
from forebay.wave.survey.geometry import Box, Geometry, windows

FREE: Any = {"run": True, "output": True, "memory": {"directory"}}
"""What may change between two runs of one job: it does not change the image."""


FOLDERS = ("model", "true", "shots")
UNFINISHED = re.compile(r"\.[0-9a-f]{8}\..+")
"""The name of a file or folder until it is whole."""


@dataclass(frozen=True)
class Workspace:
    """A job that has been prepared."""

    root: Path

    @cached_property
    def _described(self) -> dict[str, Any]:
        return dict(json.loads((self.root / "job.json").read_text()))

    @cached_property
    def job(self) -> Job:
        """The parameters, as of when the job was prepared."""
        return Job.model_validate(self._described["job"])

    @cached_property
    def grid(self) -> Grid:
        """Of the whole model."""
        grid = self._described["grid"]
        return Grid(**{name: grid[name] for name in ("shape", "spacing", "origin", "absorb", "free_surface")})

    @property
    def sampling(self) -> float:
        """Seconds between samples of the data."""
        return float(self._described["sampling"])

    @property
    def step(self) -> float:
        """Seconds of a step: the same for all shots, whatever their part of the model."""
        return float(self._described["step"])

    @property
    def device(self) -> str:
        """Where waves are computed, "cpu" or "gpu": for all shots the same, since both round differently."""
        return str(self._described["device"])

    @property
    def notes(self) -> list[str]:
        """What the job might do better."""
        return list(self._described.get("notes", ()))

    @cached_property
    def geometry(self) -> Geometry:
        """Where the shots are."""
        return Geometry.load(self.root / "geometry.npz")

    @cached_property
    def boxes(self) -> list[Box]:
        """Each shot's part of the model."""
        return windows(self.geometry, self.grid, self.job.imaging.aperture)

    @cached_property
    def wavelet(self) -> NDArray[Any]:
        """What the sources send, at the sampling of the data."""
        return np.array(load_array(self.root / "wavelet.npy"))

    def fields(self, medium: str, box: Box | None = None) -> dict[str, NDArray[Any]]:
        """Read a part of the "model" that is migrated through, or of the "true" one."""
        stored = {path.stem: load_array(path) for path in sorted((self.root / medium).glob("*.npy"))}
        return {name: np.ascontiguousarray(values if box is None else values[box]) for name, values in stored.items()}

    def plan(self) -> Plan | None:
        """Return the plan for all shots, once there is one."""
        path = self.root / "plan.json"
        return Plan.from_json(path) if path.exists() else None

    def freeze(self, plan: Plan, metrics: Metrics, shot: int) -> None:
        """Keep a plan for all shots to come, and beside it what the shot that made it did when."""
        with whole(self.root / "timeline.json") as path:
            path.write_text(json.dumps({"shot": shot, "spans": metrics.timeline}))
        with whole(self.root / "plan.json") as path:
            plan.to_json(path)

    def forget_plan(self) -> None:
        """Have the next shot make another plan."""
        (self.root / "plan.json").unlink(missing_ok=True)

    def timeline(self) -> tuple[int, list[Span]]:
        """Return the shot that made the plan, and what it did when."""
        timeline = json.loads((self.root / "timeline.json").read_text())
        return int(timeline["shot"]), [Span(*span) for span in timeline["spans"]]

    def path(self, shot: int) -> Path:
        """Return the file of a shot."""
        return self.root / "shots" / f"{shot:05d}.npz"

    def finished(self) -> set[int]:
        """List the shots that are there."""
        return {int(path.stem) for path in (self.root / "shots").glob("*.npz") if path.stem.isdigit()}

    def keep(self, shot: int, part: PartialImage, summary: dict[str, Any]) -> None:
        """Write a finished shot, whole or not at all."""
        with whole(self.path(shot)) as path, path.open("wb") as file:
            encoded = np.frombuffer(json.dumps(summary).encode(), np.uint8)
            np.savez(file, image=part.image, illumination=part.illumination, summary=encoded)
        self.path(shot).with_suffix(".error").unlink(missing_ok=True)

    def fail(self, shot: int, reason: str) -> None:
        """Write down why a shot failed."""
        self.path(shot).parent.mkdir(exist_ok=True)
        self.path(shot).with_suffix(".error").write_text(reason)

    def part(self, shot: int) -> PartialImage:
        """Read the image of a finished shot."""
        image, illumination = load_arrays(self.path(shot), "image", "illumination")
        return PartialImage(image, illumination, self.boxes[shot])

    def summary(self, shot: int) -> dict[str, Any]:
        """Read what a finished shot told of itself."""
        (summary,) = load_arrays(self.path(shot), "summary")
        return dict(json.loads(bytes(summary)))

    def clear(self) -> None:
        """Remove what an earlier job left behind that must not be taken for this one's."""
        for path in (*self.root.glob("shots/*.npz"), *self.root.glob("shots/*.error")):
            if path.stem.isdigit():
                path.unlink()
        for name in (*written(), "plan.json", "timeline.json"):
            (self.root / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what a dead process left behind, and shots that can no longer be read."""
        for folder in (self.root, *(self.root / name for name in FOLDERS)):
            # Others may keep hidden files here: only the names that `whole` gives are ours.
            for path in [entry for entry in folder.glob(".*") if UNFINISHED.fullmatch(entry.name)]:
                remove(path)
        for shot in self.finished():
            try:
                self.part(shot), self.summary(shot)
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
                self.path(shot).unlink()


def frozen(job: Job) -> dict[str, Any]:
    """Return the parameters that decide the image, with size and date of every file that is read."""
    parameters = job.model_dump(mode="json", exclude=FREE)
    marks = {}
    for path in files_of(job):
        if not path.exists():
            raise WaveError(f"there is no {path}")
        marks[str(path)] = _mark(path)
    return {**parameters, "files": marks, "forebay": __version__}


def files_of(job: Job) -> list[Path]:
    """List the files and folders that a job reads."""
    files = [job.model.velocity, job.model.true, job.data.file, job.wavelet.file, job.physics.vs, job.physics.density]
    return [path for path in (*files, job.geometry.sources, job.geometry.receivers) if path is not None]


def _mark(path: Path) -> list[int | str]:
    """Return size and date of a file; of a folder, the size of all files below it and a digest of their dates."""
    if not path.is_dir():
        return [path.stat().st_size, path.stat().st_mtime_ns]
    below = [(str(file.relative_to(path)), file.stat()) for file in sorted(path.rglob("*")) if file.is_file()]
    listing = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in below)
    return [sum(stat.st_size for _, stat in below), sha256(listing.encode()).hexdigest()]


def written() -> list[str]:
    """List what a job's directory has of its inputs."""
    fields = [f"{medium}/{name}.npy" for medium in ("model", "true") for name in ("velocity", "vs", "density")]
    return [*fields, "geometry.npz", "wavelet.npy"]


def differences(old: Any, new: Any, key: str = "") -> list[str]:
    """Name the keys in which two sets of parameters differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = []
        for name in sorted(old.keys() | new.keys()):
            keys += differences(old.get(name), new.get(name), f"{key}.{name}".strip("."))
        return keys
    return [] if old == new else [key]


def describe(job: Job, grid: Grid, sampling: float, step: float, device: str, notes: list[str]) -> str:
    """Write down what a workspace must know."""
    return json.dumps(
        {
            "job": job.model_dump(mode="json"),
            "frozen": frozen(job),
            "grid": asdict(grid),
            "sampling": sampling,
            "step": step,
            "device": device,
            "notes": notes,
        },
        indent=2,
    )


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Hold a directory for one run; a process that dies lets go of it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WaveError(f"output.directory: {root} cannot be made ({error.strerror}): choose another folder") from error
    try:
        lock = DirectoryLock(root / "lock")
    except DiskError as error:
        raise WaveError(f"output.directory: {error}") from error
    with closing(lock):
        yield
