"""Snapshots on levels with prices: many saves where they are cheap, and few, well placed, where they are not.

Herrmann and Pallez, "H-Revolve", ACM TOMS 46 (2020): a stretch is split by a save of its own level, which costs a price
in forward steps, or reversed with the snapshots of the level above. `forebay.schedule.levels` finds the splits: those
of short loops by their table over all lengths, and others without one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from forebay.errors import ScheduleError
from forebay.schedule import binomial
from forebay.schedule.actions import Action, Drop, Forward, Restore, Save, Schedule
from forebay.schedule.levels.exact import LONGEST, MOST, ExactSplits, exact_splits
from forebay.schedule.levels.worth import Splits, Stretch, find_splits
from forebay.schedule.segmented import check_count, check_steps, take_whole


class Level(NamedTuple):
    """Snapshots that cost the same."""

    snapshots: int
    """alive at a time: on the first level with the first of their stretch, on the others beside it"""
    price: float = 0.0
    """of a save, and of coming back to the snapshot before it, in forward steps"""

    def __str__(self) -> str:
        return f"{self.snapshots}@{str(float(self.price)).removesuffix('.0')}" if self.price else f"{self.snapshots}"


class Counts(NamedTuple):
    """What a schedule does, in numbers."""

    forward_steps: int
    saves: int
    priced_saves: int
    peak_snapshots: int
    alive_at_turn: int


@dataclass(frozen=True)
class Hierarchical(Schedule):
    """Reverse stretches with the snapshots of the first level, and save further ones where their price is worth it.

    The price is a parameter: where snapshots move while the loop computes, it is less than their transfers take.

    Examples
    --------
    >>> schedule = Hierarchical(3751, (Level(2), Level(13, 30)))
    >>> str(schedule), schedule.peak_snapshots
    ('hierarchical:2,13@30', 15)
    """

    steps: int
    levels: tuple[Level, ...]
    splits: Splits | ExactSplits = field(init=False, repr=False, compare=False)
    counts: Counts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        take_whole(self, "steps")
        check_steps(self.steps)
        if not self.levels:
            raise ScheduleError("a hierarchical schedule has at least one level, as in 'hierarchical:2,14@30'")
        for number, level in enumerate(self.levels):
            check_count(level.snapshots, "snapshots of a level")
            if not 1 <= level.snapshots <= self.steps:
                raise ScheduleError(f"a level of {level.snapshots} snapshots: give 1 to {self.steps}")
            if not isfinite(level.price) or level.price < 0 or (number == 0 and level.price):
                raise ScheduleError(f"a price of {level.price}: the first level has none, the others 0 or more")
        levels = tuple(Level(int(level.snapshots), float(level.price)) for level in self.levels)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "splits", _splits(self.steps + 1, self.levels))
        object.__setattr__(self, "counts", _count(self.splits, self.steps + 1))

    def __iter__(self) -> Iterator[Action]:
        start, visits, stretch = 0, self.steps + 1, self.splits.root
        waiting: list[tuple[int, int, Stretch]] = []
        yield Save(0)
        while True:
            while (stretch := self.splits.settle(visits, stretch)).level and visits > 1:
                before, left, behind = self.splits.split(visits, stretch)
                waiting.append((start, before, left))
                yield Forward(start, start + before)
                start, visits, stretch = start + before, visits - before, behind
                if visits > 1:
                    yield Save(start)
            yield from binomial.reverse(start, visits, stretch.snapshots, self.steps)
            if not waiting:
                return
            start, visits, stretch = waiting.pop()
            yield Restore(start)
            if visits == 1:
                yield Drop(start)

    def same(self, other: "Hierarchical") -> bool:
        """Tell whether it does what another one does: a price may be one of many that say the same."""
        alike = self.counts == other.counts and self.steps == other.steps
        return alike and _snapshots(self) == _snapshots(other) and self.splits.same(other.splits)

    def __len__(self) -> int:
        return 3 * self.steps + 2 * self.saves

    @property
    def forward_steps(self) -> int:
        """Steps that are run forward, the first sweep counted in."""
        return self.counts.forward_steps

    @property
    def saves(self) -> int:
        """Snapshots that are taken over the whole reversal."""
        return self.counts.saves

    @property
    def priced_saves(self) -> int:
        """Splits beyond the first level, each of which has a price."""
        return self.counts.priced_saves

    @property
    def peak_snapshots(self) -> int:
        """Snapshots that are alive at one time, at most."""
        return self.counts.peak_snapshots

    @property
    def alive_at_turn(self) -> int:
        """Snapshots that are alive when the loop has reached its end."""
        return self.counts.alive_at_turn

    def __str__(self) -> str:
        return "hierarchical:" + ",".join(map(str, self.levels))


def _snapshots(schedule: Hierarchical) -> list[int]:
    return [level.snapshots for level in schedule.levels]


def _splits(visits: int, levels: tuple[Level, ...]) -> Splits | ExactSplits:
    """Find the splits: the best ones where a table is small, and otherwise those by the worth of a visit."""
    if len(levels) == 2 and visits <= LONGEST and levels[1].snapshots <= MOST:
        return exact_splits(visits, levels[0].snapshots, *levels[1])
    return find_splits(visits, levels)


def _count(splits: Splits | ExactSplits, whole: int) -> Counts:
    """Take each kind of stretch apart once: those of one length and place recur."""
    forward, saves, priced, peak = 0, 1, 0, 1
    here = {(whole, splits.root): (1, 1)}  # how often there is such a stretch, and the most snapshots alive beside
    while here:
        following: dict[tuple[int, Stretch], tuple[int, int]] = {}
        for (visits, stretch), (times, alive) in here.items():
            if visits == 1:
                continue
            stretch = splits.settle(visits, stretch)
            if stretch.level == 0:
                forward += times * binomial.forward_steps(visits, stretch.snapshots)
                saves += times * (binomial.saves(visits, stretch.snapshots) - 1)
                peak = max(peak, alive - 1 + binomial.live(visits, stretch.snapshots))
                continue
            before, left, behind = splits.split(visits, stretch)
            forward += times * before
            priced += times
            if visits - before > 1:
                saves += times  # and one more is alive while the part behind is taken apart
            for part, more in ((before, left), 0), ((visits - before, behind), 1):
                seen, most = following.get(part, (0, 0))
                following[part] = seen + times, max(most, alive + more)
        here = following
    return Counts(forward, saves, priced, peak, _alive(splits, whole))


def _alive(splits: Splits | ExactSplits, visits: int) -> int:
    """Count the snapshots that are alive when the loop has reached its end."""
    alive, stretch = 1, splits.root
    while (stretch := splits.settle(visits, stretch)).level and visits > 1:
        before, _, stretch = splits.split(visits, stretch)
        visits -= before
        alive += visits > 1
    return alive - 1 + binomial.live(visits, stretch.snapshots)
