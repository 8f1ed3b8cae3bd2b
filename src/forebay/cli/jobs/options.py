"""What the commands of jobs share: their options, and what is said before a job, after it, and where it is ended."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.wave.job import Job

JobFile = Annotated[
    Path, typer.Argument(metavar="JOB", help="A job.toml: model, geometry, wavelet, memory, output, ...")
]
Check = Annotated[bool, typer.Option("--check", help="Read and check everything, and compute nothing.")]
Verify = Annotated[
    bool, typer.Option("--verify", help="Look for damage in the results of an earlier run, and change nothing.")
]
Workers = Annotated[int | None, typer.Option(help="Processes on this machine, instead of run.workers.")]
Scheduler = Annotated[str | None, typer.Option(help="Address of a Dask cluster, instead of run.scheduler.")]
Output = Annotated[Path | None, typer.Option(help="Folder of the results, instead of output.directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print how it went as JSON, and all else aside.")]


def verify_job(job: "Job", console: "Console") -> NoReturn:
    """Say what is damaged, and exit."""
    from forebay.report.console import say
    from forebay.wave.job.verify import verify

    damage, there = verify(job)
    for sentence in damage:
        say(console, sentence, "red")
    say(console, there)
    raise typer.Exit(1 if damage else 0)


def check_job(job: "Job", console: "Console") -> None:
    """Say what a job will do."""
    from forebay.cuda.available import gpu_count
    from forebay.report.console import say
    from forebay.wave.job.checks import inspect

    say(console, inspect(job, 1 if job.run.scheduler else gpu_count()))  # a cluster's workers are seen when it runs


def formats_of(job: "Job", console: "Console") -> tuple[tuple[str, ...], bool]:
    """Return the formats that can be written, and whether pictures can; what is missing is said before a job runs."""
    from forebay.errors import WaveError, needs
    from forebay.report.console import say
    from forebay.report.drawing import missing

    formats: tuple[str, ...] = job.output.formats
    if not missing():
        return formats, True
    formats = tuple(name for name in formats if name != "png")
    if not formats:
        raise WaveError(f"output.formats: {needs('png', 'matplotlib', 'plots')}, or take npy")
    why = needs("it", "matplotlib", "plots")
    say(console, f"there will be no picture: {why}, and run the same command again", "yellow")
    return formats, False


@contextmanager
def told_how_to_go_on(console: "Console") -> Iterator[None]:
    """Say how a job goes on where Ctrl-C, or SIGTERM as `main` hears it, ends it."""
    from forebay.report.console import say

    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say(console, f"finished shots are kept; to go on, give the same command: forebay {shlex.join(sys.argv[1:])}")
        raise
