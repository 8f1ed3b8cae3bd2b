"""The disk tier: snapshots in files of a directory, moved by threads at the speed of the disk.

How, and why (measured on a virtual NVMe disk that writes 4 and reads 5 GB/s; `bench/loop_on_disk.py` times it anew):

- O_DIRECT, past the page cache. Buffered I/O reached half of that, unsteadily, and filled host memory that the user's
  budget needs. File systems without O_DIRECT get buffered I/O, and each file leaves the cache when its transfer ends.
- Chunks of 4 MiB by eight threads: a single snapshot gets the whole disk, and checksums and copies hide behind I/O.
- Buffers that start on a page are handed to the kernel as they are; others go through one aligned chunk per thread.
- Files are allocated before they are written: a full disk fails at once, not halfway.
- Files of dropped snapshots are written over by later ones. Deleting a file may take longer than writing it (with the
  discard option, 300 ms for 256 MB written in 70 ms) and slows every other transfer meanwhile.
"""

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError, CorruptionError, DiskError, DiskFullError, PlanError
from forebay.tier import files, rundir
from forebay.tier.capacity import disk_capacity
from forebay.tier.files import File
from forebay.tier.sectors import CHUNK, read_chunk, whole_sectors, write_chunk
from forebay.tier.transfer import Transfer, cancelled
from forebay.units import to_text

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(eq=False)
class _Snapshot:
    step: int
    size: int
    file: File
    """Its own file, or the dropped one that its write took over."""
    checksums: dict[int, bytes] = field(default_factory=dict)
    """Of every chunk, by number. In memory only: the files never outlive the process."""
    whole: bool = False
    """Whether its write has ended well."""
    readers: list[Transfer] = field(default_factory=list)
    """Reads that wait for the write to end."""
    users: int = 0
    """Transfers that have not ended; the file stays until there are none."""
    dropped: bool = False


class Disk:
    """A place for snapshots in a directory, of at most `capacity` bytes.

    A snapshot is a buffer of bytes known by its step. Transfers run in threads, in the order they were asked for; a
    read waits for the write of its snapshot. A buffer belongs to the disk until its future is done. Everything is
    removed by `close`, at the end of the process, or after a crash by the next `Disk` in the same directory.

    Buffers aligned to 4 KiB, such as ``np.frombuffer(mmap.mmap(-1, size), np.uint8)``, move without a copy; with others
    a machine of few cores may not keep up with a fast disk.

    Parameters
    ----------
    directory
        Where to keep the files: an existing directory on a fast local disk.
    capacity
        The most bytes to take there; every snapshot takes its size, rounded up to 4 KiB.
    threads
        Chunks in flight. Each thread holds 4 MiB of host memory once it has met a buffer not aligned to 4 KiB.

    Attributes
    ----------
    used
        Bytes that snapshots take on the disk now.
    peak
        The most bytes ever taken on the disk.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, Disk(directory, capacity=10**6) as disk:
    ...     disk.write(7, np.arange(5, dtype=np.uint8)).result()
    ...     out = np.empty(5, np.uint8)
    ...     disk.read(7, out).result()
    ...     print(out, disk.used)
    [0 1 2 3 4] 4096
    """

    def __init__(self, directory: Path | str, capacity: int, *, threads: int = 8) -> None:
        directory = Path(directory)
        if not directory.is_dir():
            raise DiskError(f"no directory {directory} to keep snapshots in: create it, or name one that exists")
        rundir.check_platform()
        rundir.sweep(directory)
        if capacity > (free := disk_capacity(directory).free):
            raise BudgetError(
                f"a disk budget of {to_text(capacity)}, but only {to_text(free)} are free in {directory}: "
                f"give a disk budget of at most {free} bytes, free some room, or choose another directory"
            )
        self.path, lock = rundir.claim(directory)
        self._remove = partial(rundir.remove, self.path, lock, os.getpid())
        self._finalizer = weakref.finalize(self, self._remove)
        self.capacity = capacity
        self.used = self.peak = 0
        self._promised = 0  # bytes of all snapshots not dropped, written or yet to be
        self._snapshots: dict[int, _Snapshot] = {}
        self._futures: set[Future[None]] = set()  # of transfers that have not ended
        self._spares: list[File] = []  # of dropped snapshots, to be written over
        self._waiting: deque[tuple[_Snapshot, Transfer]] = deque()  # writes that have no room yet
        self._closed = False
        self._lock = threading.Lock()
        self._names = count()
        self._direct = files.direct_flag(self.path)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="forebay-disk")

    def write(self, step: int, data: NDArray[Any] | memoryview | bytearray) -> "Future[None]":
        """Keep a snapshot; raises `BudgetError` at once where it would exceed the capacity."""
        buffer = np.frombuffer(data, np.uint8)
        room = whole_sectors(buffer.size)
        with self._lock:
            self._check_open()
            if step in self._snapshots:
                raise PlanError(f"step {step} is on the disk already: drop it before it is written again")
            if (needed := self._promised + room) > self.capacity:
                raise BudgetError(
                    f"step {step} takes {room} bytes where {self._promised} of the disk budget of {self.capacity} are "
                    f"taken: drop snapshots first, or give a disk budget of at least {needed} bytes"
                )
            snapshot = _Snapshot(step, buffer.size, File(self.path / f"{next(self._names)}.snapshot", room))
            transfer = self._transfer(snapshot, buffer, self._write_chunk, self._written, writing=True)
            self._snapshots[step] = snapshot
            self._promised = needed
            self._waiting.append((snapshot, transfer))
            self._start_writes()
        return transfer.future

    def read(self, step: int, out: NDArray[Any] | memoryview | bytearray) -> "Future[None]":
        """Fill `out` with a snapshot; the future raises `CorruptionError` where it is not what was written."""
        buffer = np.frombuffer(out, np.uint8)
        with self._lock:
            snapshot = self._find(step)
            if buffer.size != snapshot.size or not buffer.flags.writeable:
                raise PlanError(f"step {step} has {snapshot.size} bytes: read it into a writable buffer of that size")
            transfer = self._transfer(snapshot, buffer, self._read_chunk, self._read, writing=False)
            if not snapshot.whole:
                snapshot.readers.append(transfer)
                return transfer.future
        transfer.start(self._pool, partial(self._open_to_read, snapshot))
        return transfer.future

    def drop(self, step: int) -> None:
        """Forget a snapshot and free its room; what was asked of it before is still carried out."""
        with self._lock:
            snapshot = self._find(step)
            self._forget(snapshot)
            self._free(snapshot)

    @property
    def spare(self) -> int:
        """Bytes of dropped files kept to be written over; they never make the disk fuller than `peak`."""
        return files.bytes_of(self._spares)

    def __contains__(self, step: int) -> bool:
        return step in self._snapshots

    def close(self) -> None:
        """Cancel what has not been moved, wait for what is moving, and remove every file; again is no harm."""
        with self._lock:
            self._closed = True
            waiting = [*self._waiting]
            self._waiting.clear()
        for _, transfer in waiting:
            transfer.fail(cancelled())
        try:
            wait([*self._futures])
        finally:
            # Tasks in the queue see that we are closed, and return: after Ctrl-C, too, all end within a chunk. We wait
            # for futures because a join that Ctrl-C ends takes running threads for dead (in CPython before 3.13).
            wait([*self._futures])
            self._pool.shutdown()
            self._remove()
            self._finalizer.detach()  # only now: a removal that Ctrl-C ends is tried again at exit
            self._snapshots.clear()
            self._spares.clear()
            self.used = self._promised = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Bookkeeping: the lock is held.

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("the disk tier is closed: make a new one")

    def _find(self, step: int) -> _Snapshot:
        self._check_open()
        if step not in self._snapshots:
            raise PlanError(f"step {step} is not on the disk (never written, dropped, or its write failed)")
        return self._snapshots[step]

    def _transfer(
        self,
        snapshot: _Snapshot,
        data: NDArray[np.uint8],
        move: Callable[[_Snapshot, int, NDArray[np.uint8], int], None],
        tell: Callable[[_Snapshot, BaseException | None], BaseException | None],
        *,
        writing: bool,
    ) -> Transfer:
        close_file = partial(files.close, writing=writing, direct=bool(self._direct))
        transfer = Transfer(data, partial(move, snapshot), close_file, partial(tell, snapshot))
        snapshot.users += 1
        self._futures.add(transfer.future)
        transfer.future.add_done_callback(self._futures.discard)
        return transfer

    def _start_writes(self) -> None:
        """Start waiting writes, first come first served, as far as there is room on the disk.

        The first always gets its room in the end: it was let in because the snapshots not dropped left room for it, so
        what it lacks is held by transfers of dropped ones, and those wait for nothing that came later.
        """
        while self._waiting and self.used + self._waiting[0][0].file.room <= self.capacity:
            snapshot, transfer = self._waiting.popleft()
            path, room = snapshot.file
            self.used += room
            self.peak = max(self.peak, self.used)
            spare = files.take_spare(self._spares, room) or File(path, 0)
            snapshot.file = File(spare.path, room)
            unneeded = files.trim(self._spares, self.peak - self.used)
            transfer.start(self._pool, partial(self._open_to_write, snapshot, spare.room, unneeded))

    def _forget(self, snapshot: _Snapshot) -> None:
        snapshot.dropped = True
        self._promised -= snapshot.file.room
        del self._snapshots[snapshot.step]

    def _free(self, snapshot: _Snapshot) -> None:
        """Free the room of a dropped snapshot once nobody uses it."""
        if snapshot.dropped and not snapshot.users and not self._closed:
            self.used -= snapshot.file.room
            if snapshot.whole:
                self._spares.append(snapshot.file)
            self._start_writes()

    # What the threads do: the lock is free.

    def _open_to_write(self, snapshot: _Snapshot, old: int, unneeded: list[File]) -> int:
        """Open the file and make it, of `old` bytes, as large as the snapshot."""
        self._check_moving()
        files.delete(unneeded)
        fd = os.open(snapshot.file.path, os.O_WRONLY | os.O_CREAT | self._direct, 0o600)
        try:
            try:
                files.resize(fd, old, snapshot.file.room)
            except OSError:
                with self._lock:
                    unneeded = files.trim(self._spares, 0)
                files.delete(unneeded)  # others have filled the disk: give back what is kept for speed only
                files.resize(fd, old, snapshot.file.room)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _open_to_read(self, snapshot: _Snapshot) -> int:
        self._check_moving()
        fd = os.open(snapshot.file.path, os.O_RDONLY | self._direct)
        if (size := os.fstat(fd).st_size) != snapshot.file.room:
            os.close(fd)
            raise _corruption(snapshot, f"it has {size} bytes instead of {snapshot.file.room}")
        return fd

    def _write_chunk(self, snapshot: _Snapshot, fd: int, part: NDArray[np.uint8], number: int) -> None:
        self._check_moving()
        snapshot.checksums[number] = write_chunk(fd, part, number * CHUNK)

    def _read_chunk(self, snapshot: _Snapshot, fd: int, part: NDArray[np.uint8], number: int) -> None:
        self._check_moving()
        if not read_chunk(fd, part, number * CHUNK, snapshot.checksums[number]):
            raise _corruption(
                snapshot, f"something from byte {number * CHUNK} to {number * CHUNK + part.size} has changed"
            )

    def _check_moving(self) -> None:
        if self._closed:
            raise cancelled()

    def _written(self, snapshot: _Snapshot, error: BaseException | None) -> BaseException | None:
        if error:
            error = _explained(error, snapshot)
            files.delete([snapshot.file])
        with self._lock:
            snapshot.users -= 1
            snapshot.whole = not error
            readers, snapshot.readers = snapshot.readers, []
            if error and not snapshot.dropped:
                self._forget(snapshot)
            self._free(snapshot)
        for reader in readers:
            if error:
                reader.fail(error)
            else:
                reader.start(self._pool, partial(self._open_to_read, snapshot))
        return error

    def _read(self, snapshot: _Snapshot, error: BaseException | None) -> BaseException | None:
        with self._lock:
            snapshot.users -= 1
            self._free(snapshot)
        return error and _explained(error, snapshot)


def _explained(error: BaseException, snapshot: _Snapshot) -> BaseException:
    """Say in our words what the operating system means."""
    if isinstance(error, FileNotFoundError):
        explained: DiskError = _corruption(snapshot, "the file is gone")
    elif isinstance(error, OSError) and error.errno in _FULL:
        explained = DiskFullError(
            f"no room on the disk for step {snapshot.step} ({snapshot.file.room} bytes in {snapshot.file.path.parent}: "
            f"{error.strerror}): free some room there, give a smaller disk budget, or choose another directory; "
            "the snapshots written before are whole"
        )
    else:
        return error
    explained.__cause__ = error
    return explained


def _corruption(snapshot: _Snapshot, what: str) -> CorruptionError:
    return CorruptionError(
        f"the snapshot of step {snapshot.step} in {snapshot.file.path} is not what was written: {what}. "
        "Let no other program touch that directory, check the disk, and run again, with another directory if need be"
    )
