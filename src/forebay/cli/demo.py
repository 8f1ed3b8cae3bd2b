"""`forebay demo`: a salt body imaged from eight shots inside a small budget, with pictures and a report."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # loaded when the demo runs
    from rich.console import Console

    from forebay.wave.job import Survey

JOB = """\
# A salt body in sediments, in two dimensions: 13.5 km wide and 6.2 km deep. Shots are modelled with the true velocity
# and migrated with a smoothed one.

[model]
name = "salt"
shape = [310, 676]
smooth = 100.0            # metres

[geometry]
shots = 8
source_depth = 20.0
receiver_depth = 20.0
receiver_spacing = 40.0

[data]
dt = 0.004                # seconds
length = 5.5
mute_velocity = 1500.0    # the direct wave in the water

[wavelet]
frequency = 7.0           # Hz

[imaging]
mute = 900.0              # metres at the top, between the sources

[memory]                  # for the history of a shot's wave
host = "32MB"
disk = "400MB"

[output]
directory = "rtm"
formats = ["npy", "png"]
"""
MOMENTS = (0.6, 1.1, 1.6, 2.2, 2.9, 3.7)
"""Seconds after the shot at which its wave is drawn."""


def demo(
    output: Annotated[Path, typer.Option(help="Folder for pictures, report and job.")] = Path("demo"),
) -> None:
    """Image a salt body from eight shots, the history of each in 32 MB of memory and 400 MB of disk."""
    from rich.console import Console

    run(JOB, output, Console(), MOMENTS)


def run(text: str, output: Path, console: "Console", moments: tuple[float, ...]) -> "Survey":
    """Run a job and show everything about it."""
    from forebay.errors import ForebayError, needs
    from forebay.report.drawing import missing

    if lacking := missing():  # pictures are all that it is for
        raise ForebayError(needs("the demo", " and ".join(lacking), "plots"))
    with console.status("loading"):
        from forebay.wave.job import changed, parse, run_job
    output.mkdir(parents=True, exist_ok=True)
    (output / "job.toml").write_text(text)
    # A folder of its own: the demo shows a whole run, not what is left of an earlier one.
    with tempfile.TemporaryDirectory(dir=output) as folder:
        survey = run_job(changed(parse(text, output.resolve()), directory=Path(folder)), console)
        show(survey, output, console, moments)
    return survey


def show(survey: "Survey", output: Path, console: "Console", moments: tuple[float, ...]) -> None:
    """Draw model, image, a gather and snapshots, write the report, and say where all of it is."""
    from rich.panel import Panel

    from forebay.metrics.timeline import write_trace
    from forebay.report.console import rich_text, say
    from forebay.report.page import Picture
    from forebay.wave.job.results import draw_model, draw_waves, write_image, write_report

    workspace = survey.workspace
    plan = workspace.plan()
    assert plan is not None
    console.print(Panel(rich_text(plan.explain()), title="the plan of each shot", title_align="left"), highlight=False)
    with console.status("drawing"):
        written = write_image(survey, output, workspace.described.job.output.formats)
        draw_model(workspace, output / "model.png", "true")
        draw_waves(workspace, workspace.geometry.count // 2, moments, output / "gather.png", output / "snapshots.png")
        if (timeline := workspace.timeline()) is not None:
            write_trace(timeline[1], output / "trace.json")
    captions = {
        "image.png": "The image: reflectors where the wave of the source and the data sent back in time meet, evenly "
        "lit, without what is smooth, stronger with depth.",
        "model.png": "The true velocity, with receivers and sources (red).",
        "snapshots.png": "The wave of one shot on its way through the true model.",
        "gather.png": "What the receivers of that shot heard, amplified with time.",
    }
    pictures = [Picture(output / name, caption) for name, caption in captions.items()]
    lead = (
        "Eight shots over a salt body, modelled with the true velocity and migrated through a smoothed one. The image "
        "needs the wave of the source backwards in time; each shot kept its history inside the budget below."
    )
    write_report(survey, output / "report.html", pictures, "A salt body, imaged by reverse time migration", lead)
    names = [path.name for path in written] + [name for name in captions if name != "image.png"]
    names += ["trace.json", "job.toml"]
    say(console, f"pictures and data in {output}: {', '.join(names)}")
    say(console, f"open {(output / 'report.html').resolve()} in a browser")
