"""Lanes that are threads: one each, what it is given runs in order; and transfers to and from a disk on them."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from forebay.errors import EngineError
from forebay.forking import leave_to_parent
from forebay.machine.machine import Pair
from forebay.tasks import ThreadTask, Workers
from forebay.tier.disk import Disk

UNDER_WAY = 2
"""Transfers of a lane that are under way at once: the disk finds the next one waiting when it is done with one."""


class LaneThreads:
    """One thread a lane, started when it is first given something.

    Each begins with a call of `begin`; `tell` is told of transfers: lane, what, step, and when one started.
    """

    def __init__(
        self, begin: Callable[[], Any] = lambda: None, tell: Callable[[str, str, int, float], None] = lambda *_: None
    ) -> None:
        self._begin, self._tell = begin, tell
        self._threads: dict[str, Workers] = {}
        self._tasks: deque[ThreadTask[Any]] = deque()  # without the first ones that have ended well
        self._under_way: defaultdict[str, deque[ThreadTask[None]]] = defaultdict(deque)
        self._ended: defaultdict[str, float] = defaultdict(float)  # when the last transfer of a lane did
        self.disk: Disk | None = None
        self._abandoned = False
        leave_to_parent(self)

    def abandon(self) -> None:
        """Forget the threads in a forked child, which has none of them."""
        self._abandoned, self._threads, self._tasks = True, {}, deque()

    def check_process(self) -> None:
        """Raise in a forked child: what it waits for would never come."""
        if self._abandoned:
            raise EngineError("this reversal belongs to the process that was forked: end the child, or prepare another")

    def submit(self, lane: str, call: Callable[..., Any], *arguments: Any) -> ThreadTask[Any]:
        """Have a lane call something, after what it was given before."""
        self.check_process()
        if lane not in self._threads:
            self._threads[lane] = Workers(1, f"forebay-{lane}", self._begin)
        task = self._threads[lane].submit(call, *arguments)
        self._await(task)
        return task

    def _await(self, task: ThreadTask[Any]) -> None:
        """Take note of a task whose end is to be waited for, and forget those that have ended well."""
        self._tasks.append(task)
        while self._tasks and _ended_well(self._tasks[0]):
            self._tasks.popleft()

    def transfer(
        self, lane: str, what: str, step: int, pairs: Sequence[Pair], wait: Callable[[], None]
    ) -> ThreadTask[None]:
        """Write or read a snapshot once `wait` has returned in the lane; what is returned is its end."""
        assert self.disk is not None
        ((target, source),) = pairs
        down = lane.startswith("down")
        move, region = (self.disk.write, source) if down else (self.disk.read, target)
        under_way, end = self._under_way[lane], ThreadTask[None]()
        self._await(end)

        def start() -> None:
            """Start it, once few enough are under way, and go on to the next."""
            try:
                wait()
                while len(under_way) >= UNDER_WAY:
                    under_way.popleft().exception()  # which its own end tells
                begun = perf_counter()
                transfer = move(step, region.bytes)
            except BaseException as error:
                end.set_exception(error)
                return
            under_way.append(transfer)
            transfer.add_done_callback(partial(arrived, begun))

        def arrived(begun: float, transfer: ThreadTask[None]) -> None:
            """Tell that it has ended; its time on the lane begins where the one before it ended."""
            if (error := transfer.exception()) is not None:
                end.set_exception(error)
                return
            begun, self._ended[lane] = max(begun, self._ended[lane]), perf_counter()
            self._tell(lane, what, step, begun)
            end.set_result(None)

        def failed(started: ThreadTask[None]) -> None:
            """End what was never started, in a lane that is shut down or has no thread: somebody may wait for it."""
            if (error := started.exception()) is not None:
                end.set_exception(error)

        self.submit(lane, start).add_done_callback(failed)
        return end

    def drop(self, lane: str, step: int, reads: Sequence[ThreadTask[Any]]) -> None:
        """Drop a snapshot from the disk once it has been read, after its write in the same lane."""

        def drop(disk: Disk) -> None:
            for transfer in reads or self._under_way[lane]:  # what has been read has been written
                transfer.result()
            disk.drop(step)

        if self.disk is not None:
            self.submit(lane, drop, self.disk)

    def finish(self) -> None:
        """Wait for everything, and raise what went wrong."""
        self.check_process()
        for task in self._tasks:
            task.result()

    def close(self) -> None:
        """End the threads and remove the files, whatever happened."""
        for thread in self._threads.values():
            thread.close(cancel=True, wait=False)
        if self.disk is not None:
            self.disk.close()
        for thread in self._threads.values():
            thread.close()


def _ended_well(task: ThreadTask[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
