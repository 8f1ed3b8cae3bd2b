"""Which states a first sweep keeps where it has many slots: with these, most steps are run twice at most.

A stretch between two snapshots is kept whole when it is reversed, if it has no more steps than there are slots by then.
All of its steps but the last are run a second time. So a snapshot is worth what the step before it costs, as long as
the stretches stay so short. A snapshot that is dropped makes one stretch of two, which may take longer than both did;
and it leaves a slot to every stretch behind it. Those that are cheapest to drop give the slots to the steps ahead, as
many as make the whole cheapest. The steps ahead are assumed to cost what the latest did, and to go on as they changed.
"""

import numpy as np

from forebay.schedule import binomial
from forebay.schedule.learning.laps import Laps, Numbers, Points, repeated

WORTHWHILE = 0.3
"""What a snapshot must spare, in costs of a step ahead, to be kept before its turn."""


class ManySnapshots:
    """The points that a sweep keeps, of which it may drop any for the one that it is at."""

    def __init__(self, laps: Laps, snapshots: int) -> None:
        self._laps, self._snapshots = laps, snapshots
        self.kept = [0]
        self._ranks = np.arange(snapshots)  # the slots that will be taken before each of those kept, in the end

    def take(self, point: int) -> int | None:
        """Keep a point, and return which one is dropped for it: itself, or None while a slot is free."""
        if len(self.kept) < self._snapshots:
            self.kept.append(point)
            return None
        laps, last, points = self._laps, self.kept[-1], np.array([*self.kept, point])
        ahead = self._cost_ahead()
        missed, behind = self._missed(points)
        order = missed.argsort(kind="stable")
        lost = np.concatenate([[0.0], missed[order].cumsum()])  # by how many are dropped
        numbers, left = np.arange(len(lost)), (laps.end - point) * laps.lap
        # Either the point is kept and the stretch before it ends here, or that one goes on to the next, or the end.
        keeping = lost[1:] + ahead * (repeated(np.array([left + 1]), numbers[1:]) - left)
        further = (laps.end - last) * laps.lap
        mean = (laps.total[point] - laps.total[last] + ahead * left) / further
        passing = lost + mean * repeated(np.array([further + 1]), numbers + 1) - ahead * left
        ranks = _ranks_without(order[: int(keeping.argmin()) + 1], len(points))
        dropped = int(passing.argmin())
        is_due = dropped > 0 and (point - last) * laps.lap >= binomial.split(further + 1, dropped + 1)
        if not is_due and keeping.min() + behind >= passing.min() - WORTHWHILE * ahead:
            self._ranks = ranks[:-1]
            return point
        number = 1 + int(order[0])
        self._ranks = np.delete(ranks, number)
        self.kept.append(point)
        return self.kept.pop(number)

    def _cost_ahead(self) -> float:
        """Return what a step ahead may cost: as the latest did, and as many times more or less as they do than all."""
        laps, first = self._laps, self._laps.latest()
        latest = (laps.total[laps.known] - laps.total[first]) / (laps.known - first)
        return float(latest**2 * laps.known / max(laps.total[laps.known], 1e-300) / laps.lap)

    def _missed(self, points: Points) -> tuple[Numbers, float]:
        """Return by how much each snapshot but the first would be missed, and what the last stretch costs."""
        slots = self._snapshots - self._ranks
        alone = self._stretches(points[:-1], points[1:], slots)
        roomier = self._stretches(points[:-1], points[1:], np.minimum(slots + 1, self._snapshots))
        joined = self._stretches(points[:-2], points[2:], slots[:-1])
        gained = (alone - roomier)[::-1].cumsum()[::-1]  # by all stretches from one on, if each had a slot more
        return joined - alone[:-1] - alone[1:] - np.append(gained[2:], 0.0), float(alone[-1])

    def _stretches(self, starts: Points, stops: Points, slots: Points) -> Numbers:
        return self._laps.mean(starts, stops) * repeated((stops - starts) * self._laps.lap, slots)


def _ranks_without(dropped: Points, count: int) -> Points:
    """Return how many of the snapshots before each will stay, where some but the first are dropped."""
    stay = np.ones(count, int)
    stay[dropped + 1] = 0
    return stay.cumsum() - 1
