"""A pool of arrays on a GPU: one piece of its memory, pinned memory of the host, and streams that only copy.

The computation is the caller's: a use is enqueued on the stream that is current in the library of the pool. It is
made to wait for the copies it needs, and the copies for it; the host waits for neither.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from cuda.core import Stream
from numpy.typing import NDArray

from forebay.cuda.copy import copy_async
from forebay.cuda.stream import Mark, callers_streams
from forebay.errors import StateError
from forebay.machine.arrays.dispatch import array_library, view_of
from forebay.machine.arrays.library import DeviceLibrary
from forebay.machine.cuda import CudaMachine, hold
from forebay.machine.machine import UseRegions, Wait
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec

UNREAD = 64
"""Spans from which on the times of those that have ended are read."""
SPANS = 100_000
"""Spans that a timeline keeps; the older half is forgotten when there are more."""
ARRAYS = 4096
"""Arrays that are kept for being handed out again: making one takes longer than all the rest of a use."""


class CudaPool(CudaMachine):
    """A GPU and its host, for the arrays of a library."""

    tier = "device"

    def __init__(self, device: int, library: DeviceLibrary) -> None:
        super().__init__(device, library)
        self.metrics.title = "pool"
        with self.current():
            self.clock.start = self.clock.mark(self.lanes["up 1"])
            self.clock.start.sync()
        # By the index of an open use: its stream, where it began there, and what had been computed last by then.
        self._uses: dict[int, tuple[Stream, Mark, Mark | None]] = {}
        self._last: Mark | None = None  # the end of what was computed last
        self._arrays: dict[tuple[int, ArraySpec], Any] = {}

    def spec(self, array: Any) -> ArraySpec:
        """Describe an array of the host or of the device."""
        library = array_library(array)
        device = library.device(array)
        if device is not None and device != self.device:
            raise StateError(
                f"the array is on cuda:{device}, but the pool is on cuda:{self.device}: move it there first, or make a "
                f"pool while cuda:{device} is the current device"
            )
        where = library.view(array)
        if not isinstance(where, np.ndarray) and not where.contiguous:
            raise StateError(
                "the array has gaps or another order: make it contiguous first (cupy.ascontiguousarray(x), "
                "tensor.contiguous())"
            )
        return self.spec_of(where.shape, array.dtype if hasattr(array, "dtype") else where.dtype)

    def spec_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of the library."""
        return self.library.spec_of(shape, dtype)

    def array(self, region: Region, spec: ArraySpec, writable: bool) -> Any:
        """Return the array that lies in a region: an alias, so that what is done to it alone ends with the use."""
        key = region.pointer, spec
        if key not in self._arrays:
            if len(self._arrays) >= ARRAYS:
                self._arrays.clear()
            with self.current():
                self._arrays[key] = self.library.array_at(region.pointer, spec)
        return self.library.alias(self._arrays[key])

    def fill(self, target: Region, array: Any, after: Sequence[Wait]) -> Mark:
        """Copy an array to the device, after what computes it and before what may free it."""
        with self.current():
            stream = self._computing()
            others = [other for other in callers_streams(self.device) if int(other.handle) != int(stream.handle)]
            for other in others:
                stream.wait(other)
            hold(stream, after)
            view = view_of(array)
            if isinstance(view, np.ndarray):
                source = np.ascontiguousarray(view)
                copy_async(target.pointer, source.ctypes.data, source.nbytes, stream)
                stop = self.clock.mark(stream)
                stop.sync()  # the array is the caller's, who may change it from here on
            else:
                copy_async(target.pointer, view.pointer, view.nbytes, stream)
                stop = self.clock.mark(stream)
            for other in others:
                stop.hold(other)
        self._last = stop
        return stop

    def read(self, source: Region, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a region of the device to the host, and wait for it."""
        stream = self.lanes["down 1"]
        data = np.empty(source.nbytes, np.uint8)
        with self.current():
            hold(stream, after)
            copy_async(data.ctypes.data, source.pointer, source.nbytes, stream)
            self.clock.mark(stream).sync()
        return data

    def enter(self, index: int, after: Sequence[Wait], regions: UseRegions) -> None:
        """Make the caller's stream wait for the copies that have not ended."""
        with self.current():
            stream = self._computing()
            begin = self.clock.mark(stream)
            waiting = [wait for wait in after if not wait.event.is_done]
            if waiting:
                for wait in waiting:
                    wait.event.hold(stream)
                late = any(wait.why == "use: fetched" for wait in waiting)
                begin = self.clock.add("compute", "late" if late else "stall", index, begin, self.clock.mark(stream))
        self._uses[index] = stream, begin, self._last

    def leave(self, index: int) -> Any:
        """Mark the end of a use on the stream it began on, after that of all that ended before it."""
        stream, begin, last = self._uses.pop(index)
        with self.current():
            if self._last is not last:  # uses inside this one, which may have been on other streams
                self._follow(stream)
            self._last = event = self.clock.add("compute", "use", index, begin, self.clock.mark(stream))
        if len(self.clock) >= UNREAD:
            self.settle()
        return event

    def stalled(self) -> float | None:
        """Return the share of its time that the computation stood still, as far as it is known."""
        stall, used = self.metrics.phases["stall"], self.metrics.phases["use"]
        return stall / (stall + used) if used else 0.0

    def settle(self) -> None:
        """Read the times of what has ended."""
        self.clock.read()
        if len(self.metrics.timeline) > SPANS:
            self.metrics.timeline.forget(SPANS // 2)

    def finish(self) -> None:
        """Wait for every stream, and raise what a codec noticed."""
        with self.current():
            for stream in self.lanes.values():
                self.clock.mark(stream).sync()
            if self._last is not None:
                self._last.sync()
            self.check_codecs(self.lanes["codec"])
        self.settle()

    def close(self) -> None:
        """Free the device's memory."""
        self._arrays.clear()
        self.free()

    def _computing(self) -> Stream:
        """Return the caller's stream, ordered after what was computed last."""
        stream = self.computing()
        self._follow(stream)
        return stream

    def _follow(self, stream: Stream) -> None:
        # On the same stream, too: what has its handle now may be another than had it then.
        if self._last is not None:
            self._last.hold(stream)
