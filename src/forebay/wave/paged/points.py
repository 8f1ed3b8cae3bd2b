"""The points that send and hear in a pass: each of those of a visit's step is in the planes that the step computes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.paged.course import Planes, Span
from forebay.wave.survey.points import Points


@dataclass(frozen=True, eq=False)
class PassPoints:
    """Points that send, sorted by cell, and points that hear, by plane; cells are those of the whole fields."""

    senders: Points
    factors: Any
    listeners: Points | None
    heard: NDArray[np.int64]
    """the plane in whose step each listener hears, ascending"""
    order: NDArray[np.int64]
    """the listener that each of those was"""
    plane: int
    """cells of a plane"""

    def sending(self, span: Span) -> tuple[Points, Any]:
        """Return what sends in some planes, and its factors."""
        points = self.senders
        begin, end = np.searchsorted(points.touched, [span[0] * self.plane, span[1] * self.plane])
        touched, shares = points.touched[begin:end], points.shares[begin : end + 1]
        return replace(points, touched=touched, shares=shares), self.factors[begin:end]

    def listening(self, span: Span) -> tuple[Points, NDArray[np.int64]]:
        """Return what hears in some planes, and which listeners those are."""
        assert self.listeners is not None
        begin, end = np.searchsorted(self.heard, span)
        return replace(self.listeners, starts=self.listeners.starts[begin : end + 1]), self.order[begin:end]

    def shifted(self, points: Points, origin: int) -> Points:
        """Return points of a window in which a plane lies at its beginning."""
        return replace(points, cells=points.cells - origin * self.plane, touched=points.touched - origin * self.plane)


def pass_points(senders: Points, factors: Any, listeners: Points | None, planes: Planes, plane: int) -> PassPoints:
    """Sort points for passes.

    A listener hears in the step of a plane in the midst of those that it reads, or, near an end, of the next computed.
    """
    if listeners is None:
        nothing = np.zeros(0, np.int64)
        return PassPoints(senders, factors, None, nothing, nothing, plane)
    starts, cells = np.asarray(listeners.starts, np.int64), listeners.cells
    first, last = _ends(listeners, plane)
    middle = np.clip((first + last) // 2, planes.halo, planes.count - planes.halo - 1)
    order = np.argsort(middle, kind="stable")
    counts = np.diff(starts)[order]
    taken = np.repeat(starts[:-1][order] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(counts.sum())
    sorted_points = replace(
        listeners,
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(listeners.starts.dtype),
        cells=cells[taken],
        weights=listeners.weights[taken],
    )
    return PassPoints(senders, factors, sorted_points, middle[order], order, plane)


def span_of(points: Points | None, plane: int) -> int:
    """Return how many planes beyond that in whose step it hears a listener reads at most."""
    first, last = _ends(points, plane) if points is not None else (np.zeros(1, int),) * 2
    return int(np.max(last - (first + last) // 2, initial=0))


def _ends(points: Points, plane: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last plane that each listener reads; the first of all where it reads none."""
    starts, cells = np.asarray(points.starts, np.int64), np.append(points.cells, 0)
    there = starts[1:] > starts[:-1]
    return tuple(np.where(there, cells[at], 0) // plane for at in (starts[:-1], starts[1:] - 1))  # type: ignore[return-value]
