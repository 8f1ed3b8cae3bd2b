"""The line of a section on the map, and where positions of a survey fall on it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError


@dataclass(frozen=True)
class Line:
    """The line of a section: from where its x is 0, through any point farther along; x and y on the map, in metres.

    Examples
    --------
    >>> along, off = Line((1000.0, 500.0), (4000.0, 4500.0)).project([1600.0, 1304.0], [1300.0, 1297.0])
    >>> along.round(3).tolist(), off.round(3).tolist()
    ([1000.0, 820.0], [0.0, 235.0])
    """

    begin: tuple[float, float]
    end: tuple[float, float]

    def __post_init__(self) -> None:
        if not 0 < math.dist(self.begin, self.end) < math.inf:
            raise WaveError(f"a line from {self.begin} to {self.end}: give two positions (x, y) that differ")

    def project(self, x: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how far along the line positions are, and how far off it."""
        length = math.dist(self.begin, self.end)
        right, up = ((end - begin) / length for begin, end in zip(self.begin, self.end, strict=True))
        x, y = np.asarray(x, float) - self.begin[0], np.asarray(y, float) - self.begin[1]
        return right * x + up * y, np.abs(right * y - up * x)


def line_through(x: NDArray[Any], y: NDArray[Any]) -> Line:
    """Return the line along which positions spread most, from the side of the first of them."""
    places = np.unique(np.column_stack([x, y]), axis=0)
    middle = places.mean(axis=0)
    direction = np.linalg.eigh(np.cov(places.T))[1][:, -1]
    along = (places - middle) @ direction
    first = float((np.array([x[0], y[0]]) - middle) @ direction)
    ends = [middle + far * direction for far in (along.min(), along.max())]
    if first > (along.min() + along.max()) / 2:
        ends.reverse()
    begin, end = (tuple(map(float, place)) for place in ends)
    return Line(begin, end)  # type: ignore[arg-type]
