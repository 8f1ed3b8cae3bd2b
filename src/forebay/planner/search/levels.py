"""What a schedule on levels cannot take less than, from its kinds of stretches: each is taken apart once.

A snapshot is missed where the stretch behind it fills all slots of the first tier. It is stored before its slot is used
anew, which takes time from its save on. It comes back once a slot is free for good, before the stretch behind it ends.
All that are missed in one stretch come back one after the other, and none before the end of its first sweep.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.planner.search.bounds import computed, slowed, unstalled
from forebay.planner.search.coarse import DEEPEST, Coarse
from forebay.planner.search.coarse import misses as count_misses
from forebay.planner.simulate import Work
from forebay.schedule import Hierarchical, binomial
from forebay.schedule.levels.worth import Stretch

Numbers = NDArray[np.float64]
Kind = tuple[int, Stretch]
"""Visits, and what else there is of a stretch."""


class SlotProfile(NamedTuple):
    """A kind of stretch, seen from the slots it uses."""

    total: float
    """seconds, with the least stalls"""
    lead: Numbers
    """when it first uses 1, 2, ... slots, in seconds from its start; infinite where it never does"""
    tail: Numbers
    """when it last does so, in seconds from its end"""


class Flow(NamedTuple):
    """A kind of stretch, seen from the link below the slots."""

    sweep: float
    """seconds until its end is reached, before which no snapshot comes back"""
    after: float
    """seconds from there on"""
    height: int = 0
    """snapshots at that moment"""
    misses: int = 0
    """how often snapshots come back"""


class LevelBounds:
    """Bounds on the simulated seconds of a schedule on levels in a first tier of few slots.

    Examples
    --------
    >>> from forebay.planner.simulate import Work
    >>> from forebay.schedule import Level
    >>> work = Work(1.0, 1.0, 0.1, 0.1, 0.0, (25.0,), (25.0,))
    >>> bounds = LevelBounds(Hierarchical(3751, (Level(2), Level(13, 30))), Coarse(work, slots=2))
    >>> bounds.moves, round(bounds.moving), round(bounds.stalled)
    ((200, 154), 24738, 29072)
    """

    def __init__(self, schedule: Hierarchical, coarse: Coarse) -> None:
        work, host = coarse.work, coarse.work.host
        self.schedule, self.work, self.coarse, self.asks = schedule, work, coarse, (0.0, 0.0)
        if not host.ahead:  # what it takes adds to the computation, but asking for what is on its way
            self.asks = host.restore, host.take
            hosted = replace(
                work,
                backward=work.backward + host.call,
                save=work.save + host.save,
                restore=work.restore + host.restore + host.call,
                take=work.take + host.take + host.drop,
            )
            self.coarse = Coarse(hosted, coarse.slots)

    @cached_property
    def _kinds(self) -> tuple[list[dict[Kind, int]], dict[Kind, tuple[Kind, Kind]]]:
        """Layers of how often there is each kind, those that others consist of later, and the parts of each."""
        splits = self.schedule.splits
        layers: list[dict[Kind, int]] = [{(self.schedule.steps + 1, splits.root): 1}]
        parts: dict[Kind, tuple[Kind, Kind]] = {}
        while layers[-1]:
            following: dict[Kind, int] = {}
            for kind, times in layers[-1].items():
                visits, stretch = kind
                if kind not in parts:
                    stretch = splits.settle(visits, stretch)
                    if stretch.level == 0 or visits == 1:
                        continue
                    before, left, behind = splits.split(visits, stretch)
                    parts[kind] = (before, left), (visits - before, behind)
                for part in parts[kind]:
                    following[part] = following.get(part, 0) + times
            layers.append(following)
        return layers, parts

    def _bottom_up(self) -> Iterator[tuple[Kind, int]]:
        for layer in reversed(self._kinds[0]):
            yield from layer.items()

    def _leaf(self, kind: Kind) -> tuple[int, int]:
        return kind[0], self.schedule.splits.settle(*kind).snapshots

    @cached_property
    def _heights(self) -> dict[Kind, int]:
        """How many snapshots of each kind there are at one time, at most, its first one counted in."""
        parts, heights = self._kinds[1], dict[Kind, int]()
        for kind, _ in self._bottom_up():
            if kind not in parts:
                heights[kind] = binomial.live(*self._leaf(kind)) if kind[0] > 1 else 0
            else:
                left, behind = parts[kind]
                heights[kind] = max(heights[left], 1 + heights[behind])
        return heights

    @cached_property
    def _layers(self) -> list[dict[tuple[Kind, bool], int]]:
        """Layers of how often there is each kind, by whether its first snapshot has gone down before."""
        parts, layers = self._kinds[1], [{((self.schedule.steps + 1, self.schedule.splits.root), False): 1}]
        while layers[-1]:
            following: dict[tuple[Kind, bool], int] = {}
            for (kind, stored), times in layers[-1].items():
                if kind in parts:
                    left, behind = parts[kind]
                    for part in ((left, stored or self._misses(kind)), (behind, False)):
                        following[part] = following.get(part, 0) + times
            layers.append(following)
        return layers

    def _each_once(self) -> Iterable[tuple[Kind, bool]]:
        """Return each kind, after those that it consists of."""
        return dict.fromkeys(chain.from_iterable(reversed(self._layers)))

    def _misses(self, kind: Kind) -> bool:
        """Return whether the first snapshot of a stretch that is split has been evicted when it is restored."""
        return self._heights[self._kinds[1][kind][1]] >= self.coarse.slots

    @cached_property
    def moves(self) -> tuple[int, int]:
        """How many restores beyond the first level find their snapshot evicted, and of how many snapshots."""
        misses = stores = 0
        for layer in self._layers:
            for (kind, stored), times in layer.items():
                if kind in self._kinds[1] and self._misses(kind):
                    misses += times
                    stores += times * (not stored)
        return misses, stores

    @property
    def moving(self) -> float:
        """Seconds in which each stretch moves its snapshots, or computes; or of all that the host asks for."""
        schedule, work, (misses, stores) = self.schedule, self.coarse.work, self.moves
        counts = schedule.steps, schedule.forward_steps, schedule.saves
        asked = unstalled(self.work, *counts, misses, stores)
        away = max(0, schedule.alive_at_turn - self.coarse.slots)
        hosted = self.work.host.seconds(*counts)
        beside = slowed(self.work, computed(self.work, *counts), hosted, away, stores - away, misses)
        flows: dict[tuple[Kind, bool], Flow] = {}
        for kind, stored in self._each_once():
            flows[kind, stored] = self._flow(kind, stored, flows)
        (whole,) = (flows[root] for root in self._layers[0])
        return max(asked, beside, work.host.start + whole.sweep + whole.after + work.save - work.backward)

    def _flow(self, kind: Kind, stored: bool, flows: dict[tuple[Kind, bool], Flow]) -> Flow:
        parts, slots, work = self._kinds[1], self.coarse.slots, self.coarse.work
        if kind[0] == 1:
            return Flow(0.0, work.backward)
        if kind not in parts:
            size = self._leaf(kind)
            height, misses = binomial.live(*size), count_misses(*size, slots)
            sweep = (kind[0] - 1) * work.forward + (height - 1) * work.save
            after, last = max(self.coarse.still(*size) - sweep, misses * work.up[0]), 0.0
        else:
            (before, _), (visits, _) = left, behind = parts[kind]
            missed = self._misses(kind)
            ahead, last_part = flows[behind, False], flows[left, stored or missed]
            height, misses = 1 + ahead.height, ahead.misses + missed
            sweep = before * work.forward + (work.save if visits > 1 else 0.0) + ahead.sweep
            back, asks = (work.restore, self.asks[0]) if before > 1 else (work.take, self.asks[1])
            after = max(ahead.after, misses * work.up[0] - asks) + back
            last, misses = last_part.sweep + last_part.after, misses + last_part.misses
        # What has no slot at the end of the sweep has gone down until then. Whatever comes back does so after it.
        return Flow(max(sweep, (height - slots - stored) * work.down[0]), after + last, height, misses)

    @property
    def stalled(self) -> float:
        """Seconds of the computation, with the stalls that no plan avoids."""
        if self.schedule.levels[0].snapshots > DEEPEST:
            return 0.0
        parts, work = self._kinds[1], self.coarse.work
        profiles: dict[tuple[Kind, bool], SlotProfile] = {}
        for kind, stored in self._each_once():
            if kind in parts:
                left, behind = parts[kind]
                two = profiles[left, stored or self._misses(kind)], profiles[behind, False]
                profiles[kind, stored] = self._joined(left[0], behind[0] > 1, *two, stored)
            else:
                profiles[kind, stored] = self._unsplit(kind, stored)
        root = self.schedule.steps + 1, self.schedule.splits.root
        return work.host.start + profiles[root, False].total + work.save - work.backward

    def _unsplit(self, kind: Kind, stored: bool) -> SlotProfile:
        slots, work = self.coarse.slots, self.coarse.work
        lead, tail = np.full((2, slots), np.inf)
        if kind[0] == 1:
            return SlotProfile(work.backward, lead, tail)
        envelope = self.coarse.envelope(*self._leaf(kind), stored)
        used = min(len(envelope.rises) + 1, slots)
        lead[:used] = [0.0, *envelope.rises][:used]
        ends = [envelope.total - fall - work.take for fall in envelope.falls[::-1]]
        tail[:used] = [work.backward, *ends][:used]
        return SlotProfile(envelope.total, lead, tail)

    def _joined(self, before: int, saves: bool, left: SlotProfile, behind: SlotProfile, stored: bool) -> SlotProfile:
        """Put a stretch together of the part before a split, which is reversed last, and the one behind it."""
        work = self.coarse.work
        begun = before * work.forward
        start = begun + (work.save if saves else 0.0)
        back, asks = (work.restore, self.asks[0]) if before > 1 else (work.take, self.asks[1])
        away = 0.0
        if behind.lead[-1] < np.inf:
            away = 0.0 if stored else max(0.0, work.down[0] - start - float(behind.lead[-1]))
            back += max(0.0, work.up[0] - float(behind.tail[-1]) - asks)
        middle = start + behind.total + away + back
        lead, tail = np.empty((2, len(behind.lead)))
        lead[0], tail[0] = 0.0, min(left.tail[0], left.total)
        np.minimum(start + behind.lead[:-1], middle + left.lead[1:], out=lead[1:])
        np.minimum(left.tail[1:], left.total + back + behind.tail[:-1], out=tail[1:])
        if saves and len(lead) > 1:
            lead[1] = min(lead[1], begun)
        return SlotProfile(middle + left.total, lead, tail)


def bounds_of_levels(schedule: Hierarchical, work: Work, slots: Sequence[int]) -> Iterator[LevelBounds]:
    """Yield the bounds of each link: the tiers above it are one, and what is missed there comes over it."""
    for link in range(len(slots) - 1):
        above = replace(work, up=work.up[link:], down=work.down[link:], beside=work.beside if len(slots) == 2 else ())
        yield LevelBounds(schedule, Coarse(above, sum(slots[: link + 1])))
