"""The command line: one command a file."""

import sys

import typer

from forebay.cli.bench import bench
from forebay.cli.demo import demo
from forebay.cli.doctor import doctor
from forebay.cli.footprint import footprint
from forebay.cli.plan import plan
from forebay.cli.rtm import rtm
from forebay.errors import ForebayError

app = typer.Typer(
    help="Computations larger than the GPU, at the speed of those that fit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (demo, rtm, plan, footprint, doctor, bench):
    app.command()(command)


def main() -> None:
    """Run the command line; an error of ours is a line that says what to do, not a traceback."""
    try:
        app()
    except (ForebayError, OSError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        sys.exit(2)
