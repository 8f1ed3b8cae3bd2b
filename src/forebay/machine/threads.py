"""Lanes that are threads: one each, what it is given runs in order; and transfers to and from a disk on them."""

from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.tier.disk import Disk

UNDER_WAY = 2
"""Transfers of a lane that are under way at once: the disk finds the next one waiting when it is done with one."""


class LaneThreads:
    """One thread a lane, started when it is first given something.

    Parameters
    ----------
    begin
        Is called at the start of each thread.
    """

    def __init__(self, begin: Callable[[], Any] = lambda: None) -> None:
        self._begin = begin
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._tasks: list[Future[Any]] = []

    def submit(self, lane: str, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Have a lane call something, after what it was given before."""
        if lane not in self._threads:
            self._threads[lane] = ThreadPoolExecutor(1, f"forebay-{lane}", initializer=self._begin)
        return self.watch(self._threads[lane].submit(call, *arguments))

    def watch(self, task: "Future[Any]") -> "Future[Any]":
        """Remember something for `finish`."""
        self._tasks.append(task)
        return task

    def finish(self) -> None:
        """Wait for everything, and raise what went wrong."""
        for task in self._tasks:
            task.result()

    def cancel(self) -> None:
        """Let no lane begin anything more."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the end of the threads."""
        for thread in self._threads.values():
            thread.shutdown(wait=True)


class DiskLanes:
    """Snapshots on their way to and from a disk.

    Parameters
    ----------
    threads
        The lanes.
    disk
        Where to.
    tell
        Is told of each transfer: lane, what, step, and when it started.
    """

    def __init__(
        self, threads: LaneThreads, disk: Disk, tell: Callable[[str, str, int, float], None] = lambda *_: None
    ) -> None:
        self._threads, self._disk, self._tell = threads, disk, tell
        self._under_way: defaultdict[str, deque[Future[None]]] = defaultdict(deque)
        self._ended: defaultdict[str, float] = defaultdict(float)  # when the last transfer of a lane did

    @property
    def peak(self) -> int:
        """Bytes on the disk, at most."""
        return self._disk.peak

    def move(
        self,
        lane: str,
        step: int,
        target: NDArray[np.uint8] | None,
        source: NDArray[np.uint8] | None,
        wait: Callable[[], None],
    ) -> "Future[None]":
        """Write a source, or read into a target, once `wait` has returned in the lane; what is given is its end."""
        move: Future[None] = Future()
        self._threads.watch(move)
        started = self._threads.submit(lane, self._transfer, move, lane, step, target, source, wait)
        # Whoever waits for the move of a lane that is shut down must not wait for ever.
        started.add_done_callback(lambda task: move.cancel() if task.cancelled() else None)
        return move

    def drop(self, lane: str, step: int, reads: "list[Future[Any]]") -> None:
        """Drop a snapshot once it has been read, after its write in the same lane."""

        def drop() -> None:
            for read in reads:
                read.result()
            self._disk.drop(step)

        self._threads.submit(lane, drop)

    def close(self) -> None:
        """Remove the files."""
        self._disk.close()

    def _transfer(
        self, move: "Future[None]", lane: str, step: int, target: Any, source: Any, wait: Callable[[], None]
    ) -> None:
        """Start a transfer, once what it waits for is done and few enough are under way, and go on to the next."""
        try:
            wait()
            under_way = self._under_way[lane]
            while len(under_way) >= UNDER_WAY:
                under_way.popleft().exception()  # which its own move tells
            start = perf_counter()
            transfer = self._disk.write(step, source) if target is None else self._disk.read(step, target)
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
        self._tell(lane, what, step, start)
        move.set_result(None)
