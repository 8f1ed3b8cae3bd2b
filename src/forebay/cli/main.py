"""The command line: one command a file. Commands load what they need when they run, so that help comes at once."""

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from forebay.cli.bench import bench
from forebay.cli.demo import demo
from forebay.cli.doctor import doctor
from forebay.cli.explore import explore
from forebay.cli.footprint import footprint
from forebay.cli.jobs.fwi import fwi
from forebay.cli.jobs.lsrtm import lsrtm
from forebay.cli.jobs.rtm import rtm
from forebay.cli.plan import plan
from forebay.cli.report import report
from forebay.errors import ForebayError
from forebay.report.console import plain
from forebay.version import __version__

REFUSED, BUG, INTERRUPTED, TERMINATED = 2, 70, 130, 128 + signal.SIGTERM
"""Exit codes: of what its user can change, of what only a programmer can, of Ctrl-C, and of SIGTERM."""
TRACEBACK = "FOREBAY_TRACEBACK"
"""The variable with which errors show where they were raised."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Have Ctrl-C end a command with a code of its own: without one it would be that of a survey that lacks shots."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            print("forebay: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None

    return run


for command in (demo, rtm, fwi, lsrtm, plan, explore, footprint, report, doctor):
    app.command()(interruptible(command))
app.command(context_settings={"ignore_unknown_options": True})(interruptible(bench))


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
    """Run wave and tensor computations larger than the GPU, inside a budget in bytes."""


def main() -> None:
    """Run the command line; whatever goes wrong is a sentence and an exit code, and a traceback where asked for."""
    for stream in (sys.stdout, sys.stderr):  # names of files need not be characters that a terminal has
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _again
    try:
        app()
    except SystemExit as end:
        if end.code == TERMINATED:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the interpreter ends next, and needs no telling
        raise
    except Exception as error:
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        code, sentence = verdict(error)
        print(f"forebay: {plain(sentence)}", file=sys.stderr)
        sys.exit(code)


def verdict(error: Exception) -> tuple[int, str]:
    """Return the exit code of an error, and the sentence that tells it.

    Examples
    --------
    >>> verdict(ForebayError("no such schedule"))
    (2, 'no such schedule')
    """
    if isinstance(error, ForebayError):
        return REFUSED, str(error)
    if isinstance(error, MemoryError):
        return REFUSED, "the memory is used up: give smaller budgets, shapes or chunks, or close other programs"
    if isinstance(error, OSError):
        about = f"{error.filename}: {error.strerror}" if error.filename is not None and error.strerror else str(error)
        return REFUSED, about or type(error).__name__
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return BUG, (
        f"this is a bug of Forebay, which did not expect {what[:300]}. Please report it with what you typed and the "
        f"traceback, which {TRACEBACK}=1 shows"
    )


def _terminate(number: int, frame: object) -> None:
    """End as after Ctrl-C: tiers are closed and files removed on the way out.

    A second signal on that way changes nothing. Where somebody has kept the first from ending the process, it ends it.
    """
    if not _ending(sys.exception()):
        sys.exit(TERMINATED)


def _ending(handled: BaseException | None) -> bool:
    """Tell whether the exception that is being handled is that of a signal, or was raised while that was handled."""
    while handled is not None:
        if isinstance(handled, SystemExit) and handled.code == TERMINATED:
            return True
        handled = handled.__context__
    return False


def _again(ignored: Any) -> None:
    """Send SIGTERM again where it came in the middle of a finalizer, of which Python ignores all exceptions."""
    if isinstance(ignored.exc_value, SystemExit):
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        sys.__unraisablehook__(ignored)
