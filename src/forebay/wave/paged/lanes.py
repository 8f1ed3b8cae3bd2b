"""Where the window is, and the lanes that move planes to it and back beside the computation."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np

from forebay.machine import host
from forebay.machine.lanes import Event, Task
from forebay.machine.machine import Pair, Wait
from forebay.machine.region import Region
from forebay.machine.virtual import VirtualMachine
from forebay.tasks import ThreadTask, Workers


class PagingLanes(Protocol):
    """A window, and three lanes that nothing orders but the events they wait for: "up", "down" and "compute"."""

    memory: Region

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Enqueue copies on a lane, and return the event of their end."""

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> Any:
        """Enqueue what computes in the window, and return the event of its end."""

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""

    def close(self) -> None:
        """Let go of the window, whatever happened."""


class HostLanes(PagingLanes):
    """A window in host memory: a thread each way, and the caller's computes."""

    def __init__(self, nbytes: int) -> None:
        memory = np.empty(nbytes, np.uint8)
        self.memory = Region(int(memory.ctypes.data), nbytes, memory)
        self._threads = {lane: Workers(1, f"forebay-{lane}") for lane in ("up", "down")}

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Copy in the lane's thread, those of the computation at once."""
        if lane != "compute":
            return self._threads[lane].submit(self._copy, pairs, after)
        self._copy(pairs, after)
        return host.DONE

    def _copy(self, pairs: Sequence[Pair], after: Sequence[Wait]) -> None:
        self.sync(after)
        host.copy(pairs)

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> ThreadTask[None]:
        """Compute at once."""
        self.sync(after)
        act()
        return host.DONE

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for threads, and raise what went wrong in one."""
        for wait in after:
            wait.event.result()

    def close(self) -> None:
        """End the threads."""
        for workers in self._threads.values():
            workers.close(cancel=True)


class VirtualLanes(VirtualMachine, PagingLanes):
    """A window and lanes to test waits with, the computation's too: see `machine.lanes`."""

    def __init__(self, nbytes: int, seed: int = 0, without: str | None = None) -> None:
        super().__init__(seed, without)
        self.reserve(0, nbytes)
        self.memory = self.region(0, 0, nbytes)

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> Event:  # type: ignore[override]
        """Queue copies."""
        if lane != "compute":
            return super().copies(lane, "", 0, pairs, after)
        return self.compute(lambda: host.copy(pairs), after)  # parts of them overlap: nothing is erased before

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> Event:
        """Queue a computation."""
        event = self.lanes.put("compute", Task(targets=(), sources=(), act=act, after=self.lanes.needed(after)))
        self.lanes.run_some()
        return event


class CudaLanes(PagingLanes):
    """A window on the current device, and three of its streams."""

    def __init__(self, nbytes: int) -> None:
        from forebay.cuda.slab import kept_device
        from forebay.cuda.stream import callers_streams, current, kept_streams

        self._held = ExitStack()
        self._streams, self._current = self._held.enter_context(kept_streams()), current
        self._lanes = {"up": self._streams.up, "down": self._streams.down, "compute": self._streams.compute}
        self.memory = Region(self._held.enter_context(kept_device(nbytes, self._streams.compute)), nbytes)
        for stream in callers_streams():
            self._streams.compute.wait(stream)

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Enqueue copies on a stream."""
        from forebay.cuda.copy import copy_async
        from forebay.cuda.stream import mark

        stream = self._lanes[lane]
        for wait in after:
            wait.event.hold(stream)
        for target, source in pairs:
            copy_async(target.pointer, source.pointer, source.nbytes, stream)
        return mark(stream)

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> Any:
        """Enqueue kernels on the stream of the computation."""
        from forebay.cuda.stream import mark

        for wait in after:
            wait.event.hold(self._streams.compute)
        with self._current(self._streams.compute):
            act()
        return mark(self._streams.compute)

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""
        for wait in after:
            wait.event.sync()

    def close(self) -> None:
        """Wait for what is under way, and let go of memory and streams."""
        for stream in self._lanes.values():
            stream.sync()
        self._held.close()
