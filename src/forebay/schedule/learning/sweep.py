"""The first sweep of a loop whose steps differ in cost, which nobody knows before they have been run.

The sweep keeps a snapshot wherever a slot is free. Where none is, it asks at each point which of those kept, or the
state that it is at, would be missed least. What is kept is worth its best use: a chain of snapshots, of which the i-th
(from 0) is reversed with s - i slots, and a further one somewhere ahead. So

    worth = min over chains of  sum of cost(p[i], p[i + 1], s - i)  +  the stretch from the last one to the end.

A stretch costs what Revolve takes for it at the mean cost of its steps. The steps ahead are assumed to cost as much as
the latest, or as the mean of all, or far less, or far more; what counts is the worth relative to the whole, averaged
over these. So snapshots that would not be wanted if nothing changed stay as long as their slots are free.

The best chain through every pair of neighbours follows from tables of the best beginnings and the best ends of chains.
A snapshot is missed as much as the best chain that passes it by is dearer than the best of all.

Where there are more slots than a chain has places, the others hold the last states of the loop. They are free again
before any other stretch is reversed.
"""

import numpy as np

from forebay.schedule.actions import Drop, Save
from forebay.schedule.weighted import Numbers, States, forward_steps

PLACES = 32
"""Snapshots of a chain at most; further slots hold the last states of the loop."""
POINTS = 200
"""Points at which the sweep asks what to keep, about."""
DEAR, LATEST = 2.0, 20
"""How many times dearer than the mean of the latest, of so many, a step is behind which the sweep asks too."""
AHEAD = 10
"""States ahead at which the next snapshot may be assumed."""
FUTURES = np.array([0.25, 1.0, 4.0])
"""What the steps ahead may cost, relative to the mean of all so far."""
RECENT = 0.7
"""How likely it is, against these, that they cost as much as the latest."""


class LearningSweep:
    """Where a first sweep keeps snapshots: told what steps cost, it says what to save and drop.

    It counts in laps of `lap` steps each, the last of which may be shorter.

    Examples
    --------
    >>> sweep = LearningSweep(steps=12, snapshots=2)
    >>> kept = [0]
    >>> for reached in range(1, 12):
    ...     for action in sweep.learn(9.0 if reached == 5 else 1.0):
    ...         kept.append(action.step) if isinstance(action, Save) else kept.remove(action.step)
    >>> kept == sweep.kept, kept
    (True, [0, 5])
    """

    def __init__(self, steps: int, snapshots: int, lap: int = 1) -> None:
        self._lap = lap
        self._end = -(-steps // lap)  # in laps, as all below
        self._slots = snapshots - np.arange(min(snapshots, PLACES))  # of the stretch behind each place of a chain
        self._least = int(self._slots[-1]) - 1
        # The steps that Revolve takes for a stretch of so many laps, by slots from the least: for one in the middle,
        # which ends before the next snapshot, and for the last, which the sweep has run to its end.
        steps_of, slots = np.arange(self._end + 1) * lap, range(self._least, snapshots + 1)
        self._passes = np.array([_repeated(np.maximum(steps_of, 1), number) for number in slots])
        self._further = np.array([_repeated(steps_of + 1, number) for number in slots]) - steps_of
        self._costs = np.zeros(self._end)
        self._known = 0
        self._kept = [0]
        self._asked = 0
        self._spacing = -(-self._end // POINTS) if snapshots < self._end else 1
        self._spare = snapshots - len(self._slots)
        self._spared: list[int] = []
        # What the stretch between two of those kept costs, by its place; and chains that end at one, by their length.
        self._between = np.zeros((1, 1, len(self._slots)))
        self._begun = np.full((1, len(self._slots)), np.inf)
        self._begun[0, 0] = 0

    @property
    def kept(self) -> list[int]:
        """The steps of the snapshots that are alive."""
        return sorted(point * self._lap for point in self._kept + self._spared)

    def learn(self, cost: float) -> list[Save | Drop]:
        """Take note of what the next lap has cost, and return what to do at its end."""
        self._costs[self._known] = cost
        self._known += 1
        if self._known == self._end:
            return []
        if self._end - self._known <= self._spare:
            self._spared.append(self._known)
            return [Save(self._known * self._lap)]
        return self._asking() if self._is_worth_asking() else []

    def _asking(self) -> list[Save | Drop]:
        """Keep the state in a chain, where another is missed less."""
        point = self._known
        total = np.concatenate([[0.0], np.cumsum(self._costs[:point])])
        self._asked = point
        self._remember(point, total)
        save = Save(point * self._lap)
        if len(self._kept) <= len(self._slots):
            return [save]
        missed = self._missed_least(total)
        dropped = self._kept[missed]
        self._forget(missed)
        return [] if dropped == point else [Drop(dropped * self._lap), save]

    def _is_worth_asking(self) -> bool:
        if len(self._slots) == 1:
            return False
        if self._known - self._asked >= self._spacing:
            return True
        *latest, cost = self._costs[max(0, self._known - LATEST) : self._known].tolist()
        return bool(cost * len(latest) > DEAR * sum(latest))

    def _remember(self, point: int, total: Numbers) -> None:
        """Add a snapshot to the tables."""
        number, behind = len(self._kept), self._behind(point, total)
        between = np.zeros((number + 1, number + 1, len(self._slots)))
        between[:-1, :-1], between[:-1, -1] = self._between, behind
        begun = np.full(len(self._slots), np.inf)
        begun[1:] = (self._begun[:, :-1] + behind[:, :-1]).min(0)
        self._between, self._begun = between, np.vstack([self._begun, begun])
        self._kept.append(point)

    def _behind(self, point: int, total: Numbers) -> Numbers:
        """Return what the stretches from each snapshot to a point cost, by place; the last step is not repeated."""
        starts = np.array(self._kept)
        lengths = point - starts
        repeated = total[point] - total[starts] - (total[point] - total[point - 1]) / self._lap
        mean = repeated / np.maximum(lengths * self._lap - 1, 1)
        return np.asarray(mean[:, None] * self._passes[self._slots - self._least, lengths[:, None]])

    def _ahead(self, futures: Numbers, total: Numbers) -> Numbers:
        """Return what the steps behind each snapshot cost where the next is ahead, by future, snapshot and place."""
        point, lap, starts = self._kept[-1], self._lap, np.array(self._kept)
        following = np.unique(np.linspace(point + 1, self._end, AHEAD).round().astype(int))
        lengths, slots = following - starts[:, None], self._slots - self._least
        passes = self._passes[slots[:, None], lengths[:, None, :]]
        further = self._further[slots[:, None] - 1, self._end - following]
        steps = np.maximum(lengths * lap - 1, 1)
        known = (total[point] - total[starts])[:, None] / steps
        guessed = ((following - point) * lap - 1) / steps
        means = known + futures[:, None, None] * guessed
        return np.asarray((means[:, :, None] * passes + futures[:, None, None, None] * further).min(3))

    def _missed_least(self, total: Numbers) -> int:
        """Return the number of the snapshot, of those kept and the latest, without which the reversal is cheapest."""
        number, point = len(self._kept), self._kept[-1]
        mean = total[point] / point
        first = max(0, point - max(10, point // 4))
        futures = np.append(mean * FUTURES, (total[point] - total[first]) / (point - first)) / self._lap
        futures = np.maximum(futures, 1e-300)
        likely = np.append(np.full(len(FUTURES), (1 - RECENT) / len(FUTURES)), RECENT)
        ahead = self._ahead(futures, total)
        ended = ahead.copy()  # the best ends of chains
        for start in range(number - 2, -1, -1):
            best = (self._between[start, start + 1 :, :-1] + ended[:, start + 1 :, 1:]).min(1)
            np.minimum(ended[:, start, :-1], best, out=ended[:, start, :-1])
        # The best chain with each pair of neighbours; behind the last one of a chain comes the end.
        through = np.full((len(futures), number, number + 1), np.inf)
        through[:, :, number] = (self._begun + ahead).min(2)
        pairs = self._begun[:, None, :-1] + self._between[:, :, :-1]
        through[:, :, :number] = (pairs + ended[:, None, :, 1:]).min(3)
        through[:, np.tri(number, number + 1, dtype=bool)] = np.inf
        passing = np.minimum.accumulate(through, axis=1)
        passing = np.minimum.accumulate(passing[:, :, ::-1], axis=2)[:, :, ::-1]
        middle = np.arange(1, number)
        without = passing[:, middle - 1, middle + 1]
        whole = total[point] + futures * (self._end - point) * self._lap + ended[:, 0, 0]
        scores = (likely / np.maximum(whole, 1e-300)) @ without
        return number - 1 if scores[-1] <= scores.min() * (1 + 1e-12) else 1 + int(scores.argmin())

    def _forget(self, number: int) -> None:
        """Leave a snapshot out of the tables."""
        del self._kept[number]
        self._between = np.delete(np.delete(self._between, number, 0), number, 1)
        self._begun = np.delete(self._begun, number, 0)
        for stop in range(number, len(self._kept)):
            self._begun[stop, 1:] = (self._begun[:stop, :-1] + self._between[:stop, stop, :-1]).min(0)


def _repeated(visits: States, slots: int) -> Numbers:
    """Count the forward steps of Revolve for stretches of so many states."""
    if slots < 2:
        return np.where(visits > 1, visits * (visits - 1.0) / 2 if slots else np.inf, 0.0)
    return forward_steps(visits, slots)
