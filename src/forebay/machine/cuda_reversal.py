"""A reversal on GPU arrays: streams move snapshots while the compute stream goes on, and the host waits for nothing.

The device is the first tier, pinned host memory the second, a directory the third. Movements between device and host
are enqueued at once and ordered by CUDA events. Movements to and from the disk run in threads, because a file cannot
wait for an event by itself; a copy up that has to wait for the disk is enqueued by the thread of its lane.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from forebay.cuda.driver import on_device, switch_back, switch_to
from forebay.cuda.slab import DeviceSlab, kept_device, kept_pinned
from forebay.cuda.stream import Mark, callers_streams, current, seconds
from forebay.machine.arrays.dispatch import device_library
from forebay.machine.arrays.library import DeviceLibrary
from forebay.machine.cuda import NOTHING, CudaMachine, events_of
from forebay.machine.cuda_clock import ReversalClock
from forebay.machine.lent import Lent
from forebay.machine.machine import Pair, Timed, Wait
from forebay.machine.region import Region
from forebay.machine.spec import Leaf
from forebay.machine.threads import LaneThreads
from forebay.tasks import ThreadTask
from forebay.tier.disk import Disk


class CudaReversal(CudaMachine):
    """Device, pinned host memory and disk, with a compute stream of its own."""

    clock: ReversalClock

    def __init__(self, device: int, library: DeviceLibrary, directory: Path, synchronous: bool = False) -> None:
        self._directory = directory
        self._synchronous = synchronous
        super().__init__(device, library, kept=True)
        self._compute = self.lanes["compute"] = self.lanes["codec"]
        self._threads = LaneThreads(lambda: switch_to(device))
        self._known: dict[tuple[int, int], list[Lent]] = {}  # by the address of their region, and how many arrays
        self._entered = ExitStack()  # what belongs to a thread, and is left while the reversal waits
        self._come()
        self.clock = ReversalClock(self.metrics, self._compute)

    def leave(self) -> None:
        """Return the caller's thread to its device and streams, which wait for what has been enqueued."""
        for stream in self._callers_before:
            stream.wait(self._compute)
        self.clock.leave()
        self._entered.close()

    def enter(self) -> None:
        """Make the compute stream current in the calling thread, and let the clock go on."""
        self._come()
        self.clock.enter()

    def _come(self) -> None:
        """Make the compute stream current in the calling thread, after what its own streams have been asked for."""
        before = switch_to(self.device)
        self._entered.callback(switch_back, before)
        self._callers_before = callers_streams(self.device)
        for stream in self._callers_before:
            self._compute.wait(stream)
        self._entered.enter_context(current(self._compute))

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of a tier in one piece."""
        if not nbytes:
            return
        if tier == 0:
            self._slabs[tier] = Region(self._held.enter_context(kept_device(nbytes, self._compute)), nbytes)
        elif tier == 1:
            slab = self._held.enter_context(kept_pinned(nbytes))
            self._slabs[tier] = Region(slab.pointer, nbytes, slab.array)
        else:
            self._threads.disk = Disk(self._directory, nbytes)
        self.clock.begin()  # pinning, which the process keeps, is no part of it

    def extend(self, tier: int, nbytes: int) -> Region:
        """Allocate further memory of the device, or pin some more of the host's."""
        if tier == 0:
            return Region(self._held.enter_context(DeviceSlab(nbytes)).pointer, nbytes)
        slab = self._held.enter_context(kept_pinned(nbytes))
        return Region(slab.pointer, nbytes, slab.array[:nbytes])

    def current(self) -> AbstractContextManager[None]:
        """Do nothing: whoever calls has entered, and the threads of the lanes have begun on the device."""
        return NOTHING

    def copies(self, lane: str, what: str, step: int, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Enqueue copies; what involves the disk, or has to wait for it, goes through the lane's thread."""
        if lane.endswith(" 2"):
            return self._threads.transfer(lane, what, step, pairs, partial(self.sync, after))
        if lane != "compute":
            for wait in after:
                if isinstance(wait.event, ThreadTask):
                    return self._threads.submit(lane, super().copies, lane, what, step, pairs, after)
        return super().copies(lane, what, step, pairs, after)

    def _begin(self, lane: str, step: int, after: Sequence[Wait]) -> Mark:
        if lane != "compute":
            return super()._begin(lane, step, after)
        self.wait(step, after)
        return self.clock.last

    def _end_of(self, what: str, step: int, _start: float) -> None:
        """Time what the computation has done since the last event."""
        self._end("compute", what, step, self.clock.last)

    def wait(self, step: int, after: Sequence[Wait]) -> None:
        """Make the compute stream wait, but for what it did itself, and for what has been done."""
        compute = self._compute
        events = [event for event in events_of(after) if event.stream is not compute and not event.is_done]
        if not events:
            return
        for event in events:
            event.hold(compute)
        late = any(wait.why.startswith("restore") for wait in after)
        self._end("compute", "late" if late else "stall", step, self.clock.last)

    def mark(self) -> Mark:
        """Return the event at which the compute stream has done what was enqueued so far."""
        return self.clock.mark(self._compute)

    moment = mark

    def between(self, start: Mark, stop: Mark) -> float:
        """Return the device's seconds between two events, waiting for the second."""
        return seconds(start, stop)

    def forget(self, lane: str, step: int, reads: Sequence[Any]) -> None:
        """Drop a snapshot from the disk."""
        self._threads.drop(lane, step, reads)

    def pause(self) -> None:
        """Wait for the compute stream where callbacks launch on streams of their own."""
        if self._synchronous:
            self.mark().sync()

    def arrays(self, region: Region, leaves: Sequence[Leaf]) -> list[Any]:
        """List the arrays that lie in a region, in the library they came from."""
        return [device_library(leaf.spec).array_at(region.pointer + leaf.offset, leaf.spec) for leaf in leaves]

    def lend(self, region: Region, leaves: Sequence[Leaf]) -> Lent:
        """Return arrays that lie in a region: such as nobody refers to, or new ones, which take long to make."""
        known = self._known.setdefault((region.pointer, len(leaves)), [])
        for lent in known:
            if lent.is_idle():
                return lent
        known.append(Lent(lambda: self.arrays(region, leaves)))
        return known[-1]

    def timed(self, what: str, step: int) -> Timed:
        """Time something that the computation does; where it is synchronous, let it find the stream idle."""
        self.pause()
        return Timed(self._end_of, what, step)

    def finish(self) -> None:
        """Wait for the end, raise what went wrong in a thread, and read the times of the events."""
        self._threads.finish()
        end = self.mark()
        for last in (end, self.clock.mark(self.lanes["up 1"]), self.clock.mark(self.lanes["down 1"])):
            last.sync()
        self.clock.read()
        self.metrics.seconds = self.clock.time_of(end)
        self.check_codecs(self._compute)

    def close(self) -> None:
        """Wait for what is under way, end the threads, and give memory and files back, whatever happened."""
        self._threads.close()
        with on_device(self.device):  # it may be given up in a thread that has never seen the device
            for stream in self.lanes.values():
                stream.record().sync()
            if not self.clock.is_stopped:
                for stream in self._callers_before:
                    stream.wait(self._compute)
            self._known.clear()
            self.free()
        self._entered.close()
