"""The first sweep of a loop whose steps differ in cost, which nobody knows before they have been run.

The sweep keeps a snapshot wherever a slot is free. Where none is, it asks at each point which of those kept, or the
state that it is at, would be missed least. With few slots that is found out exactly, as far as the past goes, and is
asked at some points only; with many, by what each one spares by itself.
"""

from forebay.schedule.actions import Drop, Save
from forebay.schedule.learning.few import FewSnapshots
from forebay.schedule.learning.laps import Laps
from forebay.schedule.learning.many import ManySnapshots

FEW = 24
"""Slots that are few, unless no step has to be run more than twice with them."""
POINTS = 128
"""Points at which a sweep with few slots asks what to keep, about."""
DEAR, LATEST = 2.0, 20
"""How many times dearer than the mean of the latest, of so many, a step is behind which the sweep asks too."""


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
        self._laps, self._snapshots = Laps(steps, lap), snapshots
        is_few = snapshots < FEW and steps > snapshots * (snapshots + 1) // 2
        self._choice = (FewSnapshots if is_few else ManySnapshots)(self._laps, snapshots)
        self._spacing = -(-self._laps.end // POINTS) if is_few else 1
        self._asked = 0

    @property
    def kept(self) -> list[int]:
        """The steps of the snapshots that are alive."""
        return [point * self._laps.lap for point in self._choice.kept]

    def learn(self, cost: float, asks: bool = True) -> list[Save | Drop]:
        """Take note of what the next lap has cost, and return what to do at its end; nothing where it may not ask."""
        laps = self._laps
        laps.add(cost)
        if laps.known == laps.end or not asks or not self._is_worth_asking():
            return []
        self._asked, save = laps.known, Save(laps.known * laps.lap)
        dropped = self._choice.take(laps.known)
        if dropped is None:
            return [save]
        return [] if dropped == laps.known else [Drop(dropped * laps.lap), save]

    def _is_worth_asking(self) -> bool:
        *latest, cost = self._laps.costs[max(0, self._laps.known - LATEST) : self._laps.known].tolist()
        is_dear = cost * len(latest) > DEAR * sum(latest)
        return self._snapshots > 1 and (is_dear or self._laps.known - self._asked >= self._spacing)
