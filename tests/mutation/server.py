"""Runs tests in forks of a process that has loaded the libraries already: it takes a sixth of the time.

Every line that comes in is a request (JSON): where, with which arguments and variables, for how long, and the file
for what is printed. The line that goes out is the status: pytest's, or 124 where it took too long. How long is counted
in seconds of a processor, which are about the same however busy the machine is with other things.
Nothing of the repository is loaded before a fork: each loads the sources as they are by then.
"""

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep

import pytest

LIBRARIES = ("checkpoint_schedules", "hypothesis", "hypothesis.extra.numpy", "numpy", "pydantic", "pytest_timeout")
LIBRARIES += ("scipy.special", "torch", "xdist.plugin", "zarr", "zarr.api.synchronous")
NUMBA = ("numba", "numba.extending", "numba.experimental", "numba.core.caching", "numba.typed")

STILL, LITTLE = 90.0, 0.05
"""Seconds after which tests hang that have taken no more than so little of a processor meanwhile."""


def preload():
    """Import what tests import."""
    sys.modules["numba"] = None  # as the root conftest.py does
    with suppress(ImportError):
        import_module("checkpoint_schedules")
    del sys.modules["numba"]
    for name in (*LIBRARIES, *NUMBA):
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def run(request):
    """Run tests: what a fork does."""
    os.setsid()
    printed = os.open(request["printed"], os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(printed, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["copy"])
    os.environ.update(request["variables"])
    sys.path[:] = [*request["variables"]["PYTHONPATH"].split(os.pathsep), *sys.path]
    sys.argv = ["pytest", *request["arguments"]]
    return int(pytest.main(request["arguments"]))


def spent(child):
    """Return the seconds of a processor that a fork has taken, and what it has started and seen end."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # no Linux
        return monotonic()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def wait(child, seconds):
    """Wait for a fork until it has worked so long, or does nothing; end all that it started, and return its status."""
    status, taken, moved = None, 0.0, monotonic()
    begun = spent(child)
    while status is None and taken < seconds and monotonic() < moved + STILL:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
        else:
            sleep(0.01)
            if (now := spent(child) - begun) > taken + LITTLE:
                taken, moved = now, monotonic()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return 124 if status is None else status


def main():
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    preload()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 70
            try:
                status = run(request)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        print(wait(child, request["seconds"]), file=answers, flush=True)


if __name__ == "__main__":
    main()
