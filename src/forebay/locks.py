"""Locks of directories: one process at a time works in one, and a dead one stands in nobody's way.

On disks of this computer the kernel keeps the lock, and lets go of it when the process dies, however it dies. On disks
that several computers share, kernels may each keep locks of their own. There a file says who works in the directory:
its computer, process, and when both were started. Who finds one of the same computer can tell whether it lives.
"""

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from forebay.errors import DiskError
from forebay.files import unfinished_name
from forebay.filesystems import keeps_locks
from forebay.forking import leave_to_parent

OWNER = ".owner"
"""How the name of the file ends that says who has a lock."""
_SIZE = 4096


@dataclass(frozen=True)
class LockOwner:
    """A process, among all of all computers."""

    host: str
    boot: str
    """of the computer, new at each start"""
    process: int
    started: str
    """by the clock of the computer's kernel: a number is given to another process one day, not with the same time"""
    numbered: str
    """the container in which the process has its number"""


def this_process() -> LockOwner:
    """Return who we are."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return LockOwner(socket.gethostname(), _boot(), os.getpid(), _started(os.getpid()) or "", namespace)


class DirectoryLock:
    """A lock that is held; `close` lets go of it.

    Parameters
    ----------
    path
        Of the file that is locked: made where it is not there, with its owner's rights alone.
    trusted
        ``trusted(directory)`` tells whether the kernel's lock alone is enough there.
    """

    def __init__(self, path: Path, trusted: Callable[[Path], bool] = keeps_locks) -> None:
        self._file: BinaryIO | None = None
        self._owner: Path | None = None
        shared = not trusted(path.parent)
        self._file = _locked(path, shared)
        leave_to_parent(self)
        if shared:
            try:
                _own(path.with_name(path.name + OWNER))
            except BaseException:
                self.close()
                raise
            self._owner = path.with_name(path.name + OWNER)

    def close(self) -> None:
        """Let go of it; again is no harm."""
        if self._owner is not None:
            self._owner.unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """Let go of the parent's lock in a forked child, so that it ends with the parent."""
        if self._file is not None:
            self._file.close()
        self._file = self._owner = None


def _locked(path: Path, shared: bool) -> BinaryIO:
    """Take the kernel's lock; on a file system that has none, go without where another will be taken."""
    try:
        import fcntl
    except ImportError as error:
        raise DiskError("this needs file locks as Linux and macOS have them: leave it out here") from error
    while True:
        try:
            opened = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            why = "it is a link" if path.is_symlink() else error.strerror
            raise DiskError(f"{path} cannot be locked ({why}): remove it, or name another directory") from error
        lock = open(opened, "rb+")  # noqa: SIM115 - while it is held
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise DiskError(
                f"another run works in {path.parent}: wait for its end, or name another directory"
            ) from None
        except OSError as error:
            if not shared:
                lock.close()
                raise DiskError(
                    f"{path.parent} has no file locks ({error.strerror}): name another directory"
                ) from error
            return lock
        with suppress(FileNotFoundError):  # who had it before may have removed it as its last deed
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(path)):
                return lock
        lock.close()


def _own(path: Path) -> None:
    """Write down that a directory is ours; refuse one whose owner lives, or may live for all that we can tell."""
    ours = unfinished_name(path)
    try:
        _write_new(ours)
        while True:
            with suppress(FileExistsError):
                try:
                    os.link(ours, path)  # whole: who dies before leaves no owner
                except FileExistsError:
                    raise
                except OSError:  # a file system without links
                    _write_new(path)
                return
            with suppress(FileNotFoundError):  # its owner has just gone
                dead = path.read_bytes()[:_SIZE]
                _check_dead(dead, path)
                # Others may have found the same: what is taken away here must be what was found.
                aside = unfinished_name(path)
                path.rename(aside)
                if aside.read_bytes() != dead:
                    with suppress(FileExistsError):
                        os.link(aside, path)
                aside.unlink()
    finally:
        ours.unlink(missing_ok=True)


def _write_new(path: Path) -> None:
    """Write who we are into a file that is not there yet."""
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(json.dumps(asdict(this_process())))


def _check_dead(text: bytes, path: Path) -> None:
    """Raise unless a text names a process of this computer that is no more."""
    try:
        owner = LockOwner(**json.loads(text))
    except (ValueError, TypeError):
        raise DiskError(
            f"{path} is damaged, so that nobody can tell who works in {path.parent}: remove it if nobody does"
        ) from None
    here = this_process()
    if (owner.host, owner.numbered) != (here.host, here.numbered):
        raise DiskError(
            f"process {owner.process} of {owner.host} works in {path.parent}, or died there: see on {owner.host} "
            f"whether `ps -p {owner.process}` shows it; wait for its end, name another directory, or remove {path} if "
            "it is dead"
        )
    if owner.boot == here.boot and _started(owner.process) == owner.started:
        raise DiskError(
            f"another run works in {path.parent}, process {owner.process}: wait for its end, or name another directory"
        )


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _started(process: int) -> str | None:
    """Return when a process was started, in the kernel's ticks; None where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
