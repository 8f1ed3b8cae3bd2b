"""What was done when, as charts tell it: with the steps that it covered, its bytes, and whether it was done before."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.metrics import Span
from forebay.planner.drawn.planned import Planned
from forebay.schedule import Forward
from forebay.units import seconds_to_text, to_text

AGAIN = "forward again"
"""What running steps forward is called that ran before."""


class Doing(NamedTuple):
    """A span, told in steps of the loop."""

    lane: str
    what: str
    first: int
    last: int
    """step at its end; of what moves a snapshot, that of the snapshot"""
    nbytes: int
    start: float
    stop: float


class _Sum(NamedTuple):
    """Things of one kind that happen in one piece of time."""

    times: int
    first: int
    last: int
    nbytes: int
    seconds: float

    def plus(self, doing: Doing) -> "_Sum":
        first, last = min(self.first, doing.first), max(self.last, doing.last)
        seconds = self.seconds + doing.stop - doing.start
        return _Sum(self.times + 1, first, last, max(self.nbytes, doing.nbytes), seconds)

    def told(self, what: str) -> str:
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        times = f", {self.times} times" if self.times > 1 else ""
        nbytes = f", {to_text(self.nbytes)}" + (" each" if self.times > 1 else "") if self.nbytes else ""
        return f"{what}: {steps}{times}{nbytes}, {seconds_to_text(self.seconds)}"


def doings_of(plan: Planned, spans: Sequence[Span], snapshot_bytes: float | None = None) -> list[Doing]:
    """List what happened, in the order in which it began.

    Parameters
    ----------
    plan
        What was carried out, or simulated.
    spans
        Its timeline, measured or predicted.
    snapshot_bytes
        Of each snapshot, where that is known better than by the plan.
    """
    nbytes = round(plan.snapshot_bytes if snapshot_bytes is None else snapshot_bytes)
    runs = (operation for operation in plan if isinstance(operation, Forward))
    reached, doings = 0, []
    for span in sorted(spans, key=lambda span: span.start):
        first, last, what, carried = span.step * plan.every, span.step * plan.every, span.what, nbytes
        if what == "forward":
            # Where snapshots were lost and computed again, there are more spans than planned.
            run = next(runs, None)
            if run is None:
                last += plan.every
            else:
                first, last = run.start * plan.every, min(run.stop * plan.every, plan.steps)
            what, carried, reached = AGAIN if first < reached else what, 0, max(reached, last)
        elif what == "backward":
            last, carried = min(first + plan.every, plan.steps), 0
        elif what == "stall":
            carried = 0
        doings.append(Doing(span.lane, what, first, last, carried, span.start, span.stop))
    return doings


def told_by_piece(doings: Sequence[Doing], pieces: int, end: float) -> Iterator[tuple[str, float, float, str]]:
    """Yield lanes with from when to when there is one thing to tell of them, and what."""
    sums: dict[str, list[dict[str, _Sum]]] = {}
    for doing in doings:
        mine = sums.setdefault(doing.lane, [{} for _ in range(pieces)])
        first = min(int(doing.start / end * pieces), pieces - 1)
        for piece in mine[first : int(doing.stop / end * pieces) + 1]:
            had = piece.get(doing.what, _Sum(0, doing.first, doing.last, 0, 0.0))
            piece[doing.what] = had.plus(doing)
    for lane, found in sums.items():
        texts = ["\n".join(each.told(what) for what, each in piece.items()) for piece in found]
        begin = 0
        for number in range(1, pieces + 1):
            if number == pieces or texts[number] != texts[begin]:
                if texts[begin]:
                    yield lane, begin * end / pieces, number * end / pieces, texts[begin]
                begin = number
