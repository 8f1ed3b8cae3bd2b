"""The command line: one command a file."""

import sys

import typer

from penstock.cli.bench import bench
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.footprint import footprint
from penstock.cli.plan import plan
from penstock.cli.rtm import rtm
from penstock.errors import PenstockError

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
    except (PenstockError, OSError) as error:
        print(f"penstock: {error}", file=sys.stderr)
        sys.exit(2)
