"""How fast schedules yield their actions, beside checkpoint_schedules, and how many snapshots `lru` and `min` move.

Takes half a minute. The snapshots that the two policies move up and down, on our trajectory and on the other's, are
counts, the same on every machine.
"""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from harness import Report, benchmark, median

from forebay import Revolve, foreign
from forebay.planner.choose import operations_of
from forebay.planner.trace import moved

SIZES = ((1000, 20), (10_000, 40), (1_000_000, 100))
TINY = ((100, 8), (200, 8))
MOVED = {False: (3751, 8), True: (200, 8)}
"""Steps and snapshots of the loop whose movements are counted; of the tiny one."""
ENOUGH_SECONDS = 1.0
"""What has taken this long is not repeated."""


@benchmark(needs=("checkpoint_schedules",))
def main(asked: Any, report: Report) -> None:
    if asked.tiny:
        os.environ["NUMBA_DISABLE_JIT"] = "1"  # to compile what the library needs would take longer than all else
    import checkpoint_schedules as library

    list(library.MultistageCheckpointSchedule(10, 3, 0))  # compiles what it needs of Numba, once
    for steps, snapshots in TINY if asked.tiny else SIZES:
        makers: dict[str, Callable[[int, int], Iterable[Any]]] = {
            "Forebay Revolve": Revolve,
            "checkpoint_schedules Multistage": lambda *size: library.MultistageCheckpointSchedule(*size, 0),
        }
        if steps == 1000:
            makers["checkpoint_schedules Revolve"] = library.Revolve
        for name, make in makers.items():
            row = {"steps": steps, "snapshots": snapshots, "schedule": name} | measure(make, steps, snapshots)
            ours = report.find(steps=steps) or row
            report.add(row | {"over_ours": row["seconds"] / ours["seconds"]})
    columns = "steps:, snapshots schedule actions:, to_first:.2g seconds:.3g per_second:,.0f over_ours:.3g"
    report.table("actions of a reversal: seconds to the first and to the last, medians", columns)
    steps, snapshots = MOVED[asked.tiny]
    multistage = foreign(library.MultistageCheckpointSchedule(steps, snapshots, 0))
    counts = [
        report.add({"schedule": name, "slots": slots} | movements(schedule, slots, steps))
        for name, schedule in (("Forebay Revolve", Revolve(steps, snapshots)), ("Multistage", multistage))
        for slots in (2, 3, 4, 6)
    ]
    columns = "schedule slots lru_up lru_down min_up min_down lru_over_min:.3g"
    report.table(f"snapshots moved, {steps} steps with {snapshots} snapshots", columns, counts)


def movements(schedule: Any, slots: int, steps: int) -> dict[str, float]:
    """Count what both policies move between a first tier of so many slots and the one below."""
    row: dict[str, float] = {}
    for policy in ("lru", "min"):
        row[f"{policy}_up"], row[f"{policy}_down"] = moved(operations_of(schedule, (slots, steps), policy), tier=1)
    return row | {"lru_over_min": (row["lru_up"] + row["lru_down"]) / (row["min_up"] + row["min_down"])}


def measure(make: Callable[[int, int], Iterable[Any]], steps: int, snapshots: int, most: int = 5) -> dict[str, Any]:
    """Count the actions, and time the first and the last, the making counted in."""
    firsts: list[float] = []
    wholes: list[float] = []
    actions = 0
    while len(wholes) < most and sum(wholes) < ENOUGH_SECONDS:
        start = time.perf_counter()
        iterator = iter(make(steps, snapshots))
        next(iterator)
        firsts.append(time.perf_counter() - start)
        actions = 1 + sum(1 for _ in iterator)
        wholes.append(time.perf_counter() - start)
    seconds = median(wholes)
    return {"actions": actions, "to_first": median(firsts), "seconds": seconds, "per_second": actions / seconds}


if __name__ == "__main__":
    main()
