"""What a benchmark measured: printed row by row, written as JSON after every row, and shown as tables."""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import forebay as fb
from forebay.cuda.available import gpu_count
from forebay.units import seconds_to_text, to_text

LIBRARIES = ("numpy", "numba", "scipy", "cupy", "torch", "jax", "devito", "dask", "zarr", "zfpy", "rmm")
PHASES = ("forward", "backward", "save", "restore", "stall")
Row = dict[str, Any]


class Report:
    """The rows of one benchmark and the facts around them, in `path` as one JSON object.

    It has the keys name, command, date, environment, arguments, seconds, failures, facts and rows.
    """

    def __init__(self, script: Path, asked: argparse.Namespace) -> None:
        self.name, self._begun = script.stem, time.perf_counter()
        self.arguments = {name: value for name, value in vars(asked).items() if name != "output"}
        flags = [name for name, value in self.arguments.items() if value is True]
        told = [word for word in sys.argv[1:] if word not in ("--output", str(asked.output))]
        self.command = " ".join([Path(sys.argv[0]).name, *told])
        self.path = asked.output or script.parent / "out" / ("-".join([self.name, *flags]) + ".json")
        self.date = datetime.now(UTC).isoformat(timespec="seconds")
        self.rows: list[Row] = []
        self.facts: dict[str, Any] = {}
        self.failures: list[str] = []
        self.console = Console(width=240, soft_wrap=True)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._begun

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        self.console.print(f"[{self.elapsed:6.1f} s] {text}", highlight=False, markup=False)
        sys.stdout.flush()

    def add(self, row: Row, *, quiet: bool = False) -> Row:
        """Keep a row, print its plain values, and write all there is."""
        self.rows.append(row)
        if not quiet:
            self.say(", ".join(f"{key} {_plain(value)}" for key, value in row.items() if not isinstance(value, dict)))
        self.write()
        return row

    def fail(self, text: str) -> None:
        """Note that something was wrong: the benchmark ends with an error, after all else was measured."""
        self.failures.append(text)
        self.say(f"FAILED: {text}")
        self.write()

    def find(self, **wanted: Any) -> Row | None:
        """Return the first row with these values."""
        return next((row for row in self.rows if all(row.get(key) == wanted[key] for key in wanted)), None)

    def write(self) -> None:
        """Write all there is."""
        written = {
            "name": self.name,
            "command": self.command,
            "date": self.date,
            "environment": environment(),
            "arguments": self.arguments,
            "seconds": self.elapsed,
            "failures": self.failures,
            "facts": self.facts,
            "rows": self.rows,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(written, indent=1, default=_jsonable) + "\n")

    def finish(self) -> None:
        """Write it a last time, and say where."""
        self.write()
        self.say(f"{self.name} took {seconds_to_text(self.elapsed)}; written to {self.path}")

    def table(self, title: str, columns: str, rows: Iterable[Row] | None = None) -> None:
        """Print rows; `columns` are keys such as "way phases.forward:s moved:B ratio:.2f", each with its format.

        The format `s` is for seconds and `B` for bytes; a dot leads into a dict.
        """
        specs = [column.partition(":")[::2] for column in columns.split()]
        heads = [key.rpartition(".")[2].replace("_", " ") for key, _ in specs]
        table = Table(*heads, title=title)
        for row in self.rows if rows is None else rows:
            table.add_row(*(cell(row, key, form) for key, form in specs))
        self.console.print(table)


def summary(result: Any) -> Row:
    """Return what a reversal and its plan tell; seconds are from the first action to the last."""
    plan, metrics = result.plan, result.metrics
    return {
        "schedule": str(plan.schedule),
        "keep": plan.keep,
        "codec": plan.codec or "none",
        "seconds": metrics.seconds,
        "predicted": plan.prediction.seconds,
        "over_predicted": metrics.seconds / plan.prediction.seconds,
        "stall": metrics.phases["stall"],
        "phases": dict(metrics.phases),
        "predicted_phases": {phase: getattr(plan.prediction, phase) for phase in PHASES},
        "moved": sum(metrics.moved.values()),
        "ratio": metrics.mean_ratio if metrics.ratios else None,
        "worst_ratio": metrics.ratios.worst if metrics.ratios else None,
        "peak": dict(metrics.peak),
        "late": metrics.late,
        "spilled": metrics.spilled,
        "recomputed": metrics.recomputed,
    }


def digest(*arrays: Any) -> str:
    """Return a short fingerprint of the bytes of arrays on the host."""
    bits = hashlib.blake2b(digest_size=16)
    for array in arrays:
        bits.update(np.ascontiguousarray(array))
    return bits.hexdigest()


@cache
def _steady() -> dict[str, Any]:
    """Describe what stays the same while a process runs."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = os.environ.get("FOREBAY_COMMIT")  # of a tree that was copied without its history
    if commit is None:
        with suppress(OSError):
            commit = subprocess.run(asked, capture_output=True, text=True).stdout.strip() or None
    gpus = []
    if gpu_count():
        from forebay.cuda.driver import describe_gpus

        gpus = [asdict(gpu) for gpu in describe_gpus()]
    return {
        "platform": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "cpus": os.cpu_count(),
        "commit": commit,
        "gpus": gpus,
    }


def environment() -> dict[str, Any]:
    """Describe the machine, and the versions of the libraries that are loaded by now."""
    versions = {"python": platform.python_version(), "forebay": fb.__version__}
    loaded = {name: sys.modules[name] for name in LIBRARIES if name in sys.modules}
    versions |= {name: getattr(module, "__version__", "unknown") for name, module in loaded.items()}
    return _steady() | {"load": os.getloadavg(), "versions": versions}


def cell(row: Row, key: str, form: str) -> str:
    """Return a value of a row as text; a dot in its key leads into a dict."""
    value: Any = row
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return ""
    if form in ("s", "B") and isinstance(value, int | float):
        return seconds_to_text(value) if form == "s" else to_text(int(value))
    return format(value, form) if form and not isinstance(value, str) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(map(_plain, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _jsonable(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
