"""A reversal on GPU arrays: streams move snapshots while the compute stream goes on, and the host waits for nothing.

The device is the first tier, pinned host memory the second, a directory the third. Movements between device and host
are enqueued at once and ordered by CUDA events. Movements to and from the disk run in threads, because a file cannot
wait for an event by itself; a copy up that has to wait for the disk is enqueued by the thread of its lane.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cuda.core import Stream

from forebay.cuda.arrays import View
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import on_device, switch_back, switch_to
from forebay.cuda.slab import kept_pinned
from forebay.cuda.stream import Mark, callers_streams, current, kept_streams
from forebay.machine.arrays.dispatch import device_library, view_of
from forebay.machine.arrays.library import DeviceLibrary
from forebay.machine.cuda import CudaMachine
from forebay.machine.packing import Packing
from forebay.machine.region import Region
from forebay.machine.spec import Extent, Leaf
from forebay.machine.threads import LaneThreads
from forebay.machine.timing import Spans
from forebay.machine.waits import Wait
from forebay.metrics import Metrics


class CudaReversal(CudaMachine):
    """Device, pinned host memory and disk, with a compute stream of its own."""

    def __init__(self, device: int, library: DeviceLibrary, directory: Path, synchronous: bool = False) -> None:
        self.metrics = Metrics()
        self._directory = directory
        self._synchronous = synchronous
        self._held = ExitStack()
        with on_device(device):
            super().__init__(device, library, self._held.enter_context(kept_streams()))
        self._compute = self.streams.compute
        self.lanes |= {"compute": self._compute}
        self._threads = LaneThreads(lambda: switch_to(device))
        self._known: dict[int, list[Any]] = {}  # arrays by the address of their region
        self._spans = Spans(self.metrics, self._time_of)
        self._away = 0.0, 0.0  # when it left and entered, once it has
        self._entered = ExitStack()  # what belongs to a thread, and is left while the reversal waits
        self._left: list[Mark] = []  # when it left and entered
        self.enter()
        self._start = self._last

    def leave(self) -> None:
        """Give the caller's thread its device and streams back, which wait for what has been enqueued."""
        for stream in self._callers_before:
            stream.wait(self._compute)
        self._left.append(self.mark())
        self._entered.close()

    def enter(self) -> None:
        """Make the compute stream current in the calling thread, after what its own streams have been asked for."""
        before = switch_to(self.device)
        self._entered.callback(switch_back, before)
        self._callers_before = callers_streams(self.device)
        for stream in self._callers_before:
            self._compute.wait(stream)
        self._entered.enter_context(current(self._compute))
        self._last = self.mark()
        if self._left:
            self._left.append(self._last)

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier in one piece."""
        if not nbytes:
            return
        if tier == 0:
            super().reserve(tier, nbytes)
        elif tier == 1:
            slab = self._held.enter_context(kept_pinned(nbytes))
            self._slabs[tier] = Region(slab.pointer, nbytes, slab.array)
        else:
            self._threads.open_disk(self._directory, nbytes)
        self._start = self._last = self.mark()  # pinning, which the process keeps, is no part of it

    def region(self, tier: int, offset: int, nbytes: int) -> Any:
        """Return a piece of memory; the disk finds its own places."""
        return None if tier == 2 else super().region(tier, offset, nbytes)

    def passed(self, event: Any) -> bool:
        """Tell whether something has been done, by a thread and then by its stream."""
        if isinstance(event, Future):
            if not event.done():
                return False
            event = event.result()
        return event is None or bool(event.is_done)

    def copy(self, lane: str, step: int, target: Any, source: Any, after: Sequence[Wait]) -> Any:
        """Enqueue a copy; what involves the disk, or has to wait for it, goes through the lane's thread."""
        if target is None or source is None:

            def wait() -> None:
                for event in map(_event, after):
                    if event is not None:
                        event.sync()

            return self._threads.transfer(lane, step, target, source, wait)
        stream = self.lanes[lane]
        if lane != "compute" and any(isinstance(wait.event, Future) for wait in after):
            return self._threads.submit(lane, self._enqueue, lane, step, stream, target, source, after)
        return self._enqueue(lane, step, stream, target, source, after)

    def _enqueue(
        self, lane: str, step: int, stream: Stream, target: Region, source: Region, after: Sequence[Wait]
    ) -> Mark:
        if lane == "compute":
            self.wait(step, after)
            copy_async(target.pointer, source.pointer, source.nbytes, stream)
            return self._lap("restore", step)
        for event in map(_event, after):
            if event is not None:
                event.hold(stream)
        start = self.mark_on(stream)
        copy_async(target.pointer, source.pointer, source.nbytes, stream)
        stop = self.mark_on(stream)
        self._spans.add(lane, "fetch" if lane.startswith("up") else "store", step, start, stop)
        return stop

    def save(self, step: int, region: Any, leaves: Sequence[Leaf], arrays: Sequence[Any], after: Sequence[Wait]) -> Any:
        """Enqueue the copies of arrays into a region."""
        self.wait(step, after)
        for leaf, array in zip(leaves, arrays, strict=True):
            copy_async(region.pointer + leaf.offset, view_of(array).pointer, leaf.nbytes, self._compute)
        return self._lap("save", step)

    def encode(self, step: int, staging: Any, packing: Packing, arrays: Sequence[Any]) -> Callable[[], Sequence[int]]:
        """Enqueue the encoders."""
        self.begin_codecs(self._compute)
        sizes = [
            self.encode_at(codec, view_of(array), staging.pointer + offset, self._compute)[0]
            for codec, (offset, _), array in zip(packing.codecs, packing.worst, arrays, strict=True)
        ]
        self._lap("compress", step)
        return lambda: [size() for size in sizes]

    def gather(
        self, step: int, target: Any, staging: Any, packing: Packing, extents: Sequence[Extent], after: Sequence[Wait]
    ) -> Any:
        """Enqueue the copies of encodings to where they stay."""
        self.wait(step, after)
        for (source, _), (start, size) in zip(packing.worst, extents, strict=True):
            copy_async(target.pointer + start, staging.pointer + source, size, self._compute)
        return self._lap("save", step)

    def decode(
        self, step: int, target: Any, source: Any, packing: Packing, extents: Sequence[Extent], after: Sequence[Wait]
    ) -> Any:
        """Enqueue the decoders."""
        self.wait(step, after)
        for codec, (offset, size), leaf in zip(packing.codecs, extents, packing.leaves, strict=True):
            array = View.at(target.pointer + leaf.offset, leaf.spec.shape, leaf.spec.dtype)
            self.decode_at(codec, source.pointer + offset, size, array, self._compute)
        return self._lap("decompress", step)

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the compute stream wait."""
        events = [event for event in map(_event, after) if event is not None]
        if not events:
            return
        for event in events:
            event.hold(self._compute)
        self._lap("late" if any(wait.why.startswith("restore") for wait in after) else "stall", step)

    def mark(self) -> Mark:
        """Return the event at which the compute stream has done what was enqueued so far."""
        return self.mark_on(self._compute)

    def forget(self, tier: int, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk, after its write in the same lane."""
        if tier == 2:
            self._threads.drop("down 2", step, reads)

    def pause(self) -> None:
        """Wait for the compute stream where callbacks launch on streams of their own."""
        if self._synchronous:
            self.mark().sync()

    def arrays(self, region: Region, leaves: Sequence[Leaf]) -> list[Any]:
        """List the arrays that lie in a region, in the library they came from."""
        if region.pointer not in self._known:
            self._known[region.pointer] = [
                device_library(leaf.spec).array_at(region.pointer + leaf.offset, leaf.spec) for leaf in leaves
            ]
        return self._known[region.pointer]

    @contextmanager
    def timed(self, what: str, step: int) -> Iterator[None]:
        """Time something that the computation does; where it is synchronous, let it find the stream idle."""
        self.pause()
        yield
        self._lap(what, step)

    def _lap(self, what: str, step: int) -> Mark:
        """Time what the compute stream has done since the last lap: one event between any two things."""
        now = self.mark()
        self._spans.add("compute", what, step, self._last, now)
        self._last = now
        return now

    def _time_of(self, moment: Mark) -> float:
        """Return its seconds since the start, those away left out."""
        time, (left, entered) = moment.since(self._start), self._away
        return time if time <= left else max(left, time - (entered - left))

    def finish(self) -> None:
        """Wait for the end, raise what went wrong in a thread, and read the times of the events."""
        self._threads.finish()
        end = self.mark()
        for last in (end, self.mark_on(self.streams.up), self.mark_on(self.streams.down)):
            last.sync()
        if self._left:
            left, entered = (moment.since(self._start) for moment in self._left[:2])
            self._away = left, entered
        self._spans.settle()
        self.metrics.seconds = self._time_of(end)
        self.check_codecs(self._compute)
        if self._threads.disk is not None:
            self.metrics.peak["disk"] = self._threads.disk.peak

    def close(self) -> None:
        """Wait for what is under way, end the threads, and give memory and files back, whatever happened."""
        self._threads.close()
        with on_device(self.device):  # it may be given up in a thread that has never seen the device
            for stream in (self._compute, self.streams.up, self.streams.down):
                stream.record().sync()
            if not len(self._left) % 2:
                for stream in self._callers_before:
                    stream.wait(self._compute)
            self._known.clear()
            self.free()
            self._held.close()
        self._entered.close()


def _event(wait: Wait) -> Any:
    """Return the CUDA event of a wait, once the thread that makes it has; None for what the host has seen end."""
    return wait.event.result() if isinstance(wait.event, Future) else wait.event
