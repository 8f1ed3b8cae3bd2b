"""Where to split stretches on levels with prices, from what a visit is worth.

Let a visit be worth R forward steps, and let a stretch have `a` saves of its level left, of one price. It earns at most

    V(a, R) = max(V'(R), V(a, R - 1) + V(a - 1, R) - price),

where V' is what the level above earns with all its snapshots. The first level is binomial and earns
(R - r) beta(s, r) + beta(s + 1, r - 1), with r the whole part of R, from beta(s, r) visits. The stretch before a split
is run over once more, so there a visit is worth a step less. The table is small whatever the number of visits.

With R grows the number of visits that earn the most. A loop lies between two such numbers that are next to each other.
Its stretches are then as in the one or as in the other, which differ in some splits, or in the lengths of stretches.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from forebay.schedule import binomial

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


class WorthTable:
    """What is split where a visit is worth so much, and how long each stretch is then."""

    def __init__(self, levels: Sequence[tuple[int, float]], fraction: float, visits: int = 0, whole: int = 0) -> None:
        self.levels, self.fraction = levels, fraction
        self.split: list[list[list[bool]]] = []  # by whole worth, level and saves left
        earned = [[fraction - 1.0] * (snapshots + 1) for snapshots, _ in levels[1:]]  # where it is worth less than 0
        lengths = [[1] * (snapshots + 1) for snapshots, _ in levels[1:]]
        reached = 0
        while reached < visits or len(self.split) <= whole:
            reached = self._grow(earned, lengths)
        self.whole = len(self.split) - 1
        self.reached = reached
        self.leaves = [longest(levels[0][0], worth) for worth in range(self.whole, -2, -1)]  # by passes

    def _grow(self, earned: list[list[float]], lengths: list[list[int]]) -> int:
        """Append what is split where a visit is worth a step more, and return the visits of the whole."""
        worth = len(self.split)
        snapshots = self.levels[0][0]
        length = longest(snapshots, worth)
        best = self.fraction * length + binomial.beta(snapshots + 1, worth - 1)
        split = []
        for (_, price), earn, visits in zip(self.levels[1:], earned, lengths, strict=True):
            flags = [False]
            whole, total = best, length
            earn[0], visits[0] = best, length
            for saves in range(1, len(earn)):
                both = earn[saves] + whole - price
                pays = both > best + 1e-9 * abs(best)
                if pays:
                    whole, total = both, visits[saves] + total
                else:
                    whole, total = best, length
                earn[saves], visits[saves] = whole, total
                flags.append(pays)
            split.append(flags)
            best, length = whole, total
        self.split.append(split)
        return length


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
                row = [unsplit]
                for saves in range(1, snapshots + 1):
                    is_split = self.is_split(number, saves, passes)
                    row.append(rows[-1][saves] + row[-1] if is_split else unsplit)
                rows.append(row)
            self.lengths.append(rows[::-1])
            base = [row[-1] for row in self.lengths[-1]]

    def is_split(self, level: int, saves: int, passes: int) -> bool:
        """Return whether a stretch of its own length is split."""
        return passes <= self.whole and self.table.split[self.whole - passes][level - 1][saves]

    def length(self, stretch: Stretch) -> int:
        """Return the visits of a stretch."""
        return self.lengths[stretch.level - 1][stretch.passes][stretch.snapshots]

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

    def settle(self, visits: int, stretch: Stretch) -> Stretch:
        """Return the stretch on the level that splits it."""
        while stretch.level and not self._is_split(visits, stretch):
            level = stretch.level - 1
            stretch = Stretch(level, self.few.table.levels[level][0], stretch.passes)
        return stretch

    def _is_split(self, visits: int, stretch: Stretch) -> bool:
        few, many = self.few.is_split(*stretch), self.many.is_split(*stretch)
        if few == many:
            return few
        return 2 * visits >= self.few.length(stretch) + sum(map(self.few.length, _parts(stretch)))

    def split(self, visits: int, stretch: Stretch) -> tuple[int, Stretch, Stretch]:
        """Return the visits before the split of a settled stretch that is not binomial, and both of its parts."""
        left, behind = _parts(stretch)
        before, after = self.few.length(left), self.few.length(behind)
        if visits < before + after:  # nearer to two short parts than to one that is longer than it should be
            before = max(1, before * visits // (before + after))
        else:  # what is behind is as long as it can be: it is not run over again
            before = max(before, visits - self.many.length(behind))
        return before, left, behind


def _parts(stretch: Stretch) -> tuple[Stretch, Stretch]:
    level, saves, passes = stretch
    return Stretch(level, saves, passes + 1), Stretch(level, saves - 1, passes)


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
