"""What an inversion has computed, kept on the disk: the same call finds it there, and goes on where a dead one ended.

A search is a function of what it is told of misfits. So nothing of the search itself is kept: it is run again, and is
told what it was told before, until it asks for something new.
"""

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forebay.errors import CorruptionError, WaveError
from forebay.files import remove_unfinished, whole
from forebay.locks import DirectoryLock
from forebay.wave.files.seal import open_archive, seal_archive

Kept = dict[str, NDArray[np.float64]]
FIRST = "inversion"
"""The name of what tells which inversion a directory belongs to."""


class EvaluationLedger:
    """Arrays by name, in a directory of an inversion's own; without a directory nothing is kept.

    Parameters
    ----------
    directory
        Made where it is not there.
    inversion
        A checksum of all that the inversion follows from: a directory of another one is refused.
    """

    def __init__(self, directory: Path | None, inversion: str) -> None:
        self._directory, self._inversion = directory, inversion
        self._lock: DirectoryLock | None = None
        self.notes: list[str] = []
        if directory is None:
            return
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = DirectoryLock(directory / ".lock")
        try:
            remove_unfinished(directory)
            self._check_whose(directory)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others work in the directory."""
        if self._lock is not None:
            self._lock.close()

    def _check_whose(self, directory: Path) -> None:
        listed = sorted(directory.glob("*.npz"))
        first = directory / f"{FIRST}.npz"
        if not listed:
            self.keep(FIRST, {}, "")
        elif not first.exists() or self.find(FIRST, "") is None:
            raise WaveError(
                f"{directory} does not hold this inversion, of these shots, this model and these options: go on with "
                f"those that it holds, or name another directory ({'; '.join(self.notes) or f'no {FIRST}.npz'})"
            )

    def find(self, name: str, of: str) -> Kept | None:
        """Return what is kept under a name if it was computed of the same; what is damaged is told and left out."""
        if self._directory is None:
            return None
        path = self._directory / f"{name}.npz"
        if not path.exists():
            return None
        try:
            open_archive(path, inversion=self._inversion, what=name, of=of)
            with np.load(path) as archive:
                return {key: archive[key] for key in archive.files}
        except (CorruptionError, OSError, ValueError, zipfile.BadZipFile) as error:
            self.notes.append(f"computed again: {error}")
            return None

    def keep(self, name: str, arrays: Kept, of: str) -> None:
        """Keep arrays under a name, whole or not at all."""
        if self._directory is None:
            return
        with whole(self._directory / f"{name}.npz") as unfinished:
            with unfinished.open("wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
            seal_archive(unfinished, inversion=self._inversion, what=name, of=of)

    def once(self, name: str, of: str, compute: Callable[[], Kept]) -> Kept:
        """Return what is kept under a name, or compute and keep it."""
        found = self.find(name, of)
        if found is None:
            found = compute()
            self.keep(name, found, of)
        return found

    def forget(self, pattern: str) -> None:
        """Remove what is kept under names of a pattern."""
        for path in self._directory.glob(f"{pattern}.npz") if self._directory is not None else ():
            path.unlink()
