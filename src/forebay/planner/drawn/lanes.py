"""What each lane of a timeline spends its time on, piece by piece: true to seconds however short spans are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

HEIGHT = 0.8
"""Of a lane that is busy all the time, where lanes lie 1 apart."""


class Spanned(Protocol):
    """Something that took its time on a lane."""

    @property
    def lane(self) -> str:
        """The computation, or a link."""

    @property
    def what(self) -> str:
        """What was done."""

    @property
    def start(self) -> float:
        """When it began, in seconds."""

    @property
    def stop(self) -> float:
        """When it ended."""


class Band(NamedTuple):
    """What one lane spends on one kind of work: from `base` up to `top` in each piece of time."""

    lane: str
    what: str
    base: NDArray[np.float64]
    top: NDArray[np.float64]


def lanes_of(spans: Sequence[Spanned]) -> list[str]:
    """List lanes from the lowest in a picture to the highest, which computes."""
    return [*sorted({span.lane for span in spans} - {"compute"}, reverse=True), "compute"]


def bands(spans: Sequence[Spanned], edges: NDArray[np.float64], kinds: Sequence[str]) -> Iterator[Band]:
    """Yield the bands of all lanes, kinds one on the other: their heights are the shares of each piece of time."""
    numbers = {lane: number for number, lane in enumerate(lanes_of(spans))}
    times: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        times[span.lane, span.what].append((span.start, span.stop))
    for lane, number in numbers.items():
        base = np.full(len(edges) - 1, number - HEIGHT / 2)
        for what in kinds:
            if (lane, what) in times:
                top = base + HEIGHT * np.diff(_busy(times[lane, what], edges)) / np.diff(edges)
                yield Band(lane, what, base, top)
                base = top


def _busy(times: Sequence[tuple[float, float]], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the seconds in spans before each edge."""
    starts, stops = np.array(times).T
    moments = np.concatenate([starts, stops])
    order = np.argsort(moments, kind="stable")
    running = np.cumsum(np.repeat([1.0, -1.0], len(times))[order])[:-1]
    seconds = np.concatenate([[0.0], np.cumsum(running * np.diff(moments[order]))])
    before: NDArray[np.float64] = np.interp(edges, moments[order], seconds)
    return before
