"""What happened when, on the computation and on each link, and its form for trace viewers."""

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import length_hint
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


ROW = Struct("<HIdf")
"""A span as it is kept: the number of its lane and what, its step, when it started, and its seconds."""
SECONDS = Struct("<f")
SHORTER = 1 - 2**-24
"""What makes of a number in four bytes the next smaller one."""
STEPS = 1 << 32
"""Steps that are told apart."""
PIECE = ROW.size << 9
"""Bytes in which spans are kept: a list that grows would be moved about, and leave holes between a loop's states."""
_growing = threading.Lock()
"""Held where nothing is made that Python's collector would look at, which may close what tells spans."""


def _renew_lock() -> None:
    """Let a forked child have a lock that no thread of its parent holds."""
    global _growing
    _growing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Timeline(Sequence[Span]):
    """Spans in the order in which they were told, from any thread: 18 bytes each, objects only when they are read.

    Examples
    --------
    >>> timeline = Timeline()
    >>> timeline.add("compute", "forward", 7, 0.5, 0.75)
    >>> len(timeline), timeline[0], timeline[:-1]
    (1, Span(lane='compute', what='forward', step=7, start=0.5, stop=0.75), [])
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], int] = {}  # the number of each lane and what
        self._pieces: list[bytearray] = []
        self._grow()

    def _grow(self, full: bytearray | None = None) -> None:
        piece = bytearray(PIECE)
        free = piece, iter(range(0, PIECE, ROW.size))  # whoever takes a place from an iterator has it alone
        with _growing:
            if full is None or full is self._pieces[-1]:  # no other thread has been here first
                self._pieces.append(piece)
                self._free = free

    def add(self, lane: str, what: str, step: int, start: float, stop: float) -> None:
        """Take note of what happened."""
        name = lane, what
        kind = self._kinds.get(name)
        if kind is None:
            with _growing:
                kind = self._kinds.setdefault(name, len(self._kinds))
        (seconds,) = SECONDS.unpack(SECONDS.pack(stop - start))
        if start + seconds > stop:  # nothing is told to stop later than it did, which may be the end of all
            seconds *= SHORTER
        piece, places = self._free
        for place in places:
            ROW.pack_into(piece, place, kind, step % STEPS, start, seconds)
            return
        self._grow(piece)
        self.add(lane, what, step, start, stop)

    def forget(self, most: int) -> None:
        """Forget the spans that were told first, in whole pieces of memory, and at most so many."""
        del self._pieces[: most * ROW.size // PIECE]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timeline) and list(self) == list(other)

    def __len__(self) -> int:
        return len(self._pieces) * PIECE // ROW.size - length_hint(self._free[1])

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> list[Span]: ...
    def __getitem__(self, index: int | slice) -> Span | list[Span]:
        rows = range(len(self))[index]
        if not isinstance(rows, int):
            return [self[row] for row in rows]
        piece, begin = divmod(rows * ROW.size, PIECE)
        return next(self._spans([ROW.unpack_from(self._pieces[piece], begin)]))

    def __iter__(self) -> Iterator[Span]:
        rows = chain.from_iterable(map(ROW.iter_unpack, list(self._pieces)))
        return self._spans(islice(rows, len(self)))

    def _spans(self, rows: Iterable[tuple[int, int, float, float]]) -> Iterator[Span]:
        names = list(self._kinds)
        for kind, step, start, seconds in rows:
            lane, what = names[kind]
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
