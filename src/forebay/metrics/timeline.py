"""What happened when, on the computation and on each link, and its form for trace viewers."""

import json
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple, overload


class Span(NamedTuple):
    """One thing that happens on one lane of a timeline."""

    lane: str
    """compute, or a link: "up 1" is from tier 1 to tier 0"""
    what: str
    step: int
    start: float
    stop: float


ROW = Struct("<BIdf")
"""A span as it is kept: the number of its lane and what, its step, when it started, and its seconds."""
STEPS = 1 << 32
"""Steps that are told apart."""
_naming = threading.Lock()


class Timeline(Sequence[Span]):
    """Spans in the order in which they were told, from any thread: 17 bytes each, objects only when they are read.

    Examples
    --------
    >>> timeline = Timeline()
    >>> timeline.add("compute", "forward", 7, 0.5, 0.75)
    >>> len(timeline), timeline[0], timeline[:-1]
    (1, Span(lane='compute', what='forward', step=7, start=0.5, stop=0.75), [])
    """

    def __init__(self) -> None:
        self._rows = array("B")
        self._kinds: dict[tuple[str, str], int] = {}  # the number of each lane and what

    def add(self, lane: str, what: str, step: int, start: float, stop: float) -> None:
        """Take note of what happened."""
        kind = self._kinds.get((lane, what))
        if kind is None:
            with _naming:
                kind = self._kinds.setdefault((lane, what), len(self._kinds))
        self._rows.frombytes(ROW.pack(kind, step % STEPS, start, stop - start))

    def forget(self, count: int) -> None:
        """Forget the spans that were told first."""
        del self._rows[: count * ROW.size]

    def __len__(self) -> int:
        return len(self._rows) // ROW.size

    def __iter__(self) -> Iterator[Span]:
        return self._spans(self._rows.tobytes())  # others may go on telling meanwhile

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        rows = range(len(self))[index]
        if isinstance(rows, int):
            return next(self._spans(self._rows[rows * ROW.size : (rows + 1) * ROW.size].tobytes()))
        return [self[row] for row in rows]

    def _spans(self, rows: bytes) -> Iterator[Span]:
        kinds = list(self._kinds)
        for kind, step, start, seconds in ROW.iter_unpack(rows):
            lane, what = kinds[kind]
            yield Span(lane, what, step, start, start + seconds)


def write_trace(spans: Iterable[Span], path: Path | str) -> None:
    """Write a timeline as Chrome trace JSON, which chrome://tracing and Perfetto show."""
    lanes: dict[str, int] = {}
    events: list[dict[str, object]] = []
    for span in spans:
        thread = lanes.setdefault(span.lane, len(lanes))
        events.append(
            {
                "name": span.what,
                "ph": "X",
                "pid": 0,
                "tid": thread,
                "ts": span.start * 1e6,
                "dur": (span.stop - span.start) * 1e6,
                "args": {"step": span.step},
            }
        )
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": thread, "args": {"name": lane}}
        for lane, thread in lanes.items()
    ]
    Path(path).write_text(json.dumps({"traceEvents": names + events}))
