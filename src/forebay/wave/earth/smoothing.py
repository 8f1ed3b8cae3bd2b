"""Smoothing a velocity model, as migration wants it: right travel times, and no reflections of its own."""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from forebay.errors import WaveError, needs
from forebay.wave.earth.strips import in_strips

WIDEST = 10**6
"""points: a model has fewer along each axis"""
NARROWEST = 1e-6
"""points: a bell as narrow changes nothing"""
CUT = 3.0
"""Standard deviations at which the bell ends."""


def smooth(values: Any, spacing: Sequence[float], length: float, *, slowness: bool = True) -> Any:
    """Average under a bell of standard deviation `length`, in metres; of velocities the slowness: travel times stay.

    Examples
    --------
    >>> step = np.where(np.arange(100) < 50, 2000.0, 3000.0)[:, None] * np.ones((1, 3))
    >>> smoothed = smooth(step, (10.0, 10.0), length=50.0)
    >>> round(float(smoothed[0, 0])), bool(2000 < smoothed[49, 0] < smoothed[50, 0] < 3000)
    (2000, True)
    """
    if not hasattr(values, "__cuda_array_interface__"):
        values = np.asarray(values)
    averaged = _converted(values, np.float64, inverse=slowness)
    for axis, step in enumerate(spacing):
        width = length / step
        if width > WIDEST:
            raise WaveError(f"smoothing over {length:.6g} m is over {width:.3g} points: take {WIDEST:.0e} at most")
        if width > NARROWEST and (reach := math.ceil(CUT * width)):
            # Beyond the edges values go on as they are there.
            averaged = _averaged(averaged, axis, width, mode="nearest", truncate=reach / width)
    return _converted(averaged, values.dtype, inverse=slowness)


def _converted(values: Any, dtype: Any, *, inverse: bool) -> Any:
    """Return values, or one over each, as another type; on the host by all cores."""

    def convert(part: Any) -> Any:
        return (1 / part.astype(np.float64) if inverse else part).astype(dtype)

    if not isinstance(values, np.ndarray):
        return convert(values)
    converted = np.empty(values.shape, dtype)

    def fill(strip: slice) -> None:
        converted[strip] = convert(values[strip])

    in_strips(fill, values.shape)
    return converted


def _averaged(values: Any, axis: int, width: float, **how: Any) -> Any:
    """Average along an axis by the filter of the library whose array it is; on the host by all cores."""
    if not isinstance(values, np.ndarray):
        return import_module("cupyx.scipy.ndimage").gaussian_filter1d(values, width, axis, **how)
    try:
        gaussian = import_module("scipy.ndimage").gaussian_filter1d
    except ImportError as error:
        raise WaveError(needs("smoothing a model", "scipy", "wave")) from error
    if values.ndim < 2:
        return gaussian(values, width, axis, **how)
    averaged, across = np.empty_like(values), 1 if axis == 0 else 0

    def average(strip: slice) -> None:
        part = (*(slice(None),) * across, strip)
        gaussian(values[part], width, axis, output=averaged[part], **how)

    in_strips(average, values.shape, across)
    return averaged
