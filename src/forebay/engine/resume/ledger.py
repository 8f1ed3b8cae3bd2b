"""The directory of a reversal that survives: what it is of, how far it has come, and the states to go on from.

    manifest          what the reversal is of: a directory that says something else is refused
    progress-7        how far it has come, and the arrays that its callbacks had written by then; the last two are kept
    adjoint-7         what the caller's own `save` wrote with it
    state-400         the state at step 400, exact, from which steps 400 and following can be run again
    record-8          what backward needs of step 8, exact, so that it needs not be run again
    lock              held by the process that is at work

The order of writing is what makes it safe: a state before the progress that speaks of it, and nothing is removed that
the progress before the last could need.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from forebay.checksums import checksum_of
from forebay.engine.resume.files import read_arrays, write_arrays, write_whole
from forebay.errors import CorruptionError, DiskError, PlanError
from forebay.files import UNFINISHED, remove_unfinished
from forebay.locks import OWNER, DirectoryLock

VERSION = 1
MANIFEST, LOCK = "manifest", "lock"
_OURS = re.compile(rf"({UNFINISHED})?(manifest|lock|lock\.owner|(progress|adjoint|state|record)-\d+)")

_KEPT = ("progress", "adjoint")
"""Names of the files that are written with each progress."""
_OF_STEPS = ("state", "record")
"""Names of the files that belong to steps."""

logger = logging.getLogger("forebay.engine")


class Direction(StrEnum):
    """Which way a reversal is going."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class Progress:
    """How far a reversal has come."""

    direction: Direction = Direction.FORWARD
    step: int = 0
    """the steps below it have been run forward for the first time, or are still to be gone back through"""
    probes: dict[str, str] = field(default_factory=dict)
    """checksums of the states one step after the starts of segments, by the step of the start"""
    saved: str = ""
    """checksum of what the caller's own `save` wrote with it"""


class Ledger:
    """An open directory, which no other process can open until this one closes it or dies."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = sorted(self.directory.iterdir())
            strangers = [path.name for path in paths if not _OURS.fullmatch(path.name) or not path.is_file()]
        except OSError as error:
            raise DiskError(f"progress cannot be kept in {self.directory}: {error.strerror}") from error
        if strangers:
            raise DiskError(f"{self.directory} holds {strangers[0]!r}: name a directory for this reversal alone")
        self._lock = DirectoryLock(self.directory / LOCK)
        remove_unfinished(self.directory)
        self.damaged: list[str] = []
        """what could not be read, in words"""
        self._last = max(self._numbers("progress"), default=0)

    def open(self, problem: Mapping[str, Any], decide: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return what was decided for this problem when it was begun, or `decide` it now; refuse another problem's."""
        path = self.directory / MANIFEST
        problem = json.loads(json.dumps(problem, default=int))  # numbers of NumPy are no others
        if path.exists():
            try:
                body = read_arrays(path)[0]
            except CorruptionError as error:
                self._tell(error)
            else:
                if body["version"] != VERSION:
                    raise PlanError(
                        f"{self.directory} was written by another version of Forebay: use that, or empty it"
                    )
                _check_same(body["problem"], problem, self.directory)
                decided: dict[str, Any] = body["decided"]
                return decided
        self.clear()
        body = {"version": VERSION, "problem": problem, "decided": json.loads(json.dumps(dict(decide())))}
        write_arrays(path, body, {})
        return dict(body["decided"])

    def latest(self) -> tuple[Progress, dict[str, NDArray[Any]], bytes]:
        """Return the last progress that is whole, the arrays in it, and what a caller saved; the start otherwise."""
        for number in sorted(self._numbers("progress"), reverse=True):
            try:
                header, arrays = read_arrays(self._path("progress", number))
                progress = Progress(Direction(header["direction"]), header["step"], header["probes"], header["saved"])
                path = self._path("adjoint", number)
                data = path.read_bytes() if progress.saved else b""
                if progress.saved and checksum_of([data]) != progress.saved:
                    raise CorruptionError(f"{path} is not as it was written")
            except (CorruptionError, OSError, KeyError, TypeError, ValueError) as error:
                self._tell(error)
                continue
            return progress, arrays, data
        if self.damaged:
            self._tell(CorruptionError(f"no progress in {self.directory} is whole: starting anew"))
        return Progress(), {}, b""

    def keep(
        self, progress: Progress, arrays: Mapping[str, NDArray[Any]], save: Callable[[BinaryIO], None] | None
    ) -> None:
        """Write progress, and then remove what only the one before the last needed."""
        number = self._last + 1
        described = asdict(progress)
        if save is not None:
            path = self._path("adjoint", number)
            write_whole(path, save)
            described["saved"] = checksum_of([path.read_bytes()])
        write_arrays(self._path("progress", number), described, arrays)
        self._last = number
        for name in _KEPT:
            for old in self._numbers(name):
                if old < number - 1:
                    self._path(name, old).unlink(missing_ok=True)

    def progress_bytes(self) -> int:
        """Return the bytes that progress takes on the disk."""
        return sum(self._path(name, number).stat().st_size for name in _KEPT for number in self._numbers(name))

    def keep_state(self, step: int, arrays: Sequence[NDArray[Any]]) -> None:
        """Write the state at a step."""
        self._keep_step("state", step, arrays)

    def keep_record(self, step: int, arrays: Sequence[NDArray[Any]]) -> None:
        """Write what backward needs of a step."""
        self._keep_step("record", step, arrays)

    def state(self, step: int) -> list[NDArray[Any]] | None:
        """Read the state at a step; None where it is damaged, which is told."""
        return self._read_step("state", step)

    def record(self, step: int) -> list[NDArray[Any]] | None:
        """Read what backward needs of a step; None where it is damaged, which is told."""
        return self._read_step("record", step)

    def recorded(self) -> set[int]:
        """Return the steps of which there is what backward needs."""
        return set(self._numbers("record"))

    def record_bytes(self) -> int:
        """Return the bytes that records take on the disk."""
        return sum(self._path("record", step).stat().st_size for step in self._numbers("record"))

    def forget_steps(self, above: int) -> None:
        """Remove the states at steps above one, and the records of these steps."""
        for name in _OF_STEPS:
            for step in self._numbers(name):
                if step > above:
                    self._path(name, step).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything but the lock, the manifest last."""
        names = sorted((path.name for path in self.directory.iterdir()), key=lambda name: name == MANIFEST)
        for name in names:
            if name not in (LOCK, LOCK + OWNER) and _OURS.fullmatch(name):
                (self.directory / name).unlink()

    def close(self, finished: bool) -> None:
        """Let others in; what is finished leaves nothing behind."""
        if finished:
            self.clear()
            (self.directory / LOCK).unlink()
        self._lock.close()

    def _keep_step(self, name: str, step: int, arrays: Sequence[NDArray[Any]]) -> None:
        write_arrays(self._path(name, step), {"step": step}, {str(index): each for index, each in enumerate(arrays)})

    def _read_step(self, name: str, step: int) -> list[NDArray[Any]] | None:
        try:
            return list(read_arrays(self._path(name, step))[1].values())
        except CorruptionError as error:
            self._tell(error)
            return None

    def _path(self, name: str, number: int) -> Path:
        return self.directory / f"{name}-{number}"

    def _numbers(self, name: str) -> list[int]:
        names = (path.name.partition("-") for path in self.directory.iterdir())
        return [int(number) for start, _, number in names if start == name and number.isdigit()]

    def _tell(self, error: BaseException) -> None:
        self.damaged.append(str(error))
        logger.warning("%s", error)


def _check_same(before: Mapping[str, Any], now: Mapping[str, Any], directory: Path) -> None:
    """Refuse to go on with another reversal's progress."""
    for name in [*now, *(name for name in before if name not in now)]:
        if before.get(name) != now.get(name):
            said, asked = (_shortened(each.get(name)) for each in (before, now))
            raise PlanError(
                f"{directory} holds the progress of another reversal: its {name} was {said} and is {asked} now; "
                "call it as before, or name an empty directory"
            )


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
