"""The light that sources cast: where there is little of it, data tell little, and updates are made larger."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.arrays import on_host
from forebay.wave.imaging import DARK, FLOOR, imaging_interval
from forebay.wave.loop import frequencies_of, prepare
from forebay.wave.physics import EarthModel
from forebay.wave.survey.shot import Shot

POWER = 1.5
"""Of the light: of this, 1 and 0.5 it brought both inversions and least-squares migrations down in fewest steps."""


def light_of(
    shots: Sequence[Shot],
    model: EarthModel,
    *,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
) -> NDArray[np.float64]:
    """Return the squared pressure at each point of a model, added up over time and shots."""
    total = np.zeros(model.grid.shape)
    for shot, frequency in zip(shots, frequencies_of(shots), strict=True):
        loop = prepare(shot, model, dt, order, dtype, listens=False)
        state, every = loop.propagator.zeros(), imaging_interval(frequency, loop.dt)
        cast = loop.pressure(state) * 0
        for step in range(0, loop.steps, every):
            state = loop.forward(state, step, min(step + every, loop.steps))
            cast += loop.pressure(state) ** 2
        total += on_host(cast) * (every * loop.dt)
    return total


def balance(light: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by what updates are multiplied, 1 where that is largest: about one over the curvature's root.

    The curvature of least squares is about the light of the sources times that which receivers would cast. They lie
    where sources do, and their light falls off faster, since they are not added up over shots: see `POWER`.

    Examples
    --------
    >>> balance(np.array([4.0, 2.0, 1.0, 0.01, 0.0])).round(3).tolist()
    [0.007, 0.021, 0.058, 1.0, 1.0]
    """
    lit = light[light > DARK * light.max()]
    least = FLOOR * float(np.median(lit)) if len(lit) else 1.0
    weight = np.maximum(light, least) ** -POWER
    return np.asarray(weight / weight.max())
