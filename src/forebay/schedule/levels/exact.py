"""The best splits of short loops on two levels, from a table over all lengths: H-Revolve's dynamic programming.

    cost(l, a) = min(binomial(l), price + min over m of  m + cost(l - m, a - 1) + cost(m, a)),

for a stretch of l states with `a` saves of the second level left. All saves and several prices are done at once.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

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

    def settle(self, visits: int, stretch: Stretch) -> Stretch:
        """Return the stretch on the level that splits it."""
        split = stretch.level and self.cuts[stretch.snapshots, visits]
        return stretch if split else Stretch(0, self.first, 0)

    def split(self, visits: int, stretch: Stretch) -> tuple[int, Stretch, Stretch]:
        """Return the visits before the split of a settled stretch that is not binomial, and both of its parts."""
        saves = stretch.snapshots
        return int(self.cuts[saves, visits]), Stretch(1, saves, 0), Stretch(1, saves - 1, 0)


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
    plain = np.array([0, 0, *(binomial.forward_steps(length, first) for length in range(2, visits + 1))], np.float32)
    # By price, saves left and length: costs, splits with a price, further saves, and snapshots at the turn.
    cost = np.tile(plain, (len(prices), most + 1, 1))
    ahead = cost + lengths.astype(np.float32)
    cuts = np.zeros(cost.shape, np.int16)
    counts = np.zeros((3, *cost.shape), np.int32)
    counts[1, ..., 2:] = [binomial.saves(length, first) - 1 for length in range(2, visits + 1)]
    counts[2, ..., 1:] = [binomial.live(length, first) for length in range(1, visits + 1)]
    price = np.array(prices, np.float32)[:, None]
    variant, saves = np.arange(len(prices))[:, None], np.arange(1, most + 1)
    for length in range(2, visits + 1):
        sums = ahead[:, 1:, 1:length] + cost[:, :-1, length - 1 : 0 : -1]
        before = sums.argmin(2)
        least = np.take_along_axis(sums, before[:, :, None], 2)[:, :, 0] + price
        before += 1
        pays = least < plain[length] - 1e-2
        behind = length - before
        more = (behind > 1).astype(np.int32)
        left, right = counts[:, variant, saves, before], counts[:, variant, saves - 1, behind]
        joined = np.stack([1 + left[0] + right[0], more + left[1] + right[1], more + right[2]])
        cuts[:, 1:, length] = np.where(pays, before, 0)
        counts[:, :, 1:, length] = np.where(pays, joined, counts[:, :, 1:, length])
        cost[:, 1:, length] = np.where(pays, least, plain[length])
        ahead[:, 1:, length] = cost[:, 1:, length] + length
    for number, value in enumerate(prices):
        _kept[visits, first, value] = cuts[number]
    while len(_kept) > max(KEPT, len(prices)):
        _kept.popitem(last=False)
    splits, further, alive = counts[..., -1].astype(float)
    return Figures(cost[..., -1] - price * splits, 1 + further, splits, alive)
