"""The backend for GPU arrays: streams move snapshots while the compute stream goes on, and the host waits for nothing.

The device is the first tier, pinned host memory the second, a directory the third. Movements between device and host
are enqueued at once and ordered by CUDA events. Movements to and from the disk run in threads, because a file cannot
wait for an event by itself; a copy up that has to wait for the disk is enqueued by the thread of its lane.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cuda.core import Event, Stream
from numpy.typing import NDArray

from penstock.cuda import arrays as device_arrays
from penstock.cuda.copy import copy_async
from penstock.cuda.driver import current_device
from penstock.cuda.slab import DeviceSlab, kept_pinned
from penstock.cuda.stream import callers_streams, create_streams, current, mark, seconds
from penstock.engine.executor import Wait
from penstock.engine.layout import Layout
from penstock.errors import StateError
from penstock.metrics import Metrics, Span
from penstock.tier.disk import Disk

NOTICED = 20e-6
"""Seconds from which a wait of the compute stream is called a stall: less is the cost of the events themselves."""


class Pinned(NamedTuple):
    """A block of pinned host memory."""

    pointer: int
    array: NDArray[np.uint8]


class CudaBackend:
    """Device, pinned host memory and disk."""

    def __init__(
        self, kinds: Sequence[Any], directory: Path | None, disk_bytes: int = 0, synchronous: bool = False
    ) -> None:
        self.metrics = Metrics()
        self._kinds = kinds
        self._synchronous = synchronous
        self._held = ExitStack()
        self._streams = create_streams()
        self._disk = Disk(directory, disk_bytes) if directory is not None and disk_bytes else None
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._deferred: list[Future[Any]] = []
        self._nbytes = 0  # of a snapshot
        self._known: dict[int, list[Any]] = {}  # arrays by the address of their block
        self._spans: list[tuple[str, str, int, Event, Event]] = []
        self._callers = callers_streams()
        for stream in self._callers:
            self._streams.compute.wait(stream)
        self._held.enter_context(current(self._streams.compute))
        self._start = self._last = mark(self._streams.compute)

    def blocks(self, tier: int, count: int, nbytes: int) -> list[Any]:
        """Allocate the slots of a tier in one piece."""
        self._nbytes = nbytes
        if not count or tier == 2:
            return [None] * count
        if tier == 0:
            pointer = self._held.enter_context(DeviceSlab(count * nbytes)).pointer
            return [pointer + index * nbytes for index in range(count)]
        slab = self._held.enter_context(kept_pinned(count * nbytes))
        return [
            Pinned(slab.pointer + index * nbytes, slab.array[index * nbytes : (index + 1) * nbytes])
            for index in range(count)
        ]

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Enqueue a copy; what involves the disk, or has to wait for it, goes through the lane's thread."""
        size = self._nbytes
        if lane.endswith("2"):
            return self._defer(lane, self._through_disk, lane, step, target, source, after)
        stream = {"compute": self._streams.compute, "up 1": self._streams.up, "down 1": self._streams.down}[lane]
        addresses = [block.pointer if isinstance(block, Pinned) else block for block in (target, source)]
        if lane != "compute" and any(isinstance(wait.event, Future) for wait in after):
            return self._defer(lane, self._enqueue, lane, step, stream, addresses, size, after)
        return self._enqueue(lane, step, stream, addresses, size, after)

    def _enqueue(
        self, lane: str, step: int, stream: Stream, addresses: list[int], size: int, after: Sequence[Wait]
    ) -> Event:
        if lane == "compute":
            self.wait(step, after)
            copy_async(addresses[0], addresses[1], size, stream)
            return self._lap("restore", step)
        for wait in after:
            stream.wait(_event(wait))
        start = mark(stream)
        copy_async(addresses[0], addresses[1], size, stream)
        stop = mark(stream)
        self._spans.append((lane, "fetch" if lane.startswith("up") else "store", step, start, stop))
        return stop

    def _through_disk(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> None:
        assert self._disk is not None
        for wait in after:
            event = _event(wait)
            if event is not None:
                event.sync()
        if lane == "down 2":
            self._disk.write(step, source.array).result()
        else:
            self._disk.read(step, target.array).result()

    def _defer(self, lane: str, call: Any, *arguments: Any) -> "Future[Any]":
        if lane not in self._threads:
            self._threads[lane] = ThreadPoolExecutor(1, f"penstock-{lane}", initializer=current_device)
        future = self._threads[lane].submit(call, *arguments)
        self._deferred.append(future)
        return future

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Enqueue the copies of arrays into a block."""
        self.wait(step, after)
        for leaf, array in zip(layout.leaves, arrays, strict=True):
            source = device_arrays.view(_readable(array)).pointer
            copy_async(block + leaf.offset, source, leaf.nbytes, self._streams.compute)
        return self._lap("save", step)

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the compute stream wait."""
        events = [event for event in map(_event, after) if event is not None]
        if not events:
            return
        for event in events:
            self._streams.compute.wait(event)
        self._lap("late" if any(wait.why.startswith("restore") for wait in after) else "stall", step)

    def mark(self) -> Any:
        """Give the event at which the compute stream has done what was enqueued so far."""
        return self._streams.compute.record()

    def forget(self, tier: int, step: int, block: Any) -> None:
        """Drop a snapshot from the disk, after its write in the same lane."""
        if tier == 2 and self._disk is not None:
            self._defer("down 2", self._disk.drop, step)

    def arrays(self, block: int, layout: Layout) -> list[Any]:
        """Give the arrays that lie in a block, in the library they came from."""
        if block not in self._known:
            self._known[block] = [
                _array_at(block + leaf.offset, leaf.shape, leaf.dtype, kind)
                for leaf, kind in zip(layout.leaves, self._kinds, strict=True)
            ]
        return self._known[block]

    def describe(self, array: Any) -> Any:
        """Give shape and dtype of an array."""
        return describe(array)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Time something that the computation does; where it is synchronous, let it find the stream idle."""
        if self._synchronous:
            self._streams.compute.record().sync()
        yield
        self._lap(what, step)

    def _lap(self, what: str, step: int) -> Event:
        """Time what the compute stream has done since the last lap: one event between any two things."""
        now = mark(self._streams.compute)
        self._spans.append(("compute", what, step, self._last, now))
        self._last = now
        return now

    def finish(self) -> None:
        """Wait for the end, raise what went wrong in a thread, and read the times of the events."""
        for future in self._deferred:
            future.result()
        end = mark(self._streams.compute)
        self.metrics.seconds = seconds(self._start, end)
        self._streams.up.record().sync()
        self._streams.down.record().sync()
        for lane, what, step, start, stop in self._spans:
            begun, ended = seconds(self._start, start), seconds(self._start, stop)
            if what in ("late", "stall"):
                if ended - begun < NOTICED:
                    continue
                self.metrics.late += what == "late"
            self.metrics.add(Span(lane, "stall" if what == "late" else what, step, begun, ended))
        if self._disk is not None:
            self.metrics.peak["disk"] = self._disk.peak

    def close(self) -> None:
        """Wait for what is under way, end the threads, and give memory and files back, whatever happened."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
        if self._disk is not None:
            self._disk.close()
        for thread in self._threads.values():
            thread.shutdown(wait=True)
        for stream in (self._streams.compute, self._streams.up, self._streams.down):
            stream.record().sync()
        for stream in self._callers:
            stream.wait(self._streams.compute)
        self._known.clear()
        self._held.close()


def _event(wait: Wait) -> Any:
    """Give the CUDA event of a wait, once the thread that makes it has; None for what the host has seen end."""
    return wait.event.result() if isinstance(wait.event, Future) else wait.event


def describe(array: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Give shape and dtype of a GPU array, refusing one that cannot be kept."""
    view = device_arrays.view(_readable(array))
    if not view.contiguous:
        raise StateError(
            "an array of the state has gaps or another order: make it contiguous first "
            "(cupy.ascontiguousarray(x), tensor.contiguous())"
        )
    return view.shape, view.dtype


def kind_of(array: Any) -> Any:
    """Tell the library of an array: torch's dtype, or None for CuPy."""
    return array.dtype if type(array).__module__.partition(".")[0] == "torch" else None


def _readable(array: Any) -> Any:
    """Give a view that has an interface: torch's tensors with gradients, and those of bfloat16, have none."""
    if kind_of(array) is None:
        return array
    import torch

    array = array.detach()
    return array.view(torch.int16) if array.dtype is torch.bfloat16 else array


def _array_at(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], kind: Any) -> Any:
    view = device_arrays.View.at(pointer, shape, dtype)
    if kind is None:
        import cupy

        return cupy.asarray(view)
    import torch

    tensor = torch.as_tensor(view, device="cuda")
    return tensor.view(kind) if tensor.dtype is not kind else tensor
