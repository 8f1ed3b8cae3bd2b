"""Pressure in a standard linear solid, second order in time and of any even order in space, step by step.

Strain v follows what pressures p around it and sources do, and pressure is what the modulus M of `solid` makes of the
strain that there has been. With A = s (v dt)^2, and e what absorbing layers change (see `acoustic.layers`)::

    lag_new = f lag + p - p_old
    p_new   = 2 p - p_old - d (lag_new - lag) + A (lap(p) + e + w s / h^n)

So M has no stencil to itself: the lag is known at a point from its own pressures, and a step takes it further first
and takes d (lag_new - lag) from the older pressure; the rest is an acoustic step, with its layers, surface and images.
Where nothing is lost d is 0, and p is what acoustic waves have, to the bit.

All eigenvalues of a step are on the unit circle or inside, however the rock varies, where (dt / 2)^2 times the largest
one of the Laplacian times that of M for the fastest waves is at most 1: at a point M only ever takes energy.

M is a filter in time at each point and the Laplacian symmetric, so the transpose of all steps is the same loop in the
same variables, backward in time, with the transposes of what layers change. It takes energy as well, on its way back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import pi, prod, tan
from typing import Any

import numpy as np

from forebay.wave.acoustic.propagator import Acoustic, Antenna
from forebay.wave.earth.arrays import computable, returned
from forebay.wave.earth.folding import POINTS, folded
from forebay.wave.earth.grid import Grid
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import Physics, State, register
from forebay.wave.visco.kernels import ViscoKernels, kernels_of
from forebay.wave.visco.model import ViscoModel
from forebay.wave.visco.solid import LAGGING, excess_of, filter_of, filter_slopes


@dataclass(frozen=True, eq=False)
class Visco(Acoustic):
    """Carries pressure through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> arrays = (np.full((50, 60), value) for value in (2000.0, 1 / 30))
    >>> propagator = Visco(ViscoModel(*arrays, Grid((50, 60), spacing=10.0), frequency=15.0), dt=0.002)
    >>> source = propagator.antenna([(100, 300)])
    >>> state = propagator.step(propagator.zeros(), source, np.ones(1, np.float32))
    >>> sorted(state), state["lag"].shape
    (['lag', 'p', 'p_old', 'pml'], (98, 108))
    """

    model: ViscoModel  # type: ignore[assignment]  # acoustic waves ask for no more than it has
    kernels: ViscoKernels = field(init=False, repr=False)
    excess: Any = field(init=False, repr=False)
    """x - 1 on the grid of the fields, from which d and f follow; of a batch in several models for each shot"""
    tangents: Any = field(init=False, repr=False)
    """T, for each model of a batch where there are several"""

    def __post_init__(self) -> None:
        models: dict[Any, None] = dict.fromkeys(self.batch or (self.model,))
        super().__post_init__()
        excess = {each: self._excess(each) for each in models}
        several = self.batch if len(models) > 1 else ()
        stacked = np.stack([excess[each] for each in several]) if several else excess[self.model]
        tangents = np.array([self._tangent(each) for each in several or (self.model,)])
        object.__setattr__(self, "excess", self.kernels.put(stacked))
        object.__setattr__(self, "tangents", self.kernels.put(tangents))

    def _kernels(self, array: Any, dtype: np.dtype[Any]) -> ViscoKernels:
        return kernels_of(array, self.model.grid, self.halo, dtype, len(self.batch) or None)

    def _tangent(self, model: Any) -> float:
        return tan(pi * model.frequency * self.dt)

    def _squared(self, model: Any, rows: Rows, dtype: np.dtype[Any]) -> Any:
        velocity, attenuation = (computable(each).astype(np.float64) for each in (model.velocity, model.attenuation))
        squared = (velocity * self.dt) ** 2 * filter_of(attenuation, self._tangent(model))[0]
        return rows.pad(model.grid.extend(squared.astype(dtype), self.halo))

    def _excess(self, model: Any) -> Any:
        excess = excess_of(computable(model.attenuation).astype(np.float64)).astype(self.dtype)
        return self.rows.pad(model.grid.extend(excess, self.halo))

    @staticmethod
    def reference_frequency(model: Any) -> float:
        """Return the frequency at which velocity and attenuation hold."""
        return float(model.frequency)

    @staticmethod
    def state_shapes(grid: Grid, order: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the pressure, the one before it, the lag, and what layers remember."""
        return Acoustic.state_shapes(grid, order) | {LAGGING: grid.fields(order // 2)}

    def zeros(self) -> State:
        """Make a state in which nothing moves yet."""
        state = super().zeros()
        return state | {LAGGING: self.kernels.zeros(state["p"].shape)}

    def _step(self, state: State, antenna: Antenna, values: Any, back: bool) -> State:
        self.kernels.relax(self, state)
        return super()._step(state, antenna, values, back)

    scatterers = Physics.scatterers
    advance_scattered = Physics.advance_scattered

    @property
    def sensitive_fields(self) -> tuple[str, ...]:
        """The pressure and the lag."""
        return ("p", LAGGING)

    def sensitivity_sums(self) -> dict[str, Any]:
        """Make the sums of what all steps owe to the logarithm of A, and to d and f, for the latter two over -A."""
        return {name: self.kernels.zeros(self.zeros()["p"].shape) for name in ("squared", "loss", "fade")}

    def add_sensitivity(self, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int) -> None:
        """Add what the fields before a step owe to the medium.

        The strain of all steps, p_new - 2 p + p_old + d (lag_new - lag) over A, is paired with the adjoint's q_new. To
        A it owes what it does in acoustic waves. By parts, it owes d the product of the lag with q - q_old, those of a
        step back. The lag is a filter by f, so the derivative is that filter once more: of q, it is q's own lag, and f
        is owed d times the product of both lags.
        """
        super().add_sensitivity(sums, adjoint, record, step, every)
        if step < adjoint.loop.steps:
            self.kernels.sense(sums, adjoint.state, record[LAGGING], float(every))

    def gradient(self, sums: dict[str, Any], parameter: str) -> Any:
        """Return the derivatives with respect to "velocity" and "attenuation", whatever the parameter."""
        owed = [self.rows.cut(sums[name]) for name in ("squared", "loss", "fade")]
        if not self.batch:
            return self._slopes(self.model, owed)
        return [self._slopes(model, own) for model, own in zip(self.batch, zip(*owed, strict=True), strict=True)]

    def _slopes(self, model: Any, owed: Sequence[Any]) -> dict[str, Any]:
        """Fold sums, and turn them into derivatives with respect to the arrays of a model, some planes at a time."""
        grid, tangent = model.grid, self._tangent(model)
        above = self.halo if grid.free_surface else 0  # planes in which fields are mirrored, and nothing is computed

        def part(planes: slice) -> list[Any]:
            parts = [values[planes].astype(np.float64) for values in owed]
            for values in parts:
                values[: above - planes.start if planes.start < above else 0] = 0
            return parts

        of_squared, of_loss, of_fade = folded(grid, self.halo, part, self.kernels.dtype)
        thick = max(1, POINTS // prod(grid.shape[1:]))
        for start in range(0, grid.shape[0], thick):
            planes = slice(start, start + thick)
            arrays = (computable(each)[planes].astype(np.float64) for each in (model.velocity, model.attenuation))
            velocity, attenuation = arrays
            stiff, loss, _ = filter_of(attenuation, tangent)
            stiffer, more, slower = filter_slopes(attenuation, tangent)
            taken = (more * of_loss[planes] + loss * slower * of_fade[planes]) / (stiff * (velocity * self.dt) ** 2)
            of_loss[planes] = stiffer * of_squared[planes] - taken
            of_squared[planes] *= 2 / velocity
        return {
            "velocity": returned(of_squared, model.velocity),
            "attenuation": returned(of_loss, model.attenuation),
        }


register(ViscoModel, Visco)
