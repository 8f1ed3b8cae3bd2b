"""`penstock demo`: one real problem planned for three machines."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from penstock.planner import Plan, plan
from penstock.units import TIERS, Budget, seconds_to_text, to_text

PROBLEM = {"steps": 3751, "state_bytes": 310 * 676 * 676 * 8, "reversals": 168}
"""Acoustic RTM of the 3-D salt model: two fields of 310 x 676 x 676 points, 168 shots that share the pinned memory."""

MACHINES = {
    "laptop (CPU and NVMe disk)": ("laptop", Budget(host="12GB", disk="400GB")),
    "card of 16 GB (PCIe 3)": ("v100", Budget(device="12GB", host="96GB")),
    "H200 (PCIe 5)": ("h200", Budget(device="120GB", host="400GB")),
}


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the picture and the report.")] = Path("demo"),
) -> None:
    """Plan the 3-D salt problem for a laptop, a 16 GB card and an H200, explain the plans and draw them."""
    from penstock.report.timeline import draw_timelines  # matplotlib takes its time to load

    output.mkdir(parents=True, exist_ok=True)
    console = Console()
    plans = {}
    for name, (machine, budget) in MACHINES.items():
        with console.status(f"planning for a {name}"):
            plans[name] = plan(budget=budget, machine=machine, **PROBLEM)  # type: ignore[arg-type]
        console.print(Panel(plans[name].explain(), title=name, title_align="left"), highlight=False)
    console.print(_side_by_side(plans))
    picture, report = output / "timelines.png", output / "plans.txt"
    draw_timelines(plans, picture)
    report.write_text("\n\n".join(f"{name}\n{chosen.explain()}" for name, chosen in plans.items()) + "\n")
    console.print(f"wrote {picture} and {report}")


def _side_by_side(plans: dict[str, Plan]) -> Table:
    """Set the plans beside each other, a machine a column."""
    chosen = plans.values()
    table = Table("", *plans)
    table.add_row("schedule", *(str(one.schedule) for one in chosen))
    table.add_row("predicted", *(seconds_to_text(one.seconds) for one in chosen))
    table.add_row("forward runs", *(f"{one.schedule.forward_steps / one.schedule.steps:.2f} times" for one in chosen))
    table.add_row("stall", *(seconds_to_text(one.prediction.stall) for one in chosen))
    for tier in TIERS:
        table.add_row(f"peak {tier}", *(to_text(one.peak_bytes.get(tier, 0)) for one in chosen))
    table.add_row(
        "snapshots up, down", *(f"{sum(p.fetched)}, {sum(p.stored)}" for p in (one.prediction for one in chosen))
    )
    return table
