"""What the lanes did and how late it was, told to the metrics once its times can be read."""

from collections import deque
from collections.abc import Callable
from typing import Any

from forebay.metrics import Metrics, Span

NOTICED = 20e-6
"""Seconds from which a wait of the computation is called a stall: less is the cost of the events themselves."""


class Spans:
    """Times between events, which are read when these have passed; a timeline keeps `most` of them, None keeps all."""

    def __init__(self, metrics: Metrics, most: int | None = None) -> None:
        self._metrics, self._most = metrics, most
        self._unread: deque[tuple[str, str, int, Any, Any]] = deque()

    def __len__(self) -> int:
        return len(self._unread)

    def add(self, lane: str, what: str, step: int, start: Any, stop: Any) -> Any:
        """Take note of what a lane does between two events, and return the second; "late" is a stall for a fetch."""
        self._unread.append((lane, what, step, start, stop))
        return stop

    def settle(self, time_of: Callable[[Any], float], passed: Callable[[Any], bool] = lambda event: True) -> None:
        """Tell of those that have ended, in their order; `time_of` reads the time of an event that has passed."""
        metrics, times = self._metrics, dict[Any, float]()
        while self._unread and passed(self._unread[0][-1]):
            lane, what, step, start, stop = self._unread.popleft()
            for event in (start, stop):  # the end of one is the start of the next
                if event not in times:
                    times[event] = time_of(event)
            begun, ended = times[start], times[stop]
            metrics.seconds = max(metrics.seconds, ended)
            if what in ("late", "stall"):
                if ended - begun < NOTICED:
                    continue
                metrics.late += what == "late"
                what = "stall"
            metrics.add(Span(lane, what, step, begun, ended))
        if self._most is not None and len(metrics.timeline) > self._most:
            del metrics.timeline[: self._most // 2]
