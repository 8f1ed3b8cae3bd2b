"""The file that a disk tier keeps its snapshots in: without a name, so that it goes with the process that has it open.

However a process ends, the system closes its files, and a file without a name is gone when it is closed. So nothing is
ever left behind, nothing has to be swept, and nobody else can open, swap or delete what belongs to a run.
"""

import errno
import os
import secrets
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from forebay.errors import DiskError
from forebay.tier.sectors import SECTOR, stage
from forebay.tier.space import Extent

_NO_FALLOCATE = {errno.EINVAL, errno.EOPNOTSUPP}
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
"""What file systems say that have no files without a name; kernels that never heard of them say EISDIR."""


def check_platform() -> None:
    """Refuse the disk tier where the system has not what it needs."""
    if sys.platform != "linux":
        raise DiskError("the disk tier needs Linux, for O_DIRECT and fallocate: leave the disk out of the budget")


class SpillFile:
    """A file that has no name, and goes when it is closed.

    `open` is for a thread of its own: signals interrupt the main thread, at the worst after a file was opened and
    before anybody knows.
    """

    def __init__(self) -> None:
        self.fd, self.direct = -1, False
        self._closed, self._lock = False, threading.Lock()

    def open(self, directory: Path) -> None:
        """Open it in a directory, unless it was closed meanwhile."""
        fd, direct = open_unnamed(directory)
        with self._lock:
            if self._closed:
                os.close(fd)
            else:
                self.fd, self.direct = fd, direct

    def close(self) -> None:
        """Let go of it; again is no harm."""
        with self._lock:
            # Nothing is called before the system's own call, where a signal could come between.
            fd, self.fd, self._closed = self.fd, -1, True
            if fd >= 0:
                os.close(fd)

    def abandon(self) -> None:
        """Let go of it in a forked child, whoever had the lock."""
        self._lock = threading.Lock()
        self.close()


def open_unnamed(directory: Path) -> tuple[int, bool]:
    """Open a new file that has no name; tell whether it is read and written past the page cache."""
    try:
        place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fd = _unnamed(place)
        finally:
            os.close(place)
        try:
            return fd, _past_the_cache(fd)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise DiskError(
            f"cannot keep snapshots in {directory} ({error.strerror}): "
            "choose a directory on a local disk in which you may create files"
        ) from error


def _unnamed(place: int) -> int:
    """Open a file without a name in the directory that a descriptor stands for."""
    try:
        return os.open(".", os.O_RDWR | os.O_TMPFILE, 0o600, dir_fd=place)
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
    # Nobody can guess its name in the moment in which it has one, and a directory swapped meanwhile is not touched.
    name = f"forebay-{secrets.token_hex(16)}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=place)
    try:
        os.unlink(name, dir_fd=place)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _past_the_cache(fd: int) -> bool:
    """Have a file that is still empty moved past the page cache; tell whether its file system can do that."""
    import fcntl  # Linux and its relatives have it; see check_platform

    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        os.pwrite(fd, stage(SECTOR).data, 0)
        direct = True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        direct = False
    os.ftruncate(fd, 0)
    return direct


def allocate(fd: int, new: Extent) -> None:
    """Allocate what a file grows by: a full disk is found out here, before anything is written."""
    if new.nbytes:
        try:
            os.posix_fallocate(fd, new.offset, new.nbytes)
        except OSError as error:
            if error.errno not in _NO_FALLOCATE:
                raise  # others say that they are full when we write


def uncache(fd: int, ranges: Iterable[Extent], *, written: bool) -> None:
    """Leave nothing of a file in the page cache."""
    if written:
        os.fdatasync(fd)  # the cache lets go of clean pages only
    for each in ranges:
        os.posix_fadvise(fd, each.offset, each.nbytes, os.POSIX_FADV_DONTNEED)
