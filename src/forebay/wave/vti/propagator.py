"""Pressure in rock that is transversely isotropic with a vertical axis (VTI), second order in time, step by step.

With p the horizontal and q the vertical stress, K = (v dt)^2, t = sqrt(1 + 2 delta), and what an axis differentiates
twice, layers included (see `acoustic.layers`), p_xx + p_yy = H and q_zz = Z, the waves of Duveneck, Milcik, Bakker and
Perkins ("Acoustic VTI wave equations and their application for anisotropic reverse-time migration", SEG 2008) are

    v_new = 2 v - v_old + (H + w s / h^n, Z),    (p, q) = K C v,    C = (1 + 2 epsilon, t; t, 1),

with v the strains, s what the sources send, w their weights and h^n the volume of a cell. C is positive semidefinite
where epsilon >= delta. Both derivatives are symmetric and negative, so nothing grows, however the rock varies.

Stresses alone would be no state from which a gradient could follow: where epsilon = delta, C has no inverse. Strains
alone would put a product into every stencil. The state is p and the vertical strain r, from which all else follows at a
point, epsilon = delta or not. With A = K (1 + 2 epsilon), S = t / (1 + 2 epsilon) and B = K - A S^2:

    q = S p + B r,
    p_new = 2 p - p_old + A (H + S Z + w s / h^n),    r_new = 2 r - r_old + Z.

So depth alone differentiates a sum of products. A step reads both fields, the older ones, A, S and B, and writes two
fields: 36 bytes a point in float32. In isotropic rock S = 1, B = 0, q = p, and p is what acoustic waves have.

With p heard, the transpose of all steps is the same loop in the same variables, backward in time, with the transposes
of what layers change, and with what receivers send back in the place of the sources.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from forebay.errors import WaveError
from forebay.wave.acoustic.layers import coefficients_of
from forebay.wave.acoustic.propagator import Acoustic, Antenna
from forebay.wave.earth.arrays import returned
from forebay.wave.earth.cpml import stretchings
from forebay.wave.earth.folding import folded
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import VTIModel
from forebay.wave.earth.stability import check_dt
from forebay.wave.elastic.layers import Layers
from forebay.wave.kernels.rows import Rows
from forebay.wave.kernels.stencil import second_derivative, symbol
from forebay.wave.physics import State, register
from forebay.wave.survey.points import Points
from forebay.wave.sweeps.waves import SweepKernels, SweepWaves
from forebay.wave.vti.fields import FIELDS, SUMS


def layers_of(grid: Grid, halo: int, dt: float, velocity: float, rows: Rows) -> Layers:
    """Find the layers of a grid in its fields, with coefficients at points and at the half points before them."""
    shape, ends, a, b = rows.shape(grid.fields(halo)), [], list[Any](), list[Any]()
    for axis, stretched in enumerate(stretchings(grid, dt, velocity)):
        before, after = grid.layers()[axis]
        first = halo + (rows.before if axis == grid.ndim - 1 else 0)
        last = first + len(stretched.a)
        ends.append((first, first + before, last - after, last))
        whole_a, whole_b, half_a, half_b = coefficients_of(stretched, before, after)
        around = [(0, 0), (first, shape[axis] - last)]
        a.append(np.pad(np.stack([whole_a, half_a]), around))
        b.append(np.pad(np.stack([whole_b, half_b]), around))
    return Layers(shape, tuple(ends), tuple(a), tuple(b), ())


@dataclass(frozen=True, eq=False)
class VTI(SweepWaves):
    """Carries pressure through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> arrays = (np.full((50, 60), value) for value in (2000.0, 0.2, 0.1))
    >>> propagator = VTI(VTIModel(*arrays, Grid((50, 60), spacing=10.0)), dt=0.002)
    >>> source = propagator.antenna([(100, 300)])
    >>> state = propagator.advance(propagator.zeros(), source, np.ones((1, 1), np.float32), [0])
    >>> sorted(state), state["p"].shape
    (['p', 'p_old', 'pml', 'r', 'r_old'], (98, 108))
    """

    model: VTIModel
    dt: float
    order: int = 8
    dtype: Any = np.float32
    kernels: SweepKernels = field(init=False, repr=False)
    rows: Rows = field(init=False, repr=False)
    """how the rows of fields lie in memory"""
    stiffness: Any = field(init=False, repr=False)
    """A on the grid of the fields"""
    share: Any = field(init=False, repr=False)
    """S there: how much of the horizontal stress the vertical one has"""
    excess: Any = field(init=False, repr=False)
    """B there: by how much strain adds to that"""
    layers: Layers = field(init=False, repr=False)
    fields: ClassVar[tuple[str, ...]] = FIELDS
    medium: ClassVar[str] = "a VTI model"
    layers_of = staticmethod(layers_of)

    def __post_init__(self) -> None:
        self.check_surface()
        check_dt(self.model, self.dt, self.order)
        self._place(kernels_of(self.model.arrays[0], self.model.grid, self.halo, np.dtype(self.dtype)))

    def _place(self, kernels: Any) -> None:
        """Bring what follows from the model to where the kernels work."""
        model, grid, halo = self.model, self.model.grid, self.halo
        velocity, epsilon, delta = (values.astype(np.float64) for values in model.arrays)
        squared, wide = (velocity * self.dt) ** 2, 1 + 2 * epsilon
        derived = {
            "kernels": kernels,
            "rows": kernels.rows,
            "layers": self.layers_of(grid, halo, self.dt, model.layer_velocity, kernels.rows).moved(kernels.put),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        medium = {
            "stiffness": squared * wide,
            "share": np.sqrt(1 + 2 * delta) / wide,
            "excess": 2 * squared * (epsilon - delta) / wide,
        }
        for name, values in medium.items():
            object.__setattr__(self, name, self._placed(values))

    def _placed(self, values: Any) -> Any:
        """Continue values of the model through layers and halo, where the kernels work."""
        return self.kernels.put(self.rows.pad(self.model.grid.extend(values.astype(self.dtype), self.halo)))

    @staticmethod
    def largest_dt(model: VTIModel, order: int) -> float:
        """Return a stable time step; with `max_vel` one for all models whose waves are not faster.

        With D the largest eigenvalues of both derivatives, no eigenvalue of a step is above the largest one of K C D at
        any point, since C and what is differentiated are semidefinite. That is below its trace.
        """
        steepest = -float(symbol(second_derivative(order), math.pi))
        down, *across = (steepest / step**2 for step in model.grid.spacing)
        if model.max_vel is not None:
            return 2 / (model.fastest * math.sqrt(down + sum(across)))
        velocity, epsilon, delta = (values.astype(np.float64) for values in model.arrays)
        trace = (1 + 2 * epsilon) * sum(across) + down
        root = np.sqrt(np.maximum(trace**2 - 8 * (epsilon - delta) * sum(across) * down, 0))
        return 2 / math.sqrt(float((velocity**2 * (trace + root) / 2).max()))

    @staticmethod
    def points_per_wavelength(order: int) -> float:
        """Return how many points the shortest wave needs: as many as an acoustic one."""
        return Acoustic.points_per_wavelength(order)

    def bound(self, points: Points, strength: Any) -> Antenna:
        """Return an antenna of points."""
        return Antenna(points, strength)

    @property
    def sensitive_fields(self) -> tuple[str, ...]:
        """The pressure and the vertical strain, from which all stresses and strains follow."""
        return ("p", "r")

    def sensitivity_sums(self) -> dict[str, Any]:
        """Make the sums of what all steps owe to the elements of K C."""
        return {name: self.kernels.zeros(self.stiffness.shape) for name in SUMS}

    def add_sensitivity(self, sums: dict[str, Any], adjoint: Any, record: State, step: int, every: int) -> None:
        """Add what the fields before a step owe to the model.

        The stresses of a step are K C v, and the adjoint's step sums up what is owed to each: H and Z of its own
        fields, and what receivers send. So to the logarithm of K it owes the products of those with the stresses, and
        to the elements of K C in which epsilon and delta are, the products with the strains v.
        """
        if step == adjoint.loop.steps:  # of the last fields nothing is heard
            return
        adjoint.back_to(step)
        self.kernels.sense(self, sums, adjoint.state, record, float(every))
        points, sent = adjoint.loop.receivers.points, adjoint.sent[step]
        p, down, hard, share = (
            values.reshape(-1)[points.touched] for values in (record["p"], record["r"], self.stiffness, self.share)
        )
        moved = self._moving(points.touched) * down
        self.kernels.scatter(sums["horizontal"], points, sent, every * (p / hard - share * moved))
        self.kernels.scatter(sums["mixed"], points, sent, every * moved)
        self.kernels.scatter(sums["stiffness"], points, sent, every * p)

    def _moving(self, cells: Any) -> Any:
        """Return how much of its motion an axial strain keeps from step to step at cells."""
        return 1.0

    def gradient(self, sums: dict[str, Any], parameter: str) -> dict[str, Any]:
        """Return the derivatives with respect to "velocity", "epsilon" and "delta", whatever the parameter."""
        cut = self.rows.cut
        medium, owed = (self.stiffness, self.share, self.excess), [sums[name] for name in SUMS]

        def part(planes: slice) -> list[Any]:
            hard, share, excess = (cut(values)[planes].astype(np.float64) for values in medium)
            horizontal, mixed, stiffness = (cut(values)[planes] for values in owed)
            squared = excess + hard * share**2
            speed, root = np.sqrt(squared) / self.dt, hard * share / squared
            return [2 / speed * stiffness, 2 * squared * horizontal, squared / root * mixed]

        slopes = folded(self.model.grid, self.halo, part, self.kernels.dtype)
        names = ("velocity", "epsilon", "delta")
        return dict(zip(names, (returned(each, self.model.velocity) for each in slopes), strict=True))


def kernels_of(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any]) -> SweepKernels:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(array, np.ndarray):
        from forebay.wave.vti.gpu import VTIGpuKernels  # it needs a GPU

        return VTIGpuKernels(grid, radius, dtype)
    from forebay.wave.vti.cpu import VTICpuKernels  # compiled when it is needed

    return VTICpuKernels(grid, radius, dtype)


register(VTIModel, VTI)
