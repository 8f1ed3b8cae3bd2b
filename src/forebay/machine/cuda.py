"""A GPU and its pinned host memory: lanes are streams, waits are events, and the host waits for neither.

Whoever computes on the caller's own streams uses this as it is, as torch does: a copy begins once the stream that
computes has come so far, and memory is used again only by a stream that was made to wait for the copy. So the peak of
device memory follows from the order of the calls alone, not from how far the host has run ahead.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from cuda.bindings import driver
from cuda.core import LEGACY_DEFAULT_STREAM, Stream

from forebay.codec import Codec
from forebay.codec.device import check_damage, clear_damage
from forebay.cuda.arrays import View
from forebay.cuda.copy import copy_async
from forebay.cuda.driver import checked, current_context, on_device
from forebay.cuda.mailbox import post
from forebay.cuda.slab import DeviceSlab, PinnedSlab
from forebay.cuda.stream import Mark, create_streams, kept_streams, spare_events
from forebay.errors import DeviceError
from forebay.machine.arrays.library import DeviceLibrary
from forebay.machine.machine import Coded, Encoding, Move, Pair, Wait
from forebay.machine.region import Region
from forebay.metrics import Metrics
from forebay.tasks import ThreadTask

MARKED = 2**24
"""Copies of fewer bytes than this end together: who needs the first of them waits for no more than that."""

NOTICED = 20e-6
"""Seconds from which a wait of the computation is called a stall: less is the cost of the events themselves."""

NOTHING = nullcontext()
"""What surrounds something without doing anything."""


class Copied(NamedTuple):
    """A copy between the device and the host."""

    end: Any
    computing: Any
    """the stream that computes with the memory that is read or written"""
    lane: int
    """the identity of the stream that copies"""
    number: int
    """of the copies of its lane, which end in their order"""

    @property
    def is_done(self) -> bool:
        """Whether a stream has come past it."""
        return bool(self.end.is_done)


class _Here(threading.local):
    """What a thread has done."""

    entered = False


class CudaMachine:
    """A GPU, with pinned host memory as the tier below.

    Convolutional networks save hundreds of tensors a step, so what is asked of the driver for each of them is little: a
    stream that waits for a copy has waited for all that its lane was asked for before.

    `device` is the GPU of the arrays, `library` what computes on it. The streams of its lanes are its own, or those
    that the process has `kept`.
    """

    _start: Mark
    """when the time began"""

    def __init__(self, device: int, library: DeviceLibrary, kept: bool = False) -> None:
        self.device, self.library, self.metrics = device, library, Metrics()
        self._here = _Here()
        self._held = ExitStack()  # what is given back at the end
        with on_device(device):
            self.streams = self._held.enter_context(kept_streams()) if kept else create_streams()
            self._context = current_context()
            self._spare = spare_events()
        self.lanes = {"up 1": self.streams.up, "down 1": self.streams.down, "codec": self.streams.compute}
        self._slabs: dict[int, Region] = {}  # by tier
        self._spans: deque[tuple[str, str, int, Mark, Mark]] = deque()  # whose times have not been read
        self._encoded = False
        self._callers: dict[int, Stream] = {}  # the streams that computations run on, by their handles
        self._numbers = count(1)
        self._waited: dict[tuple[int, int], int] = {}  # the last copy of a lane that a stream was made to wait for
        self._lock = threading.Lock()

    def current(self) -> AbstractContextManager[None]:
        """Make the device current: a thread of autograd, or one that collects garbage, may not have used it yet."""
        there = self._here.entered and self.library.current_device() == self.device
        return NOTHING if there else self._enter()

    @contextmanager
    def _enter(self) -> Iterator[None]:
        with self.library.on_device(self.device):
            checked(driver.cuCtxSetCurrent(self._context), "entering the context of a device")
            self._here.entered = True
            yield

    def mark_on(self, stream: Stream) -> Mark:
        """Mark a moment in a stream."""
        return Mark(stream, self._spare)

    def _time_of(self, moment: Mark) -> float:
        """Return its seconds since the start."""
        return moment.since(self._start)

    def reserve(self, tier: int, nbytes: int) -> None:
        """Allocate the memory of the device, the first tier, all at once."""
        with self.current():
            slab = DeviceSlab(nbytes)
        self._held.callback(slab.close)
        self._slabs[tier] = Region(slab.pointer, nbytes)

    def region(self, tier: int, offset: int, nbytes: int) -> Region:
        """Return a piece of memory."""
        slab = self._slabs.get(tier)
        if slab is None:
            raise DeviceError("the pool is closed: its memory is gone")
        return slab.cut(offset, nbytes)

    def pin(self, nbytes: int) -> PinnedSlab:
        """Pin host memory of exactly this size."""
        with self.current():
            return PinnedSlab(max(1, nbytes))

    def passed(self, event: Any) -> bool:
        """Tell whether something has been done, by a thread and then by its stream."""
        if isinstance(event, ThreadTask):
            if not event.done():
                return False
            event = event.result()
        return event is None or bool(event.is_done)

    def sync(self, after: Sequence[Wait]) -> None:
        """Wait for events."""
        for event in events_of(after):
            event.sync()

    def copies(self, lane: str, what: str, step: int, pairs: Sequence[Pair], after: Sequence[Wait]) -> Any:
        """Enqueue copies on the stream of a lane."""
        stream = self.lanes[lane]
        with self.current():
            start = self._begin(lane, step, after)
            for target, source in pairs:
                copy_async(target.pointer, source.pointer, source.nbytes, stream)
            return self._end(lane, what, step, start)

    def encode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Encoding:
        """Enqueue encoders, and letters that tell the sizes of what they make."""
        stream = self.lanes[lane]
        with self.current():
            self._begin_codecs(stream)
            start = self._begin(lane, step, after)
            letters = [
                self.encode_at(codec, View.at(array.pointer, spec.shape, spec.dtype), encoding.pointer, stream)
                for codec, spec, array, encoding in coded
            ]
            event = self._end(lane, "compress", step, start)
        return Encoding(
            event, lambda: [size() for size, _ in letters], lambda: all(arrived() for _, arrived in letters)
        )

    def decode(self, lane: str, step: int, coded: Sequence[Coded], after: Sequence[Wait]) -> Any:
        """Enqueue decoders."""
        stream = self.lanes[lane]
        with self.current():
            self._begin_codecs(stream)
            start = self._begin(lane, step, after)
            for codec, spec, array, encoding in coded:
                target = View.at(array.pointer, spec.shape, spec.dtype)
                codec.decode_device(View.at(encoding.pointer, (encoding.nbytes,), np.uint8), target, stream)
            return self._end(lane, "decompress", step, start)

    def _begin(self, lane: str, step: int, after: Sequence[Wait]) -> Mark:
        """Make a lane wait, and mark where it goes on."""
        hold(self.lanes[lane], after)
        return self.mark_on(self.lanes[lane])

    def _end(self, lane: str, what: str, step: int, start: Mark) -> Any:
        """Mark where a lane has come to, and time what it did."""
        return self._add(lane, what, step, start, self.mark_on(self.lanes[lane]))

    def _add(self, lane: str, what: str, step: int, start: Mark, stop: Mark) -> Mark:
        """Take note of what a lane does between two marks, and return the second; "late" is a stall for a fetch."""
        self._spans.append((lane, what, step, start, stop))
        return stop

    def _read_times(self, has_ended: Callable[[str, Mark], bool] = lambda lane, stop: stop.is_done) -> None:
        """Tell the metrics of spans, in their order, as long as they have ended; asking the driver takes its time."""
        metrics, times = self.metrics, dict[Mark, float]()
        while self._spans and has_ended(self._spans[0][0], self._spans[0][-1]):
            lane, what, step, start, stop = self._spans.popleft()
            begun = times.pop(start, None)  # the end of one is often the start of the next
            begun = self._time_of(start) if begun is None else begun
            times[stop] = ended = self._time_of(stop)
            metrics.seconds = max(metrics.seconds, ended)
            if what in ("late", "stall"):
                if ended - begun < NOTICED:
                    continue
                metrics.late += what == "late"
                what = "stall"
            metrics.add(lane, what, step, begun, ended)

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Copied]:
        """Enqueue copies on a lane, after what was asked of the computation so far."""
        copies: list[Copied] = []
        unmarked, size = 0, 0  # of those since the last mark
        stream = self.lanes[lane]
        with self.current():  # events and the default stream are those of the current device
            computing = self.computing()
            Mark(computing, self._spare).hold(stream)
            with self._lock:  # numbers are in the order of the lane
                for number, (target, source, after) in enumerate(moves, 1):
                    for wait in after:
                        self._hold(wait.event, stream)
                    copy_async(target.pointer, source.pointer, source.nbytes, stream)
                    unmarked, size = unmarked + 1, size + source.nbytes
                    if size >= MARKED or number == len(moves):
                        end = Mark(stream, self._spare)
                        copies += [Copied(end, computing, id(stream), next(self._numbers))] * unmarked
                        unmarked = size = 0
        return copies

    def _hold(self, copied: Copied, stream: Stream) -> None:
        """Make a stream wait for a copy, unless it has waited for it or for a later one of its lane."""
        if not self.has_waited(copied, stream):
            copied.end.hold(stream)
            self._waited[copied.lane, id(stream)] = copied.number

    def has_waited(self, event: Copied, stream: Stream | None = None) -> bool:
        """Tell whether a stream, or the one that computes, has waited for a copy, or for a later one of its lane."""
        stream = self.computing() if stream is None else stream
        return event.number <= self._waited.get((event.lane, id(stream)), 0)

    def hold(self, wait: Wait) -> None:
        """Make the computation wait for a copy."""
        with self.current():
            self._hold(wait.event, self.computing())

    def free_after(self, wait: Wait) -> bool:
        """Let memory that a copy uses be freed: the stream that would be given it again waits for the copy."""
        copied = wait.event
        if self.has_waited(copied, copied.computing):
            return True
        with suppress(Exception):  # at the end of the process the driver may be gone
            with self.current():
                self._hold(copied, copied.computing)
            return True
        return False

    def computing(self) -> Stream:
        """Return the caller's stream."""
        handle = self.library.stream(self.device)
        stream = self._callers.get(handle)
        if stream is None:
            stream = self._callers[handle] = LEGACY_DEFAULT_STREAM if handle == 0 else Stream.from_handle(handle)
        return stream

    def encode_at(
        self, codec: Codec, source: View, pointer: int, stream: Stream
    ) -> tuple[Callable[[], int], Callable[[], bool]]:
        """Enqueue an encoder, and a letter with its size; return what waits for the size, and what asks for it."""
        most = codec.max_bytes(source.shape, source.dtype)
        codec.encode_device(source, View.at(pointer, (most,), np.uint8), stream)
        if codec.fixed:
            return partial(int, most), lambda: True
        letter = post(pointer, stream)
        return letter.value, letter.arrived

    def _begin_codecs(self, stream: Stream) -> None:
        """Forget, before the first encoder, what an earlier run left that ended otherwise."""
        if not self._encoded:
            self._encoded = True
            clear_damage(stream)

    def check_codecs(self, stream: Stream) -> None:
        """Raise what a codec noticed."""
        if self._encoded:
            check_damage(stream)

    def sync_lanes(self) -> None:
        """Wait for the copies under way."""
        with suppress(Exception), self.current():  # at the end of the process the driver may be gone
            for stream in (self.streams.down, self.streams.up):
                Mark(stream, self._spare).sync()

    def free(self) -> None:
        """Free the device's memory, and give back what was lent."""
        self._slabs.clear()
        self._held.close()


def events_of(after: Sequence[Wait]) -> Iterator[Any]:
    """Yield the CUDA events of waits, once the threads that make them have; what the host has seen end has none."""
    for wait in after:
        event = wait.event.result() if isinstance(wait.event, ThreadTask) else wait.event
        if event is not None:
            yield event


def hold(stream: Stream, after: Sequence[Wait]) -> None:
    """Make a stream wait."""
    for event in events_of(after):
        event.hold(stream)
