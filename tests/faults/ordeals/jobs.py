"""A job of four small shots for ordeals, run in children of a process that has loaded all that it needs."""

import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module

import numpy as np
from tests.wave.job.jobs import job_text

from forebay.cli.main import main

SHOTS = 4
JOB = job_text(shots=SHOTS, physics="absorb = 10", memory='host = "300kB"\ndisk = "20MB"\nschedule = "storeall"')
LOADED = ("numba", "scipy.ndimage", "forebay.wave.job.results", "matplotlib.pyplot")
"""What a child would load again each time; nothing of it is run before forks."""
CODES = (0, 1, 2, 128 + signal.SIGTERM)
"""With which a command may end."""


def prepared(folder):
    """Write the job down, and load what it needs."""
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    import_module("numba").njit(lambda: 0)()  # its compiler, without a thread
    path = folder / "job.toml"
    path.write_text(JOB)
    return path


def started(path, *options, said):
    """Start `forebay rtm` in a child, and return its number; what it says is in a file."""
    child = os.fork()
    if child:
        return child
    try:
        sink = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.dup2(sink, 1), os.dup2(sink, 2)
        sys.argv = ["forebay", "rtm", str(path), *map(str, options)]
        main()
        os._exit(0)
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(99)


def ended(child, seconds=None):
    """Wait for a child, at most so long; return its exit code, None where it still runs, and -9 where it was killed."""
    end = None if seconds is None else time.perf_counter() + seconds
    while True:
        found, status = os.waitpid(child, 0 if end is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.perf_counter() >= end:
            return None
        time.sleep(0.002)


def run(path, *options, said):
    """Run it to its end; return its exit code and what it said."""
    code = ended(started(path, *options, said=said))
    return code, said.read_text(errors="replace")


def complaint(code, text):
    """Say what is wrong with the end of a command: raw errors, or a code that no command has."""
    if code not in CODES or "Traceback" in text or "this is a bug" in text:
        return f"ended with {code}: {text[-600:]}"
    return ""


def image(folder):
    """Return the bytes of the image that a job wrote."""
    return np.load(folder / "image.npy").tobytes()


def litter(folder):
    """List what no finished job leaves."""
    hidden = [path for path in folder.rglob(".*") if path.is_file()]
    return [path.name for path in (*hidden, *folder.glob("run-*"), *folder.glob("lock.owner*"))]
