"""Our elastic step beside Devito's on the same problem: the same equations, layers, averages, type and threads.

Run ``python bench/elastic.py [THREADS]``: takes a few minutes, prints a table, writes ``bench/out/elastic_step.json``.
Devito needs a C compiler; without Devito only our speeds are shown.

With ``--gpu`` both run on a GPU, which takes a minute and writes ``bench/out/elastic_step_gpu.json``. Devito's fields
stay on the device, so that kernels are compared and not copies. Its layers damp by a field for each of the waves', as
Devito's do, by profiles along the axes, as ours do, or not at all. This needs CuPy, and Devito set to a GPU:
DEVITO_PLATFORM=nvidiaX DEVITO_LANGUAGE=openmp DEVITO_ARCH=clang.
"""

import argparse
import json
import math
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from propagators import THREADS, compared, devito, pulse, report, seconds  # first: it says how many threads there are

import numpy as np  # isort: skip
from rich.console import Console  # isort: skip
from rich.table import Table  # isort: skip

import forebay as fb  # isort: skip
from forebay.cuda.available import INSTALL, why_not  # isort: skip
from forebay.wave import Elastic, ElasticModel, Grid, largest_dt  # isort: skip

CASES = {"3-D": (128, 128, 128), "3-D, long rows": (64, 80, 400), "2-D": (1200, 1200)}
"""Points that are computed, layers included."""
STEPS = {"3-D": 3, "3-D, long rows": 3, "2-D": 6}
BYTES = {2: 4 * (5 + 2 + 2 + 2 + 3 + 3 + 3), 3: 140}
"""A point and step, each field read or written once in each half: for velocities and for stresses."""
ON_GPU = (304, 304, 400)
WARM, TURN, TURNS = 8, 20, 5
"""On a GPU: steps before the waves are compared, steps of a turn, turns."""


class Ours:
    """An elastic propagator of `forebay.wave` without sources."""

    def __init__(self, shape: tuple[int, ...], order: int) -> None:
        layer = min(40, min(shape) // 4)
        inner = tuple(points - 2 * layer for points in shape)
        values = (np.full(inner, value) for value in (3000.0, 1700.0, 2200.0))
        model = ElasticModel(*values, Grid(inner, 10.0, absorb=layer))
        self.propagator = Elastic(model, 0.9 * largest_dt(model, order), order)
        self.state = self.propagator.zeros()
        self.inner = (slice(order // 2, -order // 2),) * len(shape)
        for name in self.propagator.stresses[: len(shape)]:
            self.state[name][self.inner] = pulse(shape)

    def run(self, steps: int) -> None:
        """Step without anything but the stencils."""
        chosen = self.propagator
        v, t = chosen.fields(self.state)
        for _ in range(steps):
            chosen.kernels.move(v, t, chosen.buoyancies, chosen.damping, chosen.table, chosen.weights)
            chosen.kernels.strain(t, v, chosen.stiffnesses, chosen.damping, chosen.table, chosen.weights)

    def field(self, name: str) -> Any:
        """Give a field on the host."""
        chosen = self.propagator
        return chosen.layout.cut(chosen.kernels.get(self.state[name]))[self.inner]


class OursOnGpu(Ours):
    """A propagator brought to the GPU with its state, and with a source, which sends nothing."""

    def __init__(self, host: Ours) -> None:
        import cupy

        model = host.propagator.model
        medium = (cupy.asarray(values) for values in (model.vp, model.vs, model.rho))
        self.propagator = Elastic(ElasticModel(*medium, model.grid), host.propagator.dt, host.propagator.order)
        self.state, self.inner = self.propagator.zeros(), host.inner
        for name, field in host.state.items():
            self.propagator.layout.cut(self.state[name])[:] = cupy.asarray(field)
        self.source = self.propagator.antenna(np.asarray([model.grid.end]) / 2, ["explosion"])
        self.sent = cupy.zeros((TURN, 1), "float32")
        self.wait = cupy.cuda.Device().synchronize

    def run(self, steps: int) -> None:
        """Step on, and wait."""
        chosen = self.propagator
        chosen.kernels.run(chosen, self.state, self.source, self.sent, range(steps), None, None)
        self.wait()


class Devitos:
    """The same step, generated and compiled by Devito, with its own blocking; layers damp in several ways."""

    def __init__(self, ours: Ours, shape: tuple[int, ...], order: int) -> None:
        self.ours, propagator = ours, ours.propagator
        axes = "zx" if len(shape) == 2 else "zyx"
        self.grid = devito.Grid(shape=shape, extent=tuple(10.0 * (n - 1) for n in shape), dtype=np.float32)
        self.dims = dict(zip(axes, self.grid.dimensions, strict=True))
        pairs = [one + other for one, other in combinations_with_replacement(axes, 2)]
        self.fields = {
            letters: devito.TimeFunction(
                name=f"u{letters}", grid=self.grid, space_order=order, time_order=1, staggered=self.place(letters)
            )
            for letters in (*axes, *pairs)
        }
        for axis in axes:
            self.fields[2 * axis].data[0] = pulse(shape)
        medium = {
            name: self.function(name, name[1:] if name[0] in "bm" and name != "mu" else "zz", values[ours.inner])
            for name, values in propagator.medium.items()
        }
        rates = {}
        for one in axes:
            near = {other: self.fields["".join(sorted(one + other, key=axes.index))] for other in axes}
            rates[one] = medium[f"b{one}"] * sum(self.along(near[other], other) for other in axes)
        moved = {one: self.fields[one].forward for one in axes}
        for pair in pairs:
            one, other = pair
            if one == other:
                trace = sum(self.along(moved[each], each) for each in axes)
                rates[pair] = medium["lam"] * trace + 2 * medium["mu"] * self.along(moved[one], one)
            else:
                rates[pair] = medium[f"m{pair}"] * (self.along(moved[one], other) + self.along(moved[other], one))
        profiles = {(axis, half): self.profile(axis, half) for axis in axes for half in (False, True)}
        layers = {
            "profiles": {n: math.prod(profiles[axis, self.half(n, axis)] for axis in axes) for n in rates},
            "damped": {n: self.function(f"g{n}", n, self.layer(n)) for n in rates},
            "plain": dict.fromkeys(rates, 1),
        }
        self.equations = {
            way: [devito.Eq(self.fields[n].forward, g[n] * (g[n] * self.fields[n] + rates[n])) for n in rates]
            for way, g in layers.items()
        }
        self.operators: dict[str, Callable[[int, int], None]] = {}
        self.done = 0

    def build(self, ways: tuple[str, ...], called: Callable[[Any], Callable[[int, int], None]]) -> None:
        """Have Devito compile the step with layers in these ways, to be called with the first time and the next."""
        self.operators = {way: called(devito.Operator(self.equations[way], name=way.capitalize())) for way in ways}

    def place(self, letters: str) -> Any:
        """Say where a field lies that is named after these axes."""
        return tuple(self.dims[one] for one in letters) if len(set(letters)) == len(letters) else devito.NODE

    def along(self, field: Any, axis: str) -> Any:
        """Take the derivative along an axis."""
        return getattr(field, f"d{self.dims[axis].name}")

    def function(self, name: str, letters: str, values: Any) -> Any:
        """Make a field of the medium."""
        found = devito.Function(name=name, grid=self.grid, space_order=0, staggered=self.place(letters))
        found.data[:] = values
        return found

    def half(self, letters: str, axis: str) -> bool:
        """Tell whether a field lies between the points of an axis."""
        return axis in letters and len(set(letters)) == len(letters)

    def factors(self, axis: str, half: bool) -> Any:
        """Give the factors of the layers along an axis."""
        return self.ours.propagator.damping[2 * list(self.dims).index(axis) + half][self.ours.inner[0]]

    def layer(self, letters: str) -> Any:
        """Give the factors of the layers as a field."""
        factors = (self.factors(axis, self.half(letters, axis)) for axis in self.dims)
        return np.prod(np.meshgrid(*factors, indexing="ij"), axis=0)

    def profile(self, axis: str, half: bool) -> Any:
        """Make a function of the factors of the layers along an axis."""
        values, dimension = self.factors(axis, half), self.dims[axis]
        found = devito.Function(
            name=f"{'half' if half else 'whole'}_{axis}",
            dimensions=(dimension,),
            shape=values.shape,
            space_order=0,
            staggered=dimension if half else devito.NODE,
        )
        found.data[:] = values
        return found

    def functions(self) -> list[Any]:
        """Give all that the equations read and write."""
        from devito.symbolics import retrieve_functions

        every = (one for equations in self.equations.values() for each in equations for one in retrieve_functions(each))
        return sorted({one.function for one in every}, key=lambda one: one.name)

    def run(self, which: str, steps: int) -> None:
        """Step on, and wait."""
        self.operators[which](self.done, self.done + steps)
        self.done += steps

    def field(self, name: str) -> Any:
        """Give what belongs to a field of ours, as the host has it."""
        return self.fields[name[1:]].data[self.done % 2]


def applied(operator: Any) -> Callable[[int, int], None]:
    """Make an operator callable as Devito's users call it."""
    return lambda start, stop: operator.apply(time_m=start, time_M=stop - 1)


def apart(ours: Ours, theirs: Devitos) -> float:
    """Give the largest difference of a field, relative to its norm, if the waves are the same."""
    pairs = ((ours.field(name), theirs.field(name)) for name in ours.state)
    found = float(np.max([np.linalg.norm(mine - other) / np.linalg.norm(other) for mine, other in pairs]))
    assert found < 1e-4, f"not the same waves: {found}"
    return found


def measure(name: str, shape: tuple[int, ...], order: int = 8) -> dict[str, Any]:
    """Run them in turns, after both have been compiled and found to agree."""
    steps, points = STEPS[name], int(np.prod(shape))
    ours = Ours(shape, order)
    theirs = Devitos(ours, shape, order) if devito is not None else None
    ours.run(steps)
    if theirs is not None:
        theirs.build(("damped", "plain"), applied)
        theirs.run("damped", steps)
        apart(ours, theirs)
        theirs.run("plain", 1)
    row = {"problem": name, "shape": list(shape), "order": order}
    return row | compared(ours, theirs, steps, points, BYTES[len(shape)])


def missing_on_gpu() -> str:
    """Say what a comparison on a GPU needs and has not; empty where it has all."""
    if why := why_not():
        return why
    if find_spec("cupy") is None:
        return f"there is no CuPy: {INSTALL}"
    if devito is None:
        return "Devito cannot be imported: pip install devito"
    from forebay.devito.support import SUPPORTED, DevitoError, on_device

    try:
        return "" if on_device() else f"Devito is set to a CPU: set {SUPPORTED}"
    except DevitoError as error:
        return str(error)


def measure_gpu(shape: tuple[int, ...], order: int = 8) -> dict[str, Any]:
    """Run them in turns on a GPU, after both have been compiled and found to agree."""
    from forebay.devito import Run, resident, sync_host

    host = Ours(shape, order)
    ours, theirs = OursOnGpu(host), Devitos(host, shape, order)
    with resident(*theirs.functions()):
        theirs.build(("profiles", "damped", "plain"), Run)
        ours.run(WARM)
        theirs.run("profiles", WARM)
        sync_host(*theirs.fields.values())
        differs = apart(ours, theirs)
        for way in ("damped", "plain"):
            theirs.run(way, 1)
        runs = {"ours": ours.run} | {way: partial(theirs.run, way) for way in theirs.operators}
        taken: dict[str, list[float]] = {who: [] for who in runs}
        for _ in range(TURNS):
            for who, run in runs.items():
                taken[who].append(seconds(partial(run, TURN)) / TURN)
    medians = {who: statistics.median(times) for who, times in taken.items()}
    return {
        "shape": list(shape),
        "order": order,
        "apart": differs,
        "ms": {who: 1e3 * one for who, one in medians.items()},
        "Gpoints": {who: math.prod(shape) / one / 1e9 for who, one in medians.items()},
        "ratios": {way: medians[way] / medians["ours"] for way in theirs.operators},
    }


def report_gpu(row: dict[str, Any]) -> None:
    """Print a table, and write it down with what it was measured on."""
    import cupy

    from forebay.cuda.driver import describe_gpus

    gpu, compiler = describe_gpus()[0], devito.configuration["compiler"].cc
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gpu": asdict(gpu),
        "versions": {"python": platform.python_version()}
        | {library.__name__: library.__version__ for library in (fb, devito, cupy, np)},
        "compiler": subprocess.check_output([compiler, "--version"], text=True).partition("\n")[0],
        "steps": TURN,
        "repetitions": TURNS,
    }
    size = " x ".join(map(str, row["shape"]))
    title = f"elastic step on {gpu.name}, float32, {size}, order {row['order']}: medians of {TURNS} turns"
    table = Table("who", "ms", "Gpoint/s", "times ours", title=title)
    names = {
        "profiles": "Devito, layers by profiles",
        "damped": "Devito, layers by fields",
        "plain": "Devito, no layers",
    }
    for who, milliseconds in row["ms"].items():
        ratio = f"{row['ratios'][who]:.2f}" if who in row["ratios"] else "-"
        table.add_row(names.get(who, who), f"{milliseconds:.3f}", f"{row['Gpoints'][who]:.2f}", ratio)
    Console(width=120).print(table)
    out = Path(__file__).parent / "out" / "elastic_step_gpu.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(about | row, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("threads", type=int, nargs="?", help="on the CPU: all unless told")
    parser.add_argument("--gpu", action="store_true", help="compare on a GPU")
    parser.add_argument("--shape", type=int, nargs=3, help="points of one grid, layers included, instead of the usual")
    asked = parser.parse_args()
    if asked.threads not in (None, THREADS):
        parser.error("the number of threads comes first")
    if not asked.gpu:
        cases = {"3-D": tuple(asked.shape)} if asked.shape else CASES
        report("elastic", [measure(name, shape) for name, shape in cases.items()], STEPS)
    elif why := missing_on_gpu():
        sys.exit(why)
    else:
        report_gpu(measure_gpu(tuple(asked.shape or ON_GPU)))


if __name__ == "__main__":
    main()
