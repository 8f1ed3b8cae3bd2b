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

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError, CorruptionError, DiskError, DiskFullError, PlanError
from forebay.files import FULL
from forebay.forking import leave_to_parent
from forebay.tasks import ThreadTask, Workers
from forebay.tier import files
from forebay.tier.capacity import check_spills
from forebay.tier.files import SpillFile
from forebay.tier.sectors import CHUNK, read_chunk, whole_sectors, write_chunk
from forebay.tier.space import Extent, FilePiece, FileSpace, pieces
from forebay.tier.transfer import cancelled, run_all

THREADS = 8
"""Chunks in flight. A thread holds 4 MiB of host memory once it has met a buffer not aligned to 4 KiB."""


@dataclass(eq=False)
class _Snapshot:
    step: int
    size: int
    ranges: list[Extent]
    """Where it lies."""
    checksums: dict[int, bytes] = field(default_factory=dict)
    """Of every piece, by where it starts. In memory only: the file never outlives the process."""
    transfers: list[ThreadTask[None]] = field(default_factory=list)
    """Its write, and its reads."""

    @property
    def room(self) -> int:
        """Bytes that it takes on the disk: whole sectors."""
        return whole_sectors(self.size)


class Disk:
    """A place for snapshots in a directory, of at most `capacity` bytes.

    A snapshot is a buffer of bytes known by its step. Transfers run in threads, in the order they were asked for. A
    snapshot is read once its write has ended, and dropped once nothing is under way with it: the lanes of a machine
    see to that, and what comes too early is refused. A buffer belongs to the disk until its future is done. Everything
    is gone with `close`, or with the process, however it ends.

    Buffers aligned to 4 KiB, such as ``np.frombuffer(mmap.mmap(-1, size), np.uint8)``, move without a copy; with others
    a machine of few cores may not keep up with a fast disk.

    Parameters
    ----------
    directory
        Where to keep the file: an existing directory on a fast local disk.
    capacity
        The most bytes to take there; every snapshot takes its size, rounded up to 4 KiB.
    beside
        Bytes of host memory that are not in use yet and will be: they count where the directory is memory.

    Attributes
    ----------
    used
        Bytes that snapshots take on the disk now.

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

    def __init__(self, directory: Path | str, capacity: int, *, beside: int = 0) -> None:
        directory = Path(directory)
        if not directory.is_dir():
            raise DiskError(f"no directory {directory} to keep snapshots in: create it, or name one that exists")
        files.check_platform()
        check_spills(directory, capacity, beside)
        self.directory = directory
        self._file = SpillFile()
        weakref.finalize(self, self._file.close)
        self.capacity = capacity
        self.used = 0
        self._snapshots: dict[int, _Snapshot] = {}
        self._space = FileSpace()
        self._closed = False
        self._lock = threading.Lock()
        self._pool = Workers(THREADS, "forebay-disk")
        leave_to_parent(self)
        try:
            self._pool.submit(self._file.open, directory).result()
        except BaseException:
            self._file.close()
            self._pool.close()
            raise

    def write(self, step: int, data: NDArray[Any] | memoryview | bytearray) -> ThreadTask[None]:
        """Keep a snapshot; raises at once where it would exceed the capacity, or the disk is too full to hold it."""
        buffer = np.frombuffer(data, np.uint8)
        with self._lock:
            self._check_open()
            if step in self._snapshots:
                raise PlanError(f"step {step} is on the disk already: drop it before it is written again")
            room = whole_sectors(buffer.size)
            if (needed := self.used + room) > self.capacity:
                raise BudgetError(
                    f"step {step} takes {room} bytes where {self.used} of the disk budget of {self.capacity} are "
                    f"taken: drop snapshots first, or give a disk budget of at least {needed} bytes"
                )
            ranges, grown = self._space.take(room)
            snapshot = _Snapshot(step, buffer.size, ranges)
            try:
                files.allocate(self._file.fd, grown)
            except OSError as error:
                self._space.give(ranges)
                raise _explained(error, snapshot, self.directory)  # noqa: B904, it has its cause
            self._snapshots[step] = snapshot
            self.used = needed
            return self._transfer(snapshot, partial(self._write_piece, snapshot, buffer), written=True)

    def read(self, step: int, out: NDArray[Any] | memoryview | bytearray) -> ThreadTask[None]:
        """Fill `out` with a snapshot; the future raises `CorruptionError` where it is not what was written."""
        buffer = np.frombuffer(out, np.uint8)
        with self._lock:
            snapshot = self._find(step)
            written = snapshot.transfers[0]
            if not written.done():
                raise PlanError(f"step {step} is still being written: read it once that has ended")
            written.result()
            if buffer.size != snapshot.size or not buffer.flags.writeable:
                raise PlanError(f"step {step} has {snapshot.size} bytes: read it into a writable buffer of that size")
            return self._transfer(snapshot, partial(self._read_piece, snapshot, buffer), written=False)

    def drop(self, step: int) -> None:
        """Forget a snapshot, whether its write failed or not, and free its room."""
        with self._lock:
            snapshot = self._find(step)
            if not all(transfer.done() for transfer in snapshot.transfers):
                raise PlanError(f"step {step} is still being moved: drop it once that has ended")
            del self._snapshots[step]
            self.used -= snapshot.room
            self._space.give(snapshot.ranges)

    def close(self) -> None:
        """Cancel what has not been moved, wait for what is moving, and let go of the file; again is no harm."""
        with self._lock:
            self._closed = True
            moving = [transfer for snapshot in self._snapshots.values() for transfer in snapshot.transfers]
        try:
            _wait(moving)
        finally:
            # Tasks in the queue see that we are closed, and return: after Ctrl-C, too, all end within a chunk. We wait
            # for tasks because a join that Ctrl-C ends takes running threads for dead (in CPython before 3.13).
            _wait(moving)
            try:
                self._pool.close()
            finally:
                self._file.close()
            self._snapshots.clear()
            self.used = 0

    def abandon(self) -> None:
        """Let go of the file in a forked child: it is the parent's, which keeps it, and so are the threads."""
        self._closed, self._lock, self._pool = True, threading.Lock(), Workers(1, "forebay-disk")
        self._snapshots = {}
        self._file.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # The lock is held.

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("the disk tier is closed: make a new one")

    def _find(self, step: int) -> _Snapshot:
        self._check_open()
        if step not in self._snapshots:
            raise PlanError(f"step {step} is not on the disk: it was never written, or it was dropped")
        return self._snapshots[step]

    def _transfer(self, snapshot: _Snapshot, move: Callable[[FilePiece], None], *, written: bool) -> ThreadTask[None]:
        tasks = [partial(move, piece) for piece in pieces(snapshot.ranges, snapshot.size, CHUNK)]
        transfer = run_all(self._pool, tasks, partial(self._ended, snapshot, written))
        snapshot.transfers.append(transfer)
        return transfer

    # What the threads do: the lock is free, or another thread's.

    def _write_piece(self, snapshot: _Snapshot, data: NDArray[np.uint8], piece: FilePiece) -> None:
        self._check_moving()
        snapshot.checksums[piece.start] = write_chunk(self._file.fd, data[piece.start : piece.stop], piece.offset)

    def _read_piece(self, snapshot: _Snapshot, out: NDArray[np.uint8], piece: FilePiece) -> None:
        self._check_moving()
        if not read_chunk(self._file.fd, out[piece.start : piece.stop], piece.offset, snapshot.checksums[piece.start]):
            raise CorruptionError(
                f"the snapshot of step {snapshot.step} in {self.directory} is not what was written: something from "
                f"byte {piece.start} to {piece.stop} has changed. Check the disk, and run again, with another "
                "directory if need be"
            )

    def _check_moving(self) -> None:
        if self._closed:
            raise cancelled()

    def _ended(self, snapshot: _Snapshot, written: bool, error: BaseException | None) -> BaseException | None:
        """Leave nothing in the page cache, and say in our words what went wrong."""
        try:
            if error is None and not self._file.direct:
                files.uncache(self._file.fd, snapshot.ranges, written=written)
        except OSError as failure:
            error = failure
        return error and _explained(error, snapshot, self.directory)


def _wait(transfers: list[ThreadTask[None]]) -> None:
    """Wait for the end of transfers, whatever it is."""
    for transfer in transfers:
        transfer.exception()


def _explained(error: BaseException, snapshot: _Snapshot, directory: Path) -> BaseException:
    """Say in our words what the operating system means."""
    if not isinstance(error, OSError) or isinstance(error, DiskError):
        return error
    if error.errno not in FULL:
        failed = DiskError(
            f"the disk of {directory} failed at step {snapshot.step} ({error.strerror}): look at it, or choose another "
            "directory"
        )
        failed.__cause__ = error
        return failed
    explained = DiskFullError(
        f"no room on the disk for step {snapshot.step} ({snapshot.room} bytes in {directory}: "
        f"{error.strerror}): free some room there, give a smaller disk budget, or choose another directory; "
        "the snapshots written before are whole"
    )
    explained.__cause__ = error
    return explained
