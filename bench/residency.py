"""Snapshots that the policies `lru` and `min` move up and down, on our trajectory and on checkpoint_schedules'.

Run ``python bench/residency.py``: takes a second, prints a table, writes ``bench/out/residency.json``. These are
counts, the same on every machine.
"""

import json
from pathlib import Path

from checkpoint_schedules import MultistageCheckpointSchedule
from rich.console import Console
from rich.table import Table

from forebay import Revolve, foreign
from forebay.planner.choose import operations_of
from forebay.planner.trace import moved
from forebay.schedule import Schedule

STEPS, SNAPSHOTS = 3751, 8
SLOTS = (2, 3, 4, 6)

Row = dict[str, str | int | float]


def main() -> None:
    schedules = {
        "Forebay Revolve": Revolve(STEPS, SNAPSHOTS),
        "checkpoint_schedules Multistage": foreign(MultistageCheckpointSchedule(STEPS, SNAPSHOTS, 0)),
    }
    rows = [count(name, schedule, slots) for name, schedule in schedules.items() for slots in SLOTS]
    show(rows)
    out = Path(__file__).parent / "out" / "residency.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"setting": {"steps": STEPS, "snapshots": SNAPSHOTS}, "rows": rows}, indent=2) + "\n")


def count(name: str, schedule: Schedule, slots: int) -> Row:
    """Count what both policies move between a first tier of so many slots and the one below."""
    row: Row = {"schedule": name, "slots": slots}
    for policy in ("lru", "min"):
        row[f"{policy}_up"], row[f"{policy}_down"] = moved(operations_of(schedule, (slots, STEPS), policy), tier=1)
    lru, least = (int(row[f"{policy}_up"]) + int(row[f"{policy}_down"]) for policy in ("lru", "min"))
    return row | {"ratio": lru / least}


def show(rows: list[Row]) -> None:
    columns = ("schedule", "slots", "lru up", "lru down", "min up", "min down", "lru / min")
    table = Table(*columns, title=f"snapshots moved, {STEPS} steps with {SNAPSHOTS} snapshots")
    for row in rows:
        *cells, ratio = row.values()
        table.add_row(*map(str, cells), f"{ratio:.3g}")
    Console().print(table)


if __name__ == "__main__":
    main()
