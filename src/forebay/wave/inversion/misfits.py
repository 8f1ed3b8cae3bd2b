"""How far data are from what was observed, as a number and its derivative with respect to the data.

Each takes the data and the observed ones of a shot, a row for each sample and a column for each receiver.

- "least squares" compares them sample by sample: the sharpest, and the first to lose a cycle.
- "correlation" compares the shapes of traces, whatever their amplitudes.
- "envelope" compares how strong the traces are and when: it sees low frequencies that the data do not have.
- "transport" asks how far the observed trace must be moved to become the other one: early and late waves still pull.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, needs
from forebay.wave.gradient import Misfit, least_squares

TINY = 1e-12
"""Of the largest amplitude: what lies below it is no signal."""
SHARPNESS = 4.0
"""How many times the largest observed amplitude makes the softened one twice as large, about."""


def correlation(data: NDArray[Any], observed: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Return one less the normalised correlation of each trace, added up, and the derivative.

    Traces in which nothing was observed, or nothing is heard, do not count.

    Examples
    --------
    >>> trace = np.sin(np.arange(50.0))[:, None]
    >>> round(correlation(3 * trace, trace)[0], 9), round(correlation(-trace, trace)[0], 9)
    (0.0, 2.0)
    """
    data, observed = np.asarray(data, np.float64), np.asarray(observed, np.float64)
    length, wanted = (np.sqrt(np.sum(traces**2, axis=0)) for traces in (data, observed))
    counts = (length > TINY * wanted.max(initial=0)) & (wanted > TINY * wanted.max(initial=0))
    length, wanted = np.where(counts, length, 1), np.where(counts, wanted, 1)
    alike = np.where(counts, np.sum(data * observed, axis=0) / (length * wanted), 1)
    slope = np.where(counts, data * (alike / length**2) - observed / (length * wanted), 0)
    return float(np.sum(1 - alike)), slope


def envelope(data: NDArray[Any], observed: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Return half the sum of squared differences of the envelopes, and the derivative.

    Examples
    --------
    >>> time = np.arange(200.0)
    >>> pulse = np.exp(-(((time - 100) / 20) ** 2))
    >>> sine, cosine = ((pulse * wave(time))[:, None] for wave in (np.sin, np.cos))
    >>> bool(envelope(sine, cosine)[0] < 1e-3 * least_squares(sine, cosine)[0])
    True
    """
    data, observed = np.asarray(data, np.float64), np.asarray(observed, np.float64)
    turned = _quadrature(data)
    least = (TINY * np.abs(observed).max(initial=0)) ** 2 + np.finfo(np.float64).tiny
    strength = np.sqrt(data**2 + turned**2 + least)
    apart = strength - np.sqrt(observed**2 + _quadrature(observed) ** 2 + least)
    # The transpose of the quadrature is its negative.
    slope = apart * data / strength - _quadrature(apart * turned / strength)
    return 0.5 * float(np.sum(apart**2)), slope


def _quadrature(traces: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the phase of traces by a quarter: their Hilbert transform."""
    spectrum = np.fft.rfft(traces, axis=0) * -1j
    spectrum[0] = 0
    if len(traces) % 2 == 0:
        spectrum[-1] = 0
    return np.asarray(np.fft.irfft(spectrum, len(traces), axis=0))


def transport(data: NDArray[Any], observed: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Return the squared distance that optimal transport moves each trace, in samples, added up, and the derivative.

    Masses are above zero and of one sum: amplitudes are softened by ``log(1 + exp(...))``, sharpened to the largest
    one observed, and divided by their sum.

    Examples
    --------
    >>> time = np.arange(400.0)
    >>> pulses = {late: np.exp(-(((time - 100 - late) / 10) ** 2))[:, None] for late in (0, 50, 100, 150)}
    >>> near, far, farther = (transport(pulses[late], pulses[0])[0] for late in (50, 100, 150))
    >>> bool(far > 1.8 * near), bool(farther > 1.3 * far)  # where least squares is flat
    (True, True)
    """
    data, observed = np.asarray(data, np.float64), np.asarray(observed, np.float64)
    largest = np.abs(observed).max(initial=0)
    if not largest:
        return 0.0, np.zeros_like(data)
    factor = SHARPNESS / largest
    soft, wanted = (np.logaddexp(0, factor * traces) for traces in (data, observed))
    sums = soft.sum(axis=0)
    mass = soft / sums
    moved, price = _transported()(mass.T.copy(), (wanted / wanted.sum(axis=0)).T.copy())
    price = price.T
    owed = (price - np.sum(price * mass, axis=0)) / sums
    return float(moved.sum()), owed * factor / (1 + np.exp(-factor * data))


def _transported() -> Callable[[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]:
    """Return what moves masses along a line, compiled when it is first needed."""
    try:
        from forebay.wave.inversion.transport import transported
    except ImportError as error:
        raise WaveError(needs("the misfit of optimal transport", "numba", "wave")) from error
    return transported


MISFITS: dict[str, Misfit] = {
    "least squares": least_squares,
    "correlation": correlation,
    "envelope": envelope,
    "transport": transport,
}


def misfit_of(name: str | Misfit) -> Misfit:
    """Return a misfit by its name, or the caller's own."""
    if not isinstance(name, str):
        return name
    if name not in MISFITS:
        raise WaveError(f"misfit={name!r}: take one of {', '.join(map(repr, MISFITS))}, or a function of your own")
    return MISFITS[name]
