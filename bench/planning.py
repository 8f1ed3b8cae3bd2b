"""How long `plan` takes to decide, and what it decides, for several machines, budgets and ratios of transfer to step.

Takes a few minutes at most. A plan that takes more than 30 s is given up.
"""

import time
from typing import Any

from harness import Report, arg, benchmark, child

import forebay as fb

STATE = 310 * 676 * 676 * 8
REVERSALS, LIMIT, STEP_SECONDS = 168, 30, 1e-3


def cases() -> dict[str, dict[str, Any]]:
    """Name the problems: assumed machines first, then given ratios of transfer seconds to step seconds."""
    small = fb.Budget(device="8GB", host="64GB")
    named: dict[str, dict[str, Any]] = {
        "laptop, host 12GB, disk 400GB": {"machine": "laptop", "budget": fb.Budget(host="12GB", disk="400GB")},
        "v100, device 12GB, host 96GB": {"machine": "v100", "budget": fb.Budget(device="12GB", host="96GB")},
        "h200, device 120GB, host 400GB": {"machine": "h200", "budget": fb.Budget(device="120GB", host="400GB")},
        "h200, device 8GB, host 64GB": {"machine": "h200", "budget": small},
        "h200, device 8GB, host 64GB, disk 1TB": {"machine": "h200", "budget": small.with_tier("disk", "1TB")},
    }
    for ratio in (0.5, 2, 25, 100):
        speed = STATE / (ratio * STEP_SECONDS)
        costs = fb.Costs(STEP_SECONDS, STEP_SECONDS, copy=2.1e12, host=fb.Link(speed, speed))
        named[f"transfer / step = {ratio:g}, device 8GB, host 64GB"] = {"costs": costs, "budget": small}
    return named


def planned(steps: int, problem: str) -> dict[str, Any]:
    """Time a plan."""
    given = cases()[problem]
    fb.plan(10, STATE, **given)  # what is loaded on first use
    start, used = time.perf_counter(), time.process_time()
    plan = fb.plan(steps, STATE, reversals=REVERSALS, **given)
    taken = {"seconds": time.perf_counter() - start, "processor": time.process_time() - used}
    return taken | {"plan": str(plan.schedule), "predicted": plan.seconds}


@benchmark(
    arg("--steps", type=int, nargs="+", default=[3751, 100_000], tiny=[200]),
    arg("--problems", type=int, default=9, tiny=2, help="the first of them, so many"),
)
def main(asked: Any, report: Report) -> None:
    report.facts |= {"state_bytes": STATE, "reversals": REVERSALS, "limit": LIMIT}
    for steps in asked.steps:
        for problem in list(cases())[: asked.problems]:
            report.add({"steps": steps, "problem": problem} | child(planned, steps, problem, timeout=LIMIT))
    report.table("planning", "steps:, problem seconds:.2f processor:.2f failed plan predicted:.4g")


if __name__ == "__main__":
    main()
