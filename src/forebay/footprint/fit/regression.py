"""Bayesian linear regression on many sets of terms at once: how well each foresees a left-out sample.

Coefficients have a normal prior of the scale of their terms, the noise a known shape and a scale that is learned
(inverse gamma), so that every prediction is a Student t and leaving one sample out has a closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, lgamma, log, pi
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sets = NDArray[np.intp]

PRIOR_SHAPE = 3.0
PRIOR_RATE = 2.0  # the expected scale of the noise is 1
PENALTY = 2.0
"""what each term costs, in nats, beside its doubt"""


@dataclass(frozen=True)
class Posterior:
    """What the samples leave possible, for each of many sets of terms; shorter sets are filled up with zeros."""

    sets: Sets
    means: Array
    """bytes per element, one row a set"""
    spreads: Array
    """covariance of these, in units of the noise's scale"""
    rates: Array
    shape: float
    scores: Array
    """log of how well each foresees left-out samples, less the penalty for its terms: the best is chosen by these"""
    chances: Array
    """the same without what the penalty adds where samples are few: a set that is too rich to be chosen may be true"""

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the predictions."""
        return 2 * self.shape

    @property
    def weights(self) -> Array:
        """How likely each set is among these."""
        likely = np.exp(self.chances - self.chances.max())
        return np.asarray(likely / likely.sum())

    def best(self, count: int, within: float) -> "Posterior":
        """Keep the best, and the few others whose chances are within so many nats of the highest."""
        first = int(np.argmax(self.scores))
        likely = np.argsort(-self.chances, kind="stable")[:count]
        likely = likely[(self.chances[likely] >= self.chances[likely[0]] - within) & (likely != first)]
        return self.only(np.concatenate([[first], likely]))

    def only(self, rows: NDArray[np.bool_ | np.intp]) -> "Posterior":
        """Keep these sets, in this order."""
        return Posterior(
            self.sets[rows],
            self.means[rows],
            self.spreads[rows],
            self.rates[rows],
            self.shape,
            self.scores[rows],
            self.chances[rows],
        )

    def predict(self, columns: Array) -> tuple[Array, Array]:
        """Return mean and scale of the noiseless peak for each set (row) and point (column)."""
        design = columns[:, self.sets].transpose(1, 0, 2)
        means = np.einsum("hmk,hk->hm", design, self.means)
        spread = np.einsum("hmk,hkl,hml->hm", design, self.spreads, design)
        return means, np.sqrt(np.maximum(spread, 0.0) * (self.rates / self.shape)[:, None])


def regress(
    columns: Array,
    peaks: Array,
    noise: Array,
    groups: Sequence[tuple[Sets, Array]],
    scales: Array,
    least: float = -inf,
    leasts: Array | None = None,
) -> Posterior | None:
    """Fit every set of terms, and leave out those in which a term would have to give memory back.

    Parameters
    ----------
    columns
        the value of every term (column) for every sample (row)
    peaks, noise
        what was measured, and how far off each may be
    groups
        the sets of terms, grouped by their number, with the doubt about each
    scales
        of every term
    least
        the constant: below it, a set is left out unless all are
    leasts
        what the coefficient of every term is at least, in a set that has it; 0 unless given
    """
    lowest = np.zeros(len(scales)) if leasts is None else leasts
    parts = [_regress_group(columns, peaks, noise, sets, doubts, scales, lowest) for sets, doubts in groups]
    # Wrong terms that grow too fast follow the samples by taking a constant off again: no function gives memory back.
    sound = [part.only(part.means[:, 0] >= least) for part in parts]
    kept = [part for part in sound if len(part.sets)] or [part for part in parts if len(part.sets)]
    if not kept:
        return None
    most = max(part.sets.shape[1] for part in kept)
    wide = [_widen(part, most) for part in kept]
    return Posterior(
        np.concatenate([part.sets for part in wide]),
        np.concatenate([part.means for part in wide]),
        np.concatenate([part.spreads for part in wide]),
        np.concatenate([part.rates for part in wide]),
        wide[0].shape,
        np.concatenate([part.scores for part in wide]),
        np.concatenate([part.chances for part in wide]),
    )


def _regress_group(
    columns: Array, peaks: Array, noise: Array, sets: Sets, doubts: Array, scales: Array, leasts: Array
) -> Posterior:
    count = len(peaks)
    scale = scales[sets]
    design = (columns / noise[:, None])[:, sets].transpose(1, 0, 2) * scale[:, None, :]
    target = peaks / noise
    precision = np.einsum("hnk,hnl->hkl", design, design) + np.eye(sets.shape[1])
    covariance = np.linalg.inv(precision)
    means = np.einsum("hkl,hnl,n->hk", covariance, design, target)
    # The residual form of the evidence's rate: the plain form subtracts numbers of many digits that cancel.
    left = target - np.einsum("hnk,hk->hn", design, means)
    rates = PRIOR_RATE + 0.5 * ((left**2).sum(1) + (means**2).sum(1))
    shape = PRIOR_SHAPE + count / 2
    leverage = np.clip(np.einsum("hnk,hkl,hnl->hn", design, covariance, design), 0.0, 1 - 1e-9)
    out_rates = np.maximum(rates[:, None] - 0.5 * left**2 / (1 - leverage), PRIOR_RATE)
    foreseen = _log_student(left / (1 - leverage), out_rates / (shape - 0.5) / (1 - leverage), 2 * shape - 1).sum(1)
    terms = sets.shape[1]
    chances = foreseen - doubts - PENALTY * (terms - 1)
    # Thousands of sets are tried on few samples: what a set gains by having almost as many terms as samples is luck.
    scores = chances - 0.5 * terms * (terms + 1) / max(count - terms - 1, 0.5)
    possible = np.all(means[:, 1:] * scale[:, 1:] >= leasts[sets][:, 1:], axis=1) & np.isfinite(scores)
    spreads = covariance * scale[:, :, None] * scale[:, None, :]
    return Posterior(
        sets[possible],
        (means * scale)[possible],
        spreads[possible],
        rates[possible],
        shape,
        scores[possible],
        chances[possible],
    )


def _widen(part: Posterior, most: int) -> Posterior:
    """Fill sets up with the constant at no coefficient, so that all have the same number of terms."""
    room = most - part.sets.shape[1]
    return Posterior(
        np.pad(part.sets, ((0, 0), (0, room))),
        np.pad(part.means, ((0, 0), (0, room))),
        np.pad(part.spreads, ((0, 0), (0, room), (0, room))),
        part.rates,
        part.shape,
        part.scores,
        part.chances,
    )


def _log_student(error: Array, variance: Array, freedom: float) -> Array:
    constant = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - 0.5 * log(freedom * pi)
    return np.asarray(constant - 0.5 * np.log(variance) - (freedom + 1) / 2 * np.log1p(error**2 / (freedom * variance)))


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t, by its expansion around the normal one; good for five degrees and more.

    Examples
    --------
    >>> round(student_quantile(0.99, 16), 2)
    2.58
    """
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
