"""The choice for each block of a step: combinations that might be the fastest within a budget, simulated.

A combination is a choice's number for each block. Most are never simulated: the bytes that have to leave the device,
and the seconds of all blocks, bound what a step takes from below. What cannot win by its bound is left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.planner.blocks import BlockChoice, Chain, Forecast, simulate

STARTS = 3
"""So many of the best beginnings are improved."""
DIVISIONS = 16
"""At so many places at most a chain is divided in two."""
PAIRS = 16
"""In chains of so many blocks at most any two are changed at once."""
MOST = 60_000
"""When simulations have gone over so many blocks, nothing more is improved."""

Picks = tuple[int, ...]
Rank = tuple[int, int, int]
"""Excess, ticks and moved bytes: what is smaller is better, first possible, then fast, then with little traffic."""


def choose(chain: Chain, budget: int) -> tuple[tuple[BlockChoice, ...], Forecast]:
    """Find the choices with the smallest predicted step within a budget.

    Two choices divided at any block, and the best choice of each block at many prices of a byte, are improved one block
    and two blocks at a time. The same chain and budget give the same choices.

    Returns
    -------
    picks, forecast
        Where nothing is possible, those that come closest, with ``forecast.excess`` above 0.

    Examples
    --------
    >>> from forebay.planner.blocks import Block
    >>> keep, again = BlockChoice("keep", kept=100), BlockChoice("recompute", backward=1.0)
    >>> chain = Chain(tuple(Block(f"{n}", 1.0, 2.0, 50, 50, 150, (keep, again)) for n in range(3)))
    >>> picks, forecast = choose(chain, 349)
    >>> [pick.name for pick in picks].count("keep"), forecast.seconds
    (2, 10.0)
    """
    search = _Search(chain, budget)
    begun = sorted({*_divided(chain), *_priced(chain)})
    seeds = search.best(((search.sums(picks), picks) for picks in begun), STARTS)
    picks = min((search.improved(rank, picks) for rank, picks in seeds))[1]
    chosen = search.choices(picks)
    return chosen, simulate(chain, chosen, budget)


class _Sums(NamedTuple):
    """What a combination adds up to, or one choice of it."""

    forward: float
    backward: float
    resident: int
    """bytes on the device when the last block turns, as long as nothing has left"""
    moved: int
    """those of them that can leave"""


def _sums(choice: BlockChoice, last: bool) -> _Sums:
    if last:  # when it turns, all that it saved is part of its peak
        return _Sums(choice.forward, choice.backward, 0, 0)
    return _Sums(choice.forward, choice.backward, choice.kept + choice.moved - choice.freed, choice.moved)


class _Search:
    """Ranks combinations, those by simulation that their bound does not rule out."""

    def __init__(self, chain: Chain, budget: int) -> None:
        self._chain, self._budget, self._left = chain, budget, MOST
        self._ranks: dict[Picks, Rank] = {}
        count = len(chain.blocks)
        self._forward = sum(block.forward for block in chain.blocks)
        self._backward = sum(block.backward for block in chain.blocks)
        self._sums = [
            [_sums(choice, number == count - 1) for choice in block.choices]
            for number, block in enumerate(chain.blocks)
        ]
        self._places = [{choice.name: place for place, choice in enumerate(block.choices)} for block in chain.blocks]
        # Seconds are compared in ticks, so that what rounding adds is no difference.
        self._tick = 1e-9 * (self._forward + self._backward + chain.outside) or 1.0

    def choices(self, picks: Picks) -> tuple[BlockChoice, ...]:
        return tuple(block.choices[place] for block, place in zip(self._chain.blocks, picks, strict=True))

    def sums(self, picks: Picks) -> _Sums:
        parts = [sums[place] for sums, place in zip(self._sums, picks, strict=True)]
        return _Sums(*(sum(column) for column in zip(*parts, strict=True)))

    def least(self, sums: _Sums) -> tuple[int, int]:
        """Return ticks and moved bytes that no step can be below: what must be gone by the turn goes and comes back."""
        chain = self._chain
        gone = min(max(chain.blocks[-1].peak_backward + sums.resident - self._budget, 0), sums.moved)
        forward = max(self._forward + sums.forward, gone / chain.down)
        backward = max(self._backward + sums.backward, gone / chain.up)
        return round((forward + backward + chain.outside) / self._tick), sums.moved

    def rank(self, picks: Picks) -> Rank:
        """Simulate a combination, once."""
        if picks not in self._ranks:
            self._left -= len(picks)
            forecast = simulate(self._chain, self.choices(picks), self._budget)
            self._ranks[picks] = forecast.excess, round(forecast.seconds / self._tick), forecast.moved
        return self._ranks[picks]

    def fits(self, picks: Picks) -> bool:
        """Return whether there is room when all that can leave has left; a simulation may still find none."""
        staying, budget = 0, self._budget
        for block, place in zip(self._chain.blocks, picks, strict=True):
            pick = block.choices[place]
            stays = pick.kept - pick.freed
            forward = block.peak_forward + staying + stays + pick.moved + pick.room
            if max(forward, block.peak_after + staying + stays, block.peak_backward + staying) > budget:
                return False
            staying += stays
        return True

    def best(self, candidates: Iterable[tuple[_Sums, Picks]], count: int) -> list[tuple[Rank, Picks]]:
        """Return the best few, trying the most promising first, as long as a bound is below the last of them."""
        leaders: list[tuple[Rank, Picks]] = []
        for least, picks in sorted((self.least(sums), picks) for sums, picks in candidates):
            full = len(leaders) == count
            if full and not leaders[-1][0][0] and ((0, *least) >= leaders[-1][0] or not self.fits(picks)):
                continue
            leaders = sorted([*leaders, (self.rank(picks), picks)])[:count]
        return leaders

    def improved(self, rank: Rank, picks: Picks) -> tuple[Rank, Picks]:
        """Change one block, or two at once, as long as that helps."""
        while self._left > 0:
            changes = [
                (number, place)
                for number, block in enumerate(self._chain.blocks)
                for place in range(len(block.choices))
                if place != picks[number]
            ]
            single = np.arange(len(changes))[:, None]
            better = self._better(rank, picks, changes, single)
            if better is None:
                better = self._better(rank, picks, changes, self._pairs(picks, changes))
            if better is None:
                break
            rank, picks = better
        return rank, picks

    def _better(
        self, rank: Rank, picks: Picks, changes: Sequence["Change"], several: NDArray[np.intp]
    ) -> tuple[Rank, Picks] | None:
        """Make the best of some changes, or sets of them, a row of their numbers each, if there is one that helps."""
        best = None
        for ticks, moved, row in self._promising(rank, picks, changes, several):
            if (not rank[0] and (0, ticks, moved) >= rank) or self._left <= 0:
                break
            other = list(picks)
            for change in several[row]:
                number, place = changes[change]
                other[number] = place
            candidate = tuple(other)
            if (rank[0] or self.fits(candidate)) and self.rank(candidate) < rank:
                rank, best = self.rank(candidate), candidate
        return None if best is None else (rank, best)

    def _promising(
        self, rank: Rank, picks: Picks, changes: Sequence["Change"], several: NDArray[np.intp]
    ) -> Iterator[tuple[int, int, int]]:
        """Yield the bounds of those that might help, and their rows, most promising first."""
        if not several.size:
            return
        new = np.array([self._sums[number][place] for number, place in changes])
        old = np.array([self._sums[number][picks[number]] for number, _ in changes])
        forward, backward, resident, moved = (np.array(self.sums(picks)) + (new - old)[several].sum(axis=1)).T
        chain = self._chain
        gone = np.minimum(np.maximum(chain.blocks[-1].peak_backward + resident - self._budget, 0), moved)
        seconds = np.maximum(self._forward + forward, gone / chain.down) + chain.outside
        seconds += np.maximum(self._backward + backward, gone / chain.up)
        ticks = np.rint(seconds / self._tick)
        keep = np.ones(len(ticks), bool)
        if not rank[0]:
            keep = (ticks < rank[1]) | ((ticks == rank[1]) & (moved < rank[2]))
        rows = np.flatnonzero(keep)
        for row in rows[np.lexsort((rows, moved[rows], ticks[rows]))]:
            yield int(ticks[row]), int(moved[row]), int(row)

    def _pairs(self, picks: Picks, changes: Sequence["Change"]) -> NDArray[np.intp]:
        """List pairs of changes: two blocks that swap their choices; in a short chain, any two."""
        blocks, places = self._chain.blocks, self._places
        if len(blocks) <= PAIRS:
            numbers = np.array([number for number, _ in changes], np.intp)
            return np.argwhere(numbers[:, None] < numbers)
        where = {change: row for row, change in enumerate(changes)}
        names = [block.choices[place].name for block, place in zip(blocks, picks, strict=True)]
        pairs = [
            (where[first, places[first][names[second]]], where[second, places[second][names[first]]])
            for first, second in combinations(range(len(blocks)), 2)
            if names[first] != names[second] and names[second] in places[first] and names[first] in places[second]
        ]
        return np.array(pairs, np.intp).reshape(-1, 2)


Change = tuple[int, int]
"""A block, and the place of its new choice."""


def _divided(chain: Chain) -> Iterator[Picks]:
    """Yield all pairs of choices, one before and one behind each of some places; each alone is among them.

    A block that has no choice of that name does with the fewest bytes instead.
    """
    count = len(chain.blocks)
    names = dict.fromkeys(choice.name for block in chain.blocks for choice in block.choices)
    several = [uniform_picks(chain, name) for name in names]
    for place in range(0, count + 1, -(-count // DIVISIONS)):
        for before, behind in product(several, several):
            yield before[:place] + behind[place:]


def uniform_picks(chain: Chain, name: str) -> Picks:
    """Return the same choice for all blocks, and for one that does not have it the choice with the fewest bytes."""
    return tuple(
        min(
            range(len(choices)),
            key=lambda place: (choices[place].name != name, choices[place].kept + choices[place].moved),
        )
        for choices in (block.choices for block in chain.blocks)
    )


def _priced(chain: Chain) -> Iterator[Picks]:
    """Yield the best choice of each block when a byte of the device, and the link, have a price."""
    slower = min(chain.up, chain.down)
    for link in (0.0, 0.2, 0.5, 1.0):
        for power in range(-28, -14):
            price = 10 ** (power / 2)

            def cost(choice: BlockChoice, link: float = link, price: float = price) -> float:
                spent = choice.forward + choice.backward + link * choice.moved / slower
                return spent + price * (choice.kept - choice.freed)

            yield tuple(_cheapest([cost(choice) for choice in block.choices]) for block in chain.blocks)


def _cheapest(costs: Sequence[float]) -> int:
    return min(range(len(costs)), key=costs.__getitem__)
