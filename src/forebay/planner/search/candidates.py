"""The schedules of two levels of which the search tries each, whatever the budget."""

from collections.abc import Iterator
from typing import NamedTuple

from forebay.planner.search.hierarchies import Recipe, spread
from forebay.schedule import Revolve, Schedule, StoreAll, TwoLevel, Uniform, ZCut
from forebay.schedule.segmented import Segmented
from forebay.schedule.zcut import fewest_snapshots


def candidates(steps: int, name: str = "auto", interval: int | None = None) -> Iterator[Segmented]:
    """Yield the schedules of a family that are tried for a loop, whatever the budget."""
    growth = 1.16
    intervals = spread(steps, growth) if interval is None else [interval]
    match name:
        case "auto":
            yield StoreAll(steps)
            yield from candidates(steps, "revolve")
            for interval in intervals[1:-1]:
                yield from candidates(steps, "twolevel", interval)
        case "storeall":
            yield StoreAll(steps)
        case "revolve":
            # Also counted from the other end, where each snapshot saves as much as it does among few.
            from_the_end = {steps - fewer for fewer in spread(steps - 1, growth)} if steps > 1 else set()
            yield from (Revolve(steps, snapshots) for snapshots in sorted(from_the_end | set(spread(steps, growth))))
        case "uniform":
            yield from (Uniform(steps, -(-steps // interval)) for interval in intervals)
        case "zcut":
            fewest = fewest_snapshots(steps)
            yield from (ZCut(steps, fewest + more - 1) for more in spread(steps + 2 - fewest, growth))
        case "twolevel":
            for interval in intervals:
                yield from (TwoLevel(steps, interval, inner - 1) for inner in spread(interval, growth))


def family(schedule: Schedule | Recipe) -> str:
    """Name the kind of a schedule, as the search tells them apart.

    Examples
    --------
    >>> family(TwoLevel(1000, 32, 31)), family(TwoLevel(1000, 32, 8)), family(TwoLevel(1000, 32, 0))
    ('zcut', 'twolevel', 'uniform')
    """
    if isinstance(schedule, TwoLevel):
        return "uniform" if schedule.inner == 0 else "zcut" if schedule.inner >= schedule.interval - 2 else "twolevel"
    return str(schedule).partition(":")[0]


class Alternative(NamedTuple):
    """The best of another kind."""

    name: str
    seconds: float
    exact: bool
    """whether it was simulated; otherwise it takes at least so long"""
