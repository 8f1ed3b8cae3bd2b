"""The schedules on levels with prices that `choose` tries: which they are, and what each takes at least.

Which there are depends on the loop and the costs alone. The budget only says which of them fit.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from forebay.planner.prices import estimate
from forebay.planner.simulate import Work
from forebay.schedule import Hierarchical, Level, binomial

SHORT_LOOP, LONG_LOOP = 400, 10_000
"""Steps up to which every schedule is looked at, and beyond which only those of few movements are."""
SHARES, MORE_SHARES = (0.1, 0.25, 0.5, 1.0), (0.15, 0.35, 0.7)
"""Prices that are tried, as shares of the seconds that a snapshot takes down and up again."""
TINY_LOOP = 100
"""Steps up to which more prices are tried."""
LARGEST_FIRST, MOST_SAVES = 256, 2048
"""Snapshots of the first level and of the others, at most."""
MOST_MOMENTS = 20_000
"""Saves with a price, times what is simulated of each, at most: where there are more, the price is raised."""
STEPS_WITHIN, SAVES_WITHIN = 0.02, 0.4
"""How far forward steps and saves may be from their estimates; schedules farther off are not tried."""


class Recipe(NamedTuple):
    """A schedule that has not been made yet."""

    least: float
    """seconds that it takes at least, if it is as estimated"""
    guess: float
    """seconds that it may take"""
    forward_steps: float
    saves: float
    levels: tuple[Level, ...]

    def __str__(self) -> str:
        return "hierarchical:" + ",".join(map(str, self.levels))

    def make(self, steps: int) -> Hierarchical | None:
        """Return the schedule, or None where it is not as estimated."""
        schedule = Hierarchical(steps, self.levels)
        close = abs(schedule.forward_steps - self.forward_steps) <= STEPS_WITHIN * self.forward_steps
        return schedule if close and schedule.saves >= (1 - SAVES_WITHIN) * self.saves else None


def spread(most: int, growth: float, dense: int = 24) -> list[int]:
    """List whole numbers from 1 to `most`: every one at first, then ever sparser, and the last ones.

    Examples
    --------
    >>> spread(100, growth=2, dense=4)
    [1, 2, 3, 4, 8, 16, 32, 64, 99, 100]
    """
    numbers = set(range(1, min(dense, most) + 1))
    number = dense
    while number < most:
        numbers.add(number)
        number = max(number + 1, round(number * growth))
    return sorted(numbers | {number for number in (most - 1, most) if number > 0})


def prices(steps: int, work: Work) -> list[float]:
    """List the prices that are tried: shares of the steps that a snapshot's way down and up again takes."""
    trips = np.cumsum(np.add(work.up, work.down)) / work.forward
    return [_rounded(share * trip) for trip in trips for share in SHARES + MORE_SHARES * (steps <= TINY_LOOP)]


def recipes(steps: int, work: Work, slots: tuple[int, ...], below: float) -> list[Recipe]:
    """List the schedules that fit so many slots and may take less than `below` seconds."""
    room = sum(slots)
    firsts = [count for count in spread(steps, 1.25, 8) if count <= min(slots[0], LARGEST_FIRST)]
    saves = [count for count in spread(steps, 1.06) if count < room]
    if len(slots) < 2 or not saves:
        return []
    variants = [(first, price) for first in firsts for price in prices(steps, work)]
    totals = np.add.outer(np.arange(saves[-1] + 1), [first for first, _ in variants])
    wanted = np.zeros(totals.shape, bool)
    wanted[saves] = True
    wanted &= (totals <= room) & (totals >= _fewest(steps, work, room, below))
    estimated = estimate(steps + 1, variants, wanted)
    found = []
    for count, number in np.argwhere(np.isfinite(estimated.forward_steps)):
        forward, saved, splits = (float(numbers[count, number]) for numbers in estimated)
        first, price = variants[number]
        least = _still(steps, work, (1 - STEPS_WITHIN) * forward, (1 - SAVES_WITHIN) * saved)
        if least < below:
            guess = max(_still(steps, work, forward, saved), steps * work.forward + splits * work.up[0])
            found.append(Recipe(least, guess, forward, saved, (Level(first), Level(int(count), price))))
    return found


def walk(steps: int, work: Work, slots: tuple[int, ...], seconds_of: Callable[[Hierarchical], float]) -> None:
    """Look at schedules on levels of a loop that is too long to look at all: first every price, then fewer snapshots.

    Parameters
    ----------
    steps
        of the loop
    work
        what everything takes
    slots
        of each tier
    seconds_of
        is called with each schedule and returns what it takes
    """
    if len(slots) < 2:
        return
    long = steps > LONG_LOOP
    looked: dict[tuple[int, int, float], float] = {}

    def look(first: int, saves: int, price: float) -> None:
        if (first, saves, price) not in looked and saves > 0:
            schedule = Hierarchical(steps, (Level(first), Level(saves, price)))
            while schedule.priced_saves * (first + 4) > MOST_MOMENTS:
                price = _rounded(1.5 * price)
                schedule = Hierarchical(steps, (Level(first), Level(saves, price)))
            if (first, saves, price) not in looked:
                looked[first, saves, price] = seconds_of(schedule)

    device = min(slots[0], LARGEST_FIRST)
    for first in [device] if long else range(max(1, device - 2), min(device + 2, sum(slots), steps + 1)):
        for price in prices(steps, work)[long:]:
            look(first, min(sum(slots) - first, steps, MOST_SAVES), price)
    if long and device > 1:
        first, saves, price = min(looked, key=looked.__getitem__)
        look(first - 1, saves + 1, price)
    for change in (0.7,) if long else (0.8, 0.6, 0.4, 0.25):
        if looked:
            first, saves, price = min(looked, key=looked.__getitem__)
            look(first, round(change * saves), price)
    for change in () if long else (-1, 1):
        first, saves, price = min(looked, key=looked.__getitem__)
        if 0 < first + change <= steps:
            look(first + change, saves, price)
    for change in (1.4,) if long else (0.7, 1.4, 2.0):
        if looked:
            first, saves, price = min(looked, key=looked.__getitem__)
            look(first, saves, _rounded(change * price))


def _rounded(price: float) -> float:
    return float(f"{price:.3g}")


def _still(steps: int, work: Work, forward: float, saves: float) -> float:
    """Return the seconds of a schedule of which nothing moves."""
    copies = saves * (work.save + work.take - work.restore) + steps * work.restore
    return forward * work.forward + steps * work.backward + copies


def _fewest(steps: int, work: Work, room: int, below: float) -> int:
    """Return the fewest snapshots with which a reversal may take less than `below` seconds."""
    low, high = 1, min(room, steps)
    while low < high:
        middle = (low + high) // 2
        forward = binomial.forward_steps(steps + 1, middle)
        if min(_still(steps, work, forward, 0), _still(steps, work, forward, steps)) < below:
            high = middle
        else:
            low = middle + 1
    return low
