"""A GPU and its pinned host memory: lanes are streams, waits are events, and the host waits for neither.

A copy begins once the stream that computes has come so far, and memory is used again only by a stream that was made to
wait for the copy. So the peak of device memory follows from the order of the calls alone, not from how far the host has
run ahead.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

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
from forebay.cuda.stream import Mark, create_streams, kept_streams
from forebay.errors import DeviceError
from forebay.machine.arrays.library import DeviceLibrary
from forebay.machine.cuda_clock import StreamClock
from forebay.machine.machine import Coded, Encoding, Pair, Wait
from forebay.machine.region import Region
from forebay.metrics import Metrics
from forebay.tasks import ThreadTask

NOTHING = nullcontext()
"""What surrounds something without doing anything."""


class _Here(threading.local):
    """What a thread has done."""

    entered = False


class CudaMachine:
    """A GPU, with pinned host memory as the tier below.

    `device` is the GPU of the arrays, `library` what computes on it. The streams of its lanes are its own, or those
    that the process has `kept`.
    """

    def __init__(self, device: int, library: DeviceLibrary, kept: bool = False) -> None:
        self.device, self.library, self.metrics = device, library, Metrics()
        self._here = _Here()
        self._held = ExitStack()  # what is given back at the end
        with on_device(device):
            streams = self._held.enter_context(kept_streams()) if kept else create_streams()
            self._context = current_context()
            self.clock = StreamClock(self.metrics)
        self.lanes = {"up 1": streams.up, "down 1": streams.down, "codec": streams.compute}
        self._slabs: dict[int, Region] = {}  # by tier
        self._encoded = False
        self._callers: dict[int, Stream] = {}  # the streams that computations run on, by their handles

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
            letters = [self.encode_at(each.codec, _source(each), each.encoding.pointer, stream) for each in coded]
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
            for codec, spec, array, encoding, _ in coded:
                target = View.at(array.pointer, spec.shape, spec.dtype)
                codec.decode_device(View.at(encoding.pointer, (encoding.nbytes,), np.uint8), target, stream)
            return self._end(lane, "decompress", step, start)

    def _begin(self, lane: str, step: int, after: Sequence[Wait]) -> Mark:
        """Make a lane wait, and mark where it goes on."""
        hold(self.lanes[lane], after)
        return self.clock.mark(self.lanes[lane])

    def _end(self, lane: str, what: str, step: int, start: Mark) -> Any:
        """Mark where a lane has come to, and time what it did."""
        return self.clock.add(lane, what, step, start, self.clock.mark(self.lanes[lane]))

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

    def free(self) -> None:
        """Free the device's memory, and give back what was lent."""
        self._slabs.clear()
        self._held.close()


def _source(coded: Coded) -> View:
    """Return where an array lies that is to be encoded."""
    whole = View.at(coded.array.pointer, coded.spec.shape, coded.spec.dtype)
    return whole if coded.strides is None else replace(whole, contiguous=False, strides=coded.strides)


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
