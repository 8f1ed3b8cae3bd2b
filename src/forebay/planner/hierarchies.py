"""The schedules on levels with prices that `choose` tries: which they are, and what each takes at least.

Which there are depends on the loop and the costs alone. The budget only says which of them fit. What they take is
estimated for all at once: the table of `forebay.schedule.worth` is made for many levels and prices side by side.
It tells the forward steps and saves of loops that earn the most; those of the loop itself lie between two of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.planner.simulate import Work
from forebay.schedule import Hierarchical, Level, binomial
from forebay.schedule.worth import longest

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


FRACTIONS = np.arange(8) / 8
"""Of the worth of a visit, beside its whole part."""
MOST_WORTH = 400
"""Forward steps that a visit is worth, at most: a loop of so few snapshots is not estimated."""

Numbers = NDArray[np.float64]


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


class Estimate(NamedTuple):
    """Forward steps, saves, and splits that have a price: by snapshots of the second level, and by variant."""

    forward_steps: Numbers
    saves: Numbers
    splits: Numbers


def estimate(visits: int, variants: Sequence[tuple[int, float]], wanted: NDArray[np.bool_]) -> Estimate:
    """Estimate schedules of two levels.

    Parameters
    ----------
    visits
        the states that are visited: one more than the steps
    variants
        snapshots of the first level, and the price of the second
    wanted
        which are estimated, by snapshots of the second level and by variant; the others are infinite
    """
    firsts = [first for first, _ in variants]
    table = _LevelTable(len(wanted) - 1, np.repeat([price for _, price in variants], len(FRACTIONS)))
    result = np.full((3, *wanted.shape), np.inf)
    previous = table.by_fraction(0)
    missing = wanted.copy()
    for worth in range(MOST_WORTH):
        if not missing.any():
            break
        leaves = {first: _leaf(first, worth) for first in firsts}
        base = np.repeat(np.array([leaves[first] for first in firsts]).T, len(FRACTIONS), axis=1)
        base[0] += np.resize(FRACTIONS, base.shape[1]) * base[1]
        table.grow(base)
        # Between two numbers of visits that earn the most, the loop takes a share of what is between.
        for number in range(len(FRACTIONS)):
            now = table.by_fraction(number)
            reached = missing & (now[0] >= visits)
            if reached.any():
                low, high = previous[:, reached], now[:, reached]
                share = (visits - low[0]) / (high[0] - low[0])
                result[:, reached] = low[1:] + share * (high[1:] - low[1:])
                missing &= ~reached
            previous = now
    return Estimate(*result)


class _LevelTable:
    """One level of many schedules: rows of what is earned, visits, forward steps, saves and splits, by saves left."""

    def __init__(self, most: int, prices: Numbers) -> None:
        self.prices = prices
        self.rows = np.zeros((most + 1, 5, len(prices)))
        self.rows[:, 0] = np.resize(FRACTIONS, len(prices)) - 1.0
        self.rows[:, 1] = self.rows[:, 3] = 1.0

    def grow(self, base: Numbers) -> None:
        """Let a visit be worth a step more, where the level above does as `base` says."""
        rows = self.rows
        rows[0] = base
        enough = base[0] * (1 + 1e-9)
        for saves in range(1, len(rows)):
            before = rows[saves]
            both = before + rows[saves - 1]
            both[0] -= self.prices
            both[2] += before[1]
            both[4] += 1.0
            rows[saves] = np.where(both[0] > enough, both, base)

    def by_fraction(self, number: int) -> Numbers:
        """Return visits, forward steps, saves and splits of one fraction, by saves left and variant."""
        return self.rows[:, 1:, number :: len(FRACTIONS)].transpose(1, 0, 2).copy()


def _leaf(snapshots: int, worth: int) -> tuple[float, ...]:
    """Return what a binomial stretch does where a visit is worth so much."""
    visits, earned = longest(snapshots, worth), binomial.beta(snapshots + 1, worth - 1)
    saves = max(1, binomial.beta(snapshots - 1, worth))
    return tuple(float(min(value, 1 << 200)) for value in (earned, visits, worth * visits - earned, saves, 0))
