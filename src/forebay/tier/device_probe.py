"""Timing copies on a GPU: between two pieces of its memory and two of pinned memory."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from forebay.cuda.copy import copy_async
from forebay.cuda.driver import device_memory
from forebay.cuda.slab import DeviceSlab, PinnedSlab
from forebay.cuda.stream import Streams, create_streams, mark, seconds

CARRIED = 2**26
"""Bytes that are copied over the link at most: more would take no longer by the byte, but each has to be pinned."""
FASTEST = 100e9
"""Bytes a second that no link is assumed to exceed: so many are enqueued beside a step."""


@dataclass(frozen=True)
class DeviceProbe:
    """Memory of both kinds, and streams; every method but the last returns the seconds of one repetition."""

    nbytes: int
    """that are copied inside the device"""
    carried: int
    """that are copied over the link"""
    device: tuple[int, int]
    """addresses of two pieces"""
    pinned: tuple[int, int]
    streams: Streams

    def inside(self) -> float:
        """Copy from device memory to device memory."""
        return self._timed(self.device[1], self.device[0], self.nbytes)

    def up(self) -> float:
        """Copy from pinned memory to the device."""
        return self._timed(self.device[0], self.pinned[0], self.carried)

    def down(self) -> float:
        """Copy from the device to pinned memory."""
        return self._timed(self.pinned[0], self.device[0], self.carried)

    def _timed(self, target: int, source: int, nbytes: int) -> float:
        start = mark(self.streams.up)
        copy_async(target, source, nbytes, self.streams.up)
        return seconds(start, mark(self.streams.up))

    def both(self) -> float:
        """Copy both ways at once."""
        up, down = self.streams.up, self.streams.down
        start = mark(up)
        start.hold(down)
        copy_async(self.device[0], self.pinned[0], self.carried, up)
        copy_async(self.pinned[1], self.device[1], self.carried, down)
        up.wait(down.record())
        return seconds(start, mark(up))

    def pageable_up(self, address: int) -> float:
        """Copy from ordinary host memory to the device."""
        return self._by_host(self.device[0], address)

    def pageable_down(self, address: int) -> float:
        """Copy from the device to ordinary host memory."""
        return self._by_host(address, self.device[0])

    def _by_host(self, target: int, source: int) -> float:
        start = perf_counter()  # the host's part, through the driver's own staging, counts
        copy_async(target, source, self.carried, self.streams.up)
        self.streams.up.sync()
        return perf_counter() - start

    def pin(self) -> float:
        """Pin memory that is not yet there."""
        start = perf_counter()
        slab = PinnedSlab(self.carried)
        taken = perf_counter() - start
        slab.close()
        return taken

    def slowdown(self, step: Callable[[], float]) -> float:
        """Return how many times longer a step takes beside copies."""
        return statistics.median(self._slower(step) for _ in range(3))

    def _slower(self, step: Callable[[], float]) -> float:
        """Time a step beside copies of each way in turn, of which enough are enqueued to last longer."""
        (device, _), (pinned, _), streams = self.device, self.pinned, self.streams
        alone = step()
        beside = []
        for stream, target, source in ((streams.up, device, pinned), (streams.down, pinned, device)):
            for _ in range(1 + int(2 * alone * FASTEST / self.carried)):
                copy_async(target, source, self.carried, stream)
            beside.append(step())
            stream.sync()
        return max(1.0, statistics.mean(beside) / min(alone, step()))


@contextmanager
def device_probe(nbytes: int) -> Iterator[DeviceProbe]:
    """Take memory of the current device, twice so many bytes, and pinned memory, as much of it as is carried."""
    carried = min(nbytes, CARRIED)
    with DeviceSlab(2 * nbytes) as device, PinnedSlab(2 * carried) as pinned:
        pieces = (device.pointer, device.pointer + nbytes), (pinned.pointer, pinned.pointer + carried)
        yield DeviceProbe(nbytes, carried, *pieces, create_streams())


def fitting(nbytes: int) -> int:
    """Return so many bytes, or fewer: a card that is nearly full can still be measured."""
    return min(nbytes, device_memory()[0] // 4)
