"""A GPU beside a computation that is the caller's own, as torch's: batches of tensors on lanes that only copy."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from cuda.core import Stream

from forebay.cuda.copy import copy_async
from forebay.machine.arrays.library import DeviceLibrary
from forebay.machine.cuda import CudaMachine
from forebay.machine.machine import Move, Wait

MARKED = 2**24
"""Copies of fewer bytes than this end together: who needs the first of them waits for no more than that."""


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


class CudaTensors(CudaMachine):
    """A GPU, for tensors on the streams of whoever computes with them.

    Convolutional networks save hundreds of tensors a step, so what is asked of the driver for each of them is little: a
    stream that waits for a copy has waited for all that its lane was asked for before.
    """

    def __init__(self, device: int, library: DeviceLibrary) -> None:
        super().__init__(device, library)
        self._numbers = count(1)
        self._waited: dict[tuple[int, int], int] = {}  # the last copy of a lane that a stream was made to wait for
        self._lock = threading.Lock()

    def moves(self, lane: str, moves: Sequence[Move]) -> list[Copied]:
        """Enqueue copies on a lane, after what was asked of the computation so far."""
        copies: list[Copied] = []
        unmarked, size = 0, 0  # of those since the last mark
        stream = self.lanes[lane]
        with self.current():  # events and the default stream are those of the current device
            computing = self.computing()
            self.clock.mark(computing).hold(stream)
            with self._lock:  # numbers are in the order of the lane
                for number, (target, source, after) in enumerate(moves, 1):
                    for wait in after:
                        self._hold(wait.event, stream)
                    copy_async(target.pointer, source.pointer, source.nbytes, stream)
                    unmarked, size = unmarked + 1, size + source.nbytes
                    if size >= MARKED or number == len(moves):
                        end = self.clock.mark(stream)
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

    def sync_lanes(self) -> None:
        """Wait for the copies under way."""
        with suppress(Exception), self.current():  # at the end of the process the driver may be gone
            for lane in ("down 1", "up 1"):
                self.clock.mark(self.lanes[lane]).sync()
