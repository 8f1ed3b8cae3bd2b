"""Where snapshots are kept when their sizes are learned on the way: as many as fit, and of those too many the least.

A plan counts in slots. Here there are bytes, some of them free, and sizes that differ from step to step. The next
snapshot is put where the binomial schedule would put it with as many slots as the free bytes make at the sizes seen so
far, or as all bytes make, where earlier snapshots turned out to lie too close. Where there is no room, the snapshot
goes whose stretch is cheapest to run again from the one before it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache

from forebay.schedule import binomial

NEWEST = 0.25
"""The weight of the newest size in what is expected of the next."""
SHARE = 8
"""One in so many snapshots is chosen at once to be given up, one after the other, before they are looked at anew."""
LOOKED_AT = 32
"""Sizes of a stretch that are looked at, at most about."""


class SnapshotSizes:
    """The bytes of all snapshots so far, by step.

    Examples
    --------
    >>> sizes = SnapshotSizes()
    >>> sizes.add(0, 100)
    >>> sizes.add(9, 200)
    >>> sizes.expected, sizes.typical(5, 20), sizes.typical(1, 4)
    (125.0, 200.0, 100.0)
    """

    def __init__(self) -> None:
        self.expected = 0.0
        """of the next one"""
        self._steps, self._nbytes = array("q"), array("q")  # in the order of steps

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, nbytes: int) -> None:
        """Learn the size of a snapshot."""
        self.expected += (nbytes - self.expected) * (NEWEST if self._steps else 1.0)
        number = bisect_left(self._steps, step)
        if number == len(self._steps) or self._steps[number] != step:
            self._steps.insert(number, step)
            self._nbytes.insert(number, nbytes)
        self._nbytes[number] = nbytes

    def typical(self, start: int, stop: int) -> float:
        """Return the mean size from one step to another, or the size nearest before."""
        first, last = bisect_left(self._steps, start), bisect_right(self._steps, stop)
        known = self._nbytes[first:last] or self._nbytes[max(0, first - 1) : first] or self._nbytes[:1]
        known = known[:: max(1, len(known) // LOOKED_AT)]
        return sum(known) / max(1, len(known))


def forward_steps(steps: int, slots: int) -> int:
    """Count the forward steps of the best reversal of a whole loop with so many slots."""
    return binomial.forward_steps(steps + 1, max(1, min(slots, steps)))


def next_save(position: int, steps: int, free: int, slots: int) -> int:
    """Return where the first sweep keeps its next snapshot, after the one at a position; the end where it keeps none.

    `free` are the slots that are free now, `slots` all that there would be if every snapshot had the newest size.

    Examples
    --------
    >>> next_save(0, 100, free=100, slots=100), next_save(0, 100, free=3, slots=4), next_save(0, 100, free=0, slots=1)
    (1, 55, 100)
    """
    slots = max(1, min(slots, steps))
    wanted = slots - bisect_right(_positions(steps, slots), position)
    return min(steps, position + binomial.split(steps + 1 - position, max(free, wanted, 0) + 1))


@lru_cache(64)
def _positions(steps: int, slots: int) -> list[int]:
    """List the steps that the binomial schedule keeps in its first sweep."""
    positions, position = [0], 0
    while len(positions) < slots:
        position += binomial.split(steps + 1 - position, slots - len(positions) + 1)
        positions.append(position)
    return positions


def spares(kept: Sequence[int], steps: int) -> list[int]:
    """List snapshots that cost the fewest steps to do without, cheapest first; no two neighbours, and never the first.

    Examples
    --------
    >>> spares([0, 10, 11, 20, 30], 40)
    [30]
    """
    slots = len(kept)
    gaps = [stop - start for start, stop in zip(kept, [*kept[1:], steps + 1], strict=True)]
    alone = [binomial.forward_steps(gap, slots - number) for number, gap in enumerate(gaps)]
    dearer = sorted(
        (
            binomial.forward_steps(gaps[number - 1] + gaps[number], slots - number + 1)
            - sum(alone[number - 1 : number + 1]),
            number,
        )
        for number in range(1, slots)
    )
    chosen: list[int] = []
    for _, number in dearer:
        if number - 1 not in chosen and number + 1 not in chosen:
            chosen.append(number)
        if len(chosen) * SHARE >= slots:
            break
    return [kept[number] for number in chosen]
