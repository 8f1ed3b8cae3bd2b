"""`forebay plan`: decide how a reversal fits into a budget, without running it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.machines import HERE, costs_of, read_json
from forebay.cli.outputs import PICTURES, check_output
from forebay.errors import PlanError
from forebay.planner import MACHINES, CodecCost, Costs
from forebay.planner import plan as make_plan
from forebay.report.console import plain
from forebay.units import Budget, to_bytes


def plan(
    steps: Annotated[int, typer.Option(help="Steps of the loop.")],
    state: Annotated[str, typer.Option(help="Bytes of a state, like 1.13GB.")],
    device: Annotated[str | None, typer.Option(help="Device budget for snapshots, like 8GB.")] = None,
    host: Annotated[str | None, typer.Option(help="Host budget.")] = None,
    disk: Annotated[str | None, typer.Option(help="Disk budget.")] = None,
    record: Annotated[str | None, typer.Option(help="Bytes of what backward needs, where that is less.")] = None,
    every: Annotated[int, typer.Option(help="Steps between two backward computations.")] = 1,
    schedule: Annotated[
        str, typer.Option(help="auto, revolve, revolve:20, zcut, uniform:25, twolevel:32, ...")
    ] = "auto",
    policy: Annotated[str, typer.Option(help="min, or lru to do as GPUZIP does.")] = "min",
    reversals: Annotated[int, typer.Option(help="Reversals that share the pinned memory.")] = 1,
    codec: Annotated[
        list[str] | None,
        typer.Option(help="A codec as NAME=RATIO,ENCODE,DECODE in GB/s, like bounded:1e-4=8,1300,1500."),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(help=f"Costs to assume: {', '.join(MACHINES)}, a file of `doctor --save`, or {HERE} to measure."),
    ] = None,
    costs: Annotated[Path | None, typer.Option(help="Measured costs, as JSON.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the plan here, as JSON.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the predicted timeline here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Plan a reversal inside a budget in bytes, and explain the plan."""
    check_output("--picture", picture, PICTURES)
    check_output("--output", output)
    budget = Budget(device, host, disk)
    basis = (
        read_json(costs, Costs, f"costs from {costs}") if costs else costs_of(machine, to_bytes(state), budget.tiers[0])
    )
    codecs = dict(_codec(text) for text in codec or ())
    plan = make_plan(
        steps,
        state,
        budget,
        costs=replace(basis, codecs={**basis.codecs, **codecs}),
        schedule=schedule,
        codec=list(codecs) or None,
        record_bytes=record,
        every=every,
        policy=policy,
        reversals=reversals,
    )
    if output:
        plan.to_json(output)
    if picture and picture.suffix.lower() == ".svg":
        plan.plot().write(picture)
    elif picture:
        from forebay.report.timeline import draw_timelines

        draw_timelines({str(plan.schedule): plan}, picture)
    typer.echo(plan.to_json() if json else plain(plan.explain()))
    if not (costs or machine):
        assumed = f"nobody named a machine, so {basis.assumed} is assumed"
        typer.echo(f"{assumed}: `--machine {HERE}` measures the links of this one", err=True)


def _codec(text: str) -> tuple[str, CodecCost]:
    name, _, numbers = text.rpartition("=")
    try:
        ratio, encode, decode = map(float, numbers.split(","))
    except ValueError:
        raise PlanError(
            f"cannot read codec {text!r}: write NAME=RATIO,ENCODE,DECODE, like bounded:1e-4=8,1300,1500"
        ) from None
    return name, CodecCost(ratio, encode * 1e9, decode * 1e9)
