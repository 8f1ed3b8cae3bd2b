"""Everyday operators on volumes, as a real workload for footprints: seismic attributes, filters, sorts and labels.

They are written as their users write them, whole arrays at a time and with the temporaries that come with that. Traces
run along the last axis. They need SciPy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage, signal

Volume = NDArray[Any]


def envelope(volume: Volume) -> Volume:
    """Instantaneous amplitude of every trace: the modulus of its analytic signal."""
    return np.asarray(np.abs(signal.hilbert(volume, axis=-1)))


def gaussian(volume: Volume, sigma: float = 3.0) -> Volume:
    """Smooth with a Gaussian along every axis."""
    return np.asarray(ndimage.gaussian_filter(volume, sigma))


def gst3d(volume: Volume, sigma: float = 1.0) -> Volume:
    """Dip in degrees of the layers at every voxel but the outermost, from the gradient structure tensor.

    The products of the three derivatives are smoothed; the eigenvector of the largest eigenvalue of the tensor that
    they make points across the layers, and its angle to the last axis is the dip.
    """
    inner = slice(1, -1)
    before, after = slice(None, -2), slice(2, None)
    derivatives = [
        0.5 * (volume[after, inner, inner] - volume[before, inner, inner]),
        0.5 * (volume[inner, after, inner] - volume[inner, before, inner]),
        0.5 * (volume[inner, inner, after] - volume[inner, inner, before]),
    ]
    tensor = np.empty((*derivatives[0].shape, 3, 3), volume.dtype)
    for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)):
        smooth = ndimage.gaussian_filter(derivatives[i] * derivatives[j], sigma)
        tensor[..., i, j] = tensor[..., j, i] = smooth
    _, vectors = np.linalg.eigh(tensor)
    normal = vectors[..., -1]
    across = np.hypot(normal[..., 0], normal[..., 1])
    return np.asarray(np.degrees(np.arctan2(across, np.abs(normal[..., 2]))))


def bandpass(volume: Volume, low: float = 0.05, high: float = 0.4, taper: int = 32) -> Volume:
    """Keep the frequencies of every trace between two fractions of Nyquist's, in the Fourier domain.

    Traces are padded by the length of the taper, so that their ends do not meet, and on to a length that transforms
    fast.
    """
    length = volume.shape[-1]
    padded = fft.next_fast_len(length + taper, real=True)
    spectrum = fft.rfft(volume, padded, axis=-1)
    frequency = np.linspace(0, 1, spectrum.shape[-1], dtype=volume.dtype)
    spectrum *= 1 / (1 + (low / np.maximum(frequency, 1e-6)) ** 8) / (1 + (frequency / high) ** 8)
    return np.asarray(fft.irfft(spectrum, padded, axis=-1)[..., :length].astype(volume.dtype))


def despike(volume: Volume) -> Volume:
    """Replace every sample by the median of its 3 x 3 x ... neighbourhood."""
    return np.asarray(ndimage.median_filter(volume, size=3))


def svd_denoise(volume: Volume, rank: int = 4) -> Volume:
    """Keep the strongest singular values of every panel along the first axis."""
    result = np.empty_like(volume)
    for panel, out in zip(volume, result, strict=True):
        left, values, right = np.linalg.svd(panel, full_matrices=False)
        np.matmul(left[:, :rank] * values[:rank], right[:rank], out=out)
    return result


def integral(volume: Volume) -> Volume:
    """Cumulative sums along every axis, in double precision: the sum of any box is then a few look-ups."""
    sums = volume.astype(np.float64)
    for axis in range(volume.ndim):
        sums = np.cumsum(sums, axis=axis)
    return sums


def order(volume: Volume) -> Volume:
    """Rank every sample among those of its trace."""
    return np.argsort(np.argsort(volume, axis=-1), axis=-1)


def labels(volume: Volume, level: float = 0.9) -> Volume:
    """Count off the connected parts of the volume above a level."""
    numbered, _ = ndimage.label(volume > level)
    return np.asarray(numbered)


OPERATORS: dict[str, Callable[[Volume], Volume]] = {
    operator.__name__: operator
    for operator in (envelope, gaussian, gst3d, bandpass, despike, svd_denoise, integral, order, labels)
}
"""All of them, by name."""
