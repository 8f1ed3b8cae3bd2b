"""One attempt at a shot, in whatever process: its work is done, written, and what goes wrong is written down."""

import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError, WaveError
from forebay.tasks import ThreadTask
from forebay.units import Budget
from forebay.wave.advice import WaveWarning
from forebay.wave.job.shots.kind import ComputedShot, StepListener
from forebay.wave.job.shots.kinds import kind_of
from forebay.wave.job.workspace import MIGRATION, ShotWork, Workspace

_ONE = threading.Lock()
"""A process works on one shot at a time: its loops take all its threads already."""


def try_shot(
    root: Path | str,
    number: int,
    run: str,
    budget: Budget | None = None,
    threads: int | None = None,
    tell: StepListener | None = None,
    work: ShotWork = MIGRATION,
) -> dict[str, Any]:
    """Do one shot's work, write it for the run to take, and tell how it went; write down what goes wrong.

    Parameters
    ----------
    root
        The job's directory.
    number
        Of the shot.
    run
        The token of the run that asks for it, and takes it afterwards.
    budget
        Of the snapshots, where the job does not say.
    threads
        Of the loops; None leaves them as they are.
    tell
        Hears of the progress.
    work
        What is done.
    """
    workspace = Workspace(Path(root), run, work)
    with writing_down(workspace, number):
        computed = computed_shot(workspace, number, budget, threads, tell)
        computed.write(workspace)
    return computed.summary


@contextmanager
def writing_down(workspace: Workspace, number: int) -> Iterator[None]:
    """Write down what goes wrong with a shot, for the run to take."""
    try:
        yield
    except BaseException:  # a shot that Ctrl-C or SIGTERM ended is marked, too
        with suppress(WaveError, OSError):  # of a run that is over nobody wants to know, and a full disk is told anyway
            workspace.fail(number, traceback.format_exc())
        raise


def computed_shot(
    workspace: Workspace,
    number: int,
    budget: Budget | None = None,
    threads: int | None = None,
    tell: StepListener | None = None,
    ahead: ThreadTask[Any] | None = None,
) -> ComputedShot:
    """Compute one shot, of which `ahead` has what is read, or is reading it; parameters are those of `try_shot`."""
    with alone(threads):
        return kind_of(workspace.work).compute(workspace, number, budget, tell or (lambda shot, done: None), ahead)


@contextmanager
def alone(threads: int | None) -> Iterator[None]:
    """Work on one shot in this process, with so many threads, and without what the job's notes have told."""
    with _ONE, warnings.catch_warnings():
        warnings.simplefilter("ignore", WaveWarning)  # once for all shots
        if threads is not None:
            import numba

            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        yield


def hopeless(error: BaseException) -> bool:
    """Tell whether trying a shot again would fail again: what is wrong was said, and lies not in a device or a disk."""
    return isinstance(error, ForebayError) and not isinstance(error, OSError | RuntimeError)
