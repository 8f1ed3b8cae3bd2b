"""Whether a time step is stable, and step and grid are fine enough, asked before the first step.

Plane waves travel at v a b. Stencils in space give a <= 1, the less the fewer points a wavelength has; differences in
time give b = (omega dt / 2) / sin(omega dt / 2), about 1 + (omega dt)^2 / 24, whatever the velocity. One makes waves
late and the other early: where each is within `TOLERANCE` of 1, so is their product.
"""

import math

import numpy as np

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import ElasticModel, Model
from forebay.wave.elastic.medium import stiffest
from forebay.wave.elastic.stencil import first_derivative, staggered_symbol, steepest
from forebay.wave.kernels.stencil import second_derivative, symbol

TOLERANCE = 0.005
"""The largest error of the phase velocity, relative, at the wavelet's highest frequency."""
SAFETY = 0.95
"""How much of the largest stable time step is taken where the choice is ours."""


def largest_dt(model: Model, order: int = 8) -> float:
    """Give the largest stable time step: waves of all wavelengths that the grid holds neither grow nor decay.

    The second difference in time can follow eigenvalues of the Laplacian down to -4 / (velocity dt)^2; its lowest is
    that of the wave which changes its sign from each point to the next along every axis. Of an elastic model that is a
    pressure wave.
    """
    if isinstance(model, ElasticModel):
        slopes = [steepest(order, model.grid.free_surface and axis == 0) for axis in range(model.grid.ndim)]
        worst = sum((slope / step) ** 2 for slope, step in zip(slopes, model.grid.spacing, strict=True))
        return 2 / (stiffest(model) * math.sqrt(worst))
    worst = -float(symbol(second_derivative(order), math.pi)) * sum(step**-2 for step in model.grid.spacing)
    return 2 / (model.fastest * math.sqrt(worst))


def points_per_wavelength(order: int, *, staggered: bool = False) -> float:
    """Give how many points a wavelength needs for a phase velocity within `TOLERANCE`.

    Examples
    --------
    >>> [round(points_per_wavelength(order), 1) for order in (2, 4, 8, 16)]
    [18.1, 6.3, 3.8, 2.9]
    """
    angles = np.linspace(1e-3, math.pi, 4000)
    if staggered:
        phase = staggered_symbol(first_derivative(order), angles) / angles
    else:
        phase = np.sqrt(np.maximum(-symbol(second_derivative(order), angles), 0)) / angles
    good = np.abs(phase - 1) <= TOLERANCE
    last = int(np.argmin(good)) - 1 if not good.all() else len(angles) - 1
    return float(2 * math.pi / angles[last])


def accurate_dt(frequency: float) -> float:
    """Give the largest time step with which waves of a frequency are no more than `TOLERANCE` too fast.

    Examples
    --------
    >>> round(accurate_dt(40.0), 5)
    0.00138
    """
    return math.sqrt(24 * TOLERANCE) / (2 * math.pi * frequency) if frequency > 0 else math.inf


def choose_dt(model: Model, sampling: float, frequency: float, order: int = 8) -> float:
    """Give the sampling interval of data where it is stable and fine enough, or its largest whole part that is."""
    return sampling / math.ceil(sampling / min(SAFETY * largest_dt(model, order), accurate_dt(frequency)))


def check_dt(model: Model, dt: float, order: int = 8, frequency: float = 0.0) -> None:
    """Refuse a time step with which waves would grow without end, or those of a frequency would be too fast."""
    stable, accurate = largest_dt(model, order), accurate_dt(frequency)
    works = f"take dt of at most {_below(min(stable, accurate)):.4g} s"
    if not 0 < dt <= stable:
        raise WaveError(
            f"a time step of {dt:.6g} s is unstable at {model.fastest:.6g} m/s on a spacing of "
            f"{_metres(model.grid)} with order {order}: {works}"
        )
    if dt > accurate * (1 + 1e-9):
        raise WaveError(
            f"with a time step of {dt:.6g} s waves of {frequency:.4g} Hz are {TOLERANCE * (dt / accurate) ** 2:.2%} "
            f"too fast, and {TOLERANCE:.1%} is allowed: {works}, or a wavelet of at most "
            f"{_below(frequency * accurate / dt):.4g} Hz"
        )


def check_dispersion(model: Model, frequency: float, order: int = 8) -> None:
    """Refuse a grid on which the wavelet's highest frequency would travel at a wrong speed."""
    if frequency <= 0:
        return  # nothing is sent
    needed = points_per_wavelength(order, staggered=isinstance(model, ElasticModel))
    shortest, widest = model.slowest / frequency, max(model.grid.spacing)
    if shortest < needed * widest:
        raise WaveError(
            f"at {frequency:.4g} Hz the shortest wave ({shortest:.4g} m, at {model.slowest:.6g} m/s) has "
            f"{shortest / widest:.2f} points of {widest:.6g} m; order {order} needs {needed:.2f}: take a spacing of at "
            f"most {_below(shortest / needed):.4g} m, or a wavelet of at most "
            f"{_below(model.slowest / needed / widest):.4g} Hz"
        )


def _metres(grid: Grid) -> str:
    return " x ".join(f"{step:.6g}" for step in grid.spacing) + " m"


def _below(value: float) -> float:
    """Round down to four digits, so that what a message names works."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 3)
    return math.floor(value / scale) * scale
