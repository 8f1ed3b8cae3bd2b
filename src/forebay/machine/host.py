"""The machine for host arrays: the caller's thread computes, one thread a lane moves snapshots to and from disk."""

import mmap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.machine.arrays import host_bytes
from forebay.machine.machine import Machine, Move, ReversalMachine
from forebay.machine.packing import Packing
from forebay.machine.region import Region
from forebay.machine.spec import Extent, Leaf
from forebay.machine.threads import LaneThreads
from forebay.machine.waits import Wait
from forebay.metrics import Metrics, Span


def _done() -> "Future[None]":
    future: Future[None] = Future()
    future.set_result(None)
    return future


DONE = _done()
"""The event of what has happened already."""


class PlainSlab:
    """Host memory; nothing needs to be pinned.

    Parameters
    ----------
    nbytes
        Its size.
    check
        Refuses to let it go while something is about to touch it.
    """

    def __init__(self, nbytes: int, check: Callable[[NDArray[np.uint8]], None] = lambda memory: None) -> None:
        self.nbytes, self._check = nbytes, check
        self.array: NDArray[np.uint8] = np.empty(nbytes, np.uint8)
        self.pointer = int(self.array.ctypes.data)

    def close(self) -> None:
        """Let it go."""
        self._check(self.array)
        self.array = np.empty(0, np.uint8)


class HostMachine(Machine):
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

    def has_waited(self, event: Any) -> bool:
        """Return False: asking is not worth it."""
        return False

    def free_after(self, wait: Wait) -> bool:
        """Return True: no copy is under way."""
        return True


class HostSnapshots:
    """What the computation does with snapshots in host memory, each step of it as a machine carries it out."""

    def computed(self, what: str, step: int, after: Sequence[Wait], act: Callable[[], None]) -> Any:
        """Carry something out once what it waits for is done, and return the event of its end."""
        raise NotImplementedError

    def save(self, step: int, region: Any, leaves: Sequence[Leaf], arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Copy arrays into a region."""
        return self.computed("save", step, after, lambda: host_bytes.copy_all_in(region.bytes, leaves, arrays))

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, extents: Sequence[Extent], after: Sequence[Wait]
    ) -> Any:
        """Copy encodings to where they stay."""
        return self.computed(
            "save", step, after, lambda: host_bytes.gather(packing, target.bytes, staging.bytes, extents)
        )

    def decode(
        self, step: int, target: Any, source: Any, packing: Packing, extents: Sequence[Extent], after: Sequence[Wait]
    ) -> Any:
        """Decode a region into another."""
        arrays = host_bytes.views_in(target.bytes, packing.leaves)
        return self.computed(
            "decompress", step, after, lambda: host_bytes.decode(packing, source.bytes, extents, arrays)
        )

    def arrays(self, region: Any, leaves: Sequence[Leaf]) -> list[Any]:
        """List the arrays that lie in a region."""
        return host_bytes.arrays_in(region.bytes, leaves)


class HostReversal(HostSnapshots, ReversalMachine):
    """A reversal on host arrays: host memory is the first tier, a directory the second."""

    def __init__(self, directory: Path) -> None:
        self.metrics = Metrics()
        self._directory = directory
        self._memory = np.empty(0, np.uint8)
        self._threads = LaneThreads(tell=self._add)
        self._copied: NDArray[np.uint8] | None = None  # the snapshot that is being encoded
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
            self._threads.open_disk(self._directory, nbytes)

    def region(self, tier: int, offset: int, nbytes: int) -> Region | None:
        """Return a piece of memory; the disk finds its own places."""
        return Region(offset, nbytes, self._memory[offset : offset + nbytes]) if tier == 0 else None

    def passed(self, event: Any) -> bool:
        """Tell whether something has been done."""
        return bool(event.done())

    def copy(self, lane: str, step: int, target: Region | None, source: Region | None, after: Sequence[Wait]) -> Any:
        """Copy between regions: in memory at once, to and from the disk in the lane's thread."""
        if target is not None and source is not None:
            return self.computed("restore", step, after, partial(np.copyto, target.bytes, source.bytes))

        def wait() -> None:
            for each in after:
                each.event.result()

        return self._threads.transfer(lane, step, target, source, wait)

    def computed(self, what: str, step: int, after: Sequence[Wait], act: Callable[[], None]) -> Any:
        """Carry something out in the caller's thread."""
        self.wait(step, after)
        with self.timed(what, step):
            act()
        return DONE

    def encode(self, step: int, staging: Any, packing: Packing, arrays: Sequence[Any]) -> Callable[[], Sequence[int]]:
        """Copy arrays aside at once, and encode them in a thread while the computation goes on."""
        leaves = packing.leaves
        if self._copied is None:
            self._copied = _pages(leaves[-1].offset + max(1, leaves[-1].nbytes))
        with self.timed("save", step):
            host_bytes.copy_all_in(self._copied, leaves, arrays)
        return self._threads.submit("codec", self._encode, step, staging, packing, self._copied).result

    def _encode(self, step: int, staging: Any, packing: Packing, copied: NDArray[np.uint8]) -> list[int]:
        start = perf_counter()
        sizes = host_bytes.encode(packing, staging.bytes, host_bytes.views_in(copied, packing.leaves))
        self._add("codec", "compress", step, start)
        return sizes

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Wait, and count it as a stall where it was one."""
        for wait in after:
            if not wait.event.done():
                self.metrics.late += wait.why.startswith("restore")
                start = perf_counter()
                wait.event.result()
                self._add("compute", "stall", step, start)
            else:
                wait.event.result()  # raises what went wrong in the lane

    def mark(self) -> Any:
        """Return an event that is done: the caller's thread computes at once."""
        return DONE

    def forget(self, tier: int, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk, after its write in the same lane."""
        if tier == 1:
            self._threads.drop("down 1", step, reads)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Time something that the computation does."""
        start = perf_counter()
        yield
        self._add("compute", what, step, start)

    def finish(self) -> None:
        """Wait for the lanes, raise what went wrong in one, and take the time."""
        self._threads.finish()
        self.metrics.seconds = perf_counter() - self._start
        if self._threads.disk is not None:
            self.metrics.peak["disk"] = self._threads.disk.peak

    def close(self) -> None:
        """End the threads and remove the files, whatever happened."""
        self._threads.close()
        self._memory, self._copied = np.empty(0, np.uint8), None

    def _add(self, lane: str, what: str, step: int, start: float) -> None:
        self.metrics.add(Span(lane, what, step, start - self._start, perf_counter() - self._start))


def _pages(nbytes: int) -> NDArray[np.uint8]:
    """Allocate whole pages, which the disk reads and writes without a copy; huge ones, which are there sooner."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows has neither kind
        return np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has small pages only
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        with suppress(OSError):  # a kernel built without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)
