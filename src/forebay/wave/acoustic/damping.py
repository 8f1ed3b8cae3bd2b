"""Absorbing layers that damp waves on their way out and back, from one profile per axis.

In a layer the wave equation becomes (d/dt + sigma)^2 p = v^2 lap(p), whose waves fade as exp(-integral of sigma / v)
and keep their shape. In steps of time that is

    p_new = g (2 p - g p_old + (v dt)^2 lap(p)),    g = exp(-sigma dt),

with g a product of one factor per axis: nothing is kept for it in the state, no division is needed, the stable time
step stays what it was, and after division by g (v dt)^2 every operator in it is symmetric, so the transpose of a step
is the same step.
"""

import math

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.grid import Grid

RETURN = 5e-3
"""What is left of a wave at normal incidence after its way to the end of a layer and back."""
POWER = 2
"""How sigma grows with depth in the layer. A steeper onset reflects, a flatter one needs more at the end, which
reflects too; among 1.5 to 3, this one reflected least of a Ricker wavelet in layers of 2.5 to 4 wavelengths."""


def profiles(grid: Grid, halo: int, dt: float, fastest: float) -> list[NDArray[np.float64]]:
    """Return g along each axis, for a layer that meets `RETURN` at the largest velocity; slower waves fade more."""
    return [
        _profile(points, before, after, halo, fastest * dt / step)
        for points, (before, after), step in zip(grid.shape, grid.layers(), grid.spacing, strict=True)
    ]


def _profile(points: int, before: int, after: int, halo: int, courant: float) -> NDArray[np.float64]:
    """Return g along an axis, 1 inside the model and in the halo, where nothing is computed."""
    profile = np.ones(points + before + after + 2 * halo)
    for width, layer in ((before, slice(halo, halo + before)), (after, slice(-halo - after, -halo))):
        if width:
            end = (POWER + 1) * math.log(1 / RETURN) / 2 / width * courant  # sigma dt at the end of the layer
            fade = np.exp(-end * (np.arange(1, width + 1) / width) ** POWER)
            profile[layer] = fade[::-1] if layer.start == halo else fade
    return profile
