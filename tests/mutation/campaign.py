"""How many small changes of the sources the fast tests notice, room by room.

python -m tests.mutation.campaign OUT.json [--rooms tier engine] [--count 60] [--seed 0] [--processes 4] [--seconds 500]
    [--tests tests/tier tests/engine/test_spilling.py] [--record]

Every change is made in a copy of the repository. Tests that run the changed line then run there, the quickest first,
until one fails, hangs or works far too long: the change is noticed. `equivalent.toml` names changes that nobody can
notice. With `--tests`, others do not run: it takes less time, and notices no more. With `--record`, counts go to
docs/results.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Lock
from time import monotonic

from tests.faults.figures import commit
from tests.mutation.mutants import entries, mutants

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "docs/results/data/mutants.json"
"""What the table of docs/results/mutants.md is made from."""
COPIED = ("src", "tests", "bench", "examples", "docs", "conftest.py", "pyproject.toml", "README.md")
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
MOST_SECONDS = 30.0
"""Of a processor, for tests that are tried on one change, as they take without it."""
RED = 0.1
"""Of all tests, those that may fail where nothing was changed, and are left out; with more, nothing is counted."""
TESTS = {
    "tier": [
        *("tests/tier", "tests/faults", "tests/engine/test_spilling.py", "tests/cli/test_doctor.py"),
        *("tests/engine/test_kept_costs.py", "tests/engine/test_host_memory.py"),
    ],
    "engine": ["tests/engine", "tests/machine"],
    "planner": ["tests/planner", "tests/cli/test_plan.py"],
    "schedule": ["tests/schedule", "tests/planner"],
    "codec": ["tests/codec"],
    "wave/job": [
        *("tests/wave/job", "tests/cli/test_rtm.py", "tests/cli/test_searches.py", "tests/faults"),
        *("tests/test_errors.py", "tests/wave/files/test_segy.py", "tests/wave/files/test_flavours.py"),
    ],
}
"""Which tests may notice a change in a room, beside the examples in its docstrings."""
FIRST = "tests/codec/test_plain.py"
"""Whose tests run before quicker ones: they compile nothing, and a change has Numba compile all of its folder again."""

GPU = [
    *("*device.py::*", "*::*_device", "tier/capacity.py::device_capacity", "tier/device_probe.py::*"),
    *("*::_launch*", "*::_module", "*::_thread_blocks", "*::_check_gpu", "codec/nvcomp/[!cs]*::*", "*/sealed.py::*"),
    *("codec/dense/codec.py::_grids", "codec/bounded/codec.py::_grid"),
]
"""Functions that run where there is a GPU alone: they are left out."""


def needs_gpu(mutant):
    """Tell whether a change is in what runs on a GPU alone."""
    place = f"{mutant.file.removeprefix('src/forebay/')}::{mutant.function}"
    return any(fnmatch(place, pattern) for pattern in GPU)


def test_files(room):
    """List the files whose tests may notice a change in a room."""
    for path in (ROOT / each for each in [*TESTS[room], f"src/forebay/{room}"]):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.name.startswith("test_") or (file.is_relative_to(ROOT / "src") and ">>> " in file.read_text()):
                yield file.relative_to(ROOT).as_posix()


class Worker:
    """A copy of the repository, and a process that forks to run tests in it, or in others."""

    def __init__(self, copy):
        self.copy = copy
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        variables |= {"PYTHONPATH": "", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-P", Path(__file__).with_name("server.py")]
        self._server = subprocess.Popen(
            command, cwd=copy, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, files, seconds, copy=None, **variables):
        """Run tests; return their exit status, 124 where they took too long, and the last lines they printed."""
        copy = copy or self.copy
        arguments = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=line", "-rf", "-p", "tests.mutation.plugin"]
        arguments += ["-m", "not slow", "--basetemp", tempfile.mkdtemp(dir=copy), *files]
        if "WRITTEN" in variables:
            arguments.remove("-x")
        variables = {f"FOREBAY_MUTATION_{name}": str(value) for name, value in variables.items()}
        variables["PYTHONPATH"] = f"{copy / 'src'}{os.pathsep}{copy}"
        with tempfile.NamedTemporaryFile("r", dir=copy) as printed:
            request = {"copy": str(copy), "arguments": arguments, "variables": variables, "seconds": seconds}
            print(json.dumps(request | {"printed": printed.name}), file=self._server.stdin, flush=True)
            return int(self._server.stdout.readline()), printed.read()[-2000:]

    def close(self):
        """Have the process end."""
        self._server.communicate()


@contextmanager
def borrowed(workers):
    """Take a worker that is idle, and give it back."""
    worker = workers.get()
    try:
        yield worker
    finally:
        workers.put(worker)


def copied(source, target, copy_file):
    """Copy the repository, with what is compiled."""
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, copy_function=copy_file)
        elif (source / name).exists():
            copy_file(source / name, target / name)
    return target


def marked(copy, turns):
    """Have the sources of a copy tell when Python passes the place of a change, or else anything near to it.

    Return the numbers of the changes that are told of: files without functions have nowhere to tell it.
    """
    marks = {}
    for number, (_, mutant) in enumerate(turns):
        path = Path(mutant.file)
        near = (
            [path]
            if mutant.place or not mutant.compiled
            else [each.relative_to(copy) for each in (copy / path).parent.glob("*.py")]
        )
        for file in near:
            lines = [mutant.place] if mutant.place else entries(ROOT, file.as_posix())
            for line in lines:
                marks.setdefault((file.as_posix(), line), []).append(number)
    for (file, line), numbers in sorted(marks.items(), reverse=True):
        lines = (copy / file).read_text().splitlines(keepends=True)
        indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
        calls = "; ".join(f"getattr(__import__('builtins'), 'forebay_passed', id)({number})" for number in numbers)
        (copy / file).write_text("".join([*lines[: line - 1], f"{indent}{calls}\n", *lines[line - 1 :]]))
    return {number for numbers in marks.values() for number in numbers}


def map_of(copy, files, pool, workers):
    """Run tests once; return the seconds that each of them takes, and the places that it passes, where it succeeds."""

    def run(together):
        written = Path(tempfile.mkstemp(dir=copy)[1])
        with borrowed(workers) as worker:
            worker.run(together, 900, copy, WRITTEN=written)
        return json.loads(written.read_text() or json.dumps({"passed": {}, "failed": together}))

    examples = [file for file in files if file.startswith("src/")]  # one process for all
    long_first = sorted(set(files) - set(examples), key=lambda file: -(ROOT / file).stat().st_size)
    runs = list(pool.map(run, [examples, *([file] for file in long_first)]))
    passed = {test: figures for run in runs for test, figures in run["passed"].items()}
    return passed, sorted(test for run in runs for test in run["failed"])


def tests_of(number, room, passed):
    """List the tests of a room that pass a place, or all where it is None; the quickest first, and their seconds."""
    homes, tests, seconds = set(test_files(room)), [], 0.0
    quickest = sorted(passed.items(), key=lambda item: (not item[0].startswith(FIRST), item[1][0]))
    for test, (taken, places) in quickest:
        passes = (number is None or number in places) and test.partition("::")[0] in homes
        if passes and seconds + taken <= MOST_SECONDS:
            tests.append(test)
            seconds += taken
    return tests, seconds


def judge(worker, mutant, room, tests, seconds):
    """Make a change in a worker's copy, run tests, and undo it; tell what came of it."""
    told = {"room": room, "file": mutant.file, "line": mutant.line, "kind": mutant.kind}
    told |= {"before": mutant.before, "after": mutant.after}
    if not tests:
        return told | {"outcome": "untouched"}
    chosen, path = worker.copy / "chosen.json", worker.copy / mutant.file
    chosen.write_text(json.dumps(tests))
    kept = path.with_suffix(".kept")
    path.rename(kept)  # it may be linked
    path.write_text(mutant.source)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()  # dates of sources are told to a second there
    start = monotonic()
    try:
        files = sorted({test.partition("::")[0] for test in tests})
        patience = 60 + 3 * seconds  # Numba may have to compile
        status, printed = worker.run(files, patience, CHOSEN=chosen)
    finally:
        kept.replace(path)
    outcome = "survived" if status == 0 else "timeout" if status == 124 else "killed"
    last = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    told |= {"outcome": outcome, "status": status, "tests": len(tests), "seconds": round(monotonic() - start, 1)}
    return told | {"by": (last or printed.splitlines() or [""])[-1][:200]}


def summary(told, drawn):
    """Count what came of the changes of each room."""
    rooms = {}
    for room in dict.fromkeys(each["room"] for each in told):
        outcomes = [each["outcome"] for each in told if each["room"] == room]
        equivalent = outcomes.count("equivalent")
        killed = outcomes.count("killed") + outcomes.count("timeout")
        rooms[room] = {"possible": drawn[room], "tried": len(outcomes), "equivalent": equivalent, "noticed": killed}
        rooms[room] |= {"share": round(killed / max(1, len(outcomes) - equivalent), 3)}
    return rooms


def record(report, counts=COUNTS):
    """Write down what was counted of rooms, over what was counted of the same changes before."""
    rows = json.loads(counts.read_text())["rows"] if counts.exists() else []
    rows = {(row["room"], row["seed"]): row for row in rows}
    for room, told in report["rooms"].items():
        counted = {"noticed": told["noticed"], "tried": told["tried"] - told["equivalent"], "share": told["share"]}
        rows[room, report["seed"]] = {"room": room, **counted, "seed": report["seed"], "where": report["where"]}
    ordered = sorted(rows.values(), key=lambda row: list(TESTS).index(row["room"]))
    counts.write_text(json.dumps({"rows": ordered}, indent=1) + "\n")


def campaign(out, rooms=tuple(TESTS), count=60, seed=0, processes=2, seconds=1e9, tests=None):
    """Try changes of rooms, in turns, while there is time; write and return what came of them."""
    TESTS.update({room: tests for room in rooms if tests})
    deadline, random = monotonic() + seconds, Random(seed)
    known = tomllib.loads(EQUIVALENT.read_text())
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    where = f"{machine}, {datetime.now(UTC):%Y-%m-%d}, {commit()}"
    drawn, lists = {}, []
    for room in rooms:
        files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "src/forebay" / room).rglob("*.py"))
        possible = [mutant for file in files for mutant in mutants(ROOT, file) if not needs_gpu(mutant)]
        drawn[room] = len(possible)
        lists.append([(room, mutant) for mutant in random.sample(possible, min(count, len(possible)))])
    turns = [each for turn in zip_longest(*lists) for each in turn if each]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool, ExitStack() as ends:
        base, traced = (Path(folder, name) for name in ("base", "traced"))
        for copy in (base, traced):
            copy.mkdir()
            copied(ROOT, copy, shutil.copy2)
        told_of = marked(traced, turns)
        workers, writing = SimpleQueue(), Lock()
        for number in range(processes):
            copy = Path(folder, f"copy-{number}")
            copy.mkdir()
            worker = Worker(copied(base, copy, os.link))
            ends.callback(worker.close)
            workers.put(worker)
        start = monotonic()
        passed, failed = map_of(traced, sorted({file for room in rooms for file in test_files(room)}), pool, workers)
        if len(failed) > RED * len(passed):
            raise SystemExit(f"{len(failed)} tests fail without any change, and {len(passed)} pass: {failed[:5]}")
        report = {"seed": seed, "where": where, "tests": len(passed), "left out": failed}
        report |= {"map seconds": round(monotonic() - start, 1), "rooms": {}, "mutants": []}

        def attempt(number):
            room, mutant = turns[number]
            if mutant.key in known:
                told = {"room": room, "outcome": "equivalent", "key": mutant.key, "reason": known[mutant.key]}
            elif monotonic() > deadline:
                return
            else:
                tests = tests_of(number if number in told_of else None, room, passed)
                with borrowed(workers) as worker:
                    told = judge(worker, mutant, room, *tests)
            with writing:
                report["mutants"].append(told)
                report["rooms"] = summary(report["mutants"], drawn)
                Path(out).write_text(json.dumps(report, indent=1))

        list(pool.map(attempt, range(len(turns))))
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--rooms", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--tests", nargs="+")
    parser.add_argument("--record", action="store_true")
    for name, default in (("count", 60), ("seed", 0), ("processes", 2), ("seconds", 1e9)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    asked = vars(parser.parse_args())
    is_recorded = asked.pop("record")
    told = campaign(**asked)
    if is_recorded:
        record(told)
    for room, counts in told["rooms"].items():
        print(room, counts)
