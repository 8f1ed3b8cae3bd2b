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

Spectra = tuple[NDArray[np.complexfloating], NDArray[np.floating]]
"""Of the traces of a shot, added up: of modelled times recorded ones, and the power of modelled ones."""


def low_passed(shot: Shot, frequency: float | None) -> Shot:
    """Filter what a shot sends and what was heard alike, by a filter that gives nothing before its time.

    So the filtered data are what the filtered wavelet makes.
    """
    assert shot.data is not None
    wavelet, data = (low_pass(values, shot.dt, frequency) for values in (shot.wavelet, np.asarray(shot.data)))
    return shot if frequency is None else replace(shot, wavelet=wavelet, data=data)


def low_pass(values: NDArray[np.floating], dt: float, frequency: float | None) -> NDArray[np.floating]:
    """Take from samples, along the first axis, what lies above a frequency in Hz; nothing for None."""
    if frequency is None:
        return values
    if not 0 < frequency < 0.5 / dt:
        raise WaveError(f"frequencies up to {frequency:.6g} Hz of samples every {dt:.6g} s: give Hz above 0 and "
                        f"below {0.5 / dt:.6g}, or None for all")  # fmt: skip
    try:
        from scipy.signal import butter, sosfilt
    except ImportError as error:
        raise WaveError(needs("filtering shots", "scipy", "wave")) from error
    sections = butter(ORDER, frequency, fs=1 / dt, output="sos")
    return np.asarray(sosfilt(sections, np.asarray(values, np.float64), axis=0))


def spectra_of(shot: Shot, heard: NDArray[np.floating], samples: int) -> Spectra:
    """Return what the data of a shot tell of its wavelet, from what that makes; `samples` are those of the longest."""
    assert shot.data is not None
    length = 2 * samples  # so that the end does not reach the beginning
    made, seen = (np.fft.rfft(np.asarray(traces, np.float64), length, axis=0) for traces in (heard, shot.data))
    return np.sum(np.conj(made) * seen, axis=1), np.sum(np.abs(made) ** 2, axis=1)


def wavelets_from(
    wavelets: Sequence[NDArray[np.floating]], spectra: Sequence[Spectra], *, each: bool = False
) -> list[NDArray[np.float64]]:
    """Change wavelets so that what is heard comes as near to the data as it can, by least squares.

    `spectra` are those of `spectra_of` with these wavelets. They are filtered alike, or `each` by itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sent, earth = np.zeros(64), rng.standard_normal((64, 3)) * np.exp(-np.arange(64) / 8)[:, None]
    >>> sent[0] = 1.0
    >>> data = -2 * np.roll(earth, 3, axis=0) * (np.arange(64) > 2)[:, None]
    >>> shot = Shot((0, 0), [(0, 1), (0, 2), (0, 3)], sent, 0.01, data)
    >>> found = wavelets_from([shot.wavelet], [spectra_of(shot, earth, 64)])[0]
    >>> int(np.abs(found).argmax()), round(float(found[3]), 1)
    (3, -2.0)
    """
    crossed, power = [spectrum for spectrum, _ in spectra], [spectrum for _, spectrum in spectra]
    if not each:
        crossed, power = [sum(crossed)] * len(spectra), [sum(power)] * len(spectra)  # type: ignore[list-item]
    found = []
    for sent, together, alone in zip(wavelets, crossed, power, strict=True):
        if not alone.any():
            raise WaveError("a shot of which nothing is heard in the model: no wavelet can be found from its data")
        response = together / (alone + WATER * alone.max())
        length = 2 * (len(response) - 1)
        wavelet = np.reshape(np.asarray(sent, np.float64), (len(sent), -1))
        spectrum = np.fft.rfft(wavelet, length, axis=0) * response[:, None]
        found.append(np.fft.irfft(spectrum, length, axis=0)[: len(sent)].reshape(sent.shape))
    return found
