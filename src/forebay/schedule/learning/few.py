"""Which states a first sweep keeps where it has few slots: those of which the best chains can be made.

What is kept is worth its best use: a chain of snapshots, of which the i-th (from 0) is reversed with s - i slots, and a
further one somewhere ahead. So

    worth = min over chains of  sum of cost(p[i], p[i + 1], s - i)  +  the stretch from the last one to the end.

What a stretch costs comes from a table over all points at which the sweep has asked, as in `schedule.weighted`; between
neighbours of these, it is what Revolve takes at the mean cost of a step. The steps ahead are assumed to cost as much as
the latest, or as the mean of all, less or more; what counts is the worth relative to the whole, averaged over these. So
snapshots that would not be wanted if nothing changed stay as long as their slots are free.

The best chain through every pair of neighbours follows from tables of the best beginnings and the best ends of chains.
A snapshot is missed as much as the best chain that passes it by is dearer than the best of all.
"""

import numpy as np

from forebay.schedule.learning.laps import Laps, Numbers, Points
from forebay.schedule.weighted import forward_steps

AHEAD = 10
"""States ahead at which the next snapshot may be assumed."""
FUTURES = np.array([0.1, 0.5, 2.0])
"""What the steps ahead may cost, relative to the mean of all so far."""
LATEST = 0.7
"""How likely it is, against these, that they cost as much as the latest."""


class FewSnapshots:
    """The points that a sweep keeps, of which it may drop any for the one that it is at."""

    def __init__(self, laps: Laps, snapshots: int) -> None:
        self._laps, self._slots = laps, np.arange(snapshots, 0, -1)  # of the stretch behind each place of a chain
        # The steps that Revolve takes for a stretch of so many laps, by slots: for one in the middle, which ends before
        # the next snapshot, and for the last, which the sweep has run to its end.
        steps = np.arange(laps.end + 1) * laps.lap
        self._passes = np.array([_repeated(np.maximum(steps, 1), slots) for slots in range(snapshots + 1)])
        self._further = np.array([_repeated(steps + 1, slots) for slots in range(snapshots + 1)]) - steps
        self._asked = [0]
        self._kept = [0]  # numbers of those asked
        self._costs = np.full((snapshots, 1, 1), np.inf)  # of stretches from one point asked to another, by place
        self._split = self._costs.copy()  # with the way to the other

    @property
    def kept(self) -> list[int]:
        """The points that are kept."""
        return [self._asked[number] for number in self._kept]

    def take(self, point: int) -> int | None:
        """Keep a point, and return which one is dropped for it: itself, or None while a slot is free."""
        self._add(point)
        self._kept.append(len(self._asked) - 1)
        if len(self._kept) <= len(self._slots):
            return None
        return self._asked[self._kept.pop(self._missed_least())]

    def _add(self, point: int) -> None:
        """Find what stretches to a new point cost."""
        count, starts = len(self._asked), np.array(self._asked)
        if count == self._costs.shape[1]:
            self._costs, self._split = _doubled(self._costs), _doubled(self._split)
        stretches = self._unsplit(starts, point)
        for place in range(len(self._slots) - 2, -1, -1):
            split = (self._split[place, :count, :count] + stretches[place + 1]).min(1)
            np.minimum(stretches[place], split, out=stretches[place])
        self._costs[:, :count, count] = stretches
        self._split[:, :count, count] = stretches + self._laps.total[point] - self._laps.total[starts]
        self._asked.append(point)

    def _unsplit(self, starts: Points, stop: int) -> Numbers:
        """Return what stretches to a point cost as Revolve at their mean cost; with one slot, exactly."""
        stops = np.full(len(starts), stop)
        stretches: Numbers = self._laps.mean(starts, stops) * self._passes[self._slots][:, stop - starts]
        if self._laps.lap == 1:
            reached = self._laps.total[:stop].cumsum()
            stretches[-1] = reached[stop - 1] - reached[starts] - (stop - 1 - starts) * self._laps.total[starts]
        return stretches

    def _missed_least(self) -> int:
        """Return the number of the snapshot, of those kept and the latest, without which the reversal is cheapest."""
        laps, kept, number = self._laps, np.array(self._kept), len(self._kept)
        point, total, end = laps.known, laps.total, laps.end
        first = max(0, int(np.searchsorted(self._asked, laps.latest(), side="right")) - 1)
        begun_at = self._asked[first]
        futures = np.append(FUTURES * total[point] / point, (total[point] - total[begun_at]) / (point - begun_at))
        futures = np.maximum(futures / laps.lap, 1e-300)
        likely = np.append(np.full(len(FUTURES), (1 - LATEST) / len(FUTURES)), LATEST)
        between = self._costs[:, kept[:, None], kept].transpose(1, 2, 0)
        ahead = self._ahead(futures, kept, first)
        begun = np.full((number, len(self._slots)), np.inf)  # the best beginnings of chains, by place
        begun[0, 0] = 0
        for stop in range(1, number):
            begun[stop, 1:] = (begun[:stop, :-1] + between[:stop, stop, :-1]).min(0)
        ended = ahead.copy()  # the best ends of chains
        for start in range(number - 2, -1, -1):
            best = (between[start, start + 1 :, :-1] + ended[:, start + 1 :, 1:]).min(1)
            np.minimum(ended[:, start, :-1], best, out=ended[:, start, :-1])
        # The best chain with each pair of neighbours; behind the last one of a chain comes the end.
        through = np.full((len(futures), number, number + 1), np.inf)
        through[:, :, number] = (begun + ahead).min(2)
        pairs = begun[:, None, :-1] + between[:, :, :-1]
        through[:, :, :number] = (pairs + ended[:, None, :, 1:]).min(3)
        through[:, np.tri(number, number + 1, dtype=bool)] = np.inf
        passing = np.minimum.accumulate(through, axis=1)
        passing = np.minimum.accumulate(passing[:, :, ::-1], axis=2)[:, :, ::-1]
        middle = np.arange(1, number)
        whole = total[point] + futures * (end - point) * laps.lap + ended[:, 0, 0]
        scores = (likely / np.maximum(whole, 1e-300)) @ passing[:, middle - 1, middle + 1]
        return number - 1 if scores[-1] <= scores.min() * (1 + 1e-12) else 1 + int(scores.argmin())

    def _ahead(self, futures: Numbers, kept: Points, first: int) -> Numbers:
        """Return what the steps behind each snapshot cost where the next is ahead, by future, snapshot and place.

        What a table spares of Revolve's cost behind each snapshot, and since the first of the latest, it will spare on.
        """
        laps, point, starts = self._laps, self._laps.known, np.array(self._asked)[kept]
        latest = self._spared(np.array([first]))
        spared = np.vstack([self._spared(kept[:-1]), latest])
        following = np.unique(np.linspace(point + 1, laps.end, AHEAD).round().astype(int))
        lengths = following - starts[:, None]
        passes = self._passes[self._slots[:, None], lengths[:, None, :]]
        further = self._further[self._slots[:, None] - 1, laps.end - following]
        steps = np.maximum(lengths * laps.lap - 1, 1)
        known = ((laps.total[point] - laps.total[starts])[:, None] / steps)[:, None, :] * spared[:, :, None]
        guessed = (((following - point) * laps.lap - 1) / steps)[:, None, :] * latest[0][:, None]
        each = futures[:, None, None, None]
        return np.asarray(((known + each * guessed) * passes + each * latest[0][:, None] * further).min(3))

    def _spared(self, numbers: Points) -> Numbers:
        """Return the cost of stretches to the latest point, relative to Revolve at their mean cost, by place."""
        starts, point = np.array(self._asked)[numbers], self._laps.known
        plain = self._laps.mean(starts, np.full(len(starts), point)) * self._passes[self._slots][:, point - starts]
        known = self._costs[:, numbers, len(self._asked) - 1]
        return np.where(plain > 0, known / np.maximum(plain, 1e-300), 1.0).T


def _doubled(table: Numbers) -> Numbers:
    """Return a table with room for twice as many points."""
    count = table.shape[1]
    larger = np.full((len(table), 2 * count, 2 * count), np.inf)
    larger[:, :count, :count] = table
    return larger


def _repeated(visits: Points, slots: int) -> Numbers:
    """Count the forward steps of Revolve for stretches of so many states."""
    if slots < 2:
        return np.where(visits > 1, visits * (visits - 1.0) / 2 if slots else np.inf, 0.0)
    return forward_steps(visits, slots)
