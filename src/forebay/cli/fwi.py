"""`forebay fwi`: look for the model of a job's shots, resuming where an earlier run ended."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay.cli.jobs import (
    AsJson,
    Check,
    JobFile,
    Output,
    Scheduler,
    Verify,
    Workers,
    check_job,
    formats_of,
    told_how_to_go_on,
    verify_job,
)

if TYPE_CHECKING:
    from forebay.wave.job.inversion.run import InvertedSurvey


def fwi(
    file: JobFile,
    check: Check = False,
    verify: Verify = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Find the model in which many shots hear what they have heard; the same job again goes on where it ended."""
    from rich.console import Console

    from forebay.errors import WaveError
    from forebay.report.console import say
    from forebay.wave.job import changed, read_job  # loaded when a job is run
    from forebay.wave.job.inversion.run import run_inversion

    if check and verify:
        raise WaveError("--check and --verify exclude each other: give one of them")
    console = Console(stderr=as_json)
    job = changed(read_job(file, "fwi"), workers=workers, scheduler=scheduler, directory=output)
    if verify:
        verify_job(job, console)
    formats, drawn = formats_of(job, console)
    if check:
        check_job(job, console)
        return
    written: list[Path] = []
    with told_how_to_go_on(console):
        write = partial(_write, name=file.stem, formats=formats, drawn=drawn, written=written)
        survey = run_inversion(job, console, write=write)
    say(console, f"wrote {', '.join(map(str, written))}")
    if as_json:
        told = {"misfits": survey.misfits, "evaluations": survey.evaluations, "seconds": survey.seconds}
        told |= {"damage": survey.damage, "notes": survey.notes, "written": [str(path) for path in written]}
        typer.echo(json.dumps(told, indent=2))


def _write(survey: "InvertedSurvey", *, name: str, formats: tuple[str, ...], drawn: bool, written: list[Path]) -> None:
    """Write the model, pictures and the report, and seal them."""
    from forebay.wave.job.inversion.results import draw_pictures, write_models, write_report
    from forebay.wave.job.workspace.results_seal import sealing

    job = survey.workspace.described.job
    folder = job.output.directory
    with sealing(folder, survey.workspace.identity) as sealed:
        written += write_models(survey, folder, formats)
        pictures = draw_pictures(survey, folder) if drawn else []
        lead = f"{job.physics.kind} inversion of {survey.workspace.geometry.count} shots.".capitalize()
        write_report(survey, folder / "report.html", pictures, f"Inversion: {name}", lead)
        written.append(folder / "report.html")
        sealed.extend(dict.fromkeys([*written, *(picture.path for picture in pictures)]))
