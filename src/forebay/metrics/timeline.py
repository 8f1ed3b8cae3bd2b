"""What happened when, on the computation and on each link, and its form for trace viewers."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Span(NamedTuple):
    """One thing that happens on one lane of a timeline."""

    lane: str
    """compute, or a link: "up 1" is from tier 1 to tier 0"""
    what: str
    step: int
    start: float
    stop: float


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
