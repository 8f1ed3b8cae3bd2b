"""Times taken side by side, and the most memory that a process had."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Clock = Callable[[], float]
median = statistics.median


def seconds(call: Callable[[], Any], clock: Clock = time.perf_counter) -> float:
    """Time one call."""
    start = clock()
    call()
    return clock() - start


def steady(call: Callable[[], Any], wait: Callable[[], Any], count: int, warm: int = 3) -> float:
    """Return the median seconds of calls whose end is waited for, after some that are not timed."""

    def whole() -> None:
        call()
        wait()

    for _ in range(warm):
        whole()
    return median(seconds(whole) for _ in range(count))


def turns(
    calls: Mapping[str, Callable[[], Any]], repeats: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Time alternatives one after the other, turn by turn: what disturbs the machine disturbs all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            taken[name].append(seconds(call, clock))
    return taken


def medians(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each alternative."""
    return {name: median(times) for name, times in taken.items()}


def reset_high_water(process: int | str = "self") -> None:
    """Have Linux forget the most resident memory that a process had."""
    Path(f"/proc/{process}/clear_refs").write_text("5")


def high_water(process: int | str = "self", what: str = "VmHWM") -> int:
    """Return the most resident bytes of a process since then, or with "VmRSS" those it has; 0 of a dead one."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(what)), 0)
