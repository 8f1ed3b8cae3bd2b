"""The command line: one command a file. Commands load what they need when they run, so that help comes at once."""

import signal
import sys
from typing import Annotated

import typer

from forebay.cli.bench import bench
from forebay.cli.demo import demo
from forebay.cli.doctor import doctor
from forebay.cli.footprint import footprint
from forebay.cli.plan import plan
from forebay.cli.rtm import rtm
from forebay.errors import ForebayError
from forebay.report.console import plain
from forebay.version import __version__

TERMINATED = 128 + signal.SIGTERM
"""Exit code of a command that was told to end, as shells have it."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (demo, rtm, plan, footprint, doctor):
    app.command()(command)
app.command(context_settings={"ignore_unknown_options": True})(bench)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"forebay {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Run computations larger than the GPU at the speed of those that fit."""


def main() -> None:
    """Run the command line; an error of ours is a line that says what to do, not a traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except (ForebayError, OSError) as error:
        print(f"forebay: {plain(error)}", file=sys.stderr)
        sys.exit(2)


def _terminate(number: int, frame: object) -> None:
    """End as after Ctrl-C: tiers are closed and files removed on the way out. A second signal changes nothing."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(TERMINATED)
