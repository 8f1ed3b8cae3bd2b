"""Files of whole sectors: past the page cache, allocated before they are written, written over once dropped."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from forebay.tier.sectors import SECTOR, stage

_NO_FALLOCATE = {errno.EINVAL, errno.EOPNOTSUPP}


class File(NamedTuple):
    """A file of `room` bytes, a whole number of sectors."""

    path: Path
    room: int


def take_spare(spares: list[File], room: int) -> File | None:
    """Take the file that needs the least cutting to `room` bytes, or else the least growing."""
    best = min(spares, key=lambda file: (file.room < room, abs(file.room - room)), default=None)
    if best:
        spares.remove(best)
    return best


def trim(spares: list[File], limit: int) -> list[File]:
    """Take files away, smallest first, until those left have at most `limit` bytes; the caller deletes them."""
    spares.sort(key=lambda file: -file.room)
    trimmed, excess = [], bytes_of(spares) - limit
    while spares and excess > 0:
        trimmed.append(spares.pop())
        excess -= trimmed[-1].room
    return trimmed


def bytes_of(files: Iterable[File]) -> int:
    """Return the bytes that files take."""
    return sum(file.room for file in files)


def direct_flag(directory: Path) -> int:
    """Return the flag that opens files in `directory` past the page cache; 0 where its file system cannot."""
    probe = directory / "probe"
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600)
        try:
            os.pwrite(fd, stage(SECTOR).data, 0)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return 0
    finally:
        probe.unlink(missing_ok=True)
    return os.O_DIRECT


def resize(fd: int, old: int, new: int) -> None:
    """Cut a file, or allocate what it grows by: a full disk is found out here, before anything is written."""
    if new < old:
        os.ftruncate(fd, new)
    elif new > old:
        try:
            os.posix_fallocate(fd, old, new - old)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise
            os.ftruncate(fd, new)  # such a file system says that it is full when we write


def close(fd: int, *, writing: bool, direct: bool) -> None:
    """Close a file, and leave nothing of it in the page cache."""
    try:
        if not direct:
            if writing:
                os.fdatasync(fd)  # the cache lets go of clean pages only
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def delete(files: Iterable[File]) -> None:
    """Delete files; those already gone are no harm."""
    for file in files:
        file.path.unlink(missing_ok=True)
