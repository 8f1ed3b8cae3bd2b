"""Declare a benchmark: what it needs, what it takes, and what it takes in its tiny form.

A benchmark is a file of `bench/` whose first line says what it measures. Its function `main(asked, report)` carries
`@benchmark(...)`, and is called at the end of the file. Every benchmark has `--tiny`, which ends in seconds, and
`--output FILE`; one that lacks what it needs says so and exits with `SKIPPED`.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from forebay.cuda.available import why_not
from harness.report import Report

if TINY := "--tiny" in sys.argv:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin between tiny loops take most of the time
SKIPPED = 77
"""Exit status of a benchmark that lacks what it needs."""
Argument = tuple[tuple[str, ...], Any, dict[str, Any]]
Needs = Sequence[str] | Callable[[argparse.Namespace], Sequence[str]]


def arg(*names: str, tiny: Any = None, **options: Any) -> Argument:
    """Describe an argument as argparse does, with its default in the tiny form."""
    return names, tiny, options


def benchmark(*arguments: Argument, needs: Needs = ()) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a function the benchmark of its file; `needs` names "gpu", and libraries."""

    def declare(run: Callable[..., None]) -> Callable[[], None]:
        def main() -> None:
            module, script = sys.modules[run.__module__], Path(inspect.getfile(run))
            if sys.argv[1:2] == ["--child"]:
                name, *given = json.loads(sys.argv[2])
                print(json.dumps(getattr(module, name)(*given)))
                return
            asked = parse(module.__doc__ or "", arguments)
            if lacking := missing(needs(asked) if callable(needs) else needs):
                print(f"{script.stem} needs {lacking}: skipped")
                sys.exit(SKIPPED)
            report = Report(script, asked)
            run(asked, report)
            report.finish()
            sys.exit(1 if report.failures else 0)

        return main

    return declare


def parse(doc: str, arguments: Sequence[Argument]) -> argparse.Namespace:
    """Read the command line; with `--tiny`, what is not given there has its tiny default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    small = {}
    for names, tiny, options in arguments:
        action = parser.add_argument(*names, **options)
        if tiny is not None:
            small[action.dest] = tiny
    parser.add_argument("--tiny", action="store_true", help="a form that ends in seconds, to see that it works")
    parser.add_argument("--output", type=Path, help="JSON file to write, bench/out/NAME.json otherwise")
    if TINY:
        parser.set_defaults(**small)
    return parser.parse_args()


def no_gpu() -> bool:
    """Tell whether no GPU can be used."""
    return bool(why_not())


def missing(needs: Sequence[str]) -> str:
    """Say what is needed and not there; empty where all is."""
    libraries = [name for name in needs if name != "gpu" and find_spec(name) is None]
    reasons = [f"a GPU ({why_not()})"] if "gpu" in needs and no_gpu() else []
    return " and ".join(reasons + [f"the library {name}" for name in libraries])


def child(call: Callable[..., Any], *given: Any, timeout: float | None = None, **environment: str) -> Any:
    """Call a function of a benchmark in a process of its own; where that fails, return a dict that tells why.

    The tiny form calls it here: it compares no memory, starts no process, and fails with what fails.
    """
    if TINY:
        return json.loads(json.dumps(call(*given)))
    command = [sys.executable, inspect.getfile(call), "--child", json.dumps([call.__name__, *given])]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=os.environ | environment)
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {timeout} s"}
    if ran.returncode:
        return {"failed": (ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"])[-1][:300]}
    return json.loads(ran.stdout.splitlines()[-1])
