"""The machine for host arrays: the caller's thread computes, one thread a lane moves snapshots to and from disk."""

import mmap
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import BudgetError
from forebay.machine.machine import Coded, Encoding, Move, Pair, ReversalMachine, TensorMachine, Timed, Wait
from forebay.machine.packing import in_a_row, snapshot_bytes
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec
from forebay.machine.threads import LaneThreads
from forebay.metrics import Metrics
from forebay.tasks import ThreadTask
from forebay.tier.disk import Disk
from forebay.units import to_text

DONE: ThreadTask[None] = ThreadTask()
"""The event of what has happened already."""
DONE.set_result(None)


class PlainSlab:
    """Host memory, which need not be pinned; `check` refuses to let it go while something is about to touch it."""

    def __init__(self, nbytes: int, check: Callable[[NDArray[np.uint8]], None] = lambda memory: None) -> None:
        self.nbytes, self._check = nbytes, check
        self.array: NDArray[np.uint8] = np.empty(nbytes, np.uint8)
        self.pointer = int(self.array.ctypes.data)

    def close(self) -> None:
        """Let it go."""
        self._check(self.array)
        self.array = np.empty(0, np.uint8)


class HostMachine(TensorMachine):
    """Copies between host memory and other host memory: the steps of a GPU's, each done at once."""

    def pin(self, nbytes: int) -> PlainSlab:
        """Allocate host memory."""
        return PlainSlab(nbytes)

    def passed(self, event: Any) -> bool:
        """Return True."""
        return True

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Any]:
        """Copy."""
        for target, source, _ in moves:
            np.copyto(target.bytes, source.bytes)
        return [None] * len(moves)


class HostReversal(ReversalMachine):
    """A reversal on host arrays: host memory is the first tier, a directory the second."""

    def __init__(self, directory: Path) -> None:
        self.metrics = Metrics()
        self._directory = directory
        self._memory = Region(0, 0)
        self._threads = LaneThreads(tell=self._add)
        self._aside: Region | None = None  # the snapshot that is being encoded
        self._start = self._left = perf_counter()

    def leave(self) -> None:
        """Stop the clock while the caller does other things; the lanes go on."""
        self._left = perf_counter()

    def enter(self) -> None:
        """Let the clock go on."""
        self._start += perf_counter() - self._left

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier: pages, or files."""
        if tier == 0:
            self._memory = _pages(nbytes)
        elif nbytes:
            self._threads.disk = Disk(self._directory, nbytes, beside=self._memory.nbytes)

    def extend(self, tier: int, nbytes: int) -> Region:
        """Allocate further pages, which go with those who use them."""
        return _pages(nbytes)

    def region(self, tier: int, offset: int, nbytes: int) -> Region:
        """Return a piece of memory."""
        return self._memory.cut(offset, nbytes)

    def passed(self, event: Any) -> bool:
        """Tell whether something has been done."""
        self._threads.check_process()
        return bool(event.done())

    def copies(self, lane: str, what: str, step: int, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Copy: in memory at once, to and from the disk in the lane's thread."""
        if lane != "compute":
            return self._threads.transfer(lane, what, step, pairs, partial(self.sync, after))
        return self._compute(what, step, after, partial(copy, pairs))

    def _compute(self, what: str, step: int, after: Sequence[Wait], act: Callable[[], None]) -> Any:
        self.wait(step, after)
        with self.timed(what, step):
            act()
        return DONE

    def encode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Encoding:
        """Copy arrays aside at once, and encode them in a thread while the computation goes on."""
        extents = in_a_row([each.spec.nbytes for each in coded])
        if self._aside is None or self._aside.nbytes < snapshot_bytes(extents):
            self._aside = _pages(snapshot_bytes(extents))
        aside = [each._replace(array=self._aside.cut(*extent)) for each, extent in zip(coded, extents, strict=True)]
        pairs = [(copied.array, each.array) for copied, each in zip(aside, coded, strict=True)]
        self._compute("save", step, after, partial(copy, pairs))
        task = self._threads.submit("codec", self._encode, step, aside)
        return Encoding(task, partial(self._sizes, task), partial(self.passed, task))

    def _sizes(self, task: ThreadTask[list[int]]) -> list[int]:
        self._threads.check_process()
        return task.result()

    def _encode(self, step: int, coded: Sequence[Coded]) -> list[int]:
        start = perf_counter()
        sizes = encode(coded)
        self._add("codec", "compress", step, start)
        return sizes

    def decode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Any:
        """Decode at once."""
        return self._compute("decompress", step, after, partial(decode, coded))

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events, and raise what went wrong in a lane."""
        self._threads.check_process()
        for wait in after:
            wait.event.result()

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Wait, and count it as a stall where it was one."""
        self._threads.check_process()
        for wait in after:
            if not wait.event.done():
                self.metrics.late += wait.why.startswith("restore")
                with self.timed("stall", step):
                    wait.event.result()
            wait.event.result()  # raises what went wrong in the lane

    def mark(self) -> Any:
        """Return an event that is done: the caller's thread computes at once."""
        return DONE

    def forget(self, lane: str, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk."""
        self._threads.drop(lane, step, reads)

    def timed(self, what: str, step: int) -> Timed:
        """Time something that the computation does."""
        return Timed(self._end_of, what, step)

    def _end_of(self, what: str, step: int, start: float) -> None:
        self._add("compute", what, step, start)

    def finish(self) -> None:
        """Wait for the lanes, raise what went wrong in one, and take the time."""
        self._threads.finish()
        self.metrics.seconds = perf_counter() - self._start

    def close(self) -> None:
        """End the threads and remove the files, whatever happened."""
        self._threads.close()
        self._memory, self._aside = Region(0, 0), None

    def _add(self, lane: str, what: str, step: int, start: float) -> None:
        self.metrics.add(lane, what, step, start - self._start, perf_counter() - self._start)


def _pages(nbytes: int) -> Region:
    """Allocate whole pages, which the disk reads and writes without a copy; huge ones, which are there sooner."""
    # Windows has neither kind; shared memory has small pages only.
    unreserved = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE: a budget may be far more than is ever used
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | unreserved} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        pages = mmap.mmap(-1, nbytes, **private)
    except OSError as error:
        raise BudgetError(
            f"the system gives no {to_text(nbytes)} for snapshots ({error.strerror}): give a smaller host budget, or "
            "raise the limit (ulimit -v)"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        with suppress(OSError):  # a kernel built without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return Region(0, nbytes, np.frombuffer(pages, np.uint8))


def copy_in(data: NDArray[np.uint8], array: NDArray[Any]) -> None:
    """Copy an array into bytes; one with gaps is gathered on the way."""
    np.copyto(data[: array.nbytes].view(array.dtype).reshape(array.shape), array)


def copy(pairs: Sequence[Pair]) -> None:
    """Copy regions, or arrays of the host, into regions."""
    for target, source in pairs:
        copy_in(target.bytes, source.bytes)


def encode(coded: Sequence[Coded]) -> list[int]:
    """Encode arrays, and return the sizes."""
    return [each.codec.encode_host(_values(each.array, each.spec), each.encoding.bytes) for each in coded]


def decode(coded: Sequence[Coded]) -> None:
    """Decode into arrays."""
    for each in coded:
        each.codec.decode_host(each.encoding.bytes, _values(each.array, each.spec))


def _values(region: Region, spec: ArraySpec) -> NDArray[Any]:
    """Return what lies in a region as an array of NumPy; one with gaps is gathered."""
    return region.bytes.reshape(-1).view(spec.dtype).reshape(spec.shape)
