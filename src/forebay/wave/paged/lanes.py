"""Where the window is, and the lanes that move planes to it and back beside the computation."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import numpy as np

from forebay.machine import host
from forebay.machine.lanes import Event, Lanes, Task
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

    def call(self, act: Callable[[], None]) -> None:
        """Call something at once that uses arrays beside the window."""

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

    def call(self, act: Callable[[], None]) -> None:
        """Call it."""
        act()

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for threads, and raise what went wrong in one."""
        for wait in after:
            wait.event.result()

    def close(self) -> None:
        """End the threads."""
        for workers in self._threads.values():
            workers.close(cancel=True)


class VirtualLanes(VirtualMachine, PagingLanes):
    """A window and lanes to test waits with, the computation's too: see `machine.lanes`, which devices share."""

    def __init__(self, nbytes: int, lanes: Lanes, number: int = 0) -> None:
        super().__init__()
        self.lanes, self._number = lanes, number
        self.reserve(0, nbytes)
        self.memory = self.region(0, 0, nbytes)

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> Event:  # type: ignore[override]
        """Queue copies."""
        if lane != "compute":
            return super().copies(f"{lane} {self._number}", "", 0, pairs, after)
        return self.compute(lambda: host.copy(pairs), after)  # parts of them overlap: nothing is erased before

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> Event:
        """Queue a computation."""
        task = Task(targets=(), sources=(), act=act, after=self.lanes.needed(after))
        event = self.lanes.put(f"compute {self._number}", task)
        self.lanes.run_some()
        return event

    def call(self, act: Callable[[], None]) -> None:
        """Call it."""
        act()


class CudaLanes(PagingLanes):
    """A window on a device, and three of its streams."""

    def __init__(self, nbytes: int, device: int) -> None:
        from forebay.cuda.driver import on_device
        from forebay.cuda.slab import DeviceSlab, give_up_device
        from forebay.cuda.stream import callers_streams, current, kept_streams, mark

        self._current, self._mark, self._there = current, mark, partial(on_device, device)
        with self._there(), ExitStack() as held:
            streams = held.enter_context(kept_streams())
            give_up_device()
            self.memory = Region(held.enter_context(DeviceSlab(nbytes)).pointer, nbytes)
            for stream in callers_streams():
                streams.compute.wait(stream)
            self._held = held.pop_all()
        self._lanes = {"up": streams.up, "down": streams.down, "compute": streams.compute}

    def copies(self, lane: str, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Enqueue copies on a stream."""
        from forebay.cuda.copy import copy_async

        stream = self._lanes[lane]
        with self._there():
            for wait in after:
                wait.event.hold(stream)
            for target, source in pairs:
                copy_async(target.pointer, source.pointer, source.nbytes, stream)
            return self._mark(stream)

    def compute(self, act: Callable[[], None], after: Sequence[Wait]) -> Any:
        """Enqueue kernels on the stream of the computation."""
        stream = self._lanes["compute"]
        with self._there():
            for wait in after:
                wait.event.hold(stream)
            with self._current(stream):
                act()
            return self._mark(stream)

    def call(self, act: Callable[[], None]) -> None:
        """Call it on the device, in the order of the computation."""
        with self._there(), self._current(self._lanes["compute"]):
            act()

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""
        for wait in after:
            wait.event.sync()

    def close(self) -> None:
        """Wait for what is under way, and let go of memory and streams."""
        with self._there(), self._held:
            for stream in self._lanes.values():
                self._held.callback(stream.sync)
