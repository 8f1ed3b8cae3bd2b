"""`forebay report RUN`: write the page of a run, or of a plan, once more."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.outputs import check_output
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.drawing.page import Picture
    from forebay.wave.job import Job

CAPTIONS = {
    "image.png": "The image.",
    "model.png": "The velocity that was migrated through.",
    "velocity.png": "The velocity that was found.",
    "vp.png": "The velocity of pressure waves that was found.",
    "start.png": "The velocity from which the search began.",
    "update.png": "What was changed.",
}


def report(
    run: Annotated[Path, typer.Argument(help="The directory of a job, or a plan that was written as JSON.")],
    output: Annotated[Path | None, typer.Option(help="Of the page; unless told, beside the run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print where the page is as JSON.")] = False,
) -> None:
    """Write the page of a job that has run, or of a plan; nothing is computed again."""
    from rich.console import Console

    from forebay.report.console import say

    check_output("--output", output, (".html",))
    page = _of_job(run, output) if run.is_dir() else _of_plan(run, output)
    if as_json:
        typer.echo(json.dumps({"page": str(page)}))
    else:
        say(Console(), f"wrote {page}")


def _of_plan(run: Path, output: Path | None) -> Path:
    from forebay.planner import Plan
    from forebay.planner.drawn.reversal import write_plan

    page = output or run.with_suffix(".html")
    write_plan(Plan.from_json(run), page, f"The plan in {run.name}")
    return page


def _of_job(run: Path, output: Path | None) -> Path:
    if not (run / "job.json").is_file():
        raise ForebayError(f"{run} is no directory of a job: give the one that `output.directory` of the job names")
    from forebay.wave.job import changed
    from forebay.wave.job.verify import verify
    from forebay.wave.job.workspace import Workspace
    from forebay.wave.job.workspace.results_seal import reseal

    job = changed(Workspace(run).described.job, directory=run)
    damage, _ = verify(job)
    if damage:
        again = "again with --repair" if job.command == "rtm" else "again"
        raise ForebayError(f"{damage[0]}: run the job {again}, and then ask for the page")
    page = output or run / "report.html"
    (_write_migration if job.command == "rtm" else _write_search)(job, run, page)
    reseal(run, Workspace(run).identity, page)
    return page


def _write_migration(job: "Job", run: Path, page: Path) -> None:
    from forebay.wave.job import run_job
    from forebay.wave.job.results import write_report

    # Nothing is damaged, so a repair computes no shot.
    survey = run_job(job, repair=True)
    write_report(survey, page, _pictures(run), f"Migration: {run.name}", "Of shots that were migrated before.")


def _write_search(job: "Job", run: Path, page: Path) -> None:
    from forebay.cli.jobs.searches import run_search, write_page_of
    from forebay.wave.job.inversion.asked import has_ended

    if not has_ended(job):
        raise ForebayError(f"the search in {run} has not ended: run its job to the end, and then ask for the page")
    write_page_of(run_search(job), page, _pictures(run), run.name)  # all of it is kept, and nothing is computed


def _pictures(run: Path) -> "list[Picture]":
    from forebay.drawing.page import Picture

    return [Picture(run / name, caption) for name, caption in CAPTIONS.items() if (run / name).is_file()]
