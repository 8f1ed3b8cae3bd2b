"""The same steps as `steps`, generated and compiled by Devito, with its own blocking; layers damp by fields, or not."""

from itertools import combinations_with_replacement
from typing import Any

import devito
import numpy as np

from cases.steps import Ours, pulse


class Devitos:
    """Operators by the way that layers damp, run step by step."""

    first = 0
    """Time of the first step."""

    def __init__(self, equations: dict[str, list[Any]]) -> None:
        self.operators = {way: devito.Operator(each, name=way.capitalize()) for way, each in equations.items()}
        self.done = 0

    def run(self, which: str, steps: int) -> None:
        """Step on."""
        start = self.first + self.done
        self.operators[which].apply(time_m=start, time_M=start + steps - 1)
        self.done += steps


class DevitoAcoustic(Devitos):
    """The acoustic step."""

    first = 1

    def __init__(self, ours: Ours, shape: tuple[int, ...], order: int) -> None:
        grid = devito.Grid(shape=shape, extent=tuple(10.0 * (points - 1) for points in shape), dtype=np.float32)
        u = self.u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=order)
        squared, g = (devito.Function(name=name, grid=grid, space_order=0) for name in ("squared", "g"))
        squared.data[:] = ours.propagator.squared[ours.inner]
        g.data[:] = np.prod(np.meshgrid(*ours.propagator.damping, indexing="ij", sparse=False), axis=0)[ours.inner]
        damped = g * (2 * u - g * u.backward + squared * u.laplace)
        plain = 2 * u - u.backward + squared * u.laplace
        super().__init__({"damped": [devito.Eq(u.forward, damped)], "plain": [devito.Eq(u.forward, plain)]})
        for time_slot in range(3):
            u.data[time_slot] = pulse(shape)

    def fields(self) -> dict[str, Any]:
        """Return the newest field."""
        return {"p": self.u.data[(self.done + 1) % 3]}


class DevitoElastic(Devitos):
    """The elastic step."""

    def __init__(self, ours: Ours, shape: tuple[int, ...], order: int) -> None:
        self.ours, propagator = ours, ours.propagator
        axes = "zx" if len(shape) == 2 else "zyx"
        self.grid = devito.Grid(shape=shape, extent=tuple(10.0 * (n - 1) for n in shape), dtype=np.float32)
        self.dims = dict(zip(axes, self.grid.dimensions, strict=True))
        pairs = [first + second for first, second in combinations_with_replacement(axes, 2)]
        how = {"grid": self.grid, "space_order": order, "time_order": 1}
        self.waves = {
            letters: devito.TimeFunction(name=f"u{letters}", staggered=self._place(letters), **how)
            for letters in (*axes, *pairs)
        }
        for axis in axes:
            self.waves[2 * axis].data[0] = pulse(shape)
        medium = {
            name: self._function(name, name[1:] if name[0] in "bm" and name != "mu" else "zz", values[ours.inner])
            for name, values in propagator.medium.items()
        }
        rates = {}
        for axis in axes:
            near = {other: self.waves["".join(sorted(axis + other, key=axes.index))] for other in axes}
            rates[axis] = medium[f"b{axis}"] * sum(self._along(near[other], other) for other in axes)
        moved = {axis: self.waves[axis].forward for axis in axes}
        for pair in pairs:
            a, b = pair
            if a == b:
                trace = sum(self._along(moved[each], each) for each in axes)
                rates[pair] = medium["lam"] * trace + 2 * medium["mu"] * self._along(moved[a], a)
            else:
                rates[pair] = medium[f"m{pair}"] * (self._along(moved[a], b) + self._along(moved[b], a))
        layers = {
            "damped": {n: self._function(f"g{n}", n, self._layer(n)) for n in rates},
            "plain": dict.fromkeys(rates, 1),
        }
        super().__init__(
            {
                way: [devito.Eq(self.waves[n].forward, g[n] * (g[n] * self.waves[n] + rates[n])) for n in rates]
                for way, g in layers.items()
            }
        )

    def fields(self) -> dict[str, Any]:
        """Return what belongs to the fields of ours."""
        return {name: self.waves[name[1:]].data[self.done % 2] for name in self.ours.state}

    def _place(self, letters: str) -> Any:
        """Say where a field lies that is named after these axes."""
        return tuple(self.dims[axis] for axis in letters) if len(set(letters)) == len(letters) else devito.NODE

    def _along(self, field: Any, axis: str) -> Any:
        return getattr(field, f"d{self.dims[axis].name}")

    def _function(self, name: str, letters: str, values: Any) -> Any:
        made = devito.Function(name=name, grid=self.grid, space_order=0, staggered=self._place(letters))
        made.data[:] = values
        return made

    def _layer(self, letters: str) -> Any:
        """Multiply the damping along the axes, between their points where the field lies there."""
        staggered = letters if len(set(letters)) == len(letters) else ""
        damping, inner = self.ours.propagator.damping, self.ours.inner[0]
        factors = (damping[2 * number + (axis in staggered)][inner] for number, axis in enumerate(self.dims))
        return np.prod(np.meshgrid(*factors, indexing="ij"), axis=0)
