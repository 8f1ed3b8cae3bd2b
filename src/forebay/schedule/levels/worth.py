"""Where to split stretches on levels with prices, from what a visit is worth.

Let a visit be worth R forward steps, and let a stretch have `a` saves of its level left, of one price. It earns at most

    V(a, R) = max(V'(R), V(a, R - 1) + V(a - 1, R) - price),

where V' is what the level above earns with all its snapshots. The first level is binomial and earns
(R - r) beta(s, r) + beta(s + 1, r - 1), with r the whole part of R, from beta(s, r) visits. The stretch before a split
is run over once more, so there a visit is worth a step less. The table is small whatever the number of visits.

With R grows the number of visits that earn the most. A loop lies between two such numbers that are next to each other.
Its stretches are then as in the one or as in the other, which differ in some splits, or in the lengths of stretches.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from forebay.schedule import binomial

MOST_VISITS = 1 << 62
"""States of a loop, at most."""
HALVINGS = 5
"""How often the worth of a visit is bisected between two whole numbers."""


class Stretch(NamedTuple):
    """What there is of a stretch beside its length."""

    level: int
    snapshots: int
    """on the first level those of its reversal; on others the saves that are left"""
    passes: int
    """how often stretches around it have been run over before"""


def longest(snapshots: int, worth: int) -> int:
    """Count the visits of a binomial stretch that earn the most."""
    return max(1, binomial.beta(snapshots, worth))


class _Growing:
    """What is split where a visit is worth more and more: loops of any length, and fewer saves, share it."""

    def __init__(self, levels: Sequence[tuple[int, float]], fraction: float) -> None:
        self.levels, self.fraction = levels, fraction
        self.split: list[list[bytearray]] = []
        """by whole worth, level and saves left"""
        self.visits: list[array[int]] = []
        """of the last level, by whole worth and saves left"""
        self._earned = [[fraction - 1.0] * (snapshots + 1) for snapshots, _ in levels[1:]]  # worth less than 0
        self._lengths = [[1] * (snapshots + 1) for snapshots, _ in levels[1:]]

    def grow(self) -> None:
        """Append what is split where a visit is worth a step more."""
        worth = len(self.split)
        snapshots = self.levels[0][0]
        length = longest(snapshots, worth)
        best = self.fraction * length + binomial.beta(snapshots + 1, worth - 1)
        split = []
        for (_, price), earn, visits in zip(self.levels[1:], self._earned, self._lengths, strict=True):
            flags = bytearray(len(earn))
            whole, total = best, length
            earn[0], visits[0] = best, length
            least = best + 1e-9 * abs(best)
            for saves in range(1, len(earn)):
                both = earn[saves] + whole - price
                if both > least:
                    whole, total = both, visits[saves] + total
                    flags[saves] = 1
                else:
                    whole, total = best, length
                earn[saves], visits[saves] = whole, total
            split.append(flags)
            best, length = whole, total
        self.split.append(split)
        self.visits.append(array("q", [min(count, MOST_VISITS) for count in self._lengths[-1]] if split else [length]))


@lru_cache(maxsize=128)
def _growing(levels: tuple[tuple[int, float], ...], fraction: float) -> _Growing:
    return _Growing(levels, fraction)


class WorthTable:
    """What is split where a visit is worth so much, and how long each stretch is then."""

    def __init__(self, levels: Sequence[tuple[int, float]], fraction: float, visits: int = 0, whole: int = 0) -> None:
        self.levels = levels
        *upper, (saves, price) = levels
        saves = saves if upper else 0
        wide = 1 << saves.bit_length() if upper else levels[0][0]  # saves, of which others need fewer or some more
        growing = _growing((*map(tuple, upper), (wide, price)), fraction)
        while len(growing.split) <= whole:
            growing.grow()
        while growing.visits[whole][saves] < visits:
            whole += 1
            if len(growing.split) == whole:
                growing.grow()
        self.split, self.whole, self.reached = growing.split, whole, growing.visits[whole][saves]
        self.leaves = [longest(levels[0][0], worth) for worth in range(whole, -2, -1)]  # by passes


class Shape:
    """A table from a whole worth downwards, with the lengths of its binomial stretches: lengths of all stretches."""

    def __init__(self, table: WorthTable, whole: int, leaves: Sequence[int]) -> None:
        self.table, self.whole, self.leaves = table, whole, leaves
        levels = table.levels
        self.lengths: list[list[list[int]]] = []  # level, passes, saves
        base = leaves
        for number, (snapshots, _) in enumerate(levels[1:], start=1):
            rows: list[list[int]] = []  # of the most passes first: those are not split
            for passes, unsplit in reversed(list(enumerate(base))):
                row = [unsplit] * (snapshots + 1)
                if passes <= whole:
                    flags, once_more, length = table.split[whole - passes][number - 1], rows[-1], unsplit
                    for saves in range(1, snapshots + 1):
                        row[saves] = length = once_more[saves] + length if flags[saves] else unsplit
                rows.append(row)
            self.lengths.append(rows[::-1])
            base = [row[-1] for row in self.lengths[-1]]

    def is_split(self, level: int, saves: int, passes: int) -> bool:
        """Return whether a stretch of its own length is split."""
        return passes <= self.whole and self.table.split[self.whole - passes][level - 1][saves] == 1

    def length(self, stretch: Stretch) -> int:
        """Return the visits of a stretch."""
        return self.lengths[stretch.level - 1][stretch.passes][stretch.snapshots]

    def same(self, other: "Shape") -> bool:
        """Tell whether it has the lengths and splits of another one."""
        if self.lengths != other.lengths or self.whole != other.whole:
            return False
        counts = [snapshots + 1 for snapshots, _ in self.table.levels[1:]]
        return all(
            here[:count] == there[:count]
            for worth in range(self.whole + 1)
            for here, there, count in zip(self.table.split[worth], other.table.split[worth], counts, strict=True)
        )

    def count_leaves(self, root: Stretch) -> list[int]:
        """Count the binomial stretches by their passes."""
        entered = [1] + [0] * (len(self.leaves) - 1)
        for level in range(root.level, 0, -1):
            most = self.table.levels[level][0]
            left = [0] * len(entered)
            row = [0] * (most + 1)
            for passes, more in enumerate(entered):
                row[most] += more
                for saves in range(most, -1, -1):
                    if row[saves] and self.is_split(level, saves, passes):
                        row[saves - 1] += row[saves]
                    else:
                        left[passes] += row[saves]
                        row[saves] = 0
            entered = left
        return entered


class Splits:
    """Splits the stretches of one loop, each as in one of two shapes, between whose lengths the loop lies."""

    def __init__(self, few: Shape, many: Shape, root: Stretch) -> None:
        self.few, self.many, self.root = few, many, root

    def same(self, other: Any) -> bool:
        """Tell whether it splits loops of any length as another one of as many snapshots does."""
        return isinstance(other, Splits) and self.few.same(other.few) and self.many.same(other.many)

    def settle(self, visits: int, stretch: Stretch) -> Stretch:
        """Return the stretch on the level that splits it."""
        level, saves, passes = stretch  # as plain numbers, since schedules of long loops have thousands of stretches
        few, many = self.few, self.many
        while level:
            split = few.is_split(level, saves, passes)
            if split != many.is_split(level, saves, passes):
                lengths = few.lengths[level - 1]
                parts = lengths[passes + 1][saves] + lengths[passes][saves - 1]
                split = 2 * visits >= lengths[passes][saves] + parts
            if split:
                break
            level -= 1
            saves = few.table.levels[level][0]
        return stretch if level == stretch.level else Stretch(level, saves, passes)

    def split(self, visits: int, stretch: Stretch) -> tuple[int, Stretch, Stretch]:
        """Return the visits before the split of a settled stretch that is not binomial, and both of its parts."""
        level, saves, passes = stretch
        lengths = self.few.lengths[level - 1]
        before, after = lengths[passes + 1][saves], lengths[passes][saves - 1]
        if visits < before + after:  # nearer to two short parts than to one that is longer than it should be
            before = max(1, before * visits // (before + after))
        else:  # what is behind is as long as it can be: it is not run over again
            before = max(before, visits - self.many.lengths[level - 1][passes][saves - 1])
        return before, Stretch(level, saves, passes + 1), Stretch(level, saves - 1, passes)


def find_splits(visits: int, levels: Sequence[tuple[int, float]]) -> Splits:
    """Find the splits with which a loop of so many visits takes the fewest forward steps, prices counted in."""
    root = Stretch(len(levels) - 1, levels[-1][0], 0)
    many = WorthTable(levels, 0.0, visits)
    above = _shape(many)
    if many.reached == visits or root.level == 0:
        return Splits(above, above, root)
    few, low, high = WorthTable(levels, 0.0, whole=many.whole - 1), 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        table = WorthTable(levels, middle, whole=few.whole)
        if table.reached >= visits:
            many, high = table, middle
        else:
            few, low = table, middle
    below, above = _shape(few), _shape(many)
    if few.whole == many.whole:
        return Splits(below, above, root)
    stretched = Shape(few, few.whole, above.leaves[: len(below.leaves)])
    if stretched.length(root) < visits:
        return Splits(stretched, above, root)
    # The same splits, and stretches between the lengths of the one worth and of the other, all of them in proportion.
    wider = [more - less for less, more in zip(below.leaves, stretched.leaves, strict=True)]
    counts, most = stretched.count_leaves(root), max(wider)

    def leaves(share: int) -> list[int]:
        return [less + share * wide // most for less, wide in zip(below.leaves, wider, strict=True)]

    def total(share: int) -> int:
        return sum(count * length for count, length in zip(counts, leaves(share), strict=True))

    share = bisect_left(range(1, most), visits, key=total) + 1
    return Splits(Shape(few, few.whole, leaves(share - 1)), Shape(few, few.whole, leaves(share)), root)


def _shape(table: WorthTable) -> Shape:
    return Shape(table, table.whole, table.leaves)
