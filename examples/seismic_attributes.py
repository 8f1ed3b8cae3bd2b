"""Twenty attributes of a seismic volume, as interpreters compute them one after the other: a workload for chunks.

Traces run along the last axis. Each attribute has the halo that its blocks need; those with a Hilbert transform or a
sum along the traces need these whole. They need SciPy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, signal

Volume = NDArray[Any]
SMALL = np.float32(1e-6)


class Attribute(NamedTuple):
    """A function of a volume, and what its blocks need."""

    func: Callable[[Volume], Volume]
    depth: tuple[int, int, int] = (0, 0, 0)
    whole: tuple[int, ...] = ()


def analytic(volume: Volume) -> Volume:
    """Return the analytic signal of every trace."""
    return np.asarray(signal.hilbert(volume, axis=-1))


def envelope(volume: Volume) -> Volume:
    """Return the instantaneous amplitude."""
    return np.asarray(np.abs(analytic(volume)))


def phase(volume: Volume) -> Volume:
    """Return the instantaneous phase."""
    return np.asarray(np.angle(analytic(volume)))


def cosine_of_phase(volume: Volume) -> Volume:
    """Return the cosine of the instantaneous phase."""
    return np.asarray(np.cos(phase(volume)))


def frequency(volume: Volume) -> Volume:
    """Return the instantaneous frequency, in cycles a sample."""
    return np.asarray(np.gradient(np.unwrap(phase(volume), axis=-1), axis=-1) / np.float32(2 * np.pi))


def sweetness(volume: Volume) -> Volume:
    """Return the envelope over the root of the frequency."""
    return np.asarray(envelope(volume) / np.sqrt(np.maximum(np.abs(frequency(volume)), SMALL)))


def quadrature(volume: Volume) -> Volume:
    """Return the part of the analytic signal that is not the trace."""
    return np.asarray(analytic(volume).imag.copy())


def reflection_strength(volume: Volume) -> Volume:
    """Return the envelope in decibels."""
    return np.asarray(20 * np.log10(np.maximum(envelope(volume), SMALL)))


def energy(volume: Volume) -> Volume:
    """Return the mean square in a window along the trace."""
    return np.asarray(ndimage.uniform_filter1d(volume * volume, 9, axis=-1))


def rms(volume: Volume) -> Volume:
    """Return the root of the energy."""
    return np.asarray(np.sqrt(np.maximum(energy(volume), 0)))


def gain_control(volume: Volume) -> Volume:
    """Return the volume over its amplitude in a long window."""
    power = ndimage.uniform_filter1d(volume * volume, 51, axis=-1)
    return np.asarray(volume / np.sqrt(np.maximum(power, SMALL)))


def derivative(volume: Volume) -> Volume:
    """Return the derivative along the trace."""
    return np.asarray(np.gradient(volume, axis=-1))


def second_derivative(volume: Volume) -> Volume:
    """Return the second derivative along the trace."""
    return np.asarray(np.gradient(np.gradient(volume, axis=-1), axis=-1))


def gradient_magnitude(volume: Volume) -> Volume:
    """Return the length of the gradient."""
    return np.asarray(np.sqrt(sum(part * part for part in np.gradient(volume))))


def laplacian(volume: Volume) -> Volume:
    """Return the Laplacian, which sharpens edges."""
    return np.asarray(ndimage.laplace(volume))


def smooth(volume: Volume) -> Volume:
    """Return the volume, smoothed by a Gaussian."""
    return np.asarray(ndimage.gaussian_filter(volume, 2.0))


def chaos(volume: Volume) -> Volume:
    """Return the variance in a window."""
    mean = ndimage.uniform_filter(volume, (3, 3, 9))
    return np.asarray(ndimage.uniform_filter(volume * volume, (3, 3, 9)) - mean * mean)


def semblance(volume: Volume) -> Volume:
    """Return how alike neighbouring traces are."""
    stack = ndimage.uniform_filter(volume, (3, 3, 1))
    above = ndimage.uniform_filter1d(stack * stack, 9, axis=-1)
    below = ndimage.uniform_filter(volume * volume, (3, 3, 9))
    return np.asarray(above / np.maximum(below, SMALL))


def dip_across(volume: Volume) -> Volume:
    """Return the apparent dip along the first axis."""
    along, across = np.gradient(volume, axis=-1), np.gradient(volume, axis=0)
    return np.asarray(np.degrees(np.arctan2(smooth(along * across), smooth(along * along) + SMALL)))


def dip_along(volume: Volume) -> Volume:
    """Return the apparent dip along the second axis."""
    along, across = np.gradient(volume, axis=-1), np.gradient(volume, axis=1)
    return np.asarray(np.degrees(np.arctan2(smooth(along * across), smooth(along * along) + SMALL)))


def relative_impedance(volume: Volume) -> Volume:
    """Return the sum along the trace, without its trend."""
    total = np.cumsum(volume, axis=-1)
    return np.asarray(total - ndimage.uniform_filter1d(total, 51, axis=-1))


TRACE, WINDOW, AROUND, FAR = (0, 0, 4), (1, 1, 4), (1, 1, 1), (9, 9, 9)
ATTRIBUTES = {
    each.func.__name__: each
    for each in (
        *(Attribute(func, whole=(2,)) for func in (envelope, phase, cosine_of_phase, frequency, sweetness)),
        *(Attribute(func, whole=(2,)) for func in (quadrature, reflection_strength, relative_impedance)),
        *(Attribute(func, TRACE) for func in (energy, rms, derivative, second_derivative)),
        Attribute(gain_control, (0, 0, 25)),
        *(Attribute(func, AROUND) for func in (gradient_magnitude, laplacian)),
        Attribute(smooth, (8, 8, 8)),
        *(Attribute(func, WINDOW) for func in (chaos, semblance)),
        *(Attribute(func, FAR) for func in (dip_across, dip_along)),
    )
}
