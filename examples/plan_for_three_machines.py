"""Plan one reversal for three machines, compare the plans, and keep them as JSON.

The problem is acoustic RTM of a 3-D salt model: two fields of 310 x 676 x 676 points in single precision, 3751 steps,
and 168 shots that share the pinned memory. Costs are assumed for each machine; give your own as ``costs=Costs(...)``.

Run ``python examples/plan_for_three_machines.py [FOLDER]``; the plans are written where a folder is named.
"""

import sys
from pathlib import Path

import forebay as fb

MACHINES = {
    "laptop": fb.Budget(host="12GB", disk="400GB"),
    "v100": fb.Budget(device="12GB", host="96GB"),
    "h200": fb.Budget(device="120GB", host="400GB"),
}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for machine, budget in MACHINES.items():
        plan = fb.plan(3751, 310 * 676 * 676 * 8, budget, machine=machine, reversals=168)
        moved = sum(plan.prediction.fetched) + sum(plan.prediction.stored)
        passes = plan.schedule.forward_steps / plan.steps
        what = f"{passes:.2f} passes forward, {moved} snapshots moved"
        print(f"{machine:7} {plan.schedule!s:15} {plan.seconds:7.1f} s, {what}")
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            plan.to_json(folder / f"{machine}.json")


if __name__ == "__main__":
    main()
