"""Wavelets: what a source sends, and at which frequencies."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.strips import in_strips

LEVEL = 0.01
"""Of the largest amplitude in a spectrum: where it has fallen below this for good, the band ends."""
RICKER = 2.764
"""The highest frequency of a Ricker wavelet, by `LEVEL`, over its dominant one."""
ROLL_OFF = 1.25
"""Times the highest frequency: where nothing is left of what `band_limited` gives."""


def ricker(frequency: float, dt: float, samples: int, delay: float | None = None) -> NDArray[np.float64]:
    """Make a Ricker wavelet of a dominant frequency in Hz; it peaks after `delay`, 1.5 periods unless told.

    Examples
    --------
    >>> wavelet = ricker(15.0, dt=0.002, samples=500)
    >>> float(wavelet.argmax() * 0.002), round(highest_frequency(wavelet, 0.002))
    (0.1, 41)
    """
    if RICKER * frequency > 0.5 / dt:
        raise WaveError(
            f"a Ricker wavelet of {frequency:.6g} Hz has waves of up to {RICKER * frequency:.4g} Hz, and samples of "
            f"{dt:.6g} s hold {0.5 / dt:.4g}: take dt of at most {0.5 / (RICKER * frequency):.4g} s, or a frequency of "
            f"at most {0.5 / (RICKER * dt):.4g} Hz"
        )
    delay = 1.5 / frequency if delay is None else delay
    squared = (math.pi * frequency * (np.arange(samples) * dt - delay)) ** 2
    return np.asarray((1 - 2 * squared) * np.exp(-squared))


def highest_frequency(wavelet: NDArray[np.floating], dt: float) -> float:
    """Return the frequency above which the spectrum of a wavelet, or of several, stays below `LEVEL`."""
    samples = len(wavelet)
    # Zeros at the end give a spectrum fine enough to find its edge.
    spectrum = np.abs(np.fft.rfft(np.reshape(wavelet, (samples, -1)), 8 * samples, axis=0)).max(axis=1)
    if not spectrum.any():
        return 0.0
    return float(np.fft.rfftfreq(8 * samples, dt)[spectrum >= LEVEL * spectrum.max()][-1])


def highest_of_shots(wavelets: NDArray[np.floating], dt: float) -> float:
    """Return the highest frequency of the wavelets of shots, one or a column each, however weak one of them is."""
    return max(highest_frequency(wavelet, dt) for wavelet in np.reshape(wavelets, (len(wavelets), -1)).T)


def band_limited(traces: NDArray[np.floating], dt: float, frequency: float) -> NDArray[np.float64]:
    """Remove from traces what lies above a frequency, down to nothing at `ROLL_OFF` times it, and fade their ends out.

    A record that stops in the middle of a wave would otherwise send all frequencies back from its end.
    """
    samples = len(traces)
    fading = min(samples, math.ceil(2 / (frequency * dt)))
    fade = np.ones(samples)
    fade[samples - fading :] = np.cos(np.pi / 2 * np.arange(1, fading + 1) / fading) ** 2
    above = np.clip((_frequencies(samples, dt) / frequency - 1) / (ROLL_OFF - 1), 0, 1)
    return _filtered(traces, fade, np.cos(np.pi / 2 * above) ** 2)


def time_derivative(traces: NDArray[np.floating], dt: float) -> NDArray[np.float64]:
    """Differentiate traces in time, exactly for what their sampling holds.

    Examples
    --------
    >>> time = 0.01 * np.arange(400)[:, None]
    >>> pulse = np.exp(-((time - 2.0) ** 2))
    >>> bool(np.abs(time_derivative(pulse, 0.01) + 2 * (time - 2.0) * pulse).max() < 1e-6)
    True
    """
    return _filtered(traces, np.ones(len(traces)), 2j * np.pi * _frequencies(len(traces), dt))


def _frequencies(samples: int, dt: float) -> NDArray[np.float64]:
    """Return the frequencies of a spectrum of traces; twice as long, so that the end does not reach the beginning."""
    return np.asarray(np.fft.rfftfreq(2 * samples, dt), np.float64)


def _filtered(traces: NDArray[np.floating], fade: NDArray[Any], response: NDArray[Any]) -> NDArray[np.float64]:
    """Multiply traces by a fade in time and then by a response in frequency, by all cores."""
    samples, filtered = len(traces), np.empty(traces.shape)

    def change(part: slice) -> None:
        spectrum = np.fft.rfft(np.asarray(traces[:, part], np.float64) * fade[:, None], 2 * samples, axis=0)
        filtered[:, part] = np.fft.irfft(spectrum * response[:, None], 2 * samples, axis=0)[:samples]

    in_strips(change, traces.shape, axis=1)
    return filtered
