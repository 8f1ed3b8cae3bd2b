"""The disk tier: snapshots in a file of a directory, moved by threads at the speed of the disk.

How, and why (measured on a virtual NVMe disk that writes 4 and reads 5 GB/s; `bench/loop_on_disk.py` times it anew):

- O_DIRECT, past the page cache. Buffered I/O reached half of that, unsteadily, and filled host memory that the user's
  budget needs. File systems without O_DIRECT get buffered I/O, and what was moved leaves the cache at its end.
- Chunks of 4 MiB by eight threads: a single snapshot gets the whole disk, and checksums and copies hide behind I/O.
- Buffers that start on a page are handed to the kernel as they are; others go through one aligned chunk per thread.
- One file, which has no name: a process that is killed leaves nothing, and nobody else can touch it. One descriptor
  serves any number of snapshots.
- The file is allocated before it is written: a full disk fails at once, not halfway.
- The room of dropped snapshots is written over by later ones. Deleting files may take longer than writing them (with
  the discard option, 300 ms for 256 MB written in 70 ms) and slows every other transfer meanwhile.
"""

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError, CorruptionError, DiskError, DiskFullError, PlanError
from forebay.forking import leave_to_parent
from forebay.tier import files
from forebay.tier.capacity import check_spills
from forebay.tier.files import SpillFile
from forebay.tier.sectors import CHUNK, read_chunk, whole_sectors, write_chunk
from forebay.tier.space import FilePiece, FileRange, FileSpace, pieces
from forebay.tier.transfer import Transfer, cancelled

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(eq=False)
class _Snapshot:
    step: int
    size: int
    room: int
    """Bytes that it takes on the disk: whole sectors."""
    ranges: list[FileRange] = field(default_factory=list)
    """Where it lies, from when its write starts."""
    checksums: dict[int, bytes] = field(default_factory=dict)
    """Of every piece, by where it starts. In memory only: the file never outlives the process."""
    whole: bool = False
    """Whether its write has ended well."""
    readers: list[Transfer] = field(default_factory=list)
    """Reads that wait for the write to end."""
    users: int = 0
    """Transfers that have not ended; its room stays taken until there are none."""
    dropped: bool = False


class Disk:
    """A place for snapshots in a directory, of at most `capacity` bytes.

    A snapshot is a buffer of bytes known by its step. Transfers run in threads, in the order they were asked for; a
    read waits for the write of its snapshot. A buffer belongs to the disk until its future is done. Everything is gone
    with `close`, or with the process, however it ends.

    Buffers aligned to 4 KiB, such as ``np.frombuffer(mmap.mmap(-1, size), np.uint8)``, move without a copy; with others
    a machine of few cores may not keep up with a fast disk.

    Parameters
    ----------
    directory
        Where to keep the file: an existing directory on a fast local disk.
    capacity
        The most bytes to take there; every snapshot takes its size, rounded up to 4 KiB.
    threads
        Chunks in flight. Each thread holds 4 MiB of host memory once it has met a buffer not aligned to 4 KiB.
    beside
        Bytes of host memory that are not in use yet and will be: they count where the directory is memory.

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

    def __init__(self, directory: Path | str, capacity: int, *, threads: int = 8, beside: int = 0) -> None:
        directory = Path(directory)
        if not directory.is_dir():
            raise DiskError(f"no directory {directory} to keep snapshots in: create it, or name one that exists")
        files.check_platform()
        check_spills(directory, capacity, beside)
        self.directory = directory
        self._file = SpillFile()
        self._finalizer = weakref.finalize(self, self._file.close)
        self.capacity = capacity
        self.used = self.peak = 0
        self._promised = 0  # bytes of all snapshots not dropped, written or yet to be
        self._snapshots: dict[int, _Snapshot] = {}
        self._futures: set[Future[None]] = set()  # of transfers that have not ended
        self._space = FileSpace()
        self._waiting: deque[tuple[_Snapshot, Transfer]] = deque()  # writes that have no room yet
        self._closed = False
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="forebay-disk")
        try:
            self._pool.submit(self._file.open, directory).result()
        except BaseException:
            self._pool.shutdown()
            self._file.close()
            raise
        leave_to_parent(self)

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
            snapshot = _Snapshot(step, buffer.size, room)
            transfer = self._transfer(snapshot, partial(self._write_piece, snapshot, buffer), self._written, True)
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
            transfer = self._transfer(snapshot, partial(self._read_piece, snapshot, buffer), self._read, False)
            if not snapshot.whole:
                snapshot.readers.append(transfer)
                return transfer.future
        transfer.start(self._pool, partial(self._pieces, snapshot))
        return transfer.future

    def drop(self, step: int) -> None:
        """Forget a snapshot and free its room; what was asked of it before is still carried out."""
        with self._lock:
            snapshot = self._find(step)
            self._forget(snapshot)
            self._free(snapshot)

    @property
    def spare(self) -> int:
        """Bytes of dropped snapshots kept to be written over; they never make the disk fuller than `peak`."""
        return self._space.free

    def __contains__(self, step: int) -> bool:
        return step in self._snapshots

    def close(self) -> None:
        """Cancel what has not been moved, wait for what is moving, and let go of the file; again is no harm."""
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
            try:
                self._pool.shutdown()
            finally:
                self._finalizer()
            self._snapshots.clear()
            self._space = FileSpace()
            self.used = self._promised = 0

    def abandon(self) -> None:
        """Let go of the file in a forked child: it is the parent's, which keeps it, and so are the threads."""
        self._closed, self._lock, self._pool = True, threading.Lock(), ThreadPoolExecutor(1)
        self._futures, self._waiting = set(), deque()
        self._finalizer.detach()
        self._file.abandon()

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
        move: Callable[[FilePiece], None],
        tell: Callable[[_Snapshot, BaseException | None], BaseException | None],
        written: bool,
    ) -> Transfer:
        transfer = Transfer(move, partial(self._uncache, snapshot, written), partial(tell, snapshot))
        snapshot.users += 1
        self._futures.add(transfer.future)
        transfer.future.add_done_callback(self._futures.discard)
        return transfer

    def _start_writes(self) -> None:
        """Start waiting writes, first come first served, as far as there is room on the disk.

        The first always gets its room in the end: it was let in because the snapshots not dropped left room for it, so
        what it lacks is held by transfers of dropped ones, and those wait for nothing that came later.
        """
        while self._waiting and self.used + self._waiting[0][0].room <= self.capacity:
            snapshot, transfer = self._waiting.popleft()
            self.used += snapshot.room
            self.peak = max(self.peak, self.used)
            snapshot.ranges, grown = self._space.take(snapshot.room)
            transfer.start(self._pool, partial(self._allocated, snapshot, grown))

    def _forget(self, snapshot: _Snapshot) -> None:
        snapshot.dropped = True
        self._promised -= snapshot.room
        del self._snapshots[snapshot.step]

    def _free(self, snapshot: _Snapshot) -> None:
        """Free the room of a dropped snapshot once nobody uses it."""
        if snapshot.dropped and not snapshot.users and not self._closed:
            self.used -= snapshot.room
            self._space.give(snapshot.ranges)
            if not snapshot.whole:  # others may have filled the disk: give back what is kept for speed only
                with suppress(OSError):
                    os.ftruncate(self._file.fd, self._space.trim())
            self._start_writes()

    # What the threads do: the lock is free.

    def _allocated(self, snapshot: _Snapshot, grown: FileRange) -> Iterable[FilePiece]:
        """Make the file as large as a snapshot needs it, and return where that lies."""
        self._check_moving()
        files.allocate(self._file.fd, grown)
        return self._pieces(snapshot)

    def _pieces(self, snapshot: _Snapshot) -> Iterable[FilePiece]:
        return pieces(snapshot.ranges, snapshot.size, CHUNK)

    def _write_piece(self, snapshot: _Snapshot, data: NDArray[np.uint8], piece: FilePiece) -> None:
        self._check_moving()
        snapshot.checksums[piece.start] = write_chunk(self._file.fd, data[piece.start : piece.stop], piece.offset)

    def _read_piece(self, snapshot: _Snapshot, out: NDArray[np.uint8], piece: FilePiece) -> None:
        self._check_moving()
        if not read_chunk(self._file.fd, out[piece.start : piece.stop], piece.offset, snapshot.checksums[piece.start]):
            raise _corruption(
                snapshot, self.directory, f"something from byte {piece.start} to {piece.stop} has changed"
            )

    def _uncache(self, snapshot: _Snapshot, written: bool) -> None:
        if not self._file.direct:
            files.uncache(self._file.fd, snapshot.ranges, written=written)

    def _check_moving(self) -> None:
        if self._closed:
            raise cancelled()

    def _written(self, snapshot: _Snapshot, error: BaseException | None) -> BaseException | None:
        if error:
            error = _explained(error, snapshot, self.directory)
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
                reader.start(self._pool, partial(self._pieces, snapshot))
        return error

    def _read(self, snapshot: _Snapshot, error: BaseException | None) -> BaseException | None:
        with self._lock:
            snapshot.users -= 1
            self._free(snapshot)
        return error and _explained(error, snapshot, self.directory)


def _explained(error: BaseException, snapshot: _Snapshot, directory: Path) -> BaseException:
    """Say in our words what the operating system means."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return error
    explained = DiskFullError(
        f"no room on the disk for step {snapshot.step} ({snapshot.room} bytes in {directory}: "
        f"{error.strerror}): free some room there, give a smaller disk budget, or choose another directory; "
        "the snapshots written before are whole"
    )
    explained.__cause__ = error
    return explained


def _corruption(snapshot: _Snapshot, directory: Path, what: str) -> CorruptionError:
    return CorruptionError(
        f"the snapshot of step {snapshot.step} in {directory} is not what was written: {what}. "
        "Check the disk, and run again, with another directory if need be"
    )
