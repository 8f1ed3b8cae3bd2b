"""Our propagators beside Devito's on the same problem: the same equation, layers, points, steps, type and threads.

Run ``python bench/propagators.py [THREADS]``: takes about two minutes, prints a table, writes
``bench/out/acoustic_step.json``. Devito needs a C compiler; without Devito only our speeds are shown.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else os.cpu_count() or 1
# Both read these when they are loaded.
os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(THREADS)
os.environ.setdefault("DEVITO_LANGUAGE", "openmp")
os.environ.setdefault("DEVITO_LOGGING", "ERROR")

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from forebay.wave import Acoustic, AcousticModel, Grid, largest_dt  # noqa: E402

try:
    import devito
except ImportError:
    devito = None

CASES = {"3-D": (220, 220, 220), "3-D, long rows": (120, 150, 600), "2-D": (1800, 1800)}
"""Points that are computed, layers included."""
ORDERS = (4, 8)
STEPS = {"3-D": 6, "3-D, long rows": 6, "2-D": 20}
REPETITIONS = 7
BYTES = 16
"""A point and step: p, p_old and velocity read, one field written."""


class Ours:
    """A propagator of `forebay.wave` without sources."""

    def __init__(self, shape: tuple[int, ...], order: int) -> None:
        layer = min(40, min(shape) // 4)
        inner = tuple(points - 2 * layer for points in shape)
        model = AcousticModel(np.full(inner, 2000.0, np.float32), Grid(inner, 10.0, absorb=layer))
        self.propagator = Acoustic(model, 0.9 * largest_dt(model, order), order)
        self.state = self.propagator.zeros()
        self.inner = (slice(order // 2, -order // 2),) * len(shape)
        for name in ("p", "p_old"):
            self.state[name][self.inner] = pulse(shape)

    def run(self, steps: int) -> None:
        """Step without anything but the stencil."""
        chosen, state = self.propagator, self.state
        for _ in range(steps):
            chosen.kernels.advance(state["p"], state["p_old"], chosen.squared, chosen.damping, chosen.weights)
            state = {"p": state["p_old"], "p_old": state["p"]}
        self.state = state

    def field(self) -> Any:
        """Give the newest field."""
        return self.state["p"][self.inner]


class Devitos:
    """The same step, generated and compiled by Devito, with its own blocking; layers damp by a field as Devito's do."""

    def __init__(self, ours: Ours, shape: tuple[int, ...], order: int) -> None:
        grid = devito.Grid(shape=shape, extent=tuple(10.0 * (points - 1) for points in shape), dtype=np.float32)
        self.u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=order)
        squared, g = (devito.Function(name=name, grid=grid, space_order=0) for name in ("squared", "g"))
        squared.data[:] = ours.propagator.squared[ours.inner]
        g.data[:] = np.prod(np.meshgrid(*ours.propagator.damping, indexing="ij", sparse=False), axis=0)[ours.inner]
        u = self.u
        damped = g * (2 * u - g * u.backward + squared * u.laplace)
        plain = 2 * u - u.backward + squared * u.laplace
        self.operators = {
            "damped": devito.Operator([devito.Eq(u.forward, damped)]),
            "plain": devito.Operator([devito.Eq(u.forward, plain)]),
        }
        for time_slot in range(3):
            u.data[time_slot] = pulse(shape)
        self.done = 0

    def run(self, which: str, steps: int) -> None:
        """Step on, and wait."""
        self.operators[which].apply(time_m=self.done + 1, time_M=self.done + steps)
        self.done += steps

    def field(self) -> Any:
        """Give the newest field."""
        return self.u.data[(self.done + 1) % 3]


def pulse(shape: tuple[int, ...]) -> Any:
    places = np.meshgrid(*(np.arange(points, dtype=np.float32) for points in shape), indexing="ij", sparse=True)
    return np.exp(-sum(((place - points / 2) / 6) ** 2 for place, points in zip(places, shape, strict=True)))


def seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(name: str, shape: tuple[int, ...], order: int) -> dict[str, Any]:
    """Run them in turns, after both have been compiled and found to agree."""
    steps, points = STEPS[name], int(np.prod(shape))
    ours = Ours(shape, order)
    theirs = Devitos(ours, shape, order) if devito is not None else None
    ours.run(steps)
    if theirs is not None:
        theirs.run("damped", steps)
        apart = np.linalg.norm(ours.field() - theirs.field()) / np.linalg.norm(theirs.field())
        assert apart < 1e-4, f"not the same waves: {apart}"
        theirs.run("plain", 1)
    row = {"problem": name, "shape": list(shape), "order": order}
    return row | compared(ours, theirs, steps, points, BYTES)


def compared(ours: Any, theirs: Any, steps: int, points: int, nbytes: int) -> dict[str, Any]:
    """Run ours and Devito's operators in turns, and give speeds and their ratios."""
    taken: dict[str, list[float]] = {"ours": [], "damped": [], "plain": []}
    for _ in range(REPETITIONS):
        taken["ours"].append(seconds(lambda: ours.run(steps)))
        if theirs is not None:
            for which in theirs.operators:
                taken[which].append(seconds(lambda which=which: theirs.run(which, steps)))  # type: ignore[misc]
    speeds = {who: [points * steps / one / 1e9 for one in times] for who, times in taken.items() if times}
    found: dict[str, Any] = {"ours_Gpoints": round(statistics.median(speeds["ours"]), 4)}
    found["ours_GBps"] = round(found["ours_Gpoints"] * nbytes, 1)
    for which in ("damped", "plain"):
        if which in speeds:
            ratios = [mine / other for mine, other in zip(speeds["ours"], speeds[which], strict=True)]
            found[f"devito_{which}_Gpoints"] = round(statistics.median(speeds[which]), 4)
            found[f"ratio_to_{which}"] = round(statistics.median(ratios), 2)
            found[f"range_to_{which}"] = [round(min(ratios), 2), round(max(ratios), 2)]
    return found


def report(what: str, rows: list[dict[str, Any]], steps: dict[str, int]) -> None:
    """Print a table, and write it down."""
    titles = ("problem", "order", "ours Gpoint/s", "GB/s", "Devito, damped", "ratio", "range", "no layers", "ratio")
    table = Table(*titles, title=f"{what} step, float32, {THREADS} threads: medians of {REPETITIONS} turns")
    for row in rows:
        low, high = row.get("range_to_damped", ("-", "-"))
        keys = ("problem", "order", "ours_Gpoints", "ours_GBps", "devito_damped_Gpoints", "ratio_to_damped")
        cells = [str(row.get(key, "-")) for key in (*keys, "devito_plain_Gpoints", "ratio_to_plain")]
        table.add_row(*cells[:6], f"{low}..{high}", *cells[6:])
    Console(width=120).print(table)
    out = Path(__file__).parent / "out" / f"{what}_step.json"
    out.parent.mkdir(exist_ok=True)
    setting = {
        "threads": THREADS,
        "steps": steps,
        "repetitions": REPETITIONS,
        "devito": devito.__version__ if devito is not None else None,
    }
    out.write_text(json.dumps({"setting": setting, "machine": platform.platform(), "rows": rows}, indent=2) + "\n")


def main() -> None:
    rows = [measure(name, shape, order) for name, shape in CASES.items() for order in ORDERS]
    report("acoustic", rows, STEPS)


if __name__ == "__main__":
    main()
