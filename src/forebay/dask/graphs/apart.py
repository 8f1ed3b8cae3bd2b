"""Tasks that run in a process beside their worker, which lives on where one of them takes all the memory there is.

The tasks arrive there by its standard input from the worker that started it, and nobody else writes to that.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from forebay.dask.graphs.nodes import named
from forebay.dask.graphs.running import run_tasks
from forebay.dask.limits import resident_bytes
from forebay.errors import PlanError
from forebay.footprint.measure.process import MMAP_THRESHOLD

OFTEN = 0.01
"""seconds from one look at the process to the next"""
FIRST = "1000"
"""whom the kernel ends where the machine itself runs out: the process, never its worker"""


def run_apart(payload: bytes, persisted: Sequence[Any]) -> Any:
    """Run pickled tasks beside this worker; return the samples, or the kind of the task that outgrew the worker.

    Worker and process share what the worker may take: with both, a container holds no more than it was made for.
    """
    from distributed import get_worker

    ours, theirs = os.pipe()
    memory = get_worker().memory_manager.memory_limit
    command = [sys.executable, "-c", f"from forebay.dask.graphs.apart import main; main({theirs})"]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(theirs,), env=os.environ | environment
    )
    os.close(theirs)
    try:
        with Connection(ours, writable=False) as answers:
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:  # where it has ended already, how is found out below
                pickle.dump((payload, persisted), process.stdin)
            return _watched(process, answers, memory - resident_bytes() if memory else sys.maxsize)
    finally:
        process.kill()
        process.wait()


def _watched(process: "subprocess.Popen[bytes]", answers: Connection, memory: int) -> Any:
    """Follow the process until it has answered, or holds more than there is."""
    kind = "a task"
    status = Path(f"/proc/{process.pid}/statm")
    while True:
        if status.exists() and int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > memory:
            return kind
        if not answers.poll(OFTEN):
            continue
        try:
            what, told = answers.recv()
        except EOFError:
            if process.wait() == -signal.SIGKILL:  # by the system, for want of memory
                return kind
            raise PlanError(
                f"{named(kind)} ended the process that ran it, with {_ending(process.returncode)}: it would end a "
                "worker too, whose output may tell why"
            ) from None
        if what == "samples":
            samples, libraries = told
            # What the tasks have loaded is loaded here too: from now on this worker holds what others will.
            for name in libraries:
                with suppress(Exception):
                    import_module(name)
            return samples
        if what == "error":
            raise told
        kind = told


def _ending(code: int) -> str:
    return f"code {code}" if code >= 0 else signal.Signals(-code).name


def main(write: int) -> None:
    """Run what arrives, and tell of it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST)
    with Connection(write, readable=False) as answers:
        try:
            payload, persisted = pickle.load(sys.stdin.buffer)
            nodes, kinds, given, keys = cloudpickle.loads(payload)
            values = dict(zip(keys, persisted, strict=True))
            samples = run_tasks(nodes, kinds, given, values, lambda kind: answers.send(("begins", kind)))
            answers.send(("samples", (samples, sorted(sys.modules))))
        except Exception as error:
            try:
                answers.send(("error", error))
            except Exception:  # one that cannot be pickled
                answers.send(("error", PlanError(f"a task raises {type(error).__name__}: {error}")))
