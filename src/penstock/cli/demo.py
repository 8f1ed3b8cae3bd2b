"""`penstock demo`: a wave reversed inside a budget too small for it, its image and its report."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.panel import Panel

from penstock.engine import Result, reverse
from penstock.units import Budget, to_text

if TYPE_CHECKING:  # Numba takes its time to load
    from penstock.cli.shot import Shot

STEPS = 3000
BUDGET = Budget(host="16MB", disk="80MB")
"""A state has 2.07 MB and all of them 6.2 GB: some stay in memory, more on disk, and the others are computed again."""


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the picture, the trace and the report.")] = Path("demo"),
) -> None:
    """Image two reflectors with a wave run forward and back, in 16 MB of memory and 80 MB of disk."""
    console = Console()
    with console.status("compiling"):
        from penstock.cli.shot import Shot, layers

        shot = Shot(layers(), STEPS)
    image(shot, BUDGET, output, console)


def image(shot: "Shot", budget: Budget, output: Path, console: Console) -> Result:
    """Reverse a shot inside a budget, print what was planned and measured, and write it down beside the image."""
    with console.status("recording what a survey would"):
        shot.observe()
    states = sum(field.nbytes for field in shot.start().values()) * shot.steps
    console.print(f"a wave of {shot.steps} steps, whose states would take {to_text(states)}, in {budget!r}")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output) as snapshots:  # a temporary folder elsewhere may be small, or memory
        result = reverse(
            shot.forward,
            shot.backward,
            shot.start(),
            shot.steps,
            budget=budget,
            turn=shot.turn,
            directory=snapshots,
            progress=console.is_terminal,
        )
    console.print(Panel(result.explain(), title="the plan, and how it went", title_align="left"), highlight=False)
    console.print(result.metrics.table())
    picture, trace, report = output / "pulse.png", output / "trace.json", output / "report.txt"
    with console.status("drawing"):
        draw(shot, result, picture)
    result.metrics.write_trace(trace)
    with report.open("w") as file:
        print(result.explain(), end="\n\n", file=file)
        Console(file=file, width=100).print(result.metrics.table())
    console.print(f"wrote {picture}, {trace} (for chrome://tracing or Perfetto) and {report}", soft_wrap=True)
    return result


def draw(shot: "Shot", result: Result, path: Path) -> None:
    """Draw the medium and the image above the timeline of the reversal."""
    from penstock.cli.shot import SPACING
    from penstock.report.reversal import Field, draw_reversal  # matplotlib takes its time to load

    down, across = (points * SPACING / 1000 for points in shot.velocity.shape)
    fields = [
        Field("medium", shot.velocity, (down, across), "km", "m/s"),
        Field("image", shot.image(), (down, across), "km", "reflection", signed=True),
    ]
    draw_reversal(fields, result, path)
