"""The times of what a GPU does: marks in its streams, and what went on between two of them."""

from collections import deque
from collections.abc import Callable
from typing import Any

from cuda.core import Stream

from forebay.cuda.stream import Mark, spare_events
from forebay.metrics import Metrics

NOTICED = 20e-6
"""Seconds from which a wait of the computation is called a stall: less is the cost of the events themselves."""

UNREAD = 1 << 12
"""Spans of a reversal after which the times of those that have ended are read: each has an event until then."""


class StreamClock:
    """Makes the marks of a machine in the context that is current now, and tells metrics of the time between them."""

    start: Mark
    """when the time began"""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._spare: list[Any] = spare_events()
        self._spans: deque[tuple[str, str, int, Mark, Mark]] = deque()  # whose times have not been read

    def __len__(self) -> int:
        """Count the spans whose times have not been read."""
        return len(self._spans)

    def mark(self, stream: Stream) -> Mark:
        """Mark a moment in a stream."""
        return Mark(stream, self._spare)

    def add(self, lane: str, what: str, step: int, start: Mark, stop: Mark) -> Mark:
        """Take note of what a lane does between two marks, and return the second; "late" is a stall for a fetch."""
        self._spans.append((lane, what, step, start, stop))
        return stop

    def read(self, has_ended: Callable[[str, Mark], bool] = lambda lane, stop: stop.is_done) -> None:
        """Tell the metrics of spans, in their order, as long as they have ended; asking the driver takes its time."""
        metrics, times = self._metrics, dict[Mark, float]()
        while self._spans and has_ended(self._spans[0][0], self._spans[0][-1]):
            lane, what, step, start, stop = self._spans.popleft()
            begun = times.pop(start, None)  # the end of one is often the start of the next
            begun = self.time_of(start) if begun is None else begun
            times[stop] = ended = self.time_of(stop)
            metrics.seconds = max(metrics.seconds, ended)
            if what in ("late", "stall"):
                if ended - begun < NOTICED:
                    continue
                metrics.late += what == "late"
                what = "stall"
            metrics.add(lane, what, step, begun, ended)

    def time_of(self, moment: Mark) -> float:
        """Return the seconds of a moment since the start."""
        return moment.since(self.start)


class ReversalClock(StreamClock):
    """The clock of a computation that goes from one mark to the next, and stands still while its caller is away."""

    def __init__(self, metrics: Metrics, compute: Stream) -> None:
        super().__init__(metrics)
        self._compute = compute
        self._turns: list[Mark] = []  # when the caller left and entered
        self._away: list[tuple[float, float]] = []  # the same in seconds, as far as times were read
        self._ended = 0  # spans of the computation
        self._unread: Mark | None = None  # where the last of those ended whose times are not to be read yet
        self.begin()

    def begin(self) -> None:
        """Begin the time anew."""
        self.start = self.last = self.mark(self._compute)

    def leave(self) -> None:
        """Stop."""
        self._turns.append(self.mark(self._compute))

    def enter(self) -> None:
        """Go on."""
        self.last = self.mark(self._compute)
        self._turns.append(self.last)

    @property
    def is_stopped(self) -> bool:
        """Whether the caller is away."""
        return bool(len(self._turns) % 2)

    def add(self, lane: str, what: str, step: int, start: Mark, stop: Mark) -> Mark:
        """Take note of a span; one of the computation begins where that before it ended, with one event for both."""
        super().add(lane, what, step, start, stop)
        if lane == "compute":
            self.last = stop
            self._ended += 1
            if not self._ended % UNREAD:
                self._read_some()
                self._unread = stop
        return stop

    def _read_some(self) -> None:
        """Read the times of what was asked for before the last such moment, where the computation has passed that."""
        until = self._unread
        if until is not None and all(moment.is_done for moment in (*self._turns, until)):
            self.read(lambda lane, stop: stop is not until and (lane == "compute" or stop.is_done))

    def read(self, has_ended: Callable[[str, Mark], bool] = lambda lane, stop: True) -> None:
        """Tell the metrics of spans, at the end of all."""
        times = [moment.since(self.start) for moment in self._turns]
        self._away = list(zip(times[::2], times[1::2], strict=True))
        super().read(has_ended)

    def time_of(self, moment: Mark) -> float:
        """Return the seconds of a moment since the start, those away left out."""
        time = super().time_of(moment)
        return time - sum(min(time, entered) - left for left, entered in self._away if time > left)
