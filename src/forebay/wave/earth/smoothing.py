"""Smoothing a velocity model, as migration wants it: right travel times, and no reflections of its own."""

import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, needs
from forebay.wave.earth.arrays import computable
from forebay.wave.earth.strips import in_strips
from forebay.wave.kernels.device import Launch

SOURCE = Path(__file__).parent / "smoothing.cu"
THREADS = 256
TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
"""What the kernels read and write, by its name in CUDA."""
WIDEST = 10**6
"""points: a model has fewer along each axis"""
NARROWEST = 1e-6
"""points: a bell as narrow changes nothing"""
CUT = 3.0
"""Standard deviations at which the bell ends."""


def smooth(values: Any, spacing: Sequence[float], length: float, *, slowness: bool = True, device: Any = None) -> Any:
    """Average under a bell of standard deviation `length`, in metres; of velocities the slowness: travel times stay.

    Arrays that are not on the host are smoothed on the current GPU, or on the `device` that is given, to the same bits.

    Examples
    --------
    >>> step = np.where(np.arange(100) < 50, 2000.0, 3000.0)[:, None] * np.ones((1, 3))
    >>> smoothed = smooth(step, (10.0, 10.0), length=50.0)
    >>> round(float(smoothed[0, 0])), bool(2000 < smoothed[49, 0] < smoothed[50, 0] < 3000)
    (2000, True)
    """
    widths = []
    for axis, step in enumerate(spacing):
        width = length / step
        if width > WIDEST:
            raise WaveError(f"smoothing over {length:.6g} m is over {width:.3g} points: take {WIDEST:.0e} at most")
        if width > NARROWEST and (reach := math.ceil(CUT * width)):
            widths.append((axis, width, reach))
    if device is None and hasattr(values, "__cuda_array_interface__"):
        from forebay.wave.kernels.device import Device  # it needs a GPU

        values, device = computable(values, "a model"), Device()
    if device is not None:
        return _smoothed_on(device, values, widths, slowness)
    values = np.asarray(values)
    averaged = _converted(values, np.float64, inverse=slowness)
    for axis, width, reach in widths:
        # Beyond the edges values go on as they are there.
        averaged = _averaged(averaged, axis, width, mode="nearest", truncate=reach / width)
    return _converted(averaged, values.dtype, inverse=slowness)


def _converted(values: NDArray[Any], dtype: Any, *, inverse: bool) -> NDArray[Any]:
    """Return values, or one over each, as another type; by all cores."""
    converted = np.empty(values.shape, dtype)

    def fill(strip: slice) -> None:
        part = values[strip]
        converted[strip] = (1 / part.astype(np.float64) if inverse else part).astype(dtype)

    in_strips(fill, values.shape)
    return converted


def _averaged(values: NDArray[Any], axis: int, width: float, **how: Any) -> NDArray[Any]:
    """Average along an axis by SciPy's filter; by all cores."""
    try:
        gaussian = import_module("scipy.ndimage").gaussian_filter1d
    except ImportError as error:
        raise WaveError(needs("smoothing a model", "scipy", "wave")) from error
    if values.ndim < 2:
        return np.asarray(gaussian(values, width, axis, **how))
    averaged, across = np.empty_like(values), 1 if axis == 0 else 0

    def average(strip: slice) -> None:
        part = (*(slice(None),) * across, strip)
        gaussian(values[part], width, axis, output=averaged[part], **how)

    in_strips(average, values.shape, across)
    return averaged


def _smoothed_on(device: Any, values: Any, widths: Sequence[tuple[int, float, int]], slowness: bool) -> Any:
    """Do the same on a device, by three kernels of ours: CuPy would compile eight of its own for seconds."""
    arrays, given = device.arrays, values.dtype
    values = arrays.ascontiguousarray(values if given in TYPES else values.astype(np.float64))
    defines, points = {"VALUE": TYPES[np.dtype(values.dtype)]}, values.size

    def run(name: str, **arguments: Any) -> None:
        kernel = device.kernel(SOURCE, name, defines)
        Launch(device, kernel, (-(-points // THREADS),), (THREADS,), arguments)(device.stream())

    wide, other = arrays.empty(values.shape, np.float64), arrays.empty(values.shape, np.float64)
    run("widen", values=values, wide=wide, points=points, inverse=int(slowness))
    for axis, width, reach in widths:
        bell = np.exp(-0.5 / (width * width) * np.arange(-reach, reach + 1) ** 2)  # as SciPy writes it
        weights = arrays.asarray(bell / bell.sum())
        along = {"length": values.shape[axis], "apart": math.prod(values.shape[axis + 1 :]), "reach": reach}
        run("average", **{"from": wide, "to": other, "weights": weights, "points": points}, **along)
        wide, other = other, wide
    smoothed = arrays.empty(values.shape, values.dtype)
    run("narrow", wide=wide, values=smoothed, points=points, inverse=int(slowness))
    return smoothed if given in TYPES else smoothed.astype(given)
