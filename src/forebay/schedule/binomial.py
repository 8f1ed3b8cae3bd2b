"""The binomial reversal of a stretch of steps: fewest forward steps, then fewest saves, in closed form.

Griewank and Walther, "Algorithm 799: revolve", ACM TOMS 26 (2000). Here a stretch is counted in visits: the states
that are needed, latest first. With s snapshots (the first state of the stretch counted in) and each state reached
at most r times, beta(s, r) = C(s + r, s) visits are possible, and N visits need

    r N - beta(s + 1, r - 1)                       forward steps, where beta(s, r - 1) < N <= beta(s, r),
    max(beta(s - 1, r - 1), N - beta(s, r - 1))    saves, the fewest among the splits with that many steps.

The second line and the split that attains it follow from distributing N - beta(s, r - 1) over the two halves of a
split: each half takes a number of further visits without a further save, and both lines add up.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import comb

from forebay.schedule.actions import Action, Backward, Drop, Forward, Restore, Save


def beta(snapshots: int, repeats: int) -> int:
    """Count the visits that `snapshots` and at most `repeats` passes over each state allow."""
    return comb(snapshots + repeats, snapshots) if snapshots >= 0 and repeats >= 0 else 0


@lru_cache(maxsize=2**14)  # schedules that are looked at side by side have many stretches in common
def repeats_for(visits: int, snapshots: int) -> int:
    """Find the least number of passes over each state that makes `visits` possible."""
    if snapshots == 1:
        return visits - 1
    high = 1
    while beta(snapshots, high) < visits:
        high *= 2
    return bisect_left(range(high), visits, key=lambda repeats: beta(snapshots, repeats))


def forward_steps(visits: int, snapshots: int) -> int:
    """Count the forward steps of an optimal reversal."""
    repeats = repeats_for(visits, snapshots)
    return repeats * visits - beta(snapshots + 1, repeats - 1)


def saves(visits: int, snapshots: int) -> int:
    """Count the fewest saves among optimal reversals, the first state's counted in."""
    repeats = repeats_for(visits, snapshots)
    return max(beta(snapshots - 1, repeats - 1), visits - beta(snapshots, repeats - 1), 1)


def live(visits: int, snapshots: int) -> int:
    """Count the snapshots alive at one time: the latest visit needs none."""
    return min(snapshots, max(visits - 1, 1))


class _Row:
    """The numbers beta(s, 0), beta(s, 1), ... of one s > 1 and its neighbours, as far as `visits` needs them."""

    def __init__(self, snapshots: int, visits: int) -> None:
        repeats = range(repeats_for(visits, snapshots) + 1)
        self.here = [beta(snapshots, r) for r in repeats]
        self.one_less = [beta(snapshots - 1, r) for r in repeats]
        self.two_less = [beta(snapshots - 2, r) for r in repeats]


_rows: dict[int, _Row] = {}


def split(visits: int, snapshots: int) -> int:
    """Return how far to advance before the next save, in a stretch of 2 or more visits."""
    if snapshots == 1:
        return visits - 1
    row = _rows.get(snapshots)
    if row is None or row.here[-1] < visits:
        row = _rows[snapshots] = _Row(snapshots, visits)
    repeats = bisect_left(row.here, visits)
    if repeats == 1:
        return 1
    extra = visits - row.here[repeats - 1]
    right = extra - row.two_less[repeats]  # what the stretch behind the save cannot take
    left = row.one_less[repeats - 2]  # what the stretch before it takes without a further save
    return row.here[repeats - 2] + max(min(extra, left), right)


def reverse(
    start: int, visits: int, snapshots: int, end: int, splits: Callable[[int, int, int], int] | None = None
) -> Iterator[Action]:
    """Yield the actions that visit `start + visits - 1`, ..., `start`; working state and a snapshot are at `start`.

    A visit of `end`, the state after the last step, has no backward action: it is the turn. Where `splits` is given, it
    says how far to advance in a stretch (start, visits, snapshots), instead of `split`.
    """
    waiting: list[tuple[int, int]] = []  # the stretches before each live snapshot's right neighbour, and their visits
    while True:
        # Advance and save until the working state is the latest that is still to be visited.
        while visits > 1:
            left = snapshots - len(waiting)
            advance = split(visits, left) if splits is None else splits(start, visits, left)
            waiting.append((start, advance))
            yield Forward(start, start + advance)
            start += advance
            visits -= advance
            if visits > 1:
                yield Save(start)
        if start != end:
            yield Backward(start)
        if not waiting:
            return
        start, visits = waiting.pop()
        yield Restore(start)
        if visits == 1:
            yield Drop(start)
