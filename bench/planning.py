"""How long `plan` takes to decide, and what it decides, for several machines, budgets and ratios of transfer to step.

Run ``python bench/planning.py [--quick]``: takes a few minutes at most (seconds with ``--quick``, which leaves out the
long loop), prints a table, writes ``bench/out/planning.json``. A plan that takes more than 30 s is given up.
"""

import json
import multiprocessing
import platform
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import forebay as fb

STEPS = (3751, 100_000)
STATE = 310 * 676 * 676 * 8
REVERSALS = 168
LIMIT = 30
STEP_SECONDS = 1e-3

Case = dict[str, Any]
Row = dict[str, Any]


def main() -> None:
    loops = STEPS[:1] if "--quick" in sys.argv else STEPS
    rows = [plan_within_limit(steps, name, case) for steps in loops for name, case in cases().items()]
    show(rows)
    out = Path(__file__).parent / "out" / "planning.json"
    out.parent.mkdir(exist_ok=True)
    setting = {"python": platform.python_version(), "state_bytes": STATE, "reversals": REVERSALS, "limit": LIMIT}
    out.write_text(json.dumps({"setting": setting, "machine": platform.platform(), "rows": rows}, indent=2) + "\n")


def cases() -> dict[str, Case]:
    """Name the problems: assumed machines first, then given ratios of transfer seconds to step seconds."""
    small = fb.Budget(device="8GB", host="64GB")
    found: dict[str, Case] = {
        "laptop, host 12GB, disk 400GB": {"machine": "laptop", "budget": fb.Budget(host="12GB", disk="400GB")},
        "v100, device 12GB, host 96GB": {"machine": "v100", "budget": fb.Budget(device="12GB", host="96GB")},
        "h200, device 120GB, host 400GB": {"machine": "h200", "budget": fb.Budget(device="120GB", host="400GB")},
        "h200, device 8GB, host 64GB": {"machine": "h200", "budget": small},
        "h200, device 8GB, host 64GB, disk 1TB": {"machine": "h200", "budget": small.with_tier("disk", "1TB")},
    }
    for ratio in (0.5, 2, 25, 100):
        speed = STATE / (ratio * STEP_SECONDS)
        costs = fb.Costs(STEP_SECONDS, STEP_SECONDS, copy=2.1e12, host=fb.Link(speed, speed))
        found[f"transfer / step = {ratio:g}, device 8GB, host 64GB"] = {"costs": costs, "budget": small}
    return found


def plan_within_limit(steps: int, name: str, case: Case) -> Row:
    """Plan in a child process, which is ended where it takes too long."""
    processes = multiprocessing.get_context("fork")  # `forebay bench` runs this file where no child could import it
    receiver, sender = processes.Pipe(duplex=False)
    child = processes.Process(target=plan_and_send, args=(steps, case, sender))
    child.start()
    sender.close()
    answer = receiver.recv() if receiver.poll(LIMIT) else {"seconds": None, "plan": None, "predicted": None}
    child.kill()
    child.join()
    return {"steps": steps, "problem": name} | answer


def plan_and_send(steps: int, case: Case, sender: Connection) -> None:
    start = time.perf_counter()
    plan = fb.plan(steps, STATE, reversals=REVERSALS, **case)
    sender.send({"seconds": time.perf_counter() - start, "plan": str(plan.schedule), "predicted": plan.seconds})


def show(rows: list[Row]) -> None:
    table = Table("steps", "problem", "s to plan", "plan", "predicted s", title="planning")
    for row in rows:
        done = row["seconds"] is not None
        times = (f"{row['seconds']:.2f}", f"{row['predicted']:.4g}") if done else (f"more than {LIMIT}", "")
        table.add_row(f"{row['steps']:,}", row["problem"], times[0], row["plan"] or "", times[1])
    Console().print(table)


if __name__ == "__main__":
    main()
