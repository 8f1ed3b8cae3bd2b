"""The backend for host arrays: the caller's thread computes, one thread a lane moves snapshots to and from disk."""

import mmap
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.engine import numpy_arrays
from penstock.engine.executor import Wait
from penstock.engine.layout import Layout
from penstock.metrics import Metrics, Span
from penstock.tier.disk import Disk


class HostBackend:
    """Host memory is the first tier, a directory the second."""

    def __init__(self, kinds: Sequence[Any], directory: Path | None, disk_bytes: int = 0) -> None:
        self.metrics = Metrics()
        self._kinds = kinds
        self._disk = Disk(directory, disk_bytes) if directory is not None and disk_bytes else None
        self._lanes = {lane: ThreadPoolExecutor(1, f"penstock-{lane}") for lane in ("up 1", "down 1")}
        self._moves: list[Future[None]] = []
        self._start = perf_counter()

    def blocks(self, tier: int, count: int, nbytes: int) -> list[Any]:
        """Allocate the slots of a tier: pages of memory, or names on the disk."""
        if tier == 1 or not count:
            return [None] * count
        whole = np.frombuffer(mmap.mmap(-1, count * nbytes), np.uint8)
        return [whole[index * nbytes : (index + 1) * nbytes] for index in range(count)]

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Copy between blocks: in memory at once, to and from the disk in the lane's thread."""
        if lane == "compute":
            self.wait(step, after)
            with self.timed("restore", step):
                np.copyto(target, source)
            return DONE
        assert self._disk is not None
        move = self._lanes[lane].submit(self._transfer, self._disk, lane, step, target, source, after)
        self._moves.append(move)
        return move

    def _transfer(self, disk: Disk, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> None:
        for wait in after:
            wait.event.result()
        start = perf_counter()
        if target is None:
            disk.write(step, source).result()
        else:
            disk.read(step, target).result()
        self._add(lane, "store" if target is None else "fetch", step, start)

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Copy arrays into a block."""
        self.wait(step, after)
        with self.timed("save", step):
            numpy_arrays.copy_in(block, layout, arrays)
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

    def forget(self, tier: int, step: int, block: Any) -> None:
        """Drop a snapshot from the disk, after its write in the same lane."""
        if tier == 1 and self._disk is not None:
            self._moves.append(self._lanes["down 1"].submit(self._disk.drop, step))

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


def _done() -> "Future[None]":
    future: Future[None] = Future()
    future.set_result(None)
    return future


DONE = _done()
"""The event of what has happened already."""
