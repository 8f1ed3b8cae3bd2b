"""Reverse-time migration on a GPU: what Forebay is for, measured beside what it replaces, in one run.

Tables, each by its name:

seed     the ``salt`` shot with Revolve, zCut and Uniform: blocking copies to pinned memory without a cache, prefetching
         alone, a codec alone, both, Uniform at equal snapshots and at equal bytes, and what "auto" chooses
models   the same for ``large`` and ``marmousi3d``, in three ways
long     Revolve and "auto" over as many steps as the seed has
history  the cost of history: a whole shot over the same forward, backward and imaging with nothing kept, and its
         picture beside the exact one that is imaged at every step
every    the same, imaged at every step, with as many steps as the host holds
layers   what a step costs with absorbing layers of 20 points and with none, and in a plain kernel that damps there
clock    the clock around simulate, gradient and migrate beside the device's time, of first calls and later ones

Rows are timed by events, from the first action of a reversal to the last, and by the clock around the whole call.
Blocking rows are cut off after ``--patience`` seconds and extrapolated, which their row says.

All tables but the last two are measured unless some are named. Takes 96 GB of host memory. ``--device cpu`` runs them
on small grids with NumPy, to see that it works.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import count, product
from typing import Any

from cases.blocking import pin
from cases.machine import Gpu, Host
from harness import Report, arg, benchmark, no_gpu
from shots import calls, history, layers, seed
from shots.waves import Setup, Waves

import forebay as fb

TABLES = ("seed", "models", "long", "history", "every", "layers", "clock")
BOUNDS = ("bounded:1e-3", "bounded:1e-4", "bounded:1e-5")
SHAPES = {"salt": (310, 676, 676), "large": (500, 500, 500), "marmousi3d": (351, 901, 301)}
"""Points that are computed, absorbing layers included."""


class Bench:
    """The tables, on one machine."""

    def __init__(self, asked: Any, report: Report, directory: str) -> None:
        self.machine: Host = Host() if asked.device == "cpu" else Gpu()
        self.asked, self.report, self.directory, self.pinned = asked, report, directory, 0
        self.small = asked.tiny or asked.device == "cpu"
        self.links = self.machine.links()
        report.facts["links"] = {name: str(value) for name, value in self.links.items()}
        self.codec = fb.codec.get(asked.codec)

    def steps(self, small: int, full: int) -> int:
        """Choose how long a loop is."""
        return small // 3 if self.asked.tiny else small if self.small else full

    def run_seed(self) -> None:
        """Measure the seed's table for one model."""
        self._schedules("salt", self.steps(60, 1001), brief=self.asked.tiny)

    def run_models(self) -> None:
        """Measure the same for two others."""
        for name in ("large", "marmousi3d"):
            self._schedules(name, self.steps(60, 501), brief=True)

    def run_long(self) -> None:
        """Measure Revolve and auto over a loop as long as the seed's."""
        if (rows := self._rows("salt", self.steps(80, 3751))) is not None:
            self._take("long", seed.long_table(rows))
            self._show_schedules("long")

    def run_history(self) -> None:
        """Measure the cost of history at the interval that the source's band allows."""
        self._history("history", self.steps(300, 3751), None, BOUNDS[1:2] if self.small else BOUNDS)

    def run_every(self) -> None:
        """Measure it at every step."""
        self._history("every", self.steps(150, 2001), 1, BOUNDS[1:2])

    def run_layers(self) -> None:
        """Measure steps with layers and with none."""
        shapes = ((44, 46, 48), (60, 80)) if self.small else ((512,) * 3, (400,) * 3, (4000,) * 2)
        how = product(("acoustic", "density", "vti", "visco", "elastic"), shapes, (20, 0), ("forward", "back", "image"))
        steps, on_gpu = (4 if self.small else 40), self.asked.device == "gpu"
        damped = (partial(layers.damped, self.machine, cube, 20, steps) for cube in shapes if on_gpu and len(cube) == 3)
        self._take("layers", iter([*damped, *(partial(layers.row, self.machine, *each, steps) for each in how)]))
        layers.compare([row for row in self.report.rows if row["table"] == "layers"])
        self._show("layers", layers.COLUMNS)

    def run_clock(self) -> None:
        """Set the clock around calls beside the time of the device."""
        points, steps, budget = (60, 200, ("64MB",)) if self.small else (400, 200, ("60GB", "32GB"))
        self._take("clock", calls.table(self.machine, points, steps, self.machine.budget(*budget)))
        self._show("clock", calls.COLUMNS)

    def _setup(self, name: str, steps: int) -> Setup:
        if self.small:
            shape, absorb = ((36, 40, 38), 10) if self.asked.tiny else ((56, 66, 60), 16)
            return Setup(name, shape, steps, absorb=absorb, apart=4)
        return Setup(name, SHAPES[name], steps)

    def _rows(self, name: str, steps: int) -> Any:
        """Make a shot and measure its costs; None, and a failure in the report, where that fails."""
        try:
            waves = Waves(self.machine, self._setup(name, steps))
            costs = seed.measured(waves, self.codec, self.links)
        except Exception as error:
            self.report.fail(f"{name} cannot be set up: {error!r}"[:500])
            return None
        host = 24 * waves.layout.nbytes if self.small else fb.Budget(host=self.asked.host)["host"]
        self._pin(host)
        self._tell(waves, costs)
        return seed.Rows(waves, costs, self.codec, host, self.asked.patience, self.directory)

    def _schedules(self, name: str, steps: int, *, brief: bool) -> None:
        if (rows := self._rows(name, steps)) is not None:
            self._take(f"seed {name}", seed.table(rows, caches=(2, 4, 6), brief=brief))
            self._show_schedules(f"seed {name}")

    def _show_schedules(self, table: str) -> None:
        """Set every row beside the blocking copies of its family, and auto beside Revolve's."""
        own = [row for row in self.report.rows if row["table"] == table]
        bases = {row["schedule"].partition(":")[0]: row for row in own if row["way"] == "blocking copies"}
        for row in own:
            base = bases.get(row["schedule"].partition(":")[0], bases.get("revolve"))
            row["times_faster"] = base["seconds"] / row["seconds"] if base else None
        self._show(table, seed.COLUMNS)

    def _history(self, name: str, steps: int, every: int | None, codecs: tuple[str, ...]) -> None:
        budget = self.machine.budget(*(("1GB", "1GB") if self.small else ("8GB", "64GB")))
        if not self.small:
            self._pin(budget["host"])
        setup = self._setup("salt", steps)
        try:
            shots = history.Table(self.machine, setup, self.links, budget, self.directory, self._tell)
            self._take(name, history.table(shots, every, codecs))
        finally:
            self.machine.release()
        self._show(name, history.COLUMNS)

    def _take(self, table: str, rows: Iterator[Callable[[], dict[str, Any]]]) -> None:
        """Measure and keep the rows of a table, each by itself: one that fails is told, and the next is measured."""
        for number in count(1):
            try:
                if (measure := next(rows, None)) is None:
                    return
                row = self.report.add({"table": table} | measure())
                if not row.get("equal", True):
                    self.report.fail(f"{table}, row {number}: its image is not the exact one")
            except Exception as error:
                self.report.console.print_exception()
                self.report.fail(f"{table}, row {number}: {error!r}"[:500])

    def _show(self, table: str, columns: str) -> None:
        self.report.table(table, columns, [row for row in self.report.rows if row["table"] == table])

    def _pin(self, nbytes: int) -> None:
        """Pin the host's memory, which the process keeps: the rows find it."""
        if self.small or nbytes <= self.pinned:
            return
        pin(nbytes, self.report)
        self.pinned = nbytes

    def _tell(self, waves: Any, costs: fb.Costs) -> None:
        """Write down what a shot is and what its steps cost."""
        sizes = {"points": waves.points, "state": waves.layout.nbytes, "record": waves.record_layout.nbytes}
        speeds = {"forward_Gpoints": costs.forward, "backward_with_image_Gpoints": costs.backward}
        shot = asdict(waves.setup) | sizes | {name: waves.points / step / 1e9 for name, step in speeds.items()}
        shot |= {"spacing": waves.grid.spacing, "dt": waves.dt, "highest_hz": waves.frequency, "every": waves.every}
        shot |= {"receivers": len(waves.shot.receivers), "costs": asdict(costs)}
        self.report.facts.setdefault("shots", []).append(shot)
        self.report.say(f"{waves.setup.name}: {json.dumps(shot, default=str)}")


@benchmark(
    arg("tables", nargs="*", metavar="TABLE", default=list(TABLES[:-2]), tiny=["seed", "history"]),
    arg("--device", choices=("gpu", "cpu"), default="gpu", tiny="cpu" if no_gpu() else "gpu"),
    arg("--codec", default="bounded:1e-4"),
    arg("--host", default="96GB", help="host memory for states"),
    arg("--patience", type=float, default=5.0, help="seconds after which a blocking row is cut off"),
    needs=lambda asked: () if asked.device == "cpu" else ("gpu", "cupy"),
)
def main(asked: Any, report: Report) -> None:
    if unknown := set(asked.tables) - set(TABLES):
        raise SystemExit(f"no table is called {', '.join(unknown)}: take some of {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(asked, report, directory)
        for name in asked.tables:
            getattr(bench, f"run_{name}")()
            bench.machine.release()


if __name__ == "__main__":
    main()
