"""A run's own directory for snapshots: never shared, never left behind, swept by the next run after a crash."""

import os
import re
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from forebay.errors import DiskError

_NAME = re.compile(r"forebay-\d+-[0-9a-f]{8}")
_LOCK = "lock"


def claim(directory: Path) -> tuple[Path, BinaryIO]:
    """Make a new directory ``forebay-<pid>-<random>`` in `directory`; it is ours while the lock file stays open.

    The kernel lets go of the lock when the process dies, however it dies. A pid could not tell a dead run from a live
    one: pids are used again, and mean nothing to another machine that shares the disk.
    """
    try:
        while True:
            path = directory / f"forebay-{os.getpid()}-{secrets.token_hex(4)}"
            path.mkdir(mode=0o700)
            # Another run may sweep the directory before we hold the lock: then take another.
            with suppress(FileNotFoundError, BlockingIOError):
                lock = open(path / _LOCK, "wb")  # noqa: SIM115 - open for as long as the directory is ours
                _take(lock)
                if (path / _LOCK).exists():
                    return path, lock
    except OSError as error:
        raise DiskError(
            f"cannot keep snapshots in {directory} ({error.strerror}): "
            "choose a directory on a local disk in which you may create files"
        ) from error


def sweep(directory: Path) -> None:
    """Remove the directories of dead runs from `directory`; those of live runs and of other users stay."""
    for path in directory.iterdir():
        if not _NAME.fullmatch(path.name) or path.is_symlink():
            continue
        with suppress(OSError):
            try:
                lock = open(path / _LOCK, "rb+")  # noqa: SIM115 - closed below, once the directory is gone
            except FileNotFoundError:
                path.rmdir()  # died before it wrote anything: the lock file is the first in and the last out
                continue
            with lock:
                _take(lock)
                _delete(path)


def remove(path: Path, lock: BinaryIO, owner: int) -> None:
    """Remove a directory that `claim` made in process `owner`; again is no harm, and a forked child does nothing."""
    if os.getpid() == owner:
        with suppress(FileNotFoundError):
            _delete(path)
        lock.close()


def check_platform() -> None:
    """Refuse the disk tier where the system has not what it needs."""
    if sys.platform != "linux":
        raise DiskError(
            "the disk tier needs Linux, for O_DIRECT, file locks and fallocate: leave the disk out of the budget"
        )


def _take(lock: BinaryIO) -> None:
    """Take a lock that nobody holds, or raise BlockingIOError."""
    import fcntl  # Linux and its relatives have it; see check_platform

    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _delete(path: Path) -> None:
    # The lock goes last, so that whoever is killed in here leaves a directory that can still be told to be dead.
    for file in path.iterdir():
        if file.name != _LOCK:
            file.unlink(missing_ok=True)
    (path / _LOCK).unlink(missing_ok=True)
    path.rmdir()
