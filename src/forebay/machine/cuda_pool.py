"""The machine under a pool on a GPU: one piece of its memory, pinned memory of the host, and streams that only copy.

The computation is the caller's: a block is enqueued on the stream that is current in the library of the pool. It is
made to wait for the copies it needs, and the copies for it; the host waits for neither.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from cuda.core import LEGACY_DEFAULT_STREAM, Stream
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.codec.device import check_damage, clear_damage
from forebay.cuda.arrays import View
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import current_device
from forebay.cuda.mailbox import post
from forebay.cuda.slab import DeviceSlab, PinnedSlab
from forebay.cuda.stream import Mark, callers_streams, create_streams
from forebay.errors import DeviceError
from forebay.machine.lanes import Wait
from forebay.machine.libraries import Library, library
from forebay.machine.machine import Encoding
from forebay.machine.region import Region
from forebay.machine.spec import ArraySpec
from forebay.metrics import Metrics, Span

NOTICED = 20e-6
"""Seconds from which a wait of the computation is called a stall: less is the cost of the events themselves."""
UNREAD = 64
"""Spans from which on the times of those that have ended are read."""
SPANS = 100_000
"""Spans that a timeline keeps; the older half is forgotten when there are more."""
ARRAYS = 4096
"""Arrays that are kept for being handed out again: making one takes longer than all the rest of a use."""


class _Spent(NamedTuple):
    lane: str
    what: str
    step: int
    start: Mark
    stop: Mark


class _Open(NamedTuple):
    stream: Stream
    begin: Mark
    last: Mark | None
    """what had been computed last when it was entered"""


class DeviceMachine:
    """A GPU and its host.

    Parameters
    ----------
    name
        The library whose arrays are handed out: ``"cupy"`` or ``"torch"``.
    """

    def __init__(self, name: str) -> None:
        self._library: Library = library(name)
        current_device()
        self.metrics = Metrics(title="pool")
        streams = create_streams()
        self._lanes = {"up 1": streams.up, "down 1": streams.down, "codec": streams.compute}
        self._start = Mark(streams.up)
        self._start.sync()
        self._slab: DeviceSlab | None = None
        self._streams: dict[int, Stream] = {}
        self._open: dict[int, _Open] = {}  # blocks, by index
        self._last: Mark | None = None  # the end of what was computed last
        self._spent: deque[_Spent] = deque()
        self._arrays: dict[tuple[int, ArraySpec], Any] = {}
        self._encoded = False

    def reserve(self, nbytes: int) -> None:
        """Allocate the memory of the device, all at once."""
        self._slab = DeviceSlab(nbytes)

    def block(self, offset: int, nbytes: int) -> Region:
        """Give a piece of it."""
        if self._slab is None:
            raise DeviceError("the pool is closed: its memory is gone")
        return Region(self._slab.pointer + offset, nbytes)

    def pin(self, nbytes: int) -> PinnedSlab:
        """Pin host memory of exactly this size."""
        return PinnedSlab(max(1, nbytes))

    def form(self, array: Any) -> ArraySpec:
        """Describe an array of the host or of the device."""
        return self._library.form(array)

    def form_of(self, shape: tuple[int, ...], dtype: Any) -> ArraySpec:
        """Describe an array of a shape and type."""
        return self._library.form_of(shape, dtype)

    def handles(self, codec: Codec, form: ArraySpec) -> bool:
        """Ask the codec."""
        return codec.handles_on_device(form.shape, form.dtype)

    def on_host(self, array: Any) -> bool:
        """Tell whether an array is in host memory."""
        return self._library.on_host(array)

    def array(self, block: Region, form: ArraySpec, writable: bool) -> Any:
        """Give the array that lies at a place: an alias, so that what is done to it alone ends with the block."""
        key = block.pointer, form
        if key not in self._arrays:
            if len(self._arrays) >= ARRAYS:
                self._arrays.clear()
            self._arrays[key] = self._library.array_at(block.pointer, form)
        return self._library.alias(self._arrays[key])

    def host_copy(self, data: NDArray[np.uint8], form: ArraySpec) -> Any:
        """Give bytes of the host as an array that the caller keeps."""
        return self._library.host_copy(data, form)

    def copy_in(self, data: NDArray[np.uint8], array: Any) -> None:
        """Copy an array of the host into pinned bytes; one with gaps is gathered on the way."""
        source = self._library.as_numpy(array)
        np.copyto(data[: source.nbytes].view(source.dtype).reshape(source.shape), source)

    def fill(self, target: Region, array: Any, after: Sequence[Wait]) -> Mark:
        """Copy an array to the device, after what computes it and before what may free it."""
        stream = self._computing()
        others = [other for other in callers_streams() if int(other.handle) != int(stream.handle)]
        for other in others:
            stream.wait(other)
        _hold(stream, after)
        if self._library.on_host(array):
            source = np.ascontiguousarray(self._library.as_numpy(array))
            copy_async(target.pointer, source.ctypes.data, source.nbytes, stream)
            stop = Mark(stream)
            stop.sync()  # the array is the caller's, who may change it from here on
        else:
            view = self._library.view(array)
            copy_async(target.pointer, view.pointer, view.nbytes, stream)
            stop = Mark(stream)
        for other in others:
            stop.hold(other)
        self._last = stop
        return stop

    def read(self, source: Region, after: Sequence[Wait]) -> NDArray[np.uint8]:
        """Copy a block of the device to the host, and wait for it."""
        stream = self._lanes["down 1"]
        _hold(stream, after)
        data = np.empty(source.nbytes, np.uint8)
        copy_async(data.ctypes.data, source.pointer, source.nbytes, stream)
        Mark(stream).sync()
        return data

    def move(self, lane: str, what: str, key: int, target: Region, source: Region, after: Sequence[Wait]) -> Mark:
        """Enqueue a copy on the stream of a lane."""
        stream = self._lanes[lane]
        _hold(stream, after)
        start = Mark(stream)
        copy_async(target.pointer, source.pointer, source.nbytes, stream)
        return self._span(lane, what, key, start, Mark(stream))

    def encode(
        self, key: int, codec: Codec, form: ArraySpec, target: Region, source: Region, after: Sequence[Wait]
    ) -> Encoding:
        """Enqueue an encoder, and a letter that tells the size of what it makes."""
        stream = self._codec_stream(after)
        start = Mark(stream)
        most = codec.max_bytes(form.shape, form.dtype)
        room = View.at(target.pointer, (most,), np.uint8)
        codec.encode_device(View.at(source.pointer, form.shape, form.dtype), room, stream)
        letter = None if codec.fixed else post(room.pointer, stream)
        event = self._span("codec", "compress", key, start, Mark(stream))
        if letter is None:
            return Encoding(event, partial(int, most), lambda: True)
        return Encoding(event, letter.value, letter.arrived)

    def decode(
        self, key: int, codec: Codec, form: ArraySpec, target: Region, source: Region, after: Sequence[Wait]
    ) -> Mark:
        """Enqueue a decoder."""
        stream = self._codec_stream(after)
        start = Mark(stream)
        payload = View.at(source.pointer, (source.nbytes,), np.uint8)
        codec.decode_device(payload, View.at(target.pointer, form.shape, form.dtype), stream)
        return self._span("codec", "decompress", key, start, Mark(stream))

    def enter(
        self,
        index: int,
        after: Sequence[Wait],
        reads: Sequence[Region],
        writes: Sequence[Region],
        overwrites: Sequence[Region],
    ) -> None:
        """Make the caller's stream wait for the copies that have not ended."""
        stream = self._computing()
        begin = Mark(stream)
        waiting = [wait for wait in after if not wait.event.is_done]
        if waiting:
            for wait in waiting:
                wait.event.hold(stream)
            late = any(wait.why == "use: fetched" for wait in waiting)
            begin = self._span("compute", "late" if late else "stall", index, begin, Mark(stream))
        self._open[index] = _Open(stream, begin, self._last)

    def leave(self, index: int) -> Mark:
        """Mark the end of the block on the stream it began on, after that of all that ended before it."""
        stream, begin, last = self._open.pop(index)
        if self._last is not last:  # blocks inside this one, which may have been on other streams
            self._follow(stream)
        self._last = event = self._span("compute", "use", index, begin, Mark(stream))
        if len(self._spent) >= UNREAD:
            self.settle()
        return event

    def passed(self, event: Any) -> bool:
        """Tell whether a stream has come past an event."""
        return bool(event.is_done)

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""
        for wait in after:
            wait.event.sync()

    def stalled(self) -> float | None:
        """Give the share of its time that the computation stood still, as far as it is known."""
        stall, used = self.metrics.phases["stall"], self.metrics.phases["use"]
        return stall / (stall + used) if used else 0.0

    def settle(self) -> None:
        """Read the times of what has ended."""
        while self._spent and self._spent[0].stop.is_done:
            lane, what, step, start, stop = self._spent.popleft()
            begun, ended = start.since(self._start), stop.since(self._start)
            self.metrics.seconds = max(self.metrics.seconds, ended)
            if what in ("late", "stall"):
                if ended - begun < NOTICED:
                    continue
                self.metrics.late += what == "late"
                what = "stall"
            self.metrics.add(Span(lane, what, step, begun, ended))
        if len(self.metrics.timeline) > SPANS:
            del self.metrics.timeline[: SPANS // 2]

    def finish(self) -> None:
        """Wait for every stream, and raise what a codec noticed."""
        for stream in self._lanes.values():
            Mark(stream).sync()
        if self._last is not None:
            self._last.sync()
        if self._encoded:
            check_damage(self._lanes["codec"])
        self.settle()

    def close(self) -> None:
        """Give the device's memory back."""
        self._arrays.clear()
        if self._slab is not None:
            self._slab.close()
            self._slab = None

    def _computing(self) -> Stream:
        """Give the caller's stream, ordered after what was computed last."""
        handle = self._library.stream()
        stream = self._streams.get(handle)
        if stream is None:
            stream = self._streams[handle] = LEGACY_DEFAULT_STREAM if handle == 0 else Stream.from_handle(handle)
        self._follow(stream)
        return stream

    def _follow(self, stream: Stream) -> None:
        # On the same stream, too: what has its handle now may be another than had it then.
        if self._last is not None:
            self._last.hold(stream)

    def _codec_stream(self, after: Sequence[Wait]) -> Stream:
        stream = self._lanes["codec"]
        if not self._encoded:
            self._encoded = True
            clear_damage(stream)  # what an earlier run left that ended otherwise
        _hold(stream, after)
        return stream

    def _span(self, lane: str, what: str, step: int, start: Mark, stop: Mark) -> Mark:
        self._spent.append(_Spent(lane, what, step, start, stop))
        return stop


def _hold(stream: Stream, after: Sequence[Wait]) -> None:
    for wait in after:
        if not wait.event.is_done:
            wait.event.hold(stream)
