"""Many inputs for one reader, in a process of little memory, with a clock.

python -m tests.fuzz.campaign READER COUNT [SEED]    tries and tells as JSON what went wrong, how often
"""

import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from forebay.errors import ForebayError

MEMORY = 2 * 2**30
"""Bytes of addresses that a reader may take beside the libraries that it has loaded."""
SECONDS = 10.0
"""Of the processor for one input. What is busy outside of Python is ended after twice as many."""
PATIENCE = 900.0
"""Seconds by the clock after which what does nothing at all is ended: a machine of others is slow at times."""


class Hangs(BaseException):
    """An input took too long."""


def ring(number, frame):
    """Tell an input that its time is over."""
    raise Hangs


@cache
def seeds_of(reader):
    """Return the sound inputs of a reader, which take their time to make."""
    return reader.seeds()


def input_of(reader, random):
    """Return an unsound input."""
    return reader.mutate(random.choice(seeds_of(reader)), random)


def failure_of(reader, data, folder):
    """Read an input; return what went wrong, "" where an error of ours refused it, and None where it was read."""
    try:
        reader.read(data, folder)
    except ForebayError:
        return ""
    except (Exception, Hangs) as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = [frame for frame in frames if "forebay" in Path(frame.filename).parts] or frames
        return f"{type(error).__name__} in {Path(where[-1].filename).name}:{where[-1].name}"
    return None


def failure_in_time(reader, data, folder):
    """Read an input with a clock; return what went wrong, as above. The process ends where Python is not asked."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(process_time() + 2 * SECONDS) + 1, most))
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return failure_of(reader, data, folder)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def work(name, start, stop, seed):
    """Try inputs in this process, and print one line for each that went wrong, and one at the end."""
    from tests.fuzz.readers import READERS

    warnings.simplefilter("ignore")
    reader, refused = READERS[name], 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for sound in seeds_of(reader):
            failure_of(reader, sound, folder)  # loads all that it needs
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        signal.signal(signal.SIGPROF, ring)
        for number in range(start, stop):
            data = input_of(reader, Random(f"{seed} {number}"))
            os.write(3, b"%20d" % number)
            os.lseek(3, 0, os.SEEK_SET)
            failure = failure_in_time(reader, data, folder)
            if failure:
                print(json.dumps([number, failure]), flush=True, file=sys.__stdout__)
            refused += failure == ""
    print(json.dumps([stop, refused]), flush=True, file=sys.__stdout__)


def campaign(name, count, seed=0):
    """Try inputs in a process that may die, and is then started again after the input that killed it."""
    wrong, examples, refused, start, begun = Counter(), {}, 0, 0, perf_counter()
    while start < count:
        with tempfile.TemporaryFile() as at:
            code = f"import os; os.dup2({at.fileno()}, 3); from tests.fuzz.campaign import work; "
            code += f"work({name!r}, {start}, {count}, {seed})"
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, pass_fds=[at.fileno()])
            at.seek(0)
            number = int(at.read() or b"-1")
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        for number_, failure in lines:
            if isinstance(failure, int):
                refused, start = refused + failure, count
            else:
                wrong[failure] += 1
                examples.setdefault(failure, number_)
        if run.returncode:
            if number < 0:
                raise RuntimeError(run.stderr[-2000:])
            failure = f"died with {run.returncode}: {run.stderr.strip().splitlines()[-1:]}"
            wrong[failure] += 1
            examples.setdefault(failure, number)
            start = number + 1
    return {
        "reader": name,
        "inputs": count,
        "refused": refused,
        "wrong": dict(wrong.most_common()),
        "first": examples,
        "seconds": round(perf_counter() - begun, 1),
    }


if __name__ == "__main__":
    print(json.dumps(campaign(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:4])), indent=1))
