"""Bytes per element are whole numbers, mostly of whole words: where samples leave one possible, it is the likeliest."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.fit.regression import Data, Posterior
from forebay.footprint.fit.terms import Term

Array = NDArray[np.float64]

NEAR = ((4, 2.5, 1.3), (1, 1.5, 0.35))
"""units of bytes: how many deviations off one may be, and the deviation at which all would be near"""
CLOSE = 0.03
"""the share by which one may be off, of itself, where no sample is off by more than a reading may be"""
BONUS = 2.0
"""nats that a set of terms gains where all that grow have whole bytes"""
MISFIT = 6.0
"""how many times larger than the noise explains squared residuals may be of a set that gains so"""


def prefer_whole(
    posterior: Posterior, terms: Sequence[Term], within: float, data: Data, resolution: float
) -> tuple[Posterior, Array]:
    """Return the sets with the one first that is likeliest, and the bytes of its terms, whole where they may be.

    Those that are no longer within so many nats of the likeliest are left out.
    """
    rounded = [_round(posterior, row, terms, data, resolution) for row in range(len(posterior.sets))]
    follows = posterior.rates <= MISFIT * posterior.shapes
    bonus = BONUS * (np.array([whole for _, whole in rounded]) & follows)
    best = int(np.argmax(posterior.scores + bonus))
    likely = posterior.chances + bonus >= (posterior.chances + bonus).max() - within
    others = [row for row in np.flatnonzero(likely).tolist() if row != best]
    return posterior.only(np.array([best, *others], dtype=np.intp)), rounded[best][0]


def _round(posterior: Posterior, row: int, terms: Sequence[Term], data: Data, resolution: float) -> tuple[Array, bool]:
    """Return the bytes of a set's terms, and whether those of all that grow are whole.

    What one gives or takes changes the others as the samples say that they go together.
    """
    bytes_, indices = posterior.means[row].copy(), posterior.sets[row]
    spread = posterior.spreads[row] * posterior.rates[row] / posterior.shapes[row]
    growing = [place for place, index in enumerate(indices) if index and terms[index].leading]
    whole = bool(growing)
    for place in sorted(growing, key=lambda place: -bytes_[place]):
        deviation, near = float(spread[place, place]) ** 0.5, False
        for unit, off, most in NEAR:
            number = unit * max(round(bytes_[place] / unit), 1)
            changed = bytes_ + spread[:, place] * (number - bytes_[place]) / spread[place, place]
            near = deviation < most and abs(number - bytes_[place]) <= off * deviation
            if not near and abs(number - bytes_[place]) <= CLOSE * number:
                left = (data.peaks - data.columns[:, indices] @ changed)[posterior.kept[row]]
                near = bool(np.ptp(left) <= resolution)
                changed[0] += (left.max() + left.min()) / 2 if near else 0.0
            if near:
                bytes_ = changed
                break
        whole &= near
    return bytes_, whole
