"""Our elastic step beside Devito's on the same problem: the same equations, layers, averages, type and threads.

Run ``python bench/elastic.py [THREADS]``: takes a few minutes, prints a table, writes ``bench/out/elastic_step.json``.
Devito needs a C compiler; without Devito only our speeds are shown.
"""

from itertools import combinations_with_replacement
from typing import Any

from propagators import compared, devito, pulse, report  # first: it says how many threads there are

import numpy as np  # isort: skip

from penstock.wave import Elastic, ElasticModel, Grid, largest_dt  # isort: skip

CASES = {"3-D": (128, 128, 128), "3-D, long rows": (64, 80, 400), "2-D": (1200, 1200)}
"""Points that are computed, layers included."""
STEPS = {"3-D": 3, "3-D, long rows": 3, "2-D": 6}
BYTES = {2: 4 * (5 + 2 + 2 + 2 + 3 + 3 + 3), 3: 140}
"""A point and step, each field read or written once in each half: for velocities and for stresses."""


class Ours:
    """An elastic propagator of `penstock.wave` without sources."""

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


class Devitos:
    """The same step, generated and compiled by Devito, with its own blocking; layers damp by fields as Devito's do."""

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
        g = {letters: self.function(f"g{letters}", letters, self.layer(letters, axes)) for letters in rates}
        fields = self.fields
        self.operators = {
            "damped": [devito.Eq(fields[n].forward, g[n] * (g[n] * fields[n] + rate)) for n, rate in rates.items()],
            "plain": [devito.Eq(fields[n].forward, fields[n] + rate) for n, rate in rates.items()],
        }
        self.operators = {name: devito.Operator(equations) for name, equations in self.operators.items()}
        self.done = 0

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

    def layer(self, letters: str, axes: str) -> Any:
        """Give the factors of the layers as a field."""
        half = [axis in letters and len(set(letters)) == len(letters) for axis in axes]
        damping, inner = self.ours.propagator.damping, self.ours.inner[0]
        profiles = [damping[2 * axis + at][inner] for axis, at in enumerate(half)]
        return np.prod(np.meshgrid(*profiles, indexing="ij"), axis=0)

    def run(self, which: str, steps: int) -> None:
        """Step on, and wait."""
        self.operators[which].apply(time_m=self.done, time_M=self.done + steps - 1)
        self.done += steps


def measure(name: str, shape: tuple[int, ...], order: int = 8) -> dict[str, Any]:
    """Run them in turns, after both have been compiled and found to agree."""
    steps, points = STEPS[name], int(np.prod(shape))
    ours = Ours(shape, order)
    theirs = Devitos(ours, shape, order) if devito is not None else None
    ours.run(steps)
    if theirs is not None:
        theirs.run("damped", steps)
        for key, field in ours.state.items():
            other = theirs.fields[key[1:]].data[theirs.done % 2]
            apart = np.linalg.norm(field[ours.inner] - other) / np.linalg.norm(other)
            assert apart < 1e-4, f"not the same waves: {key} {apart}"
        theirs.run("plain", 1)
    row = {"problem": name, "shape": list(shape), "order": order}
    return row | compared(ours, theirs, steps, points, BYTES[len(shape)])


def main() -> None:
    report("elastic", [measure(name, shape) for name, shape in CASES.items()], STEPS)


if __name__ == "__main__":
    main()
