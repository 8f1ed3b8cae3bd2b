"""What a sweep knows of the laps that it has run: their costs, and what stretches of them take to be reversed."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Points = NDArray[np.int64]

TERMS = 8
"""Repetitions of a step that are told apart; where there are more, only that it is far too many matters."""


class Laps:
    """The costs of the laps of a sweep, of `lap` steps each; the last may be shorter."""

    def __init__(self, steps: int, lap: int) -> None:
        self.lap, self.end = lap, -(-steps // lap)
        self.costs = np.zeros(self.end)
        self.total = np.zeros(self.end + 1)
        """from the start to each point"""
        self.known = 0

    def add(self, cost: float) -> None:
        """Take note of what the next lap has cost."""
        self.costs[self.known] = cost
        self.total[self.known + 1] = self.total[self.known] + cost
        self.known += 1

    def latest(self) -> int:
        """Return the point from which on laps count as the latest: a quarter of all, and some at least."""
        return max(0, self.known - max(10, self.known // 4))

    def mean(self, starts: Points, stops: Points) -> Numbers:
        """Return the mean cost of a step from points to others; the last step of each is not repeated, and left out."""
        last = (self.total[stops] - self.total[stops - 1]) / self.lap
        repeated = self.total[stops] - self.total[starts] - last
        return np.asarray(repeated / np.maximum((stops - starts) * self.lap - 1, 1))


def repeated(visits: Points, slots: Points) -> Numbers:
    """Count the forward steps of Revolve for stretches of so many states, with at least one slot each.

    A state that is reached r times was passed by in each of the r - 1 times before, so the counts add up to

        sum over i of  max(0, visits - C(slots + i, i)).

    Examples
    --------
    >>> repeated(np.array([6, 12, 12]), np.array([1, 3, 20])).tolist()
    [15.0, 21.0, 11.0]
    """
    reach, steps = np.ones(np.broadcast(visits, slots).shape), np.zeros(1)
    for term in range(1, TERMS + 1):
        steps = steps + np.maximum(visits - reach, 0)
        reach = reach * (slots + term) / term
    return steps
