"""Operations of a schedule with everything left out that moves nothing: what makes a search over plans quick.

The reversal of a stretch whose snapshots all fit in the first tier moves nothing but what lies below it. That depends
only on when it first needs each further slot and when it frees each for good. So it shrinks to a rise and a fall with
a save or a drop at the very moments of the whole reversal. Simulated seconds, moves and peaks are the same. Where the
stretch begins does not matter, so those of one size share them: their snapshots are numbered -1, -2, ... upwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from forebay.planner.operations import Compute, Fall, Operation, Rise
from forebay.planner.simulate import Work
from forebay.planner.trace import Reiterable
from forebay.schedule import Drop, Hierarchical, Restore, Save, binomial
from forebay.schedule.levels.worth import Stretch
from forebay.schedule.segmented import Segmented


class Envelope(NamedTuple):
    """A stretch seen from the slots it uses: seconds from its start, for the second slot and up."""

    rises: tuple[float, ...]
    """when the save into each further slot starts for the first time, lowest slot first"""
    falls: tuple[float, ...]
    """when the last take out of each slot starts, highest slot first"""
    total: float
    """when all its visits are done"""


DEEPEST = 300
"""Snapshots of a stretch up to which it has an envelope: the recursion is as deep as there are snapshots."""


class Coarse:
    """Makes the coarse operations of schedules, for one number of slots in the first tier and one set of seconds."""

    def __init__(self, work: Work, slots: int) -> None:
        self.work, self.slots = work, slots
        self._envelopes: dict[tuple[int, int, bool], Envelope] = {}
        self._shared: dict[tuple[int, int], tuple[Rise, Fall, Compute, Compute]] = {}

    def operations(self, schedule: Segmented | Hierarchical) -> Iterable[Operation]:
        """Return the operations of a whole schedule, which are made anew each time."""
        if isinstance(schedule, Hierarchical):
            return Reiterable(partial(self._of_levels, schedule))
        return Reiterable(partial(self._of_segments, schedule))

    def _of_segments(self, schedule: Segmented) -> Iterator[Operation]:
        last, snapshots = schedule.last_start, schedule.inner + 1
        for start in range(0, last, schedule.interval):
            yield Save(start)
            yield Compute(schedule.interval * self.work.forward)
        yield Save(last)
        yield from self._reverse(last, schedule.last_visits, snapshots, self.work.backward)
        for start in range(last - schedule.interval, -1, -schedule.interval):
            yield Restore(start)
            if schedule.interval == 1:
                yield Drop(start)
            yield from self._reverse(start, schedule.interval, snapshots, 0.0)

    def _of_levels(self, schedule: Hierarchical) -> Iterator[Operation]:
        yield Save(0)
        start, visits, stretch = 0, schedule.steps + 1, schedule.splits.root
        turn = self.work.backward
        waiting: list[tuple[int, int, Stretch]] = []
        while True:
            while (stretch := schedule.splits.settle(visits, stretch)).level and visits > 1:
                before, left, behind = schedule.splits.split(visits, stretch)
                waiting.append((start, before, left))
                yield Compute(before * self.work.forward)
                start, visits, stretch = start + before, visits - before, behind
                if visits > 1:
                    yield Save(start)
            yield from self._reverse(start, visits, stretch.snapshots, turn)
            turn = 0.0
            if not waiting:
                return
            start, visits, stretch = waiting.pop()
            yield Restore(start)
            if visits == 1:
                yield Drop(start)

    def _reverse(self, start: int, visits: int, snapshots: int, turn: float) -> Iterator[Operation]:
        """Yield the reversal of a stretch, whose first visit takes less time by `turn`."""
        work = self.work
        waiting: list[tuple[int, int, int]] = []
        while True:
            while visits > 1 and binomial.live(visits, snapshots) > self.slots:
                advance = binomial.split(visits, snapshots)
                waiting.append((start, advance, snapshots))
                yield Compute(advance * work.forward)
                start, visits, snapshots = start + advance, visits - advance, snapshots - 1
                if visits > 1:
                    yield Save(start)
            if visits == 1:
                yield Compute(work.backward - turn)
            else:
                yield from self._as_envelope(start, visits, snapshots, turn)
            if not waiting:
                return
            turn = 0.0
            start, visits, snapshots = waiting.pop()
            yield Restore(start)
            if visits == 1:
                yield Drop(start)

    def _as_envelope(self, start: int, visits: int, snapshots: int, turn: float) -> Sequence[Operation]:
        """Return a stretch that fits in the first tier: its rise, its fall, and its first snapshot's end."""
        shared = self._shared.get((visits, snapshots))
        if shared is None or turn:
            shared = self._rise_and_fall(self.envelope(visits, snapshots), turn)
            if not turn:
                self._shared[visits, snapshots] = shared
        rise, fall, end, last = shared
        moving = (rise, fall) if rise.operations else ()
        return *moving, end, Restore(start), Drop(start), last

    def _rise_and_fall(self, envelope: Envelope, turn: float) -> tuple[Rise, Fall, Compute, Compute]:
        work = self.work
        rise: list[Compute | Save] = []
        fall: list[Compute | Restore | Drop] = []
        now = 0.0
        for height, moment in enumerate(envelope.rises, start=1):
            rise += (Compute(moment - now), Save(-height))
            now = moment + work.save
        now += turn  # it comes after the last rise and before the first fall
        for height, moment in zip(range(len(envelope.falls), 0, -1), envelope.falls, strict=True):
            fall += (Compute(moment - now), Restore(-height), Drop(-height))
            now = moment + work.take
        end = Compute(envelope.total - work.backward - work.take - now)
        return Rise(tuple(rise)), Fall(tuple(fall)), end, Compute(work.backward)

    def envelope(self, visits: int, snapshots: int, stored: bool = False) -> Envelope:
        """Follow the stretches that start at the same snapshot, from the longest to the shortest.

        Where they do not fit, the stalls are counted that no plan avoids: the snapshot is `stored` before its slot is
        used again, and it comes back when a slot is free for good.
        """
        cached = self._envelopes.get((visits, snapshots, stored))
        if cached is not None:
            return cached
        work, slots = self.work, self.slots
        rises: list[float] = []
        falls: list[float] = []
        now, left, not_stored = 0.0, visits, not stored
        while left > 1:
            advance = binomial.split(left, snapshots)
            behind = left - advance
            now += advance * work.forward
            if behind == 1:
                now += work.backward
            else:
                inside = self.envelope(behind, snapshots - 1)
                top = now + work.save
                ups = [now, *(top + rise for rise in inside.rises)]
                downs = [*(top + fall for fall in inside.falls), top + inside.total - work.backward - work.take]
                now = top + inside.total
                if len(downs) >= slots:  # the stretch behind takes all slots, this snapshot's too
                    stall = max(0.0, work.down[0] - ups[slots - 1]) if not_stored else 0.0
                    not_stored = False
                    ups = ups[: slots - 1] + [rise + stall for rise in ups[slots - 1 :]]
                    downs = [fall + stall for fall in downs]
                    now = max(now + stall, downs[len(downs) - slots] + work.take + work.up[0])
                rises += ups[len(rises) :]
                falls = falls[: max(0, len(falls) - len(downs))] + downs
            left = advance
            now += work.restore if left > 1 else work.take
        envelope = Envelope(tuple(rises), tuple(falls), now + work.backward)
        self._envelopes[visits, snapshots, stored] = envelope
        return envelope

    def least_stall(self, visits: int, snapshots: int) -> float:
        """Bound from below the seconds that a stretch stalls because the first tier has too few slots for it."""
        if visits == 1 or binomial.live(visits, snapshots) <= self.slots or snapshots > DEEPEST:
            return 0.0
        return self.envelope(visits, snapshots, stored=True).total - self.still(visits, snapshots)

    def still(self, visits: int, snapshots: int) -> float:
        """Return the seconds of a stretch of several visits that does not stall."""
        work, saves = self.work, binomial.saves(visits, snapshots)
        moving = (saves - 1) * work.save + saves * work.take + (visits - 1 - saves) * work.restore
        return binomial.forward_steps(visits, snapshots) * work.forward + visits * work.backward + moving


def misses(visits: int, snapshots: int, slots: int) -> int:
    """Count the restores in a stretch that find their snapshot evicted from the first tier.

    A restore misses where the stretch behind it filled all the slots. Stretches of the same size recur, so each size
    is taken apart once, the largest first.

    Examples
    --------
    >>> [misses(3752, 8, slots) for slots in (2, 3, 4, 6)]
    [923, 461, 209, 27]
    """
    times = {(snapshots, visits): 1}
    largest = [(-snapshots, -visits)]
    count = 0
    while largest:
        size = heappop(largest)
        snapshots, visits = -size[0], -size[1]
        here = times.pop((snapshots, visits))
        if visits < slots + 2 or snapshots <= slots:
            continue
        advance = binomial.split(visits, snapshots)
        behind = visits - advance
        if behind > slots:
            count += here
        for part in ((snapshots - 1, behind), (snapshots, advance)):
            if part in times:
                times[part] += here
            else:
                times[part] = here
                heappush(largest, (-part[0], -part[1]))
    return count
