"""The streams of an engine, their order and timing, and making one current in the libraries that compute on it.

Streams are those of cuda.core: ``stream.record()`` gives an event, ``stream.wait(event)`` orders one stream after
another, ``event.sync()`` makes the host wait for that event alone. Where there are several for every operation, the
events are our own: see `Mark`. Nothing here waits for a whole device.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from cuda.bindings import driver
from cuda.core import LEGACY_DEFAULT_STREAM, Stream, StreamOptions

from forebay.cuda.driver import checked, current_device


@dataclass(frozen=True)
class Streams:
    """The three streams of an engine: none of them waits for the default stream, or for each other without an event."""

    compute: Stream
    """Where callbacks and codecs run."""
    up: Stream
    """Host to device."""
    down: Stream
    """Device to host."""


class Urgency(Enum):
    """Whose work a GPU begins first, where several streams have some: numbers are those of the driver."""

    FIRST = -1
    BESIDE = 0
    """What runs where others leave room."""


def create_streams(urgency: Urgency = Urgency.FIRST) -> Streams:
    """Create the streams of an engine on the current device; they are destroyed when nothing refers to them."""
    device = current_device()
    # Said aloud although it is cuda.core's default: a blocking stream would serialise against the default one.
    options = StreamOptions(nonblocking=True, priority=urgency.value)
    return Streams(*(device.create_stream(options=options) for _ in range(3)))


_idle_streams: dict[tuple[int, Urgency], list[Streams]] = {}  # by context


@contextmanager
def kept_streams(urgency: Urgency = Urgency.FIRST) -> Iterator[Streams]:
    """Lend streams that the process keeps for the next engine, once all that was asked of them has ended.

    The memory pools of CuPy and torch keep what was freed for the stream it was used on: with new streams for every
    reversal, each would take new memory and leave it there.
    """
    context = int(checked(driver.cuCtxGetCurrent(), "asking for the context"))
    idle = _idle_streams.setdefault((context, urgency), [])
    streams = idle.pop() if idle else create_streams(urgency)
    yield streams
    idle.append(streams)  # not after an error: nobody knows what is still under way


class Mark:
    """A moment in a stream, which knows its time.

    An engine marks several for every operation. So these are made of the driver's own calls, and their events are used
    again when nothing refers to them any more: those of `spare`, which are of the stream's context, or, where it is not
    given, those of the context that is current.
    """

    __slots__ = ("_event", "_spare", "stream")

    def __init__(self, stream: Stream, spare: list[Any] | None = None) -> None:
        self.stream = stream
        self._spare = spare_events() if spare is None else spare
        try:
            self._event = self._spare.pop()
        except IndexError:  # asking first would not do: other threads take some, too
            self._event = checked(driver.cuEventCreate(0), "making an event")
        checked(driver.cuEventRecord(self._event, stream.handle), "recording an event")

    @property
    def is_done(self) -> bool:
        """Whether the stream has come past it."""
        result = driver.cuEventQuery(self._event)
        if result[0] == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        checked(result, "asking for an event")
        return True

    def sync(self) -> None:
        """Wait until the stream has come past it."""
        checked(driver.cuEventSynchronize(self._event), "waiting for an event")

    def hold(self, stream: Stream) -> None:
        """Make another stream wait for it."""
        checked(driver.cuStreamWaitEvent(stream.handle, self._event, 0), "making a stream wait")

    def since(self, start: "Mark") -> float:
        """Return the device's seconds from another mark to this one; both have been passed."""
        return (
            float(checked(driver.cuEventElapsedTime(start._event, self._event), "reading the time of an event")) / 1e3
        )

    def __del__(self) -> None:
        self._spare.append(self._event)


_spare_events: dict[int, list[Any]] = {}  # by context


def spare_events() -> list[Any]:
    """Return the events of the current context that are to be used again."""
    return _spare_events.setdefault(int(checked(driver.cuCtxGetCurrent(), "asking for the context")), [])


def mark(stream: Stream) -> Mark:
    """Mark the end of what has been asked of a stream so far."""
    return Mark(stream)


def seconds(start: Mark, end: Mark) -> float:
    """Return the device's seconds between two marks, waiting for the second."""
    end.sync()
    return end.since(start)


@contextmanager
def current(stream: Stream) -> Iterator[Stream]:
    """Make a stream the current one of CuPy and of torch, those of them that the program has imported.

    Both keep a current stream per thread. On leaving, each is given back the stream it had.

    Parameters
    ----------
    stream : cuda.core.Stream
        A stream of the current device.
    """
    with ExitStack() as stack:
        if cupy := _imported("cupy"):
            stack.enter_context(cupy.cuda.Stream.from_external(stream))
        if (torch := _imported("torch")) and torch.cuda.is_available():
            external = torch.cuda.ExternalStream(int(stream.handle), device=stream.device.device_id)
            stack.enter_context(torch.cuda.stream(external))
        yield stream


def callers_streams(device: int | None = None) -> tuple[Stream, ...]:
    """Return the streams that are current in CuPy and torch, each once: where the caller's arrays were computed.

    Those are of the current device, which is `device` where that is given.

    An engine that is about to switch to its own stream makes it wait for these, and makes these wait for it at the end.
    """
    streams = [stream for name in ("cupy", "torch") if (stream := stream_of(name, device)) is not None]
    return tuple({int(stream.handle): stream for stream in streams}.values())


def stream_of(library: str, device: int | None = None) -> Stream | None:
    """Return the current stream of ``"cupy"`` or ``"torch"``; None where the program does not use the library."""
    module = _imported(library)
    # Asking an idle torch for its stream would set up its context for nothing.
    if module is None or (library == "torch" and not module.cuda.is_initialized()):
        return None
    # torch may remember another device as the current one than the driver does.
    handle = (
        module.cuda.current_stream(device).cuda_stream if library == "torch" else module.cuda.get_current_stream().ptr
    )
    return Stream.from_handle(int(handle)) if int(handle) else LEGACY_DEFAULT_STREAM


def _imported(name: str) -> ModuleType | None:
    """Return a library only if the program has imported it, and not while it is still being imported."""
    module = sys.modules.get(name)
    return module if module is not None and hasattr(module, "cuda") else None
