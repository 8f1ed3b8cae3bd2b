"""Answers to requests, each from a process of its own: a fork of one in which the function has run once.

What a sample leaves behind, in an allocator that keeps what was freed, in a cache, or in a leak, ends with its process
and hides nothing from the next. Threads do not survive a fork: where the function leaves some, or processes, samples
are forks of a process in which it was loaded and has not run, and each runs it once before it is measured.
"""

import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from forebay.footprint.measure.forked.descendants import OFTEN, Descendants, children_can_be_seen

Request = tuple[Any, ...]
Answer = dict[str, Any]
Run = Callable[[Request], Answer]
"""answers a request in this process; an answer with an "error" is of a function that raised"""
SLOWLY = 0.1
"""seconds between looks at whether a sample has ended without an answer"""


def can_fork() -> bool:
    """Return whether this process has no threads and no children that a fork would miss."""
    try:
        threads = len(list(Path("/proc/self/task").iterdir()))
        return threads == 1 and not Path("/proc/thread-self/children").read_text().strip()
    except OSError:  # not Linux: threads that do not show cannot be excluded
        return False


def serve_here(requests: Connection, answers: Connection, run: Run) -> None:
    """Answer requests in this process until the pipe closes."""
    while (request := _next(requests)) is not None:
        answers.send(run(request))


def serve_forked(requests: Connection, answers: Connection, run: Run) -> None:
    """Answer requests until the pipe closes: the first in a fork of this process, the others in forks of that one."""
    told_in, told_out = os.pipe()
    sys.stdout.flush()
    warmed = os.fork()
    if not warmed:
        os.close(told_in)
        first = _warm_up(requests, answers, run)
        if first is not None and can_fork():
            _serve_forks(requests, answers, run, first)
        elif first is not None:
            Connection(told_out, readable=False).send(first)
        _leave()
    os.close(told_out)
    first = _word_of(warmed, Connection(told_in, writable=False))
    _, status = os.waitpid(warmed, 0)
    if os.WIFSIGNALED(status):  # end as it did: whoever waits tells why
        os.kill(os.getpid(), os.WTERMSIG(status))
    elif os.WEXITSTATUS(status):
        os._exit(os.WEXITSTATUS(status))
    if first is not None:
        _serve_forks(requests, answers, run, first)


def _word_of(process: int, pipe: Connection, every: float = SLOWLY, look: Callable[[], None] = lambda: None) -> Any:
    """Return what a process sends, looking in between; None where it ends without a word.

    What it started may still hold the pipe, so that this does not close with it.
    """
    while not pipe.poll(every):
        look()
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) and not pipe.poll(0):
            return None
    return _next(pipe)


def _warm_up(requests: Connection, answers: Connection, run: Run) -> Any:
    """Answer requests here until the function has run once, and return that request; None where they end before."""
    while (request := _next(requests)) is not None:
        answer = run(request)
        answers.send(answer)
        if "error" not in answer:
            return request
    return None


def _serve_forks(requests: Connection, answers: Connection, run: Run, first: Request) -> None:
    while (request := _next(requests)) is not None:
        answers.send(_answer_of_fork(run, first, request))


def _answer_of_fork(run: Run, first: Request, request: Request) -> Answer:
    """Answer a request in a fork of this process, which repeats the first one before: that maps what it needs."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sampler = os.fork()
    if not sampler:
        os.close(ours)
        random.seed()
        np.random.seed()  # forks begin alike: chance would look like certainty
        run(first)
        answer = run(request)
        Connection(theirs, readable=False).send(answer)
        _leave()
    os.close(theirs)
    descendants = Descendants(sampler)
    looking = (OFTEN, descendants.look) if children_can_be_seen() else ()
    with Connection(ours, writable=False) as answered:
        word: Answer | None = _word_of(sampler, answered, *looking)
    _, status = os.waitpid(sampler, 0)
    descendants.end()
    if word is None:
        return {"ended": os.waitstatus_to_exitcode(status)}
    if word.get("host") is not None:
        word |= {"host": word["host"] + descendants.peak, "children": descendants.peak}
    return word


@dataclass(frozen=True)
class Way:
    """How a process answers requests."""

    serve: Callable[[Connection, Connection, Run], None]
    apart: bool
    """whether each is answered in a process of its own"""


def way_of(device: bool) -> Way:
    """Return how this process should answer, once the function is loaded: devices do not survive a fork."""
    return Way(serve_here, False) if device or not can_fork() else Way(serve_forked, True)


def _next(pipe: Connection) -> Any:
    """Return what comes next; None where the pipe has closed."""
    try:
        return pipe.recv()
    except EOFError:
        return None


def _leave() -> None:
    """End a fork without what the process it was forked from does at its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
