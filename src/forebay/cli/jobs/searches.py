"""Jobs that look for something step by step, `forebay fwi` and `forebay lsrtm`: run, written, and their page."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from forebay.cli.jobs.options import check_job, formats_of, told_how_to_go_on, verify_job

if TYPE_CHECKING:
    from forebay.drawing.page import Picture
    from forebay.wave.job import Job
    from forebay.wave.job.inversion.leastsquares import ExplainedSurvey
    from forebay.wave.job.inversion.run import InvertedSurvey


def search(
    file: Path, command: Literal["fwi", "lsrtm"], check: bool, verify: bool, changes: Mapping[str, Any], as_json: bool
) -> None:
    """Do what a command was asked with a job; `changes` are what it says in place of the job."""
    from rich.console import Console

    from forebay.errors import WaveError
    from forebay.report.console import say
    from forebay.wave.job import changed, read_job  # loaded when a job is run

    if check and verify:
        raise WaveError("--check and --verify exclude each other: give one of them")
    console = Console(stderr=as_json)
    job = changed(read_job(file, command), **changes)
    if verify:
        verify_job(job, console)
    formats, drawn = formats_of(job, console)
    if check:
        check_job(job, console)
        return
    written: list[Path] = []
    with told_how_to_go_on(console):
        survey = run_search(job, console, lambda survey: written.extend(_write(survey, file.stem, formats, drawn)))
    say(console, f"wrote {', '.join(map(str, written))}")
    if as_json:
        typer.echo(json.dumps(survey.told | {"written": [str(path) for path in written]}, indent=2))


def run_search(job: "Job", console: Any = None, write: Any = None) -> "InvertedSurvey | ExplainedSurvey":
    """Run a job of either command."""
    if job.command == "fwi":
        from forebay.wave.job.inversion.run import run_inversion

        return run_inversion(job, console, write=write)
    from forebay.wave.job.inversion.leastsquares import run_least_squares

    return run_least_squares(job, console, write=write)


def _write(survey: "InvertedSurvey | ExplainedSurvey", name: str, formats: tuple[str, ...], drawn: bool) -> list[Path]:
    """Write what was found, pictures and the report, and seal them; return the files but for pictures of the report."""
    from forebay.wave.job.inversion import change_results, results
    from forebay.wave.job.inversion.run import InvertedSurvey
    from forebay.wave.job.workspace.results_seal import sealing

    folder = survey.workspace.described.job.output.directory
    with sealing(folder, survey.workspace.identity) as sealed:
        pictures: list[Picture] = []
        if isinstance(survey, InvertedSurvey):
            written = results.write_models(survey, folder, formats)
            pictures += results.draw_pictures(survey, folder) if drawn else []
        else:
            written = change_results.write_change(survey, folder, formats)
            pictures += change_results.draw_pictures(survey, folder) if drawn else []
        page = folder / "report.html"
        write_page_of(survey, page, pictures, name)
        sealed.extend([*written, *(picture.path for picture in pictures), page])
    return [*written, page]


def write_page_of(survey: "InvertedSurvey | ExplainedSurvey", page: Path, pictures: "list[Picture]", name: str) -> None:
    """Write the page of a job that has run."""
    from forebay.wave.job.inversion import change_results, results
    from forebay.wave.job.inversion.run import InvertedSurvey

    job, count = survey.workspace.described.job, survey.workspace.geometry.count
    lead = f"Of {count} shots, {job.physics.kind}."
    if isinstance(survey, InvertedSurvey):
        results.write_report(survey, page, pictures, f"Inversion: {name}", lead)
    else:
        change_results.write_report(survey, page, pictures, f"Least-squares migration: {name}", lead)
