"""Whether a time step is stable, and step and grid are fine enough, asked before the first step.

Plane waves travel at v a b. Stencils in space give a <= 1, the less the fewer points a wavelength has; differences in
time give b = (omega dt / 2) / sin(omega dt / 2), about 1 + (omega dt)^2 / 24, whatever the velocity. One makes waves
late and the other early: where each is within `TOLERANCE` of 1, so is their product.

A modulus that depends on the frequency is exact at a reference frequency. Steps of `accurate_dt` of that one take other
frequencies for ones that differ by 2 `TOLERANCE` at most, see `visco.solid`.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.physics import EarthModel, physics_of

TOLERANCE = 0.005
"""The largest error of the phase velocity, relative, at the wavelet's highest frequency."""
SAFETY = 0.95
"""How much of the largest stable time step is taken where the choice is ours."""


def largest_dt(model: EarthModel, order: int = 8) -> float:
    """Return the largest stable time step: waves of all wavelengths that the grid holds neither grow nor decay."""
    return physics_of(model).largest_dt(model, order)


def resolving(wavenumber: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """Return how many points a wavelength needs for a phase velocity within `TOLERANCE`.

    Parameters
    ----------
    wavenumber
        What a stencil takes waves for that advance by given angles, in radians, from one point to the next.
    """
    angles = np.linspace(1e-3, math.pi, 4000)
    good = np.abs(wavenumber(angles) / angles - 1) <= TOLERANCE
    last = int(np.argmin(good)) - 1 if not good.all() else len(angles) - 1
    return float(2 * math.pi / angles[last])


def accurate_dt(frequency: float) -> float:
    """Return the largest time step with which waves of a frequency are no more than `TOLERANCE` too fast.

    Examples
    --------
    >>> round(accurate_dt(40.0), 5)
    0.00138
    """
    return math.sqrt(24 * TOLERANCE) / (2 * math.pi * frequency) if frequency > 0 else math.inf


def choose_dt(model: EarthModel, sampling: float, frequency: float, order: int = 8) -> float:
    """Return the sampling interval of data where it is stable and fine enough, or its largest whole part that is."""
    # Beyond what data of this sampling can hold a reference frequency is a mistake, which `check_dt` refuses.
    reference = min(physics_of(model).reference_frequency(model), 0.5 / sampling)
    accurate = accurate_dt(max(frequency, reference))
    return sampling / math.ceil(sampling / min(SAFETY * largest_dt(model, order), accurate))


def check_dt(model: EarthModel, dt: float, order: int = 8, frequency: float = 0.0) -> None:
    """Refuse a time step with which waves would grow without end, be too fast, or be lost by a wrong part."""
    stable, accurate = largest_dt(model, order), accurate_dt(frequency)
    reference = physics_of(model).reference_frequency(model)
    holding = accurate_dt(reference)
    works = f"take dt of at most {_below(min(stable, accurate, holding)):.4g} s"
    if not 0 < dt <= stable:
        raise WaveError(
            f"a time step of {dt:.6g} s is unstable (CFL) at {model.fastest:.6g} m/s on a spacing of "
            f"{_metres(model.grid)} with order {order}: {works}"
        )
    if dt > accurate * (1 + 1e-9):
        raise WaveError(
            f"with a time step of {dt:.6g} s waves of {frequency:.4g} Hz are {TOLERANCE * (dt / accurate) ** 2:.2%} "
            f"too fast, and {TOLERANCE:.1%} is allowed: {works}, or a wavelet of at most "
            f"{_below(frequency * accurate / dt):.4g} Hz"
        )
    if dt > holding * (1 + 1e-9):
        raise WaveError(
            f"steps of {dt:.6g} s do not hold a reference frequency of {reference:.6g} Hz: at others attenuation would "
            f"be more than {2 * TOLERANCE:.0%} wrong: {works}, or a reference frequency of at most "
            f"{_below(reference * holding / dt):.4g} Hz, such as the wavelet's"
        )


def check_dispersion(model: EarthModel, frequency: float, order: int = 8) -> None:
    """Refuse a grid on which the wavelet's highest frequency would travel at a wrong speed."""
    if frequency <= 0:
        return  # nothing is sent
    needed = physics_of(model).points_per_wavelength(order)
    shortest, widest = model.slowest / frequency, max(model.grid.spacing)
    if shortest < needed * widest:
        raise WaveError(
            f"at {frequency:.4g} Hz the shortest wave ({shortest:.4g} m, at {model.slowest:.6g} m/s) has "
            f"{shortest / widest:.2f} points of {widest:.6g} m; order {order} needs {needed:.2f} against dispersion: "
            f"take a spacing of at most {_below(shortest / needed):.4g} m, or a wavelet of at most "
            f"{_below(model.slowest / needed / widest):.4g} Hz"
        )


def _metres(grid: Grid) -> str:
    return " x ".join(f"{step:.6g}" for step in grid.spacing) + " m"


def _below(value: float) -> float:
    """Round down to four digits, so that what a message names works."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 3)
    return math.floor(value / scale) * scale
