"""The backend for host arrays: the caller's thread computes, one thread a lane moves snapshots to and from disk."""

import mmap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine import packing as packing_module
from forebay.engine.layout import Layout
from forebay.engine.packing import Packing, Place
from forebay.machine import numpy_arrays
from forebay.machine.lanes import Wait
from forebay.metrics import Metrics, Span
from forebay.tier.disk import Disk


def _done() -> "Future[None]":
    future: Future[None] = Future()
    future.set_result(None)
    return future


DONE = _done()
"""The event of what has happened already."""


UNDER_WAY = 2
"""Transfers of a lane that are under way at once: the disk finds the next one waiting when it is done with one."""


class HostBackend:
    """Host memory is the first tier, a directory the second."""

    def __init__(self, kinds: Sequence[Any], directory: Path) -> None:
        self.metrics = Metrics()
        self._kinds = kinds
        self._directory = directory
        self._memory = np.empty(0, np.uint8)
        self._disk: Disk | None = None
        self._lanes = {lane: ThreadPoolExecutor(1, f"forebay-{lane}") for lane in ("up 1", "down 1", "codec")}
        self._moves: list[Future[Any]] = []
        self._under_way: dict[str, deque[Future[None]]] = {lane: deque() for lane in self._lanes}
        self._ended = dict.fromkeys(self._lanes, 0.0)  # when the last transfer of a lane did
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
            self._disk = Disk(self._directory, nbytes)

    def block(self, tier: int, offset: int, nbytes: int) -> Any:
        """Give a piece of memory; the disk finds its own places."""
        return self._memory[offset : offset + nbytes] if tier == 0 else None

    def passed(self, event: Any) -> bool:
        """Tell whether something has been done."""
        return bool(event.done())

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Copy between blocks: in memory at once, to and from the disk in the lane's thread."""
        if lane == "compute":
            self.wait(step, after)
            with self.timed("restore", step):
                np.copyto(target, source)
            return DONE
        assert self._disk is not None
        move: Future[None] = Future()
        self._moves.append(move)
        started = self._lanes[lane].submit(self._transfer, move, self._disk, lane, step, target, source, after)
        # Whoever waits for the move of a lane that is shut down must not wait for ever.
        started.add_done_callback(lambda task: move.cancel() if task.cancelled() else None)
        return move

    def _transfer(
        self, move: "Future[None]", disk: Disk, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]
    ) -> None:
        """Start a transfer, once what it waits for is done and few enough are under way, and go on to the next."""
        try:
            for wait in after:
                wait.event.result()
            under_way = self._under_way[lane]
            while len(under_way) >= UNDER_WAY:
                under_way.popleft().exception()  # which its own move tells
            start = perf_counter()
            transfer = disk.write(step, source) if target is None else disk.read(step, target)
        except BaseException as error:
            move.set_exception(error)
            return
        under_way.append(transfer)
        transfer.add_done_callback(
            partial(self._arrived, move, lane, "store" if target is None else "fetch", step, start)
        )

    def _arrived(
        self, move: "Future[None]", lane: str, what: str, step: int, start: float, transfer: "Future[None]"
    ) -> None:
        """Tell that a transfer has ended; its time on the lane begins where the one before it ended."""
        if (error := transfer.exception()) is not None:
            move.set_exception(error)
            return
        start, self._ended[lane] = max(start, self._ended[lane]), perf_counter()
        self._add(lane, what, step, start)
        move.set_result(None)

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Copy arrays into a block."""
        self.wait(step, after)
        with self.timed("save", step):
            numpy_arrays.copy_in(block, layout, arrays)
        return DONE

    def encode(
        self, step: int, staging: Any, layout: Layout, packing: Packing, arrays: Sequence[Any]
    ) -> Callable[[], Sequence[int]]:
        """Copy arrays aside at once, and encode them in a thread while the computation goes on."""
        if self._copied is None:
            self._copied = _pages(layout.nbytes)
        with self.timed("save", step):
            numpy_arrays.copy_in(self._copied, layout, arrays)
        copies = numpy_arrays.arrays_in(self._copied, layout, [None] * len(layout.leaves))
        encoded = self._lanes["codec"].submit(self._encode, step, staging, packing, copies)
        self._moves.append(encoded)
        return encoded.result

    def _encode(self, step: int, staging: Any, packing: Packing, arrays: Sequence[Any]) -> list[int]:
        start = perf_counter()
        sizes = packing_module.encode(packing, staging, arrays)
        self._add("codec", "compress", step, start)
        return sizes

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, places: Sequence[Place], after: Sequence[Wait]
    ) -> Any:
        """Copy encodings to where they stay."""
        self.wait(step, after)
        with self.timed("save", step):
            packing_module.gather(packing, staging, places, target)
        return DONE

    def decode(
        self,
        step: int,
        target: Any,
        source: Any,
        layout: Layout,
        packing: Packing,
        places: Sequence[Place],
        after: Sequence[Wait],
    ) -> Any:
        """Decode into a block."""
        self.wait(step, after)
        with self.timed("decompress", step):
            arrays = numpy_arrays.arrays_in(target, layout, [None] * len(layout.leaves))
            packing_module.decode(packing, places, source, arrays)
        return DONE

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
        """Give an event that is done: the caller's thread computes at once."""
        return DONE

    def forget(self, tier: int, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk, after its write in the same lane."""
        if tier == 1 and self._disk is not None:
            self._moves.append(self._lanes["down 1"].submit(self._drop, self._disk, step, reads))

    def _drop(self, disk: Disk, step: int, reads: Sequence[Any]) -> None:
        for read in reads:
            read.result()
        disk.drop(step)

    def pause(self) -> None:
        """Nothing to do: the caller's thread computes at once."""

    def arrays(self, block: NDArray[np.uint8], layout: Layout) -> list[Any]:
        """Give the arrays that lie in a block."""
        return numpy_arrays.arrays_in(block, layout, self._kinds)

    def describe(self, array: Any) -> Any:
        """Give shape and dtype of an array."""
        return numpy_arrays.describe(array)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Time something that the computation does."""
        start = perf_counter()
        yield
        self._add("compute", what, step, start)

    def finish(self) -> None:
        """Wait for the lanes, raise what went wrong in one, and take the time."""
        for move in self._moves:
            move.result()
        self.metrics.seconds = perf_counter() - self._start
        if self._disk is not None:
            self.metrics.peak["disk"] = self._disk.peak

    def close(self) -> None:
        """End the threads and remove the files, whatever happened."""
        for lane in self._lanes.values():
            lane.shutdown(wait=False, cancel_futures=True)
        if self._disk is not None:
            self._disk.close()
        for lane in self._lanes.values():
            lane.shutdown(wait=True)

    def _add(self, lane: str, what: str, step: int, start: float) -> None:
        self.metrics.add(Span(lane, what, step, start - self._start, perf_counter() - self._start))


def _pages(nbytes: int) -> NDArray[np.uint8]:
    """Allocate whole pages, which the disk reads and writes without a copy; huge ones, which are there sooner."""
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has small pages only
    with suppress(OSError):  # a kernel built without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.uint8)
