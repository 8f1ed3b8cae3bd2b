"""Runs tests in forks of a process that has loaded the libraries already: it takes a sixth of the time.

Every line that comes in is a request (JSON): where, with which arguments and variables, for how long, and the file
for what is printed. The line that goes out is the status: pytest's, or 124 where it took too long.
Nothing of the repository is loaded before a fork: each loads the sources as they are by then.
"""

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from time import monotonic, sleep

import pytest

LIBRARIES = ("checkpoint_schedules", "hypothesis", "hypothesis.extra.numpy", "numpy", "pydantic", "pytest_timeout")
LIBRARIES += ("scipy.special", "torch", "xdist.plugin", "zarr", "zarr.api.synchronous")
NUMBA = ("numba", "numba.extending", "numba.experimental", "numba.core.caching", "numba.typed")


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


def wait(child, seconds):
    """Wait for a fork, and end all that it started; return its status."""
    status, deadline = None, monotonic() + seconds
    while status is None and monotonic() < deadline:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
        else:
            sleep(0.01)
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
