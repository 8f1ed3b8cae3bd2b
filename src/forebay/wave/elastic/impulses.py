"""What wavelets and data mean to velocities and stresses, which belong to different moments of a step.

A force is its wavelet, in newtons. An explosion's wavelet is the acceleration of the volume that it presses into the
medium, in cubic metres per second squared: in a fluid the pressure is then the density times what the acoustic
propagator computes for the same wavelet. In two dimensions both are per metre of a line. Pressures are in pascals,
velocities in metres per second.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

CENTRED = np.array([-1, 9, 9, -1]) / 16
"""Weights of the velocities three and one half steps before a moment, and after it, in the velocity there."""
LAST = np.array([-1, 6, 3]) / 8
"""The same at the last moment, after which there is only one."""


def impulses_of(density: NDArray[np.float64], kinds: Sequence[str], dt: float) -> NDArray[np.float64]:
    """Turn wavelets per volume, at each step, into impulses of force and volumes drawn out."""
    impulses = density * dt
    exploding = [kind == "explosion" for kind in kinds]
    # A rate between two steps is the sum of what accelerated it before.
    impulses[:, exploding] = -np.cumsum(impulses[:, exploding], axis=0) * dt
    return impulses


def impulses_transposed(owed: NDArray[np.float64], kinds: Sequence[str], dt: float) -> NDArray[np.float64]:
    """Return what is owed to wavelets per volume: the transpose of `impulses_of`."""
    spread = owed.copy()
    exploding = [kind == "explosion" for kind in kinds]
    spread[:, exploding] = -np.cumsum(owed[::-1, exploding], axis=0)[::-1] * dt
    return spread * dt


def half_a_step_earlier(heard: NDArray[Any], kinds: Sequence[str]) -> NDArray[Any]:
    """Take velocities, which are heard between the steps, to the beginning of each."""
    moving, steps = _moving(kinds), len(heard)
    if not len(moving):
        return heard
    between = np.zeros((steps + 2, len(moving)), heard.dtype)
    between[2:] = heard[:, moving]
    at_steps = heard.copy()
    at_steps[:-1, moving] = sum(weight * between[k : steps - 1 + k] for k, weight in enumerate(CENTRED))
    at_steps[-1, moving] = LAST @ between[-3:]
    return at_steps


def half_a_step_earlier_transposed(data: NDArray[Any], kinds: Sequence[str]) -> NDArray[Any]:
    """Spread velocities at the steps over those between them: the transpose of `half_a_step_earlier`."""
    moving, steps, spread = _moving(kinds), len(data), np.array(data)
    if len(moving):
        at_steps = spread[:, moving]
        between = np.zeros((steps + 2, len(moving)), spread.dtype)
        for k, weight in enumerate(CENTRED):
            between[k : steps - 1 + k] += weight * at_steps[:-1]
        between[-3:] += np.multiply.outer(LAST, at_steps[-1])
        spread[:, moving] = between[2:]
    return spread


def _moving(kinds: Sequence[str]) -> NDArray[np.int64]:
    """Find the receivers that measure velocities."""
    return np.flatnonzero([kind != "pressure" for kind in kinds])
