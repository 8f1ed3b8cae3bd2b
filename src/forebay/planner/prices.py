"""What schedules on levels with prices take, many of them at once: how `choose` knows which are worth a look.

The table of `forebay.schedule.worth` is made for many levels and prices side by side. It tells the forward steps and
saves of loops that earn the most; those of the loop itself lie between two of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.schedule import binomial
from forebay.schedule.worth import longest

FRACTIONS = np.arange(8) / 8
"""Of the worth of a visit, beside its whole part."""
MOST_WORTH = 400
"""Forward steps that a visit is worth, at most: a loop of so few snapshots is not estimated."""

Numbers = NDArray[np.float64]


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
