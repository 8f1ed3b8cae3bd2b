"""Where waves run: a GPU, or NumPy on the host to see that it works, with the same few operations on both."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from harness import seconds
from numpy.typing import NDArray

import forebay as fb


class Taken(NamedTuple):
    """How long something took."""

    seconds: float
    """by events of the device's stream; by the host's clock on a CPU"""
    wall: float
    """by the host's clock, from an idle device to an idle device"""


class Host:
    """NumPy arrays; the first tier is the host and the second the disk."""

    arrays: Any = np
    tiers = ("host", "disk")

    def wait(self) -> None:
        """Wait for what was asked for."""

    def timed(self, call: Callable[[], Any]) -> Taken:
        """Time a call."""
        wall = seconds(call)
        return Taken(wall, wall)

    def shortest(self, call: Callable[[], Any]) -> float:
        """Return the fewest seconds of three calls, after one that is not counted."""
        call()
        return min(self.timed(call).seconds for _ in range(3))

    def down(self, room: NDArray[np.uint8], array: Any) -> None:
        """Copy an array to a room, and wait."""
        room[: array.nbytes] = array.reshape(-1).view(np.uint8)

    def up(self, array: Any, room: NDArray[np.uint8]) -> None:
        """Copy an array from a room, and wait."""
        array.reshape(-1).view(np.uint8)[:] = room[: array.nbytes]

    @contextmanager
    def rooms(self, count: int, nbytes: int) -> Iterator[list[NDArray[np.uint8]]]:
        """Lend rooms that are as quick to copy to as any."""
        yield [np.zeros(nbytes, np.uint8) for _ in range(count)]

    def budget(self, *nbytes: int | str) -> fb.Budget:
        """Allow so many bytes of the first tiers."""
        return fb.Budget(**dict(zip(self.tiers, nbytes, strict=False)))

    def links(self) -> dict[str, Any]:
        """Return what costs tell of copies and links."""
        return {"copy": 5e9, "disk": fb.Link(1e9, 1e9)}

    def free(self) -> int:
        """Return the free bytes of the first tier's memory, where they are counted."""
        return 0

    def release(self) -> None:
        """Give back what nothing uses."""


class Gpu(Host):
    """CuPy arrays, with all work in one stream that is current; the second tier is pinned host memory."""

    tiers = ("device", "host")

    def __init__(self) -> None:
        import cupy  # before the stream is made current, which is done only in libraries that have been imported

        from forebay.cuda import stream
        from forebay.cuda.driver import current_device

        self.arrays, self._mark, self._seconds = cupy, stream.mark, stream.seconds
        self._stream = current_device().create_stream()
        self._current = stream.current(self._stream)
        self._current.__enter__()
        assert cupy.cuda.get_current_stream().ptr == int(self._stream.handle)

    def wait(self) -> None:
        """Wait for the stream."""
        self._stream.sync()

    def timed(self, call: Callable[[], Any]) -> Taken:
        """Time a call by events in the stream, and by the clock."""
        self.wait()
        begun, start = time.perf_counter(), self._mark(self._stream)
        call()
        by_events = self._seconds(start, self._mark(self._stream))
        return Taken(by_events, time.perf_counter() - begun)

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        from forebay.cuda.copy import copy_async

        copy_async(target, source, nbytes, self._stream)
        self.wait()

    def down(self, room: NDArray[np.uint8], array: Any) -> None:
        """Copy an array to a pinned room, and wait."""
        self._copy(room.ctypes.data, array.data.ptr, array.nbytes)

    def up(self, array: Any, room: NDArray[np.uint8]) -> None:
        """Copy an array from a pinned room, and wait."""
        self._copy(array.data.ptr, room.ctypes.data, array.nbytes)

    @contextmanager
    def rooms(self, count: int, nbytes: int) -> Iterator[list[NDArray[np.uint8]]]:
        """Lend pinned rooms, of memory that the process keeps: reversals find it afterwards."""
        from forebay.cuda.slab import kept_pinned

        with kept_pinned(count * nbytes) as slab:
            yield [slab.array[number * nbytes : (number + 1) * nbytes] for number in range(count)]

    def links(self) -> dict[str, Any]:
        """Time copies inside the device and the link to the host."""
        from forebay.tier.links import measure_links

        found = measure_links(None, 2**29)
        assert found.device_copy and found.pinned_up and found.pinned_down
        return {"copy": found.device_copy, "host": fb.Link(found.pinned_up, found.pinned_down)}

    def free(self) -> int:
        """Return the free bytes of the device."""
        return int(self.arrays.cuda.runtime.memGetInfo()[0])

    def release(self) -> None:
        """Have CuPy's pool give back what nothing uses."""
        self.wait()
        self.arrays.get_default_memory_pool().free_all_blocks()
