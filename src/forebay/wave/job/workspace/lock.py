"""Who may work in the directory of a job: one run at a time."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from forebay.errors import DiskError, WaveError
from forebay.locks import DirectoryLock


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
