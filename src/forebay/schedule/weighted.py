"""Steps of unequal cost: the splits of a reversal that repeats cheap steps rather than dear ones.

A stretch of states is split at its next snapshot, as in the binomial reversal. What the two parts cost depends on their
steps, so the best split comes from a table instead of a closed form:

    cost(a, b, s) = min over m of  seconds from a to m + cost(m, b, s - 1) + cost(a, m, s).

Such a table over N states takes N^3 s / 6 additions, so it is exact for stretches of some hundreds of states. A longer
stretch is first split on a grid, between whose points Revolve is assumed at the mean cost of a step; the parts that
come out of it are split on finer grids, down to exact tables. Steps of one cost are left to Revolve itself.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.errors import ScheduleError
from forebay.schedule import binomial
from forebay.schedule.actions import Action, Drop, Forward, Save, Schedule
from forebay.schedule.segmented import check_snapshots, take_whole

Numbers = NDArray[np.float64]
States = NDArray[np.int64]

ADDITIONS = 1e9
"""Additions of all exact tables of a reversal, about: they bound how long a stretch is split exactly."""
LONGEST, SHORTEST = 512, 48
"""States of the stretches that are split exactly, at most and at least."""
GRID = 96
"""Cells of a grid over a longer stretch."""
EVEN = 0.02
"""Difference between the steps of a stretch, relative to the dearest, up to which Revolve splits it as well."""
COARSE = 12
"""Cells below which a part of a grid gets a grid of its own."""


@dataclass(frozen=True)
class Weighted(Schedule):
    """The reversal of least forward seconds where steps differ in cost: given how long each step takes.

    With steps of one cost it is Revolve.

    Examples
    --------
    >>> costs = [1.0] * 50 + [10.0] * 50
    >>> schedule = Weighted(100, 8, costs)
    >>> schedule.peak_snapshots, round(schedule.forward_seconds)
    (8, 1173)
    """

    steps: int
    snapshots: int
    costs: Sequence[float] = field(repr=False)
    """seconds of each step, or anything in proportion to them"""

    def __post_init__(self) -> None:
        take_whole(self, "steps", "snapshots")
        check_snapshots(self.steps, self.snapshots)
        costs = tuple(map(float, self.costs))
        if len(costs) != self.steps:
            raise ScheduleError(f"{len(costs)} costs for {self.steps} steps: give one for each step")
        if not all(isfinite(cost) and cost >= 0 for cost in costs) or not sum(costs):
            raise ScheduleError("costs of steps must be finite, not negative, and not all zero")
        object.__setattr__(self, "costs", costs)

    def __str__(self) -> str:
        return f"weighted:{self.snapshots}"

    def __iter__(self) -> Iterator[Action]:
        advances = iter(self._advances)
        yield Save(0)
        yield from self._reverse(lambda *_: next(advances))

    def _reverse(self, split: Callable[[int, int, int], int]) -> Iterator[Action]:
        return binomial.reverse(0, self.steps + 1, self.snapshots, self.steps, split)

    @cached_property
    def _advances(self) -> "array[int]":
        """How far each forward action goes: the tables that tell it are made once."""
        splits, advances = WeightedSplits(self.costs, self.snapshots), array("q")

        def split(*stretch: int) -> int:
            advances.append(splits.split(*stretch))
            return advances[-1]

        for _ in self._reverse(split):
            pass
        return advances

    def __len__(self) -> int:
        return 3 * self.steps + 2 * self.saves

    @cached_property
    def _totals(self) -> tuple[int, float, int, int]:
        """Forward steps and their seconds, saves and live snapshots, counted over one pass of the actions."""
        prefix = np.concatenate([[0.0], np.cumsum(self.costs)])
        steps, seconds, saves, alive, peak = 0, 0.0, 0, 0, 0
        for action in self:
            if isinstance(action, Forward):
                steps += action.stop - action.start
                seconds += prefix[action.stop] - prefix[action.start]
            elif isinstance(action, Save):
                saves += 1
                alive += 1
                peak = max(peak, alive)
            elif isinstance(action, Drop):
                alive -= 1
        return steps, float(seconds), saves, peak

    @property
    def forward_steps(self) -> int:
        """Steps that are run forward, the first sweep counted in."""
        return self._totals[0]

    @property
    def forward_seconds(self) -> float:
        """What those steps cost."""
        return self._totals[1]

    @property
    def saves(self) -> int:
        """Snapshots that are taken over the whole reversal."""
        return self._totals[2]

    @property
    def peak_snapshots(self) -> int:
        """Snapshots that are alive at one time, at most."""
        return self._totals[3]


def summed(costs: Sequence[float], every: int) -> tuple[float, ...]:
    """Return what each `every` steps cost together.

    Examples
    --------
    >>> summed((1, 2, 3, 4, 5), 2)
    (3, 7, 5)
    """
    return tuple(sum(costs[first : first + every]) for first in range(0, len(costs), every))


class _Table(NamedTuple):
    """The best splits of every stretch between points of a grid."""

    edges: States
    """the points: first states of the cells, and the state behind the last"""
    splits: NDArray[np.int16]
    """by snapshots from 1, first cell and number of cells: cells before the split; 0 is Revolve's"""

    @property
    def exact(self) -> bool:
        return bool(self.edges[-1] - self.edges[0] == len(self.edges) - 1)


class WeightedSplits:
    """Where one reversal saves next: tables for the stretch that it is in, made as it gets there."""

    def __init__(self, costs: Sequence[float], snapshots: int) -> None:
        self.costs = np.array(costs)
        self.prefix = np.concatenate([[0.0], np.cumsum(self.costs)])
        self.twice = np.concatenate([[0.0], np.cumsum(self.prefix)])
        tables = ADDITIONS / (len(costs) * snapshots)  # of N^2 additions a state and snapshot
        self.longest = int(min(LONGEST, max(SHORTEST, tables**0.5)))
        self.nested: list[_Table] = []

    def split(self, start: int, visits: int, snapshots: int) -> int:
        """Return how far to advance before the next save, in a stretch of 2 or more states."""
        if snapshots == 1 or visits <= snapshots + 1 or self._even(start, visits):
            return binomial.split(visits, snapshots)
        stop = start + visits
        while self.nested and not self.nested[-1].edges[0] <= start < stop <= self.nested[-1].edges[-1]:
            self.nested.pop()
        if not self.nested or not self._reaches(self.nested[-1], start, stop):
            self.nested.append(self._table(start, stop, snapshots))
        table = self.nested[-1]
        cell, end = np.searchsorted(table.edges, (start, stop))
        cells = int(table.splits[min(snapshots, len(table.splits)) - 1, cell, end - cell])
        if cells:
            return int(table.edges[cell + cells]) - start
        if visits <= self.longest:
            self.nested.append(self._table(start, stop, snapshots))
            return self.split(start, visits, snapshots)
        return binomial.split(visits, snapshots)

    def _even(self, start: int, visits: int) -> bool:
        """Tell whether all steps of a stretch cost nearly the same."""
        costs = self.costs[start : start + visits - 1]
        return bool(costs.max() - costs.min() <= EVEN * costs.max())

    def _reaches(self, table: _Table, start: int, stop: int) -> bool:
        """Tell whether a table knows a stretch as finely as is worth it."""
        cell, end = np.searchsorted(table.edges, (start, stop))
        known = table.edges[cell] == start and table.edges[end] == stop
        whole = end - cell == len(table.edges) - 1
        return bool(known and (table.exact or whole or end - cell >= COARSE))

    def _behind_dear(self, state: int, reach: int) -> int:
        """Return the state near a state behind the largest fall in cost: a snapshot there spares the dear step."""
        states = np.arange(state - reach, min(state + reach, len(self.costs) - 1) + 1)
        if not len(states):
            return state
        fall = self.costs[states - 1] - self.costs[states] - 1e-9 * self.prefix[-1] * abs(states - state)
        return int(states[fall.argmax()])

    def _edges(self, start: int, stop: int) -> States:
        visits = stop - start
        if visits <= self.longest:
            return np.arange(start, stop + 1)
        inner = np.linspace(start, stop, GRID + 1).round().astype(int)[1:-1]
        reach = visits // GRID // 2
        return np.unique([start, *(self._behind_dear(state, reach) for state in inner.tolist()), stop])

    def _table(self, start: int, stop: int, snapshots: int) -> _Table:
        """Find the best splits of all stretches between the points of a grid, for up to so many snapshots."""
        edges = self._edges(start, stop)
        cells, most = len(edges) - 1, min(snapshots, stop - start)
        rows, widths = np.arange(cells)[:, None], np.arange(cells + 1)
        ends = edges[np.minimum(rows + widths, cells)]
        advance = self.prefix[np.minimum(ends, stop - 1)] - self.prefix[edges[:-1]][:, None]
        unsplit = self._unsplit(edges[:-1][:, None], ends, most, exact=cells == stop - start)
        tie = 1e-7 * advance[0, -1] / cells  # of two equal splits the one with fewer saves
        # By snapshots from 1, first (or last) cell, and number of cells: what a stretch costs.
        by_first = np.zeros((most, cells, cells + 1))
        by_last = np.zeros((most, cells + 1, cells + 1))
        splits = np.zeros((most, cells, cells + 1), np.int16)
        for width in range(1, cells + 1):
            count = cells - width + 1
            costs = unsplit[:, :count, width]
            if width > 1:
                left = by_first[1:, :count, 1:width] + advance[:count, 1:width]
                sums = left + by_last[:-1, width:, width - 1 : 0 : -1]
                best = sums.argmin(2)
                least = np.take_along_axis(sums, best[:, :, None], 2)[:, :, 0] + tie
                splits[1:, :count, width] = np.where(least < costs[1:], best + 1, 0)
                costs = np.concatenate([costs[:1], np.minimum(costs[1:], least)])
            by_first[:, :count, width] = by_last[:, width:, width] = costs
        return _Table(edges, splits)

    def _unsplit(self, start: States, stop: States, snapshots: int, exact: bool) -> Numbers:
        """Return what stretches cost without a table: with one snapshot, and as Revolve at their mean cost with more.

        Where tables are exact, only stretches of one state are left to that.
        """
        visits = np.maximum(stop - start, 1)
        costs = np.full((snapshots, *visits.shape), np.inf)
        costs[0] = self.twice[start + visits] - self.twice[start + 1] - (visits - 1) * self.prefix[start]
        costs[1:, visits == 1] = 0
        if not exact:
            mean = (self.prefix[start + visits - 1] - self.prefix[start]) / np.maximum(visits - 1, 1)
            for count in range(2, snapshots + 1):
                costs[count - 1] = mean * forward_steps(visits, count)
        return costs


def forward_steps(visits: States, snapshots: int) -> Numbers:
    """Count the forward steps of Revolve, as `binomial.forward_steps` does, of many stretches at once."""
    most = binomial.repeats_for(int(visits.max()), snapshots)
    here, above = (
        np.array([binomial.beta(number, repeats) for repeats in range(-1, most + 1)], float)
        for number in (snapshots, snapshots + 1)
    )
    repeats = np.searchsorted(here[1:], visits)
    return np.asarray(repeats * visits - above[repeats])
