"""Figures of the long forms: each writes what it counted into docs/results/faults.json, and the page is made of that.

Only `make test-slow` writes. `python -m tests.faults.figures` makes the page again.
"""

import fcntl
import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from tests.example_counts import ALL

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = """\
# Results: faults

What the long forms of `tests/faults` and `tests/fuzz` counted. Each test writes its line when it ends, green or
not; the figures are those of `faults.json` beside this page. What went wrong is a defect.

`make test-slow`, or one of them with `FOREBAY_SLOW_TESTS=1 pytest tests/faults tests/fuzz -m slow -k NAME`

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
        }
        figures.setdefault(part, {})[name] = entry
        file.seek(0)
        file.truncate()
        file.write(json.dumps(figures, indent=1, sort_keys=True) + "\n")
        file.flush()
        (RESULTS / "faults.md").write_text(page(figures))


def page(figures):
    """Return the page that tells the figures."""
    tables = []
    for part, (title, what, counted) in HEADINGS.items():
        rows = [
            f"| {name} | {told(entry['counted'])} | {entry['seconds']} | {entry['machine']}, {entry['date']} |"
            for name, entry in sorted(figures.get(part, {}).items())
        ]
        tables.append(
            "\n".join([f"## {title}\n", f"| {what} | {counted} | seconds | where, when |", "|---|---|---|---|", *rows])
        )
    return PAGE.format(tables="\n\n".join(tables))


def told(counted):
    """Return counts as words, what went wrong last."""
    rest = {key: value for key, value in counted.items() if key != "wrong"}
    words = [f"{value:,} {key}" if isinstance(value, int) else f"{key}: {value}" for key, value in rest.items()]
    return ", ".join([*words, f"{counted['wrong']} wrong"])


if __name__ == "__main__":
    (RESULTS / "faults.md").write_text(page(json.loads((RESULTS / "faults.json").read_text())))
