"""A good schedule found quickly, before the search for the best: walk over intervals and inner snapshots, downhill."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from forebay.schedule.segmented import Segmented

STRIDES = (-12, -4, -1, 1, 4, 12)
"""How far a step of the walk goes along the intervals, or along the inner snapshots, that are tried."""


def climb(
    schedules: Iterable[Segmented], seconds_of: Callable[[Segmented], float], starts: Sequence[tuple[int, int]]
) -> Segmented | None:
    """Walk from each start to a schedule none of whose neighbours takes less time, and return the best of those.

    Parameters
    ----------
    schedules
        what is tried
    seconds_of
        the time of a schedule, or infinity once no more should be looked at
    starts
        pairs of an interval and a number of inner snapshots; the nearest schedules are taken
    """
    table: dict[int, dict[int, Segmented]] = {}
    for schedule in schedules:
        table.setdefault(schedule.interval, {})[schedule.inner] = schedule
    if not table:
        return None
    intervals = sorted(table)
    inners = {interval: sorted(row) for interval, row in table.items()}
    times: dict[tuple[int, int], float] = {}

    def seconds(place: tuple[int, int]) -> float:
        if place not in times:
            times[place] = seconds_of(table[place[0]][place[1]])
        return times[place]

    def near(interval: int, inner: int) -> tuple[int, int]:
        interval = intervals[_nearest(intervals, interval)]
        return interval, inners[interval][_nearest(inners[interval], inner)]

    for start in starts:
        here = near(*start)
        while True:
            across = _nearest(intervals, here[0])
            along = _nearest(inners[here[0]], here[1])
            around = [near(_at(intervals, across + stride), here[1]) for stride in STRIDES]
            around += [(here[0], _at(inners[here[0]], along + stride)) for stride in STRIDES]
            best = min([here, *around], key=seconds)
            if seconds(best) >= seconds(here):
                break
            here = best
    best = min(times, key=lambda place: times[place])
    return table[best[0]][best[1]]


def _nearest(numbers: list[int], wanted: int) -> int:
    """Return the index of the number that is nearest."""
    right = min(bisect_left(numbers, wanted), len(numbers) - 1)
    left = max(right - 1, 0)
    return left if abs(numbers[left] - wanted) <= abs(numbers[right] - wanted) else right


def _at(numbers: list[int], index: int) -> int:
    return numbers[min(max(index, 0), len(numbers) - 1)]
