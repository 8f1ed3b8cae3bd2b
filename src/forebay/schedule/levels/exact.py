"""The best splits of short loops on two levels, from a table over all lengths: H-Revolve's dynamic programming.

    cost(l, a) = min(binomial(l), price + min over m of  m + cost(l - m, a - 1) + cost(m, a)),

for a stretch of l states with `a` saves of the second level left. All saves and several prices are done at once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.schedule import binomial
from forebay.schedule.levels.worth import Stretch

LONGEST, MOST = 401, 64
"""States of a loop, and snapshots of its second level, up to which the splits are those of the table."""
KEPT = 128
"""Tables that are kept, latest used."""

Cuts = NDArray[np.int16]
"""The part before the best split, by saves left and length; 0 where a stretch is binomial."""


class Figures(NamedTuple):
    """What whole loops do, in arrays over prices and snapshots of the second level."""

    forward_steps: NDArray[np.float64]
    saves: NDArray[np.float64]
    splits: NDArray[np.float64]
    """that have a price"""
    alive: NDArray[np.float64]
    """snapshots at the turn"""


class ExactSplits:
    """Splits the stretches of one loop as the table says."""

    def __init__(self, cuts: Cuts, first: int, saves: int) -> None:
        self.cuts, self.first = cuts, first
        self.root = Stretch(1, saves, 0)

    def same(self, other: Any) -> bool:
        """Tell whether it splits the loop as another one of as many snapshots does."""
        return isinstance(other, ExactSplits) and np.array_equal(self.cuts, other.cuts)

    def settle(self, visits: int, stretch: Stretch) -> Stretch:
        """Return the stretch on the level that splits it."""
        split = stretch.level and self.cuts[stretch.snapshots, visits]
        return stretch if split else Stretch(0, self.first, stretch.passes)

    def split(self, visits: int, stretch: Stretch) -> tuple[int, Stretch, Stretch]:
        """Return the visits before the split of a settled stretch that is not binomial, and both of its parts."""
        level, saves, passes = stretch
        return int(self.cuts[saves, visits]), stretch, Stretch(level, saves - 1, passes)


_kept: OrderedDict[tuple[int, int, float], Cuts] = OrderedDict()


def exact_splits(visits: int, first: int, saves: int, price: float) -> ExactSplits:
    """Find the splits of a short loop."""
    cuts = _kept.get((visits, first, price))
    if cuts is None or len(cuts) <= saves:
        tabulate(visits, first, saves, [price])
        cuts = _kept[visits, first, price]
    _kept.move_to_end((visits, first, price))
    return ExactSplits(cuts, first, saves)


def tabulate(visits: int, first: int, most: int, prices: Sequence[float]) -> Figures:
    """Make and keep the tables of several prices, and return what they do with up to `most` saves."""
    lengths = np.arange(visits + 1)
    # By length: forward steps, splits with a price, further saves, and snapshots at the turn.
    plain = np.zeros((visits + 1, 4), np.int32)
    for length in range(2, visits + 1):
        saves = binomial.saves(length, first) - 1
        plain[length] = binomial.forward_steps(length, first), 0, saves, binomial.live(length, first)
    # The same, and costs, by price, saves left and length; `behind` has the longest first.
    counts = np.tile(plain, (len(prices), most + 1, 1, 1))
    cost = counts[..., 0].astype(np.float32)
    ahead, behind = cost + lengths.astype(np.float32), cost[..., ::-1].copy()
    cuts = np.zeros(cost.shape, np.int16)
    price = np.array(prices, np.float32)[:, None]
    variant, left = np.arange(len(prices))[:, None], np.arange(1, most + 1)
    room = np.empty(len(prices) * most * visits, np.float32)
    for length in range(2, visits + 1):
        shape = len(prices), most, length - 1
        sums = room[: prod(shape)].reshape(shape)
        np.add(ahead[:, 1:, 1:length], behind[:, :-1, visits + 1 - length : visits], out=sums)
        before = sums.argmin(2) + 1
        least = sums[variant, left - 1, before - 1] + price
        pays = least < cost[:, 1:, length] - 1e-2
        rest = length - before
        joined = counts[variant, left - 1, rest]
        joined[..., :3] += counts[variant, left, before][..., :3]
        joined[..., 0] += before
        joined[..., 1] += 1
        joined[..., 2:] += 1  # a split that pays has more than one state behind it, so a save
        np.copyto(cuts[:, 1:, length], before, where=pays, casting="same_kind")
        np.copyto(counts[:, 1:, length], joined, where=pays[..., None])
        for table, seconds, place in (cost, 0, length), (ahead, length, length), (behind, 0, visits - length):
            table[:, 1:, place] = np.where(pays, least, cost[:, 1:, length]) + seconds
    for number, value in enumerate(prices):
        _kept[visits, first, value] = cuts[number]
    while len(_kept) > max(KEPT, len(prices)):
        _kept.popitem(last=False)
    forward, splits, further, alive = np.moveaxis(counts[..., -1, :], -1, 0).astype(float)
    return Figures(forward, 1 + further, splits, alive)
