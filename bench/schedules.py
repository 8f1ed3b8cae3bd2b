"""How fast schedules yield their actions: our Revolve beside the two of checkpoint_schedules, in one run.

Run ``python bench/schedules.py [--quick]``: takes half a minute (a few seconds with ``--quick``, which leaves out the
largest loop and the slow Revolve), prints a table, writes ``bench/out/schedules.json``.
"""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import checkpoint_schedules as library
from rich.console import Console
from rich.table import Column, Table

from forebay import Revolve

OURS = "Forebay Revolve"
MULTISTAGE = "checkpoint_schedules Multistage"
TABLES = "checkpoint_schedules Revolve"
SIZES = ((1000, 20), (10_000, 40), (1_000_000, 100))
ENOUGH_SECONDS = 1.0
"""What has taken this long is not repeated."""

Row = dict[str, Any]


def main() -> None:
    quick = "--quick" in sys.argv
    for _ in library.MultistageCheckpointSchedule(10, 3, 0):  # compiles what it needs of Numba, once
        pass
    rows = []
    for steps, snapshots in SIZES[:2] if quick else SIZES:
        rows += compare(steps, snapshots, with_tables=steps == 1000 and not quick)
    show(rows)
    out = Path(__file__).parent / "out" / "schedules.json"
    out.parent.mkdir(exist_ok=True)
    setting = {"python": platform.python_version(), "checkpoint_schedules": metadata.version("checkpoint_schedules")}
    out.write_text(json.dumps({"setting": setting, "machine": platform.platform(), "rows": rows}, indent=2) + "\n")


def compare(steps: int, snapshots: int, with_tables: bool) -> list[Row]:
    """Time each library's way to reverse a loop, one right after the other."""
    makers: dict[str, Callable[[], Iterable[Any]]] = {
        OURS: lambda: Revolve(steps, snapshots),
        MULTISTAGE: lambda: library.MultistageCheckpointSchedule(steps, snapshots, 0),
    }
    if with_tables:
        makers[TABLES] = lambda: library.Revolve(steps, snapshots)
    rows: list[Row] = []
    for name, make in makers.items():
        actions, first, whole = measure(make)
        row = {"steps": steps, "snapshots": snapshots, "schedule": name, "actions": actions}
        ours = rows[0]["seconds"] if rows else whole
        rows.append(row | {"to_first": first, "seconds": whole, "per_second": actions / whole, "ratio": whole / ours})
    return rows


def measure(make: Callable[[], Iterable[Any]], most: int = 5) -> tuple[int, float, float]:
    """Give the actions, and the median seconds to the first and to the last, the making counted in."""
    firsts: list[float] = []
    wholes: list[float] = []
    actions = 0
    while len(wholes) < most and sum(wholes) < ENOUGH_SECONDS:
        start = time.perf_counter()
        iterator = iter(make())
        next(iterator)
        firsts.append(time.perf_counter() - start)
        actions = 1
        for _ in iterator:
            actions += 1
        wholes.append(time.perf_counter() - start)
    return actions, statistics.median(firsts), statistics.median(wholes)


def show(rows: list[Row]) -> None:
    columns = ("steps", "snapshots", "schedule", "actions", "s to first", "s to last", "actions/s", "s to last / ours")
    folded = (Column(name, overflow="fold") for name in columns)  # no digit is lost on a narrow terminal
    table = Table(*folded, title="actions of a reversal, medians")
    for row in rows:
        table.add_row(
            f"{row['steps']:,}",
            str(row["snapshots"]),
            row["schedule"],
            f"{row['actions']:,}",
            f"{row['to_first']:.2g}",
            f"{row['seconds']:.3g}",
            f"{row['per_second']:,.0f}",
            f"{row['ratio']:.3g}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
