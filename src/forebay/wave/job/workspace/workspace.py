"""The directory of a job: its parameters, model and plan, frozen once, and every shot that is finished.

    job.json        the parameters and what follows from them; written last, so that what is there is whole
    model/, true/   the fields that are migrated through and, where shots are modelled, the true ones
    geometry.npz, wavelet.npy; inversion/ has what a search asks of its passes over the shots, and what came of it
    pilot.json      the bound that keeps the picture, where the job asks for one; pilot.npz has exact images
    plan.json       of the first shot, for all others
    timeline.json   what that shot did when
    shots/00012.npz one finished shot; 00012.error tells why one failed; of a search in a folder for each pass
    run-<token>/    what workers of a run have written, until the run takes it
    progress/       of shots under way when the last run ended, see `shot_progress`
    results.json    checksums of image, sums, pictures and report

All of it can be read from any process that sees the directory, so a shot's task is the directory and a number.

Every file is sealed: `job.json` has checksums of model, geometry and wavelet; shots, plan and timeline carry the
identity of their job. Workers write into the folder of their run alone. The run, which holds the directory's lock,
checks what they wrote and renames it into place. The next run removes that folder first: what is left of a dead run
finds nothing to rename any more, and nowhere to write.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import CorruptionError, ForebayError, WaveError
from forebay.files import remove, remove_unfinished, sync, unfinished_name, whole
from forebay.metrics import Metrics, Span
from forebay.planner import Plan
from forebay.tasks import ThreadTask
from forebay.units import TIERS
from forebay.wave.files.npy import load_array
from forebay.wave.files.seal import (
    arrays_in,
    check_regular,
    checksum_of_file,
    damaged,
    open_archive,
    open_text,
    open_told,
    seal_archive,
    sealed_text,
)
from forebay.wave.job.stack import PartialImage
from forebay.wave.job.workspace.description import Description, read_description
from forebay.wave.job.workspace.input_files import state_of
from forebay.wave.job.workspace.shot_progress import forget, hand_on, progress_of, rescue
from forebay.wave.job.workspace.shot_work import MIGRATION, ShotWork
from forebay.wave.job.workspace.told import ToldShot, ToldTimeline
from forebay.wave.survey.geometry import Box, Geometry, windows

FOLDERS = ("model", "true", "shots")
PLAN = ("timeline.json", "plan.json")
"""The plan comes last: where it is, its timeline is."""
RUN = re.compile(r"run-[0-9a-f]{16}")
"""The name of a run's folder."""
SHOT = re.compile(r"[0-9]+\.npz")
"""What is taken for a shot's file."""
SETTLED = 2.0
"""Seconds after a change of a file from which on another one has another time: clocks of file systems are coarse."""
_SEEN: dict[tuple[str, Path], tuple[int, ...]] = {}
"""The inputs whose bytes this process has looked at, by run and file, and what the system says of each."""


@dataclass(frozen=True)
class Workspace:
    """A job that has been prepared."""

    root: Path
    run: str = ""
    """of a run and its workers: its token"""
    work: ShotWork = MIGRATION
    """what is done with its shots"""
    damaged: set[int] = field(default_factory=set, compare=False)
    """the shots whose files wait to be replaced"""
    settled: Callable[[], None] = field(default=lambda: None, compare=False)
    """Waits until its inputs are on the disk: no shot is written before. Raises what went wrong with that."""
    ahead: dict[int, ThreadTask[Any]] = field(default_factory=dict, compare=False)
    """What a run has read of shots to come, or is reading."""

    @cached_property
    def described(self) -> Description:
        """What it says of its job."""
        return read_description(self.root / "job.json")

    @cached_property
    def identity(self) -> str:
        """What its shots and its plan carry."""
        return self.described.identity

    @cached_property
    def geometry(self) -> Geometry:
        """Where the shots are."""
        return Geometry.load(self.input("geometry.npz"))

    @cached_property
    def boxes(self) -> list[Box]:
        """Each shot's part of the model."""
        return windows(self.geometry, self.described.grid, self.described.job.imaging.aperture)

    @cached_property
    def wavelet(self) -> NDArray[Any]:
        """What the sources send, at the sampling of the data; a column for each shot where they differ."""
        return np.array(load_array(self.input("wavelet.npy")))

    def input(self, name: str) -> Path:
        """Return the file of an input that is as it was written; refuse another."""
        self._checked(name)
        return self.root / name

    def _checked(self, name: str) -> tuple[int, ...]:
        """Refuse an input that is not as it was written; return what the system said of it before.

        In a run, a process looks at all of its bytes once, and then as long as the file is the same for the system.
        """
        path = self.root / name
        check_regular(path)
        try:
            now = state_of(path)
            if self.run and _SEEN.get((self.run, path)) == now:
                return now
            found, changed = checksum_of_file(path), path.stat().st_ctime
        except OSError as error:
            raise damaged(path, f"it cannot be read ({error.strerror})") from error
        if found != self.described.inputs.get(name):
            raise damaged(path, "its checksum does not match")
        for other in [key for key in list(_SEEN) if key[0] != self.run]:  # other threads read, too
            _SEEN.pop(other, None)
        if self.run and abs(time.time() - changed) > SETTLED:
            _SEEN[self.run, path] = now
        return now

    def fields(self, medium: str, box: Box | None = None) -> dict[str, NDArray[Any]]:
        """Read a part of the "model" that is migrated through, or of the "true" one."""
        names = [name for name in sorted(self.described.inputs) if name.startswith(f"{medium}/")]
        return {Path(name).stem: self._field(name, box) for name in names}

    def _field(self, name: str, box: Box | None) -> NDArray[Any]:
        path, checked = self.root / name, self._checked(name)
        stored = load_array(path)
        values = np.array(stored if box is None else stored[box], order="C")
        if state_of(path) != checked:
            raise damaged(path, "it was changed while it was read")
        return values

    def plan(self) -> Plan | None:
        """Return the plan for all shots, once there is one."""
        if not (path := self.root / "plan.json").exists():
            return None
        content = open_text(path, file="plan", job=self.identity)
        try:
            return Plan.from_json(json.dumps(content))
        except ForebayError as error:
            raise damaged(path, str(error)) from error

    def timeline(self) -> tuple[int, list[Span]] | None:
        """Return the shot that made the plan, and what it did when."""
        path = self.root / "timeline.json"
        if (told := open_told(path, ToldTimeline, file="timeline", job=self.identity)) is None:
            return None
        if max((int(span[0].split()[1]) for span in told.spans if " " in span[0]), default=0) >= self._tiers():
            raise damaged(path, "it tells of tiers that the plan has not")
        return told.shot, [Span(*span) for span in told.spans]

    def _tiers(self) -> int:
        """Count the tiers of the plan; without one that can be read, as many as a plan may have."""
        plan = None
        with suppress(CorruptionError):
            plan = self.plan()
        return len(plan.tiers) if plan is not None else len(TIERS)

    def forget_plan(self) -> None:
        """Have the next shot make another plan."""
        (self.root / "plan.json").unlink(missing_ok=True)

    @property
    def folder(self) -> Path:
        """Where its shots are."""
        return self.root / "shots" / self.work.name

    def path(self, shot: int) -> Path:
        """Return the file of a shot."""
        return self.folder / f"{shot:05d}.npz"

    def _draft_of(self, shot: int) -> Path:
        """Return the file that a worker of this run writes of a shot."""
        return self.drafts / "-".join(filter(None, (self.work.name, self.path(shot).name)))

    def _seal_of(self, shot: int) -> dict[str, Any]:
        """Return what the seal of a shot's file tells."""
        more = {"work": self.work.name, "of": self.work.of} if self.work.name else {}
        return {"job": self.identity, "shot": shot, **more}

    def finished(self) -> set[int]:
        """List the shots that are there, and are not known to be damaged."""
        return {shot for shot in map(self.shot_of, self.shot_files()) if shot is not None} - self.damaged

    def shot_files(self) -> list[Path]:
        """List the files with names like those of shots."""
        return [path for path in sorted(self.folder.glob("*.npz")) if SHOT.fullmatch(path.name)]

    def shot_of(self, path: Path) -> int | None:
        """Return the shot of this job whose file this is, if any."""
        shot = int(path.stem)
        return shot if path == self.path(shot) and shot < self.geometry.count else None

    def arrays(self, shot: int, *names: str) -> list[NDArray[Any]]:
        """Read arrays of a finished shot."""
        return arrays_in(self.sound(shot), *names)

    def sound(self, shot: int) -> Path:
        """Return the file of a finished shot; refuse one that is damaged."""
        open_archive(path := self.path(shot), **self._seal_of(shot))
        return path

    def part(self, shot: int) -> PartialImage:
        """Read the image of a finished shot."""
        image, illumination = self.arrays(shot, "image", "illumination")
        path, box = self.path(shot), self.boxes[shot]
        shape = tuple(side.stop - side.start for side in box)
        for values in (image, illumination):
            if values.shape != shape or values.dtype != np.float32:
                raise damaged(path, f"it has {values.dtype} of shape {values.shape}, not float32 of shape {shape}")
        if not (part := PartialImage(image, illumination, box)).is_finite:
            raise damaged(path, "it has NaN or infinity")
        return part

    def told(self, shot: int) -> dict[str, Any]:
        """Read what a finished shot told of itself, whatever was done with it."""
        return dict(json.loads(bytes(arrays_in(self.path(shot), "summary")[0])))

    def summary(self, shot: int) -> dict[str, Any]:
        """Read what a migrated shot told of itself."""
        try:
            ToldShot.model_validate(told := self.told(shot))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self.path(shot), "its summary cannot be read") from error
        if told["shot"] != shot:
            raise damaged(self.path(shot), f"its summary is not that of shot {shot}")
        return told

    # What workers of a run do.

    @property
    def drafts(self) -> Path:
        """Where workers of a run write."""
        return self.root / f"run-{self.run}"

    def keep(self, shot: int, arrays: Mapping[str, NDArray[Any]], summary: dict[str, Any]) -> None:
        """Write a finished shot, whole or not at all, for the run to take."""
        with self.draft(self._draft_of(shot).name) as path:
            encoded = np.frombuffer(json.dumps(summary).encode(), np.uint8)
            with path.open("wb") as file:
                np.savez(file, **arrays, summary=encoded)  # type: ignore[arg-type]
            seal_archive(path, **self._seal_of(shot), run=self.run)

    def freeze(self, plan: Plan, metrics: Metrics, shot: int) -> None:
        """Write a plan for all shots to come, and beside it what the shot that made it did when."""
        timeline = {"shot": shot, "spans": list(metrics.timeline)}
        for name, content in zip(PLAN, (timeline, json.loads(plan.to_json())), strict=True):
            with self.draft(name) as path:
                path.write_text(sealed_text(content, file=Path(name).stem, job=self.identity))

    def fail(self, shot: int, reason: str) -> None:
        """Write down why a shot failed."""
        with self.draft(self._draft_of(shot).with_suffix(".error").name) as path:
            path.write_text(reason, encoding="utf-8", errors="backslashreplace")

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        """Yield a name for a file that is written whole, for the run to take."""
        try:
            with whole(self.drafts / name) as path:
                yield path
        except FileNotFoundError as error:
            if self.drafts.is_dir():
                raise
            raise WaveError(f"this run in {self.root} is over: another one has begun there") from error

    # What the run itself does, under its lock.

    @contextmanager
    def running(self) -> Iterator["Workspace"]:
        """Begin a run: yield the same with its token and its folder, in which nobody else writes."""
        begun = replace(self, run=token_hex(8))
        hand_on(self.root, begun.drafts, self.identity, {*range(self.geometry.count)} - self.finished())
        try:
            yield begun
        finally:
            self._discard(begun.drafts)

    def progress(self, shot: int) -> Path:
        """Return where workers of a run keep the progress of a shot."""
        return progress_of(self.drafts, self.identity, shot)

    def _discard(self, folder: Path) -> None:
        """Remove the folder of a run; by another name first, so that nobody writes into it meanwhile."""
        hidden = unfinished_name(folder)
        with suppress(OSError):  # a disk may refuse while somebody still writes there: the next run tries again
            rescue(folder, self.root)
            folder.replace(hidden)
            remove(hidden)

    def doing(self, work: ShotWork) -> "Workspace":
        """Return the same with other work on its shots."""
        (self.root / "shots" / work.name).mkdir(mode=0o700, exist_ok=True)
        return replace(self, work=work, damaged=set(), ahead={})

    def take(self, shot: int) -> None:
        """Take over a shot, and its plan, that a worker of this run wrote; once another run has begun, nothing."""
        draft, place = self._draft_of(shot), self.path(shot)
        open_archive(draft, **self._seal_of(shot), run=self.run)
        if place.is_dir():  # no file can replace it
            remove(place)
        draft.replace(place)
        self.damaged.discard(shot)
        forget(self.progress(shot))
        sync(place.parent)
        for path in (draft, place):
            path.with_suffix(".error").unlink(missing_ok=True)
        self.take_plan()

    def take_plan(self) -> None:
        """Take over the plan that a worker of this run made for all shots, if any, unless there is one."""
        for name in PLAN:
            if (self.drafts / name).exists() and not (self.root / "plan.json").exists():
                (self.drafts / name).replace(self.root / name)

    def take_failure(self, shot: int) -> None:
        """Take over what a worker of this run wrote about the failure of a shot, if it could."""
        with suppress(FileNotFoundError):
            self._draft_of(shot).with_suffix(".error").replace(self.path(shot).with_suffix(".error"))

    def sweep(self) -> None:
        """Remove what dead processes left behind."""
        below = [path for path in (self.root / "shots").glob("*") if path.is_dir()]
        for folder in (self.root, *(self.root / name for name in FOLDERS), *below):
            remove_unfinished(folder)
        for path in [entry for entry in self.root.glob("run-*") if RUN.fullmatch(entry.name)]:
            self._discard(path)
