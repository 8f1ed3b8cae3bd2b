"""The points that send and hear in a pass: those of a visit's step are in the planes that the step computes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.paged.course import Planes, Span
from forebay.wave.survey.points import Points

Ascending = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PassPoints:
    """Cells that are sent to, and points that hear, both in the order of planes."""

    senders: Points
    factors: Any
    sends: Ascending
    """the plane of each cell that is sent to"""
    listeners: Points | None
    hears: Ascending
    """the plane in whose step each listener hears"""
    order: Ascending
    """which listener each of those is"""
    first: int = 0
    """listeners before these"""

    def sending(self, span: Span) -> tuple[Points, Any]:
        """Return what sends to some planes, and its factors."""
        begin, end = np.searchsorted(self.sends, span)
        touched, shares = self.senders.touched[begin:end], self.senders.shares[begin : end + 1]
        return replace(self.senders, touched=touched, shares=shares), self.factors[begin:end]

    def listening(self, span: Span) -> tuple[Points | None, int]:
        """Return what hears in some planes, if anything does, and how many listeners are before that."""
        begin, end = (int(number) for number in np.searchsorted(self.hears, span))
        if begin == end or self.listeners is None:
            return None, 0
        return replace(self.listeners, starts=self.listeners.starts[begin : end + 1]), self.first + begin

    def within(self, span: Span, cells: int, put: Callable[[Any], Any] = np.ascontiguousarray) -> "PassPoints":
        """Return the points of some planes, where the kernels work; their cells are counted from another one on."""
        begin, end = np.searchsorted(self.sends, span)
        senders, kept = self.senders, slice(begin, end)
        shares = senders.shares[begin : end + 1]
        each = slice(shares[0], shares[-1])
        senders = replace(
            senders,
            touched=put(senders.touched[kept] - cells),
            shares=put(shares - shares[0]),
            sharers=put(senders.sharers[each]),
            share_weights=put(senders.share_weights[each]),
        )
        begin, end = np.searchsorted(self.hears, span)
        listeners = self.listeners
        if listeners is not None:
            starts = listeners.starts[begin : end + 1]
            each = slice(starts[0], starts[-1])
            near, weights = listeners.cells[each] - cells, listeners.weights[each]
            listeners = replace(listeners, starts=put(starts - starts[0]), cells=put(near), weights=put(weights))
        heard = slice(begin, end)
        own = self.hears[heard], self.order[heard], self.first + int(begin)
        return PassPoints(senders, put(self.factors[kept]), self.sends[kept], listeners, *own)


def pass_points(senders: Points, factors: Any, listeners: Points | None, planes: Planes, plane: int) -> PassPoints:
    """Sort points for passes through planes of so many cells.

    A listener hears in the step of a plane in the midst of those that it reads.
    """
    sends = senders.touched // plane
    if listeners is None:
        nothing = np.zeros(0, np.int64)
        return PassPoints(senders, factors, sends, None, nothing, nothing)
    starts, cells = np.asarray(listeners.starts, np.int64), np.append(listeners.cells, 0)
    there = starts[1:] > starts[:-1]  # whether it reads any
    first, last = (np.where(there, cells[at], 0) // plane for at in (starts[:-1], starts[1:] - 1))
    middle = np.clip((first + last) // 2, planes.halo, planes.count - planes.halo - 1)
    order = np.argsort(middle, kind="stable")
    counts = np.diff(starts)[order]
    ends = np.concatenate([[0], np.cumsum(counts)])
    taken = np.repeat(starts[:-1][order] - ends[:-1], counts) + np.arange(ends[-1])
    ordered = replace(listeners, starts=ends, cells=cells[taken], weights=listeners.weights[taken])
    return PassPoints(senders, factors, sends, ordered, middle[order], order)
