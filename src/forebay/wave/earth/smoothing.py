"""Smoothing a velocity model, as migration wants it: right travel times, and no reflections of its own."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CUT = 3.0
"""Standard deviations at which the bell ends."""


def smooth(
    values: NDArray[np.floating], spacing: Sequence[float], length: float, *, slowness: bool = True
) -> NDArray[np.floating]:
    """Average under a bell of standard deviation `length`, in metres; of velocities the slowness: travel times stay.

    Examples
    --------
    >>> step = np.where(np.arange(100) < 50, 2000.0, 3000.0)[:, None] * np.ones((1, 3))
    >>> smoothed = smooth(step, (10.0, 10.0), length=50.0)
    >>> round(float(smoothed[0, 0])), bool(2000 < smoothed[49, 0] < smoothed[50, 0] < 3000)
    (2000, True)
    """
    averaged = 1 / np.asarray(values, np.float64) if slowness else np.asarray(values, np.float64)
    for axis, step in enumerate(spacing):
        averaged = _along(averaged, axis, length / step)
    return np.asarray(1 / averaged if slowness else averaged, np.asarray(values).dtype)


def _along(values: NDArray[np.float64], axis: int, width: float) -> NDArray[np.float64]:
    """Average along one axis; beyond the edges values go on as they are there."""
    reach = int(np.ceil(CUT * width))
    if reach == 0:
        return values
    bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    bell /= bell.sum()
    moved = np.moveaxis(values, axis, 0)
    padded = np.pad(moved, [(reach, reach), *[(0, 0)] * (moved.ndim - 1)], mode="edge")
    total = np.zeros_like(moved)
    for shift, weight in enumerate(bell):
        total += weight * padded[shift : shift + len(moved)]
    return np.moveaxis(total, 0, axis)
