"""Reverse-time migration on a GPU: what Forebay is for, measured beside what it replaces, in one run.

Tables, each by its name:

seed     the ``salt`` shot with Revolve, zCut and Uniform: blocking copies to pinned memory without a cache, prefetching
         alone, a codec alone, both, Uniform at equal snapshots and at equal bytes, and what "auto" chooses
models   the same for ``large`` and ``marmousi3d``, in three ways
long     Revolve and "auto" over as many steps as the seed has
history  the cost of history: a whole shot over the same forward, backward and imaging with nothing kept, and its
         picture beside the exact one that is imaged at every step
every    the same, imaged at every step, with as many steps as the host holds
peer     a gradient on 400^3 points beside what was measured of Deepwave
elastic  the cost of history of an elastic shot, where a GPU has its kernels

Rows are timed by events, from the first action of a reversal to the last, and by the host's clock around the whole
call; pinning and planning, which the shots of a survey share, are timed by themselves. A limit is a schedule's steps
and copies inside the device at the costs of the same run. Blocking rows are cut off after ``--patience`` seconds and
extrapolated, which their row says.

What limits the cost of history, counted in bytes of a model of N points inside layers that make it M (82 and 142
million for ``salt``): a step moves 16 M bytes, an image 20 N. To keep a record, its part of the field is copied (8 N),
read for its range (4 N) and read to be encoded (4 N and a little), its encoding copied inside the device (8 N / ratio)
and moved over the link beside the computation (4 N / ratio); to see it, it is decoded (4 N written; that the image
reads it is in the 20 N). That is about 20 N bytes beside the 32 M + 20 N of a step each way: 0.26 of it at every step,
0.035 at every tenth, if all of it ran at the speed of a copy; the codec has 0.6 of that. The link at 55 GB/s keeps up
with a forward step of 0.9 ms while records shrink 7 times or more, at every tenth whatever they do. Launches, two a
step, and the engine's 20 to 30 us an operation hide behind steps of a millisecond.

Run ``python bench/rtm.py [TABLE ...]``: takes 96 GB of host memory, prints rows as they come and tables at the end, and
writes ``bench/out/rtm.json`` after every row. ``--quick`` has shorter loops;
``--device cpu`` runs everything on small grids with NumPy, to see that it works.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from shots import elastic, history, peer, seed
from shots.machine import Gpu, Host
from shots.show import console, show
from shots.waves import Setup, Waves

import forebay as fb
from forebay.units import seconds_to_text, to_text

TABLES = ("seed", "models", "long", "history", "every", "peer", "elastic")
CODEC = "bounded:1e-4"
BOUNDS = ("bounded:1e-3", "bounded:1e-4", "bounded:1e-5")
SHAPES = {"salt": (310, 676, 676), "large": (500, 500, 500), "marmousi3d": (351, 901, 301)}
"""Points that are computed, absorbing layers included."""


class Report:
    """What is known so far: printed at once, and written after every row."""

    def __init__(self, path: Path, about: dict[str, Any], limit: float) -> None:
        self.path, self.about, self.limit, self.begun = path, about, limit, time.perf_counter()
        self.tables: dict[str, list[Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def late(self) -> bool:
        """Whether the time that was allowed is over."""
        return time.perf_counter() - self.begun > self.limit

    def say(self, text: str) -> None:
        """Print with the seconds since the start."""
        console.print(f"[{time.perf_counter() - self.begun:6.1f} s] {text}", highlight=False, markup=False)
        sys.stdout.flush()

    def take(self, name: str, rows: Iterator[Callable[[], Any]]) -> None:
        """Measure and keep the rows of a table, each by itself: one that fails is told, and the next is measured."""
        kept, number = self.tables.setdefault(name, []), 0
        while not self.late:
            number += 1
            try:
                measure = next(rows, None)
                if measure is None:
                    return
                kept.append(measure())
                self.say(f"{name}: {json.dumps(asdict(kept[-1]), default=str)}")
            except Exception as error:
                self.about.setdefault("failed", {})[f"{name}, row {number}"] = repr(error)[:500]
                self.say(f"{name}, row {number} failed")
                console.print_exception()
            self.write()
        self.say(f"{name} stops here: --limit")

    def write(self) -> None:
        """Write all there is."""
        rows = {name: [asdict(row) for row in rows] for name, rows in self.tables.items()}
        seconds = {"seconds": time.perf_counter() - self.begun}
        self.path.write_text(json.dumps(self.about | seconds | {"tables": rows}, indent=2, default=str) + "\n")


def main() -> None:
    asked = parse()
    machine: Host = Host() if asked.device == "cpu" else Gpu()
    report = Report(asked.output, about(machine, asked), asked.limit)
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(machine, asked, report, directory)
        for name in asked.tables or [table for table in TABLES if table != "elastic"]:
            if not report.late:
                getattr(bench, f"run_{name}")()
                machine.let_go()
    show(report.tables)
    console.print(f"all of it took {seconds_to_text(time.perf_counter() - report.begun)}; written to {report.path}")
    sys.exit(1 if report.about.get("failed") else 0)


class Bench:
    """The tables, on one machine."""

    def __init__(self, machine: Host, asked: argparse.Namespace, report: Report, directory: str) -> None:
        self.machine, self.asked, self.report, self.directory = machine, asked, report, directory
        self.small, self.quick = machine.name == "cpu", asked.quick or machine.name == "cpu"
        self.links = machine.links()
        report.about["links"] = {name: str(value) for name, value in self.links.items()}
        self.codec = fb.codec.get(asked.codec)
        self.pinned = 0

    def run_seed(self) -> None:
        """Measure the seed's table for one model."""
        self._schedules("salt", 60 if self.small else 201 if self.quick else 1001, brief=self.quick and not self.small)

    def run_models(self) -> None:
        """Measure the same for two others."""
        for name in ("large", "marmousi3d"):
            self._schedules(name, 60 if self.small else 101 if self.quick else 501, brief=True)

    def run_long(self) -> None:
        """Measure Revolve and auto over a loop as long as the seed's."""
        steps = 80 if self.small else 1001 if self.quick else 3751
        rows = self._rows("salt", steps)
        if rows is not None:
            self.report.take("long", self._long(rows))

    def _long(self, rows: seed.Rows) -> Iterator[Callable[[], seed.Row]]:
        schedule, planned = fb.Revolve(rows.waves.setup.steps, 8), partial(rows.planned, directory=self.directory)
        yield partial(planned, schedule, 6, codec=False)
        with self.machine.rooms(8, seed.room_bytes(rows.waves, rows.codec)) as rooms:
            yield partial(rows.blocking, schedule, rooms, None)
        yield partial(planned, "auto", 6, codec=False, way="auto, exact")
        yield partial(planned, "auto", 6, codec=True)

    def run_history(self) -> None:
        """Measure the cost of history at the interval that the source's band allows."""
        steps = 300 if self.small else 1001 if self.quick else 3751
        self._history("history", steps, None, BOUNDS if not self.quick else BOUNDS[1:2])

    def run_every(self) -> None:
        """Measure it at every step."""
        self._history("every", 150 if self.small else 401 if self.quick else 2001, 1, BOUNDS[1:2])

    def run_peer(self) -> None:
        """Measure gradients."""
        points, steps, absorb = (24, 200, 8) if self.small else (400, 200, 20)
        self.report.about["peer"] = peer.DIFFERS
        self.report.take("peer", peer.table(self.machine, points, steps, absorb, self.links, self.directory))

    def run_elastic(self) -> None:
        """Measure an elastic shot."""
        shape, steps, absorb = ((44, 48, 52), 600, 10) if self.small else ((400, 400, 505), 1001, 20)
        budget = fb.Budget(host="3MB", disk="1GB") if self.small else fb.Budget(device="24GB", host="64GB")
        arguments = (self.machine, shape, steps, absorb, budget, self.codec.name, self.directory)
        self.report.take("elastic", iter([partial(elastic.row, *arguments)]))

    def _setup(self, name: str, steps: int) -> Setup:
        if self.small:
            return Setup(name, (56, 66, 60), steps, absorb=16, apart=4)
        return Setup(name, SHAPES[name], steps, around=self.asked.around)

    def _rows(self, name: str, steps: int) -> seed.Rows | None:
        """Make a shot and measure its costs; None, and a line in the report, where that fails."""
        try:
            waves = Waves(self.machine, self._setup(name, steps))
            costs = seed.measured(waves, self.codec, self.links)
        except Exception as error:
            self.report.about.setdefault("failed", {})[name] = repr(error)[:500]
            self.report.say(f"{name} cannot be set up: {error!r}")
            return None
        host = (
            24 * waves.layout.nbytes
            if self.small
            else fb.Budget(host=self.asked.host or ("48GB" if self.quick else "96GB"))["host"]
        )
        self._pin(host)
        self._tell(waves, costs)
        return seed.Rows(waves, costs, self.codec, host, self.asked.patience)

    def _schedules(self, name: str, steps: int, *, brief: bool) -> None:
        rows = self._rows(name, steps)
        if rows is not None:
            found = seed.table(rows, caches=(2, 4, 6), directory=self.directory, brief=brief)
            self.report.take(f"seed {name}", found)

    def _history(self, name: str, steps: int, every: int | None, codecs: tuple[str, ...]) -> None:
        sizes = ("1GB", "1GB") if self.small else ("8GB", "64GB")
        budget = fb.Budget(**dict(zip(self.machine.tiers, sizes, strict=True)))
        if not self.small:
            self._pin(budget["host"])
        setup = self._setup("salt", steps)
        try:
            rows = history.table(
                self.machine, setup, self.links, budget, self.directory, every=every, codecs=codecs, tell=self._tell
            )
            self.report.take(name, rows)
        finally:
            self.machine.let_go()

    def _pin(self, nbytes: int) -> None:
        """Pin the host's memory, which the process keeps: the rows find it."""
        if self.small or nbytes <= self.pinned:
            return
        begun = time.perf_counter()
        with self.machine.rooms(1, nbytes):
            self.pinned = nbytes
        taken = time.perf_counter() - begun
        self.report.about.setdefault("pinning", []).append({"bytes": nbytes, "seconds": taken})
        self.report.say(f"pinning {to_text(nbytes)} took {seconds_to_text(taken)}; it is in no row")

    def _tell(self, waves: Waves, costs: fb.Costs) -> None:
        """Write down what a shot is and what its steps cost."""
        shot = {
            "setup": asdict(waves.setup),
            "points": waves.points,
            "spacing": waves.grid.spacing,
            "dt": waves.dt,
            "dominant_hz": waves.dominant,
            "highest_hz": waves.frequency,
            "every": waves.every,
            "receivers": len(waves.shot.receivers),
            "state_bytes": waves.layout.nbytes,
            "record_bytes": waves.record_layout.nbytes,
            "forward_Gpoints": waves.points / costs.forward / 1e9,
            "backward_with_image_Gpoints": waves.points / costs.backward / 1e9,
            "costs": asdict(costs),
        }
        self.report.about.setdefault("shots", []).append(shot)
        self.report.say(f"{waves.setup.name}: {json.dumps(shot, default=str)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"some of {', '.join(TABLES)}; all but elastic else")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--quick", action="store_true", help="shorter loops, fewer rows")
    parser.add_argument("--codec", default=CODEC)
    parser.add_argument("--host", help="host memory for states: 96GB unless told, 48GB with --quick")
    parser.add_argument(
        "--around", action="store_true", help="put absorbing layers around the seed's sizes, not inside"
    )
    parser.add_argument("--patience", type=float, default=5.0, help="seconds after which a blocking row is cut off")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no row is begun")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "out" / "rtm.json")
    asked = parser.parse_args()
    if wrong := set(asked.tables) - set(TABLES):
        parser.error(f"no table is called {', '.join(sorted(wrong))}: take some of {', '.join(TABLES)}")
    return asked


def about(machine: Host, asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "command": " ".join(sys.argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.platform(),
        "versions": {"python": platform.python_version(), "forebay": fb.__version__},
        "codec": asked.codec,
        **machine.about(),
    }


if __name__ == "__main__":
    main()
