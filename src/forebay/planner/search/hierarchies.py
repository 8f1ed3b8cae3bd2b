"""The schedules on levels with prices that `choose` tries: which they are, and what each takes at least.

Which there are depends on the loop and the costs alone. The budget only says which of them fit. What they take is
estimated for all at once: the table of `forebay.schedule.levels.worth` is made for many levels and prices side by side.
It tells the forward steps and saves of loops that earn the most; those of the loop itself lie between two of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.planner.search.bounds import computed, slowed, unstalled
from forebay.planner.simulate import Work
from forebay.schedule import Hierarchical, Level, binomial
from forebay.schedule.levels.exact import LONGEST, MOST, Figures, tabulate
from forebay.schedule.levels.worth import longest

SHORT_LOOP = 400
"""Steps up to which every schedule is looked at."""
SHARES, MORE_SHARES = (0.1, 0.25, 0.5, 1.0), (0.05, 0.15, 0.3, 0.4, 0.6, 0.7, 0.85, 1.5)
"""Prices that are tried, as shares of the seconds that a snapshot takes down and up again; more on two tiers."""
FEW_FIRST = 4
"""Snapshots of the first level up to which more prices are tried in short loops."""
MORE_TIMES = (2.0, 4.0, 16.0, 64.0, 256.0)
"""Prices of longer loops beside them: without these, saves with a price would be too many to look at."""
LARGEST_FIRST, MOST_SAVES = 256, 2048
"""Snapshots of the first level and of the others, at most."""
CHEAP_TRIP, MOST_SPLITS = 4.0, (30_000, 10_000, 3_000)
"""Splits with a price, at most, where a snapshot's way takes up to so many steps, where it takes more, and on a disk.

Simulating more takes too long; where the way is long, more are rarely better.
"""


class Thoroughness(NamedTuple):
    """How many schedules are estimated, and how well."""

    firsts: float
    """from one number of snapshots of the first level to the next, where they are sparse"""
    saves: float
    """the same of the other level"""
    dense: int
    """up to which number every one is looked at"""
    fractions: int
    """how many worths of a visit are looked at between two whole numbers"""


ALL = Thoroughness(1.25, 1.06, 24, 8)
"""For short loops."""
SOME, FEW = Thoroughness(1.25, 1.06, 8, 2), Thoroughness(1.6, 1.3, 4, 2)
"""For longer ones on two tiers, and on three."""
SECONDS = 0.97, 0.995
"""The shares of the estimated seconds that schedules of short loops and of longer ones take at least."""
ALIVE = 0.8
"""The share of the estimated snapshots at the turn that there are at least; other schedules are not tried."""
MOST_WORTH = 400
"""Forward steps that a visit is worth, at most: a loop of so few snapshots is not estimated."""

Numbers = NDArray[np.float64]
Variants = list[tuple[int, float]]
"""Snapshots of the first level, and the price of the second, of schedules that are looked at side by side."""


class Recipe(NamedTuple):
    """A schedule that has not been made yet, and what it does if it is as estimated."""

    forward_steps: float
    saves: float
    splits: float
    """that have a price"""
    alive: float
    """snapshots at the turn"""
    levels: tuple[Level, ...]
    exact: bool = False
    """whether it is known to be so"""

    def __str__(self) -> str:
        return "hierarchical:" + ",".join(map(str, self.levels))

    @property
    def snapshots(self) -> int:
        """Snapshots of all levels."""
        return sum(level.snapshots for level in self.levels)

    def make(self, steps: int, work: Work) -> Hierarchical | None:
        """Return the schedule, or None where it is not as estimated, or has too many splits."""
        schedule = Hierarchical(steps, self.levels)
        few = steps <= SHORT_LOOP or schedule.priced_saves <= most_splits(work)
        return schedule if few and (self.exact or recipe_of(schedule).is_like(self, steps, work)) else None

    def is_like(self, estimate: "Recipe", steps: int, work: Work) -> bool:
        """Tell whether it takes about as long as estimated, or longer."""
        pairs = zip(self._seconds(steps, work), estimate._seconds(steps, work), strict=True)
        share = share_of_seconds(steps)
        return all(there >= share * estimated for there, estimated in pairs) and self.alive >= ALIVE * estimate.alive

    def _seconds(self, steps: int, work: Work) -> tuple[float, float]:
        """Return the seconds of the computation, and those of the host."""
        figures = steps, self.forward_steps, self.saves
        return computed(work, *figures), work.host.seconds(*figures)

    def guess(self, steps: int, work: Work) -> float:
        """Return the seconds that it may take."""
        moving = steps * work.forward + self.splits * max(work.up[0], work.down[0])
        return max(unstalled(work, steps, self.forward_steps, self.saves), work.host.start + moving)

    def least(self, steps: int, work: Work, slots: tuple[int, ...], pin: float) -> float:
        """Return the seconds that it takes at least; a slot of the second tier takes `pin` seconds."""
        alive = self.alive if self.exact else ALIVE * self.alive
        share = 1.0 if self.exact else share_of_seconds(steps)
        whole, asked = (share * seconds for seconds in self._seconds(steps, work))  # stalls may hide the latter
        # What is alive at the turn has been saved before it, during which it goes down; the rest comes after it.
        sweep = steps * work.forward + alive * work.save
        longest_sweep = steps * work.forward + (alive if self.exact else self.snapshots) * work.save
        above = down = up = 0.0
        for link in range(len(slots) - 1):
            above += slots[link]
            moved = max(0.0, alive - above)
            down, up = max(down, moved * work.down[link]), max(up, moved * work.up[link])
        away = max(0.0, alive - slots[0])
        pinned = pin * min(away, slots[1])
        asked += away * (2 * work.host.move + work.host.drop)  # each goes down, and comes up again
        moving = max(sweep + up, down + max(whole - longest_sweep, up))
        beside = max(work.host.beside(whole, asked), slowed(work, whole, asked, away, 0, away))
        return max(beside, work.host.start + moving) + pinned


def recipe_of(schedule: Hierarchical) -> Recipe:
    """Return the recipe of a schedule that has been made."""
    counts = schedule.forward_steps, schedule.saves, schedule.priced_saves, schedule.alive_at_turn
    return Recipe(*counts, schedule.levels, exact=True)


def share_of_seconds(steps: int) -> float:
    """Return the share of the estimated seconds that a schedule takes at least; no others are tried."""
    return SECONDS[steps >= LONGEST]


def thoroughness(steps: int, work: Work) -> Thoroughness:
    """Return how well schedules of a loop are estimated."""
    if steps > SHORT_LOOP:
        return SOME if len(work.up) == 1 else FEW
    return ALL if len(work.up) == 1 else ALL._replace(firsts=FEW.firsts, dense=FEW.dense)


def most_splits(work: Work) -> int:
    """Return how many splits a schedule of a longer loop has at most."""
    if len(work.up) > 1:
        return MOST_SPLITS[2]
    return MOST_SPLITS[work.up[0] + work.down[0] > CHEAP_TRIP * work.forward]


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


def prices(steps: int, work: Work, first: int, hasty: bool = False) -> list[float]:
    """List the prices that are tried: shares of the steps that a snapshot's way down and up again takes."""
    trips = np.cumsum(np.add(work.up, work.down)) / work.forward
    shares: tuple[float, ...] = SHARES
    if steps > SHORT_LOOP:
        shares += () if hasty else MORE_TIMES
    elif len(trips) == 1 and first <= FEW_FIRST:
        shares += MORE_SHARES
    shorter = [share * trip for trip in trips[:-1] for share in SHARES[1::2]] if steps <= SHORT_LOOP else []
    return list(dict.fromkeys(_rounded(price) for price in shorter + [share * trips[-1] for share in shares]))


def recipes(steps: int, work: Work, device: int, room: int, below: float, hasty: bool = False) -> list[Recipe]:
    """List the schedules that fit into so many slots and may take less than `below` seconds; a `hasty` list is shorter.

    Which of them there are does not depend on the slots of the device, nor on the room of all tiers.
    """
    within = FEW if hasty and steps > SHORT_LOOP else thoroughness(steps, work)
    fewest = _fewest(steps, work, room, below)
    saves = [count for count in spread(min(steps, MOST_SAVES), within.saves, within.dense) if count < room]
    firsts = [
        first
        for first in spread(steps, within.firsts, min(8, within.dense))
        if first <= min(device, LARGEST_FIRST) and saves and first + saves[-1] >= fewest
    ]
    if not firsts:
        return []
    variants = [(first, price) for first in firsts for price in prices(steps, work, first, hasty)]
    if steps < LONGEST and len(work.up) > 1:  # snapshots on a disk pay where they are few
        saves = [count for count in saves if count <= MOST]
    return _estimated(steps, work, variants, saves, range(fewest, room + 1), below)


def known(steps: int, work: Work, estimates: list[Recipe]) -> Iterator[Recipe]:
    """Yield schedules with their figures, where the loop is short and a table tells them, which takes long to make."""
    if steps >= LONGEST:
        yield from estimates
        return
    for first in dict.fromkeys(each.levels[0].snapshots for each in estimates):
        own = [each for each in estimates if each.levels[0].snapshots == first]
        listed = list(dict.fromkeys(each.levels[1].price for each in own))
        figures = tabulate(steps + 1, first, min(MOST, max(each.levels[1].snapshots for each in own)), listed)
        for estimate in own:
            count, price = estimate.levels[1]
            if count > MOST:
                yield estimate
                continue
            number = listed.index(price)
            forward, saved, splits, alive = (float(figure[number, count]) for figure in figures)
            recipe = Recipe(forward, saved, splits, alive, estimate.levels, exact=True)
            if recipe.is_like(estimate, steps, work):
                yield recipe


def _estimated(
    steps: int, work: Work, variants: Variants, saves: list[int], totals: range, below: float
) -> list[Recipe]:
    """List the schedules with some totals of snapshots whose figures are estimated."""
    sums = np.add.outer(np.arange(saves[-1] + 1), [first for first, _ in variants])
    wanted = np.zeros(sums.shape, bool)
    wanted[saves] = True
    wanted &= (sums >= totals.start) & (sums < totals.stop)
    # Where a visit is worth so much, a state of a binomial stretch is reached by half as many steps at least.
    others = min(computed(work, steps, 0, saved) for saved in (0, steps))
    worth = min(MOST_WORTH, 2 * (below - work.host.start - others) / (steps * work.forward) + 2)
    figures = estimate(steps + 1, variants, wanted, thoroughness(steps, work).fractions, worth)
    possible = np.isfinite(figures.forward_steps)
    if steps > SHORT_LOOP:
        possible &= figures.splits <= most_splits(work)
    counts, numbers = np.nonzero(possible)
    pairs = [
        (Level(variants[number][0]), Level(count, variants[number][1]))
        for count, number in zip(counts.tolist(), numbers.tolist(), strict=True)
    ]
    return list(map(Recipe, *(column[possible].tolist() for column in figures), pairs))


def _rounded(price: float) -> float:
    return float(f"{price:.3g}")


def _fewest(steps: int, work: Work, room: int, below: float) -> int:
    """Return the fewest snapshots with which a reversal may take less than `below` seconds."""
    low, high = 1, min(room, steps)
    while low < high:
        middle = (low + high) // 2
        forward = binomial.forward_steps(steps + 1, middle)
        whole = min(computed(work, steps, forward, saves) for saves in (0, steps))
        asked = min(work.host.seconds(steps, forward, saves) for saves in (0, steps))
        if work.host.beside(whole, asked) < below:
            high = middle
        else:
            low = middle + 1
    return low


def estimate(
    visits: int,
    variants: Variants,
    wanted: NDArray[np.bool_],
    fractions: int,
    most_worth: float,
) -> Figures:
    """Estimate what schedules of two levels do, by snapshots of the second level and by variant.

    Parameters
    ----------
    visits
        the states that are visited: one more than the steps
    variants
        snapshots of the first level, and the price of the second
    wanted
        which are estimated, by snapshots of the second level and by variant; the others are infinite
    fractions
        how many worths of a visit are looked at between two whole numbers
    most_worth
        what a visit is worth at most; schedules in which it is worth more are infinite too
    """
    firsts = [first for first, _ in variants]
    shares = np.tile(np.arange(fractions) / fractions, len(variants))
    table = _LevelTable(len(wanted) - 1, np.repeat([price for _, price in variants], fractions))
    result = np.full((4, *wanted.shape), np.inf)
    previous = table.rows  # not read: where a visit is worth nothing there is one, and a loop has more
    missing = wanted.copy()
    for worth in range(int(most_worth)):
        if not missing.any():
            break
        leaves = {first: _leaf(first, worth) for first in firsts}
        base = np.repeat(np.array([leaves[first] for first in firsts]).T, fractions, axis=1)
        base[0] += shares * base[1]
        table.grow(base)
        # Between two numbers of visits that earn the most, the loop takes a share of what is between.
        for number in range(fractions):
            now = table.rows[:, 1:, number::fractions].transpose(1, 0, 2).copy()
            reached = missing & (now[0] >= visits)
            if reached.any():
                low, high = previous[:, reached], now[:, reached]
                share = (visits - low[0]) / (high[0] - low[0])
                result[:, reached] = low[1:] + share * (high[1:] - low[1:])
                missing &= ~reached
            previous = now
    return Figures(*result)


class _LevelTable:
    """One level of many schedules: what is earned, visits, forward steps, saves, splits, those alive, by saves left."""

    def __init__(self, most: int, prices: Numbers) -> None:
        self.prices = prices
        self.rows = np.zeros((most + 1, 6, len(prices)))  # a visit that is worth nothing splits nothing

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
            both[5] = rows[saves - 1, 5] + 1.0
            rows[saves] = np.where(both[0] > enough, both, base)


def _leaf(snapshots: int, worth: int) -> tuple[float, ...]:
    """Return what a binomial stretch does where a visit is worth so much."""
    visits, earned = longest(snapshots, worth), binomial.beta(snapshots + 1, worth - 1)
    saves = max(1, binomial.beta(snapshots - 1, worth))
    figures = earned, visits, worth * visits - earned, saves, 0, binomial.live(visits, snapshots)
    return tuple(float(min(value, 1 << 200)) for value in figures)
