"""`forebay rtm`: migrate the shots of a job, resuming where an earlier run ended."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.jobs.options import (
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
    from rich.console import Console

    from forebay.drawing.page import Picture
    from forebay.wave.job import Job, Survey
    from forebay.wave.job.progress import PhaseClock


def rtm(
    file: JobFile,
    check: Check = False,
    verify: Verify = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Compute the damaged shots of an earlier run again, and no others.")
    ] = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Migrate many shots inside a budget; the same job again goes on where it ended."""
    from rich.console import Console

    from forebay.errors import WaveError
    from forebay.report.console import say
    from forebay.wave.job import changed, read_job, run_job  # loaded when a job is run
    from forebay.wave.job.results import kernel_seconds, over_kernels, times_of

    if check + verify + repair > 1:
        raise WaveError("--check, --verify and --repair exclude each other: give one of them")
    console = Console(stderr=as_json)
    job = changed(read_job(file), workers=workers, scheduler=scheduler, directory=output)
    if verify:
        verify_job(job, console)
    results = _Results(job, file.stem, console)
    if check:
        check_job(job, console)
        return
    with told_how_to_go_on(console):
        survey = run_job(job, console, repair=repair, write=results.write)
    say(console, f"wrote {', '.join(map(str, results.written))}")
    if as_json:
        told = {"shots": survey.summaries, "failed": survey.failed, "aside": survey.aside, "seconds": survey.seconds}
        told |= {"phases": survey.phases, "kernels": kernel_seconds(survey), "over_kernels": over_kernels(survey)}
        typer.echo(json.dumps(told | {"written": [str(path) for path in results.written]}, indent=2))
    for what, seconds in times_of(survey):
        say(console, f"{what}: {seconds}")
    for shot, reason in survey.aside.items():
        say(console, f"shot {shot} is set aside: {reason}", "red")
    for shot, reason in survey.failed.items():
        say(console, f"shot {shot} is missing: {reason}", "red")
    if survey.failed:
        shots = job.output.directory / "shots"
        say(console, f"the image is without them; the same command tries them again, and {shots} tells more")
    if survey.failed or survey.aside:
        raise typer.Exit(1)


class _Results:
    """What a job leaves behind, as far as what draws it is installed: that is looked at, and said, before it runs."""

    def __init__(self, job: "Job", name: str, console: "Console") -> None:
        self.job, self.name, self.console = job, name, console
        self.formats, self.drawn = formats_of(job, console)
        self.written: list[Path] = []

    def write(self, survey: "Survey") -> None:
        """Write the image, pictures and the report, and seal them."""
        from forebay.wave.job.progress import PhaseClock
        from forebay.wave.job.results import write_image
        from forebay.wave.job.workspace.results_seal import sealing

        folder = self.job.output.directory
        with sealing(folder, survey.workspace.identity) as sealed:
            clock = PhaseClock()
            self.written += write_image(survey, folder, self.formats)
            clock.end("files")
            pictures = self._report(survey, folder, clock)
            sealed.extend(dict.fromkeys([*self.written, *(picture.path for picture in pictures)]))

    def _report(self, survey: "Survey", folder: Path, clock: "PhaseClock") -> "list[Picture]":
        """Write the report, and return the pictures in it."""
        from forebay.wave.job.results import write_report

        with self.console.status("writing the report"):
            pictures = self._pictures(survey, folder) if self.drawn else []
            clock.end("pictures")
            survey.phases.update(clock.phases)
            lead = f"{self.job.physics.kind} migration of {survey.workspace.geometry.count} shots.".capitalize()
            write_report(survey, folder / "report.html", pictures, f"Migration: {self.name}", lead)
        self.written.append(folder / "report.html")
        return pictures

    def _pictures(self, survey: "Survey", folder: Path) -> "list[Picture]":
        from forebay.drawing.page import Picture
        from forebay.wave.job.results import draw_difference, draw_image, draw_model

        draw_model(survey.workspace, folder / "model.png")
        if "png" not in self.formats:
            draw_image(survey, folder / "image.png")
        pictures = [
            Picture(folder / "image.png", "The image: evenly lit, without what is smooth, stronger with depth."),
            Picture(folder / "model.png", "The velocity that was migrated through, receivers and sources."),
        ]
        if survey.check is not None:
            shown = draw_difference(survey, folder / "difference.png")
            pictures.append(Picture(folder / "difference.png", shown))
        return pictures
