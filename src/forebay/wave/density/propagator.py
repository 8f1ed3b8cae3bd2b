"""Pressure in a medium of variable density, second order in time and of any even order in space, step by step.

In each step, with b = 1 / rho at half points, D the derivatives there of what lies at whole ones and E = -D^T those
back, s what the sources send, w their weights and h^n the volume of a cell::

    p_new = 2 p - p_old + rho (v dt)^2 (S E S b D p + w s / (rho h^n))

S adds to each value the memory of itself that absorbing layers have, at the whole points of an axis and at its half
ones (see `elastic.layers`): psi = beta psi + a F for a flux F = b D p, and zeta likewise for the derivative of those.

The state is the two fields p and p_old, and the memory of the layers. So a step reads p, p_old and both arrays of the
medium and writes one field, 20 bytes a point in float32, and a record is one field. Velocities and pressure on
staggered grids would give the same numbers, but move 11 or 14 fields a step, and keep three or four in a state.

The adjoint carries q = rho (v dt)^2 times the derivatives with respect to p. Since b and S are diagonal, its step has
E S b D S q in the place of S E S b D p: at whole points layers remember what is differentiated, not the derivative.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.arrays import computable, returned
from forebay.wave.earth.folding import folded
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import DensityModel
from forebay.wave.earth.stability import check_dt, resolving
from forebay.wave.elastic.layers import Layers, layers_of
from forebay.wave.elastic.stencil import first_derivative, staggered_symbol
from forebay.wave.kernels.rows import Rows
from forebay.wave.physics import State, register
from forebay.wave.survey.points import Points
from forebay.wave.sweeps.waves import SweepKernels, SweepWaves


@dataclass(frozen=True, eq=False)
class DensityAntenna:
    """Points bound to a propagator: where values enter a field, and by which factors."""

    points: Points
    factors: Any
    """(v dt)^2 at the touched cells; rho (v dt)^2 for the adjoint"""
    back: "DensityAntenna | None" = None
    """the same points, as the adjoint's"""


@dataclass(frozen=True, eq=False)
class Density(SweepWaves):
    """Carries pressure through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> shape = (50, 60)
    >>> model = DensityModel(np.full(shape, 2000.0), np.full(shape, 1000.0), Grid(shape, spacing=10.0))
    >>> propagator = Density(model, dt=0.002)
    >>> source = propagator.antenna([(100, 300)])
    >>> state = propagator.advance(propagator.zeros(), source, np.ones((1, 1), np.float32), [0])
    >>> sorted(state), state["p"].shape
    (['p', 'p_old', 'pml'], (98, 108))
    """

    model: DensityModel
    dt: float
    order: int = 8
    dtype: Any = np.float32
    kernels: SweepKernels = field(init=False, repr=False)
    rows: Rows = field(init=False, repr=False)
    """how the rows of fields lie in memory"""
    stiffness: Any = field(init=False, repr=False)
    """rho (v dt)^2 on the grid of the fields"""
    density: Any = field(init=False, repr=False)
    """rho there"""
    layers: Layers = field(init=False, repr=False)
    medium: ClassVar[str] = "a fluid"
    layers_of = staticmethod(layers_of)

    def __post_init__(self) -> None:
        model, grid, dtype, halo = self.model, self.model.grid, np.dtype(self.dtype), self.halo
        self.check_surface()
        check_dt(model, self.dt, self.order)
        velocity, density = computable(model.velocity), computable(model.density, "a density")
        kernels = kernels_of(velocity, grid, halo, dtype)
        rows, rho = kernels.rows, density.astype(np.float64)
        stiffness = rho * (velocity.astype(np.float64) * self.dt) ** 2
        derived = {
            "kernels": kernels,
            "rows": rows,
            "stiffness": kernels.put(rows.pad(grid.extend(stiffness.astype(dtype), halo))),
            "density": kernels.put(rows.pad(grid.extend(rho.astype(dtype), halo))),
            "layers": layers_of(grid, halo, self.dt, model.layer_velocity, replace(rows, word=1)).moved(kernels.put),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def largest_dt(model: DensityModel, order: int) -> float:
        """Return a stable time step, the largest one where the density is constant.

        No eigenvalue of the operator is above the largest sum of magnitudes in one of its rows (Gershgorin). They are
        at most rho v^2 |E| b |D| 1: at each point the weights of E times b around it, times the sum of those of D.
        """
        c, grid = np.abs(first_derivative(order)), model.grid
        rho, velocity = computable(model.density, "a density"), computable(model.velocity)
        total = np.zeros_like(rho, np.float64)
        for axis, spacing in enumerate(grid.spacing):
            along = np.moveaxis(rho, axis, 0).astype(np.float64)
            light = np.pad(2 / (along[:-1] + along[1:]), [(len(c), len(c)), *((0, 0) for _ in along.shape[1:])], "edge")
            points = len(along)
            around = sum(
                weight * (light[len(c) - 1 - k :][:points] + light[len(c) + k :][:points]) for k, weight in enumerate(c)
            )
            total += np.moveaxis(around, 0, axis) * (2 * c.sum() / spacing**2)
        worst = float((total * rho * velocity.astype(np.float64) ** 2).max())
        return 2 / math.sqrt(worst) * float(velocity.max()) / model.fastest

    @staticmethod
    def points_per_wavelength(order: int) -> float:
        """Return how many points the shortest wave needs."""
        return resolving(lambda angles: staggered_symbol(first_derivative(order), angles))

    def bound(self, points: Points, strength: Any) -> DensityAntenna:
        """Return an antenna of points, with that of the adjoint."""
        light = strength / self.density.reshape(-1)[points.touched]
        return DensityAntenna(points, light, DensityAntenna(points, strength))

    def returning(self, senders: DensityAntenna) -> DensityAntenna:
        """Return the same points with the factors of the adjoint."""
        assert senders.back is not None
        return senders.back

    def arrive(self, adjoint: Any, step: int, out: Any) -> None:
        """Take the adjoint to the end of a step, and read it at the sources without the density it carries."""
        adjoint.back_to(step + 1)
        points = adjoint.loop.sources.points
        light = replace(points, weights=points.weights / self.density.reshape(-1)[points.cells])
        self.kernels.gather(adjoint.state["p"], light, out)

    def sensitivity_sums(self) -> dict[str, Any]:
        """Make the sums of what all steps owe to the logarithm of the stiffness, and to the density of fluxes."""
        return {name: self.zeros()["p"] for name in ("stiffness", "density")}

    def add_sensitivity(self, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int) -> None:
        """Add what the fields before a step owe to the medium.

        To the logarithm of the stiffness they owe p times what the adjoint's step computes, as in `Acoustic`. To b they
        owe the product of D p with D S q, S included, so to the density at both sides of a half point half the product
        of b D p with the adjoint's flux. What sources send knows the velocity alone, so its part is taken off.
        """
        if step == adjoint.loop.steps:  # of the last fields nothing is heard
            return
        adjoint.back_to(step)
        p, state, scatter = record["p"], adjoint.state, self.kernels.scatter
        self.kernels.sense(self, sums, state, p, float(every))
        heard, sent = adjoint.loop.receivers.points, adjoint.loop.sources.points
        scatter(sums["stiffness"], heard, adjoint.sent[step], every * p.reshape(-1)[heard.touched])
        owed = state["p_old"].reshape(-1)[sent.touched] / self.density.reshape(-1)[sent.touched] ** 2
        scatter(sums["density"], sent, adjoint.loop.sent[step], -every * owed)

    def gradient(self, sums: dict[str, Any], parameter: str) -> dict[str, Any]:
        """Return the derivatives with respect to "velocity" and "density", whatever the parameter."""
        cut = self.rows.cut
        stiffness, rho = cut(self.stiffness), cut(self.density)
        of_stiffness, of_density = cut(sums["stiffness"]), cut(sums["density"])

        def part(planes: slice) -> list[Any]:
            heavy, owed = rho[planes].astype(np.float64), of_stiffness[planes]
            speed = np.sqrt(stiffness[planes] / heavy) / self.dt
            return [2 * owed / speed, owed / heavy + of_density[planes]]

        slopes = folded(self.model.grid, self.halo, part, self.kernels.dtype)
        return dict(zip(("velocity", "density"), (returned(each, self.model.velocity) for each in slopes), strict=True))


def kernels_of(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any]) -> SweepKernels:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(array, np.ndarray):
        from forebay.wave.density.gpu import DensityGpuKernels  # it needs a GPU

        return DensityGpuKernels(grid, radius, dtype)
    from forebay.wave.density.cpu import DensityCpuKernels  # compiled when it is needed

    return DensityCpuKernels(grid, radius, dtype)


register(DensityModel, Density)
