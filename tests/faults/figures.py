"""Figures of the long forms: each writes what it counted into docs/results/faults.json, and the page is made of that.

Only `make test-slow` writes. `python -m tests.faults.figures` makes the page again, `python -m tests.faults.figures
OTHER.json` with figures that another machine wrote. `FOREBAY_COMMIT` says what was checked out where there is no git.
"""

import fcntl
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.example_counts import ALL

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = """\
# Results: faults

What the long forms of `tests/faults` and `tests/fuzz` counted. Each test writes its line when it ends, green or
not; the figures are those of `faults.json` beside this page. What went wrong is a defect.

`make test-slow`, or one of them with `FOREBAY_SLOW_TESTS=1 pytest tests/faults tests/fuzz -m slow -k NAME`

Kills, signals and damage come at moments and places that a seed chooses. Disks are mounted, and control groups made,
by root alone; who is not skips these. Inputs are sound ones that were changed; each has 10 s of the processor, and its
process 2 GiB of addresses more than the libraries took. Where atheris is installed (3.0.0 here, from its wheel for
x86-64), it chooses inputs by the code that they reach, for 20 s of the
processor each.

{tables}
"""
HEADINGS = {
    "faults": ("Faults", "what was done", "counted"),
    "fuzz": ("Unsound inputs", "read by", "counted"),
}
"""Of each part: its title, and those of its columns."""


def record(part, name, counted, seconds):
    """Write down what a long form counted, and make the page; the short forms write nothing."""
    if not ALL:
        return
    with open(RESULTS / "faults.json", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # tests of other processes write too
        file.seek(0)
        figures = json.loads(file.read() or "{}")
        where = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        entry = {
            "counted": counted,
            "seconds": round(seconds),
            "machine": where,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit(),
        }
        figures.setdefault(part, {})[name] = entry
        file.seek(0)
        file.truncate()
        text = json.dumps(figures, indent=1, sort_keys=True) + "\n"
        file.write(text)
        file.flush()
        (RESULTS / "faults.md").write_text(page(json.loads(text)))


def commit():
    """Return the commit that is checked out, as far as anybody knows."""
    if told := os.environ.get("FOREBAY_COMMIT"):
        return told
    command = ["git", "-C", str(RESULTS), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def page(figures):
    """Return the page that tells the figures."""
    tables = []
    for part, (title, what, counted) in HEADINGS.items():
        rows = [
            f"| {name} | {told(entry['counted'])} | {entry['seconds']} | {entry['machine']}, "
            f"{entry['date']}, {entry['commit']} |"
            for name, entry in sorted(added(figures.get(part, {})).items())
        ]
        tables.append(
            "\n".join(
                [f"## {title}\n", f"| {what} | {counted} | seconds | where, when, commit |", "|---|---|---|---|", *rows]
            )
        )
    return PAGE.format(tables="\n\n".join(tables))


def added(entries):
    """Add up what forms counted that differ in their seed alone."""
    sums = {}
    for name, entry in sorted(entries.items()):
        plain, _, seed = name.partition(", seed ")
        if seed and plain in sums:
            before = sums[plain]
            counted = {key: before["counted"][key] + value for key, value in entry["counted"].items()}
            entry = entry | {"counted": counted, "seconds": before["seconds"] + entry["seconds"]}
        sums[plain] = entry
    return sums


def told(counted):
    """Return counts as words, what went wrong last."""
    rest = {key: value for key, value in counted.items() if key != "wrong"}
    words = [f"{value:,} {key}" if isinstance(value, int) else f"{key}: {value}" for key, value in rest.items()]
    return ", ".join([*words, f"{counted['wrong']} wrong"])


def join(other):
    """Write figures that another machine wrote over those of the same names, and make the page."""
    path = RESULTS / "faults.json"
    figures = json.loads(path.read_text())
    for part, entries in other.items():
        figures[part] |= entries
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    (RESULTS / "faults.md").write_text(page(figures))


if __name__ == "__main__":
    join(json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else {})
