"""The backend for GPU arrays: streams move snapshots while the compute stream goes on, and the host waits for nothing.

The device is the first tier, pinned host memory the second, a directory the third. Movements between device and host
are enqueued at once and ordered by CUDA events. Movements to and from the disk run in threads, because a file cannot
wait for an event by itself; a copy up that has to wait for the disk is enqueued by the thread of its lane.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cuda.core import Stream
from numpy.typing import NDArray

from forebay.codec.device import check_damage, clear_damage
from forebay.cuda.arrays import View
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import current_device
from forebay.cuda.mailbox import post
from forebay.cuda.slab import DeviceSlab, kept_pinned
from forebay.cuda.stream import Mark, callers_streams, current, kept_streams
from forebay.engine.layout import Layout
from forebay.engine.packing import Packing, Place
from forebay.machine import cuda_arrays
from forebay.machine.lanes import Wait
from forebay.metrics import Metrics, Span
from forebay.tier.disk import Disk

NOTICED = 20e-6
"""Seconds from which a wait of the compute stream is called a stall: less is the cost of the events themselves."""


class Memory(NamedTuple):
    """A block on the device, or of pinned host memory."""

    pointer: int
    nbytes: int
    array: NDArray[np.uint8] | None = None
    """the same bytes for the host, where it can reach them"""


class CudaBackend:
    """Device, pinned host memory and disk."""

    def __init__(self, kinds: Sequence[Any], directory: Path, synchronous: bool = False) -> None:
        self.metrics = Metrics()
        self._kinds = kinds
        self._directory = directory
        self._synchronous = synchronous
        self._held = ExitStack()
        self._streams = self._held.enter_context(kept_streams())
        self._slabs: dict[int, Memory] = {}
        self._disk: Disk | None = None
        self._encoded = False
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._deferred: list[Future[Any]] = []
        self._known: dict[int, list[Any]] = {}  # arrays by the address of their block
        self._spans: list[tuple[str, str, int, Mark, Mark]] = []
        self._device = current_device()
        self._entered = ExitStack()  # what belongs to a thread, and is left while the reversal waits
        self._left: list[Mark] = []  # when it left and entered
        self.enter()
        self._start = self._last

    def leave(self) -> None:
        """Give the caller's thread its streams back, which wait for what has been enqueued."""
        for stream in self._callers:
            stream.wait(self._streams.compute)
        self._left.append(Mark(self._streams.compute))
        self._entered.close()

    def enter(self) -> None:
        """Make the compute stream current in the calling thread, after what its own streams have been asked for."""
        self._device.set_current()
        self._callers = callers_streams()
        for stream in self._callers:
            self._streams.compute.wait(stream)
        self._entered.enter_context(current(self._streams.compute))
        self._last = Mark(self._streams.compute)
        if self._left:
            self._left.append(self._last)

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier in one piece."""
        if not nbytes:
            return
        if tier == 0:
            self._slabs[tier] = Memory(self._held.enter_context(DeviceSlab(nbytes)).pointer, nbytes)
        elif tier == 1:
            slab = self._held.enter_context(kept_pinned(nbytes))
            self._slabs[tier] = Memory(slab.pointer, nbytes, slab.array)
        else:
            self._disk = Disk(self._directory, nbytes)
        self._start = self._last = Mark(self._streams.compute)  # pinning, which the process keeps, is no part of it

    def block(self, tier: int, offset: int, nbytes: int) -> Any:
        """Give a piece of memory; the disk finds its own places."""
        if tier == 2:
            return None
        pointer, _, array = self._slabs[tier]
        return Memory(pointer + offset, nbytes, None if array is None else array[offset : offset + nbytes])

    def passed(self, event: Any) -> bool:
        """Tell whether something has been done, by a thread and then by its stream."""
        if isinstance(event, Future):
            if not event.done():
                return False
            event = event.result()
        return event is None or bool(event.is_done)

    def move(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Enqueue a copy; what involves the disk, or has to wait for it, goes through the lane's thread."""
        if lane.endswith("2"):
            return self._defer(lane, self._through_disk, lane, step, target, source, after)
        stream = {"compute": self._streams.compute, "up 1": self._streams.up, "down 1": self._streams.down}[lane]
        if lane != "compute" and any(isinstance(wait.event, Future) for wait in after):
            return self._defer(lane, self._enqueue, lane, step, stream, target, source, after)
        return self._enqueue(lane, step, stream, target, source, after)

    def _enqueue(
        self, lane: str, step: int, stream: Stream, target: Memory, source: Memory, after: Sequence[Wait]
    ) -> Mark:
        if lane == "compute":
            self.wait(step, after)
            copy_async(target.pointer, source.pointer, source.nbytes, stream)
            return self._lap("restore", step)
        for event in map(_event, after):
            if event is not None:
                event.hold(stream)
        start = Mark(stream)
        copy_async(target.pointer, source.pointer, source.nbytes, stream)
        stop = Mark(stream)
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
            self._threads[lane] = ThreadPoolExecutor(1, f"forebay-{lane}", initializer=current_device)
        future = self._threads[lane].submit(call, *arguments)
        self._deferred.append(future)
        return future

    def save(self, step: int, block: Any, layout: Layout, arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Enqueue the copies of arrays into a block."""
        self.wait(step, after)
        for leaf, array in zip(layout.leaves, arrays, strict=True):
            source = cuda_arrays.readable(array).pointer
            copy_async(block.pointer + leaf.offset, source, leaf.nbytes, self._streams.compute)
        return self._lap("save", step)

    def encode(
        self, step: int, staging: Any, layout: Layout, packing: Packing, arrays: Sequence[Any]
    ) -> Callable[[], Sequence[int]]:
        """Enqueue the encoders."""
        compute = self._streams.compute
        if not self._encoded:
            self._encoded = True
            clear_damage(compute)  # what an earlier run left that ended otherwise
        sizes: list[Callable[[], int]] = []
        for codec, (offset, most), array in zip(packing.codecs, packing.worst, arrays, strict=True):
            room = View.at(staging.pointer + offset, (most,), np.uint8)
            codec.encode_device(cuda_arrays.readable(array), room, compute)
            sizes.append(partial(int, most) if codec.fixed else post(room.pointer, compute).value)
        self._lap("compress", step)
        return lambda: [size() for size in sizes]

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, places: Sequence[Place], after: Sequence[Wait]
    ) -> Any:
        """Enqueue the copies of encodings to where they stay."""
        self.wait(step, after)
        for (source, _), (start, size) in zip(packing.worst, places, strict=True):
            copy_async(target.pointer + start, staging.pointer + source, size, self._streams.compute)
        return self._lap("save", step)

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
        """Enqueue the decoders."""
        self.wait(step, after)
        for codec, (offset, size), leaf in zip(packing.codecs, places, layout.leaves, strict=True):
            payload = View.at(source.pointer + offset, (size,), np.uint8)
            array = View.at(target.pointer + leaf.offset, leaf.shape, leaf.dtype)
            codec.decode_device(payload, array, self._streams.compute)
        return self._lap("decompress", step)

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the compute stream wait."""
        events = [event for event in map(_event, after) if event is not None]
        if not events:
            return
        for event in events:
            event.hold(self._streams.compute)
        self._lap("late" if any(wait.why.startswith("restore") for wait in after) else "stall", step)

    def mark(self) -> Any:
        """Give the event at which the compute stream has done what was enqueued so far."""
        return Mark(self._streams.compute)

    def forget(self, tier: int, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk, after its write in the same lane."""
        if tier == 2 and self._disk is not None:
            self._defer("down 2", self._drop, self._disk, step, reads)

    def _drop(self, disk: Disk, step: int, reads: Sequence[Any]) -> None:
        for read in reads:
            read.result()
        disk.drop(step)

    def pause(self) -> None:
        """Wait for the compute stream where callbacks launch on streams of their own."""
        if self._synchronous:
            Mark(self._streams.compute).sync()

    def arrays(self, block: Memory, layout: Layout) -> list[Any]:
        """Give the arrays that lie in a block, in the library they came from."""
        if block.pointer not in self._known:
            self._known[block.pointer] = [
                cuda_arrays.array_at(block.pointer + leaf.offset, leaf.shape, leaf.dtype, kind)
                for leaf, kind in zip(layout.leaves, self._kinds, strict=True)
            ]
        return self._known[block.pointer]

    def describe(self, array: Any) -> Any:
        """Give shape and dtype of an array."""
        return cuda_arrays.describe(array)

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Time something that the computation does; where it is synchronous, let it find the stream idle."""
        self.pause()
        yield
        self._lap(what, step)

    def _lap(self, what: str, step: int) -> Mark:
        """Time what the compute stream has done since the last lap: one event between any two things."""
        now = Mark(self._streams.compute)
        self._spans.append(("compute", what, step, self._last, now))
        self._last = now
        return now

    def finish(self) -> None:
        """Wait for the end, raise what went wrong in a thread, and read the times of the events."""
        for future in self._deferred:
            future.result()
        end = Mark(self._streams.compute)
        for last in (end, Mark(self._streams.up), Mark(self._streams.down)):
            last.sync()
        left, entered = [moment.since(self._start) for moment in self._left[:2]] or [0.0, 0.0]

        def time_of(moment: Mark) -> float:
            """Give its seconds since the start, those away left out."""
            time = moment.since(self._start)
            return time if time <= left else max(left, time - (entered - left))

        self.metrics.seconds = time_of(end)
        if self._encoded:
            check_damage(self._streams.compute)
        times = {self._start: 0.0}
        for lane, what, step, start, stop in self._spans:
            for moment in (start, stop):
                if moment not in times:
                    times[moment] = time_of(moment)
            begun, ended = times[start], times[stop]
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
        if len(self._left) % 2:  # it was given up, perhaps in a thread that has never seen the device
            self._device.set_current()
        for stream in (self._streams.compute, self._streams.up, self._streams.down):
            stream.record().sync()
        if not len(self._left) % 2:
            for stream in self._callers:
                stream.wait(self._streams.compute)
        self._entered.close()
        self._known.clear()
        self._held.close()


def _event(wait: Wait) -> Any:
    """Give the CUDA event of a wait, once the thread that makes it has; None for what the host has seen end."""
    return wait.event.result() if isinstance(wait.event, Future) else wait.event
