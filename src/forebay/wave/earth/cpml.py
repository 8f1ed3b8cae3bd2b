"""Convolutional perfectly matched layers: how the coordinates of an axis are stretched around a model.

In a layer every derivative along its axis is divided by s = 1 + sigma / (alpha + i omega). Waves then fade on their way
out and back, at every angle and frequency, and nothing is reflected where the layer begins. Over time the division is
a convolution (Roden and Gedney, 2000), for which one number is remembered: of f in steps of dt,

    f / s = f + memory,    memory = b memory + a f,

with b = exp(-(sigma + alpha) dt) and a = sigma / (sigma + alpha) (b - 1).

Sigma grows with the depth in the layer; alpha falls from its beginning to its end, so that waves which graze the
layer, or are longer than it is wide, neither stay nor grow in it. Both scale with one velocity, which must not follow
from single values of a model: data would then change by what no wave has reached.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.arrays import computable
from forebay.wave.earth.grid import Grid

RETURN = 1e-5
"""What is left of a wave at normal incidence, of the velocity that layers are made for, on its way to a layer's end and
back. Ten times more or less changed reflections of a Ricker wavelet by a half."""
POWER = 3
"""How sigma grows with the depth in the layer. In layers of 20 points 2, 3 and 4 reflected 3e-5, 2e-6 and 2e-7; in
layers of 10, which are too thin for steeper ends, 3 and 4 reflected 9e-4 and 2e-3."""
LONGEST = 1.5
"""The wave to whose frequency alpha belongs where the layer begins, in widths of the layer."""


@dataclass(frozen=True, eq=False)
class Stretching:
    """The coefficients of one axis at its computed points, 0 where nothing is stretched.

    Examples
    --------
    >>> axis = stretching(points=4, before=2, after=3, spacing=10.0, dt=0.001, velocity=2000.0)
    >>> axis.a.shape, axis.half_a.shape, axis.a[2:6].tolist()
    ((9,), (10,), [0.0, 0.0, 0.0, 0.0])
    """

    a: NDArray[np.float64]
    """at the points; not above 0"""
    b: NDArray[np.float64]
    """at the points; below 1"""
    half_a: NDArray[np.float64]
    """half a point before each, and half a point after the last"""
    half_b: NDArray[np.float64]


def stretchings(grid: Grid, dt: float, velocity: float) -> list[Stretching]:
    """Return the stretching of each axis of a grid, for steps of dt and a velocity that layers are made for."""
    return [
        stretching(points, before, after, step, dt, velocity)
        for points, (before, after), step in zip(grid.shape, grid.layers(), grid.spacing, strict=True)
    ]


def stretching(points: int, before: int, after: int, spacing: float, dt: float, velocity: float) -> Stretching:
    """Return the stretching of an axis with layers of some points before and after those of the model."""
    count = before + points + after
    places = np.arange(count), np.arange(count + 1) - 0.5
    pairs = []
    for place in places:
        a, b = np.zeros(len(place)), np.zeros(len(place))
        for width, depth in ((before, before - place), (after, place - (before + points - 1))):
            inside = depth > 0
            if width:
                a[inside], b[inside] = _pair(np.minimum(depth[inside] / width, 1), width * spacing, dt, velocity)
        pairs.append((a, b))
    return Stretching(*pairs[0], *pairs[1])


def _pair(depth: NDArray[np.float64], width: float, dt: float, velocity: float) -> tuple[Any, Any]:
    """Return a and b at depths, of 1 at a layer's end, in a layer so many metres wide."""
    sigma = (POWER + 1) * math.log(1 / RETURN) * velocity / (2 * width) * depth**POWER
    alpha = math.pi * velocity / (LONGEST * width) * (1 - depth)
    b = np.exp(-(sigma + alpha) * dt)
    return sigma / (sigma + alpha) * (b - 1), b


def velocity_of_layers(velocity: Any) -> float:
    """Return the velocity that layers are made for: a power of two, within 1.5 to 3 times a model's mean.

    Layers absorb waves of half and of twice that velocity about as well. What single cells hold does not reach it.

    Examples
    --------
    >>> velocity_of_layers(np.full((50, 60), 1500.0)), velocity_of_layers(np.linspace(1500.0, 4500.0, 100))
    (4096.0, 8192.0)
    """
    values = computable(velocity)
    if isinstance(values, np.ndarray):
        mean = float(values.mean(dtype=np.float64))
    else:  # sums of one type are there; CuPy would compile one that converts for four seconds
        mean = float(values.astype(np.float64).sum()) / values.size
    return float(2.0 ** math.ceil(math.log2(1.5 * mean)))
