"""Two plans for one loop and one budget, drawn on one scale of time: what peers do today, and what Forebay plans.

`python examples/draw_two_plans.py [plans.png]`
"""

import sys
from pathlib import Path

import forebay as fb
from forebay.report.timeline import draw_timelines

LOOP = {"steps": 3751, "state_bytes": "1.13GB", "budget": fb.Budget(device="8GB", host="64GB"), "machine": "h200"}


def main() -> None:
    ways = {
        "Revolve, the least recently used snapshot leaves": fb.plan(**LOOP, schedule="revolve:8", policy="lru"),
        "Forebay": fb.plan(**LOOP, reversals=100),
    }
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "plans.png")
    draw_timelines(ways, path)
    for way, plan in ways.items():
        print(f"{way}: {plan.prediction.seconds:.1f} s predicted")
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
