"""What sources send in an inversion: wavelets and data up to a frequency, and wavelets found from the data."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, needs
from forebay.wave.survey.shot import Shot

ORDER = 4
"""Of the low-pass filter."""
WATER = 1e-3
"""Of the largest power of modelled data: where they have less, a wavelet cannot be found from them."""


def low_passed(shot: Shot, frequency: float | None) -> Shot:
    """Filter what a shot sends and what was heard alike, by a filter that gives nothing before its time.

    So the filtered data are what the filtered wavelet makes.
    """
    if frequency is None:
        return shot
    if not 0 < frequency < 0.5 / shot.dt:
        raise WaveError(f"frequencies up to {frequency:.6g} Hz of samples every {shot.dt:.6g} s: give Hz above 0 and "
                        f"below {0.5 / shot.dt:.6g}, or None for all")  # fmt: skip
    try:
        from scipy.signal import butter, sosfilt
    except ImportError as error:
        raise WaveError(needs("filtering shots", "scipy", "wave")) from error
    sections = butter(ORDER, frequency, fs=1 / shot.dt, output="sos")

    def filtered(values: NDArray[np.floating]) -> NDArray[np.float64]:
        return np.asarray(sosfilt(sections, np.asarray(values, np.float64), axis=0))

    assert shot.data is not None
    return replace(shot, wavelet=filtered(shot.wavelet), data=filtered(np.asarray(shot.data)))


def with_wavelets_of(shots: Sequence[Shot], heard: Sequence[NDArray[np.floating]], *, each: bool = False) -> list[Shot]:
    """Change the wavelets of shots so that what is heard comes as near to their data as it can, by least squares.

    `heard` is what the shots' own wavelets make. Wavelets are filtered alike, or `each` by itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sent, earth = np.zeros(64), rng.standard_normal((64, 3)) * np.exp(-np.arange(64) / 8)[:, None]
    >>> sent[0] = 1.0
    >>> shot = Shot((0, 0), [(0, 1), (0, 2), (0, 3)], sent, 0.01, -2 * np.roll(earth, 3, axis=0) * (np.arange(64) > 2)[:, None])
    >>> found = with_wavelets_of([shot], [earth])[0].wavelet
    >>> int(np.abs(found).argmax()), round(float(found[3]), 1)
    (3, -2.0)
    """  # noqa: E501
    samples = max(shot.samples for shot in shots)
    length = 2 * samples  # so that the end does not reach the beginning
    spectra = [
        [np.fft.rfft(np.asarray(traces, np.float64), length, axis=0) for traces in (modelled, shot.data)]
        for modelled, shot in zip(heard, shots, strict=True)
    ]
    crossed = [np.sum(np.conj(made) * seen, axis=1) for made, seen in spectra]
    power = [np.sum(np.abs(made) ** 2, axis=1) for made, _ in spectra]
    if not each:
        crossed, power = [sum(crossed)] * len(shots), [sum(power)] * len(shots)
    found = []
    for shot, together, alone in zip(shots, crossed, power, strict=True):
        if not alone.any():
            raise WaveError("a shot of which nothing is heard in the model: no wavelet can be found from its data")
        response = together / (alone + WATER * alone.max())
        wavelet = np.reshape(np.asarray(shot.wavelet, np.float64), (shot.samples, -1))
        spectrum = np.fft.rfft(wavelet, length, axis=0) * response[:, None]
        changed = np.fft.irfft(spectrum, length, axis=0)[: shot.samples]
        found.append(replace(shot, wavelet=changed.reshape(shot.wavelet.shape)))
    return found
