"""Absorbing layers of elastic waves: all fields fade alike, by one profile per axis.

In a layer the equations become (d/dt + sigma) v = div(t) / rho and (d/dt + sigma) t = C strain(v). Impedances stay what
they were: a wave that enters at a right angle is damped without being reflected, as in a perfectly matched layer, of
which this is the form in one dimension; a slanting one is reflected a little where sigma changes. In steps of time

    v_new = g (g v + dt div(t) / rho),    t_new = g (g t + dt C strain(v_new)),    g = exp(-sigma dt / 2),

so nothing is kept for the layers in the state, and a step of the adjoint is the same step (see `propagator`). A matched
layer would keep a memory variable for each derivative, eight in two dimensions and eighteen in three; what it would do
better are waves that run along it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.grid import Grid

RETURN = 1e-2
"""What is left of a plane pressure wave at normal incidence after its way to the end of a layer and back."""
POWER = 3
"""How sigma grows with depth in the layer. Layers of one and two wavelengths were tried with powers of 2 to 4 and
returns of 0.03 to 0.001: this pair was among the best at normal incidence, at 45 degrees and along the layer."""


def factors(grid: Grid, halo: int, dt: float, fastest: float) -> list[NDArray[np.float64]]:
    """Return g along each axis at whole points, then at half points, axis after axis."""
    factors_of_axes = []
    for points, (before, after), step in zip(grid.shape, grid.layers(), grid.spacing, strict=True):
        place = np.arange(points + before + after + 2 * halo) - float(halo + before)
        for offset in (0.0, 0.5):
            sigma = np.zeros(len(place))
            for width, beyond in ((before, -place - offset), (after, place + offset - (points - 1))):
                if width:
                    end = (POWER + 1) * math.log(1 / RETURN) / 2 / width * fastest / step
                    sigma += end * np.clip(beyond / width, 0, 1) ** POWER
            factors_of_axes.append(np.exp(-sigma * dt / 2))
    return factors_of_axes
