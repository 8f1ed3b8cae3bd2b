"""Pressure in rock that is transversely isotropic about a tilted axis (TTI), second order in time, step by step.

Fields are those of VTI waves (see `vti.propagator`): with n the symmetry axis, p is the stress across n, q that along
it, and the strains are v. With L the Laplacian, of one stencil of the second derivative an axis, and D_i the central
first derivatives at the points themselves, what the strains take up in a step is, without layers,

    N q = sum_ij D_i n_i n_j D_j q,    H p = L p - N p,    v_new = 2 v - v_old + (H p + w s / h^n, N q).

N is symmetric and negative, since D_i is antisymmetric. So is H, wherever n points: stencil by stencil -L is at least
-sum_i D_i D_i, and n has length 1. As (p, q) = K C v with C symmetric and positive, nothing grows, however n varies,
and the transpose of all steps is the same loop. Waves that alternate from point to point, which central derivatives do
not see, move by L: N gives strains nothing that it does not see itself. In isotropic rock q = p, and N drops out.

In layers each derivative is stretched, S_i to each (see `earth.cpml`), with M_i = S_i - 1:

    N q = sum_ij S_i D_i n_i n_j S_j D_j q,    H p = sum_i S_i (L_i p + D_i M_i D_i p) - N p,

so that u = sum_j n_j S_j D_j p is one slope, and four values are remembered of a point and axis. Transposed, the
derivatives are those of S_i p, and what is remembered in between is that of fluxes, n_i u - D_i p and n_i u.

Matched layers let the slow shear waves of pseudo-acoustic rock grow where phases run against energy, which they do once
the axis tilts. There the strain along n fades as it moves, which pressure waves feel by epsilon - delta alone:

    r_new = r + g (r - r_old) + N q.

To that p takes no part, so the strain across n moves by S (1 - g) (r - r_old) more, with S of VTI waves: gradients know
of S there.

A step moves 100 bytes a point in float32: a field of axial stresses, and two of slopes, go from sweep to sweep.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import VTIModel
from forebay.wave.earth.stability import check_dt, resolving
from forebay.wave.earth.tilted import TTIModel
from forebay.wave.elastic.layers import Layers
from forebay.wave.kernels.rows import Rows
from forebay.wave.kernels.stencil import central_derivative, second_derivative, symbol
from forebay.wave.physics import register
from forebay.wave.sweeps.waves import SweepKernels
from forebay.wave.vti import propagator as vti

EASING = 14.0
"""How fast axial strains fade at the end of a layer, times its width over the velocity it is made for."""
EASED = 20
"""Points of that width at most: where wider layers faded as slowly as they are wide, waves grew in one of 60 points."""
ANISOTROPY = 0.3
"""Up to which epsilon and delta the check against dispersion holds."""


def layers_of(grid: Grid, halo: int, dt: float, velocity: float, rows: Rows) -> Layers:
    """Find the layers of a grid in its fields, with g beside the coefficient a at points."""
    layers, eased = vti.layers_of(grid, halo, dt, velocity, rows), []
    for axis, ((first, low, high, last), a) in enumerate(zip(layers.ends, layers.a, strict=True)):
        place, deep = np.arange(a.shape[1]), np.zeros(a.shape[1])
        for width, beyond in ((low - first, low - place), (last - high, place - high + 1)):
            if width:
                deep += np.clip(beyond / width, 0, 1) / (min(width, EASED) * grid.spacing[axis])
        eased.append(np.stack([a[0], np.exp(-EASING * velocity * dt * deep)]))
    return replace(layers, a=tuple(eased))


@dataclass(frozen=True, eq=False)
class TTI(vti.VTI):
    """Carries pressure through a model in steps of `dt`; refuses an unstable one.

    Examples
    --------
    >>> from forebay.wave import Grid
    >>> velocity, *others = (np.full((50, 60), value) for value in (2000.0, 0.2, 0.1))
    >>> model = TTIModel(velocity, *others, Grid((50, 60), spacing=10.0), tilt=np.full((50, 60), 0.5))
    >>> propagator = TTI(model, dt=0.002)
    >>> source = propagator.antenna([(100, 300)])
    >>> state = propagator.advance(propagator.zeros(), source, np.ones((1, 1), np.float32), [0])
    >>> sorted(state), state["p"].shape
    (['p', 'p_old', 'pml', 'r', 'r_old'], (98, 108))
    """

    model: TTIModel
    axis: Any = field(init=False, repr=False)
    """n on the grid of the fields, its parts one after the other"""
    memories: ClassVar[int] = 4
    medium: ClassVar[str] = "a TTI model"
    layers_of = staticmethod(layers_of)

    def __post_init__(self) -> None:
        self.check_surface()
        check_dt(self.model, self.dt, self.order)
        kernels = kernels_of(self.model.arrays[0], self.model.grid, self.halo, np.dtype(self.dtype))
        self._place(kernels)
        parts = [self._placed(part) for part in self.model.axis]
        axis = kernels.zeros((len(parts), *parts[0].shape))
        for number, part in enumerate(parts):
            axis[number] = part
        object.__setattr__(self, "axis", axis)

    def _moving(self, cells: Any) -> Any:
        kept, stride = 1.0, 1
        for extent, a in zip(reversed(self.layers.fields), reversed(self.layers.a), strict=True):
            kept = kept * a[1][cells // stride % extent]
            stride *= extent
        return kept

    @staticmethod
    def largest_dt(model: VTIModel, order: int) -> float:
        """Return a stable time step; with `max_vel` one for all models whose waves are not faster.

        With B B^T = K C at a point, no eigenvalue of a step is above the largest one at any point of any of these:

        - B^T (l, 0; 0, c) B, with l and c the largest eigenvalues of -L and -sum_i D_i D_i;
        - l B^T (q q^T (1 + f) + (p - q) (p - q)^T (1 + 1 / f)) B, for any number f: stresses that are alike are taken
          up as by L, and the rest goes through H alone.
        """
        steepest = -float(symbol(second_derivative(order), math.pi))
        central = float(central_symbol(order, np.linspace(0, math.pi, 10_001)).max()) ** 2 * (1 + 1e-6)
        across, along = (sum(most / step**2 for step in model.grid.spacing) for most in (steepest, central))
        if model.max_vel is not None:
            return 2 / (model.fastest * math.sqrt(across + along))
        velocity, epsilon, delta = (values.astype(np.float64) for values in model.arrays)
        squared, apart = velocity**2, 2 * (epsilon - delta)
        trace = (1 + 2 * epsilon) * across + along
        root = np.sqrt(np.maximum(trace**2 - 4 * apart * across * along, 0))
        simple = float((squared * (trace + root) / 2).max())
        unlike = (np.sqrt(1 + 2 * delta) - 1) ** 2
        # The best number where all is the same and either delta or epsilon - delta is 0, and about that elsewhere.
        f = float((squared * (np.sqrt(unlike) + apart)).max() / squared.max())
        if f == 0:
            return 2 / math.sqrt(min(simple, across * float(squared.max())))
        trace = (1 + f) + (1 + 1 / f) * (unlike + apart)
        root = np.sqrt(np.maximum(trace**2 - 4 * (1 + f) * (1 + 1 / f) * apart, 0))
        return 2 / math.sqrt(min(simple, across * float((squared * (trace + root) / 2).max())))

    @staticmethod
    def points_per_wavelength(order: int) -> float:
        """Return how many points the shortest wave needs, in rock whose anisotropies are up to `ANISOTROPY`.

        In elliptical rock squared velocities are those of L and, by 2 epsilon of them, those that D takes from it. No
        wave is worse: along n, with delta in the place of epsilon, the difference of both goes the other way.
        """

        def wavenumber(angles: Any) -> Any:
            bent = -symbol(second_derivative(order), angles)
            return np.sqrt(np.maximum(bent + 2 * ANISOTROPY * (bent - central_symbol(order, angles) ** 2), 0))

        return resolving(wavenumber)


def central_symbol(order: int, angle: Any) -> Any:
    """Return what a central derivative multiplies a plane wave by, over i, for radians from one point to the next."""
    first = central_derivative(order)
    return 2 * np.sin(np.multiply.outer(angle, np.arange(1, len(first) + 1))) @ first


def kernels_of(array: Any, grid: Grid, radius: int, dtype: np.dtype[Any]) -> SweepKernels:
    """Choose the kernels by where the arrays of a model are."""
    if dtype not in (np.float32, np.float64):
        raise WaveError(f"waves of type {dtype}: take float32 or float64")
    if not isinstance(array, np.ndarray):
        from forebay.wave.tti.gpu import TTIGpuKernels  # it needs a GPU

        return TTIGpuKernels(grid, radius, dtype)
    from forebay.wave.tti.cpu import TTICpuKernels  # compiled when it is needed

    return TTICpuKernels(grid, radius, dtype)


register(TTIModel, TTI)
