"""The same steps as `steps`, generated and compiled by Devito, with its own blocking; layers damp in several ways."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement
from typing import Any

import devito
import numpy as np

from cases.steps import Ours, pulse

Call = Callable[[int, int], None]
"""Takes the first time and the next."""


def applied(operator: Any) -> Call:
    """Make an operator callable as Devito's users call it."""
    return lambda start, stop: operator.apply(time_m=start, time_M=stop - 1)


class Devitos:
    """Equations by the way that layers damp; those that are built are run step by step."""

    first = 0
    """Time of the first step."""

    def __init__(self, equations: dict[str, list[Any]]) -> None:
        self.equations, self.operators, self.done = equations, dict[str, Call](), 0

    def build(self, ways: Sequence[str], called: Callable[[Any], Call]) -> None:
        """Have Devito compile the step with layers in these ways."""
        self.operators = {way: called(devito.Operator(self.equations[way], name=way.capitalize())) for way in ways}

    def run(self, which: str, steps: int) -> None:
        """Step on, and wait."""
        start = self.first + self.done
        self.operators[which](start, start + steps)
        self.done += steps

    def functions(self) -> list[Any]:
        """Return all that the equations read and write."""
        from devito.symbolics import retrieve_functions

        every = (f for equations in self.equations.values() for each in equations for f in retrieve_functions(each))
        return sorted({function.function for function in every}, key=lambda function: function.name)


class DevitoAcoustic(Devitos):
    """The acoustic step: layers damp by a field as Devito's do ("damped"), or there are none ("plain")."""

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
    """The elastic step: layers by profiles along the axes as ours, by a field for each of the waves', or none."""

    def __init__(self, ours: Ours, shape: tuple[int, ...], order: int) -> None:
        self.ours, propagator = ours, ours.propagator
        axes = "zx" if len(shape) == 2 else "zyx"
        self.grid = devito.Grid(shape=shape, extent=tuple(10.0 * (n - 1) for n in shape), dtype=np.float32)
        self.dims = dict(zip(axes, self.grid.dimensions, strict=True))
        pairs = [first + second for first, second in combinations_with_replacement(axes, 2)]
        self.waves = {
            letters: devito.TimeFunction(
                name=f"u{letters}", grid=self.grid, space_order=order, time_order=1, staggered=self._place(letters)
            )
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
        profiles = {(axis, half): self._profile(axis, half) for axis in axes for half in (False, True)}
        layers = {
            "profiles": {n: math.prod(profiles[axis, self._half(n, axis)] for axis in axes) for n in rates},
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
        """Return what belongs to the fields of ours, as the host has it."""
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

    def _half(self, letters: str, axis: str) -> bool:
        """Tell whether a field lies between the points of an axis."""
        return axis in letters and len(set(letters)) == len(letters)

    def _factors(self, axis: str, half: bool) -> Any:
        return self.ours.propagator.damping[2 * list(self.dims).index(axis) + half][self.ours.inner[0]]

    def _layer(self, letters: str) -> Any:
        factors = (self._factors(axis, self._half(letters, axis)) for axis in self.dims)
        return np.prod(np.meshgrid(*factors, indexing="ij"), axis=0)

    def _profile(self, axis: str, half: bool) -> Any:
        values, dimension = self._factors(axis, half), self.dims[axis]
        name, place = f"{'half' if half else 'whole'}_{axis}", dimension if half else devito.NODE
        made = devito.Function(name=name, dimensions=(dimension,), shape=values.shape, space_order=0, staggered=place)
        made.data[:] = values
        return made
