"""Which samples a set of terms follows: a peak is the highest of several stages, and small arrays may go another way.

A set may leave out the smallest samples, where a function works otherwise, and some that lie above it, where another of
its stages leads.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from forebay.footprint.fit.regression import Array, Data, Posterior, Rows, Sets, regress

FEWEST = 4
"""samples that a set must follow, and at least one more than it has terms"""
LARGE, SMALLEST = 4, 3
"""with so many terms a set leaves out so many of the smallest at most, and none above it"""
SPAN = 4.0
"""a set must follow volumes so many times apart: nobody can tell growth from a few that are nearly as large"""
STAGES = 5
"""how many samples may lie above a set"""
CLEAR = 3.0
"""deviations of the noise by which a sample lies clearly off"""


def follow(data: Data, volumes: Array, groups: Sequence[tuple[Sets, Array]], least: float) -> Posterior | None:
    """Return all sets with the samples that each follows best; None where no set is possible.

    Sets with a constant below the least are left out unless all are.
    """
    order = np.argsort(-volumes, kind="stable")
    largest = int((volumes * SPAN > volumes.max()).sum()) + 1
    parts = [_follow(data, order, largest, sets, doubts) for sets, doubts in groups]
    # Wrong terms that grow too fast follow the samples by taking a constant off again: no function gives memory back.
    possible = [part.only(np.isfinite(part.chances)) for part in parts]
    sound = [part.only(part.means[:, 0] >= least) for part in possible]
    kept = [part for part in sound if len(part.sets)] or [part for part in possible if len(part.sets)]
    return reduce(Posterior.and_also, kept) if kept else None


def _follow(data: Data, order: Sets, largest: int, sets: Sets, doubts: Array) -> Posterior:
    """Return sets of as many terms, each with the samples that it follows best: so many of the largest are among them.

    The smallest are left out one by one, then those that lie highest above, from all samples and from the best so far.
    """
    count, large = len(data.peaks), sets.shape[1] >= LARGE
    fewest = max(FEWEST, sets.shape[1] + 1)
    kept = np.ones((len(sets), count), dtype=np.bool_)
    best, off = regress(data, sets, doubts, kept)
    ways = [(best.kept, off)]
    for used in range(count - 1, max(fewest, largest, count - SMALLEST if large else 0) - 1, -1):
        kept = kept.copy()
        kept[:, order[used]] = False
        tried, tried_off = regress(data, sets, doubts, kept)
        best, better = _better(best, tried)
        off = np.where(better[:, None], tried_off, off)
    ways.append((best.kept, off))
    for kept, off in [] if large else ways:
        for _ in range(STAGES):
            above = np.where(kept, off, -np.inf)
            worst = above.argmax(axis=1)
            far = (above.max(axis=1) > CLEAR) & (kept.sum(axis=1) > fewest)
            if not far.any():
                break
            kept = kept.copy()
            kept[far, worst[far]] = False
            tried, off = regress(data, sets, doubts, kept)
            best, _ = _better(best, tried)
    return best


def _better(best: Posterior, tried: Posterior) -> tuple[Posterior, Rows]:
    """Return each set in the better of two ways, and where that is the second."""
    better = tried.scores > best.scores
    rows = np.where(better, len(best.sets), 0) + np.arange(len(best.sets))
    return best.and_also(tried).only(rows), better
