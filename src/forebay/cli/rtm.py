"""`forebay rtm`: migrate the shots of a job, resuming where an earlier run ended."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def rtm(
    file: Annotated[
        Path, typer.Argument(metavar="JOB", help="A job.toml: model, geometry, wavelet, memory, output, ...")
    ],
    check: Annotated[bool, typer.Option("--check", help="Read and check everything, and migrate nothing.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Look for damage in the results of an earlier run, and change nothing.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Compute the damaged shots of an earlier run again, and no others.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="Processes on this machine, instead of run.workers.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask cluster, instead of run.scheduler.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of the results, instead of output.directory.")] = None,
) -> None:
    """Migrate many shots inside a budget; the same job again goes on where it ended."""
    from rich.console import Console

    from forebay.cuda.available import gpu_count
    from forebay.errors import WaveError, needs
    from forebay.report.console import say
    from forebay.report.drawing import missing
    from forebay.report.page import Picture
    from forebay.wave.job import changed, read_job, run_job  # loaded when a job is run
    from forebay.wave.job.checks import inspect
    from forebay.wave.job.results import draw_image, draw_model, write_image, write_report
    from forebay.wave.job.run import Survey
    from forebay.wave.job.verify import verify as verify_job
    from forebay.wave.job.workspace.manifest import sealing

    if check + verify + repair > 1:
        raise WaveError("--check, --verify and --repair exclude each other: give one of them")
    console = Console()
    job = changed(read_job(file), workers=workers, scheduler=scheduler, directory=output)
    if verify:
        damage, there = verify_job(job)
        for sentence in damage:
            say(console, sentence, "red")
        say(console, there)
        raise typer.Exit(1 if damage else 0)
    folder, formats, lacking = job.output.directory, job.output.formats, missing()
    if "matplotlib" in lacking:
        formats = tuple(name for name in formats if name != "png")
        if not formats:
            raise WaveError(f"output.formats: {needs('png', 'matplotlib', 'plots')}, or take npy")
    if lacking:
        what = "report and no picture" if "matplotlib" in lacking else "report"
        note = f"there will be no {what}: {needs('it', ' and '.join(lacking), 'plots')}, and run the same command again"
        say(console, note, "yellow")
    if check:
        # What the workers of a cluster have is seen when it runs.
        gpus = 1 if job.run.scheduler else gpu_count()
        say(console, inspect(job, gpus))
        return
    written: list[Path] = []

    def write(survey: Survey) -> None:
        with sealing(folder, survey.workspace.identity) as results:
            results.extend(write_all(survey))

    def write_all(survey: Survey) -> list[Path]:
        written.extend(write_image(survey, folder, formats))
        if lacking:
            return written
        with console.status("writing the report"):
            draw_model(survey.workspace, folder / "model.png")
            if "png" not in formats:
                draw_image(survey, folder / "image.png")
            pictures = [
                Picture(folder / "image.png", "The image: evenly lit, without what is smooth, stronger with depth."),
                Picture(folder / "model.png", "The velocity that was migrated through, receivers and sources."),
            ]
            lead = f"{job.physics.kind} migration of {survey.workspace.geometry.count} shots."
            write_report(survey, folder / "report.html", pictures, f"Migration: {file.stem}", lead.capitalize())
        written.append(folder / "report.html")
        return [*written, *(picture.path for picture in pictures if picture.path not in written)]

    try:
        survey = run_job(job, console, repair=repair, write=write)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, and SIGTERM as `main` hears it
        say(console, f"finished shots are kept; to go on, give the same command: forebay {shlex.join(sys.argv[1:])}")
        raise
    say(console, f"wrote {', '.join(map(str, written))}")
    for shot, reason in survey.aside.items():
        say(console, f"shot {shot} is set aside: {reason}", "red")
    for shot, reason in survey.failed.items():
        say(console, f"shot {shot} is missing: {reason}", "red")
    if survey.failed:
        say(console, f"the image is without them; the same command tries them again, and {folder}/shots tells more")
    if survey.failed or survey.aside:
        raise typer.Exit(1)
