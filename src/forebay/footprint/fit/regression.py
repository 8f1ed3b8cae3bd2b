"""Bayesian linear regression on many sets of terms at once: how well each foresees a left-out sample.

Coefficients have a normal prior of the scale of their terms, the noise a known shape and a scale that is learned
(inverse gamma), so that every prediction is a Student t and leaving one sample out has a closed form. A set need not
follow all samples: those of another stage of the function say nothing of it, and cost what a guess would.
"""

from dataclasses import dataclass, fields, replace
from math import lgamma, log, pi
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Sets = NDArray[np.intp]
Rows = NDArray[np.bool_]

PRIOR_SHAPE = 3.0
PRIOR_RATE = 2.0  # the expected scale of the noise is 1
PENALTY = 2.0
"""what each term costs, in nats, beside its doubt"""
ELSEWHERE = 2.0
"""what each sample costs that a set does not follow, in nats, beside a guess between nothing and twice its peak"""

BELOW = 1.5
"""the same where it lies below the set: stages that lead lie above"""


@dataclass(frozen=True)
class Data:
    """What was measured, and what terms it may follow."""

    columns: Array
    """the value of every term (column) for every sample (row)"""
    peaks: Array
    noise: Array
    """how far off each peak may be"""
    scales: Array
    """of every term"""
    leasts: Array
    """what the coefficient of every term is at least, in a set that has it"""


@dataclass(frozen=True)
class Posterior:
    """What the samples leave possible, for each of many sets of terms; shorter sets are filled up with zeros."""

    sets: Sets
    means: Array
    """bytes per element, one row a set"""
    spreads: Array
    """covariance of these, in units of the noise's scale"""
    rates: Array
    shapes: Array
    kept: Rows
    """the samples that each follows"""
    scores: Array
    """log of how well each foresees left-out samples, less the penalty for its terms: the best is chosen by these"""
    chances: Array
    """the same without what the penalty adds where samples are few: a set that is too rich to be chosen may be true"""

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
        return Posterior(*(getattr(self, each.name)[rows] for each in fields(self)))

    def and_also(self, other: "Posterior") -> "Posterior":
        """Put the sets of another behind these."""
        most = max(self.sets.shape[1], other.sets.shape[1])
        pairs = [
            (each.name, [getattr(part._widened(most), each.name) for part in (self, other)]) for each in fields(self)
        ]
        return Posterior(**{name: np.concatenate(pair) for name, pair in pairs})

    def _widened(self, terms: int) -> "Posterior":
        """Fill sets up with the constant at no coefficient, so that all have as many terms."""
        room = terms - self.sets.shape[1]
        return replace(
            self,
            sets=np.pad(self.sets, ((0, 0), (0, room))),
            means=np.pad(self.means, ((0, 0), (0, room))),
            spreads=np.pad(self.spreads, ((0, 0), (0, room), (0, room))),
        )

    def predict(self, columns: Array) -> tuple[Array, Array]:
        """Return mean and scale of the noiseless peak for each set (row) and point (column)."""
        design = columns[:, self.sets].transpose(1, 0, 2)
        means = np.einsum("hmk,hk->hm", design, self.means)
        spread = np.einsum("hmk,hkl,hml->hm", design, self.spreads, design)
        return means, np.sqrt(np.maximum(spread, 0.0) * (self.rates / self.shapes)[:, None])


def regress(data: Data, sets: Sets, doubts: Array, kept: Rows) -> tuple[Posterior, Array]:
    """Fit sets of terms that are as large, each to the samples that it follows.

    Returns the posterior, whose scores are infinitely bad where a term would have to give memory back, and how far, in
    deviations of the noise, every sample is from what the others say.
    """
    scale, counts = data.scales[sets], kept.sum(axis=1)
    design = (data.columns / data.noise[:, None])[:, sets].transpose(1, 0, 2) * scale[:, None, :]
    followed = design * kept[:, :, None]
    target = data.peaks / data.noise
    precision = followed.transpose(0, 2, 1) @ followed + np.eye(sets.shape[1])
    covariance = np.linalg.inv(precision)
    means = np.einsum("hkl,hl->hk", covariance, followed.transpose(0, 2, 1) @ target)
    # The residual form of the evidence's rate: the plain form subtracts numbers of many digits that cancel.
    left = target - np.einsum("hnk,hk->hn", design, means)
    rates = PRIOR_RATE + 0.5 * ((left**2 * kept).sum(1) + (means**2).sum(1))
    shapes = PRIOR_SHAPE + counts / 2
    leverage = np.clip(((followed @ covariance) * followed).sum(axis=2), 0.0, 1 - 1e-9)
    out_rates = np.maximum(rates[:, None] - 0.5 * left**2 / (1 - leverage), PRIOR_RATE)
    freedom = (2 * shapes - 1)[:, None]
    foreseen = _log_student(left / (1 - leverage), 2 * out_rates / freedom / (1 - leverage), freedom)
    guessed = guesses(data) - BELOW * (left < 0)
    terms = sets.shape[1]
    chances = np.where(kept, foreseen, guessed).sum(1) - doubts - PENALTY * (terms - 1)
    possible = np.all(means[:, 1:] * scale[:, 1:] >= data.leasts[sets][:, 1:], axis=1) & np.isfinite(chances)
    chances = np.where(possible, chances, -np.inf)
    # Thousands of sets are tried on few samples: what a set gains by having almost as many terms as samples is luck.
    scores = chances - 0.5 * terms * (terms + 1) / np.maximum(counts - terms - 1, 0.5)
    spreads = covariance * scale[:, :, None] * scale[:, None, :]
    posterior = Posterior(sets, means * scale, spreads, rates, shapes, kept, scores, chances)
    return posterior, left / (1 - leverage)


def guesses(data: Data) -> Array:
    """Return the log of how well a guess foresees each sample."""
    return np.asarray(-np.log(2 * np.maximum(data.peaks / data.noise, 1.0)) - ELSEWHERE)


def _log_student(error: Array, variance: Array, freedom: Array) -> Array:
    values = np.unique(freedom)
    constants = [lgamma((value + 1) / 2) - lgamma(value / 2) - 0.5 * log(value * pi) for value in values.tolist()]
    constant = np.array(constants)[np.searchsorted(values, freedom)]
    return np.asarray(constant - 0.5 * np.log(variance) - (freedom + 1) / 2 * np.log1p(error**2 / (freedom * variance)))


def student_quantile(probability: float, freedom: Array) -> Array:
    """Return the quantile of Student's t, by its expansion around the normal one; good for five degrees and more.

    Examples
    --------
    >>> student_quantile(0.99, np.array([16.0])).round(2)
    array([2.58])
    """
    z = NormalDist().inv_cdf(probability)
    return np.asarray(
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def of_constant(peaks: Array, noise: Array) -> Posterior:
    """Take the peak as one number, with all the spread that leaves: what is left where every term would be negative."""
    off = (peaks - peaks.mean()) / noise
    return Posterior(
        np.zeros((1, 1), dtype=np.intp),
        np.array([[peaks.mean()]]),
        np.array([[[float(np.mean(noise**2)) / len(peaks)]]]),
        np.array([PRIOR_RATE + 0.5 * float((off**2).sum())]),
        np.array([PRIOR_SHAPE + len(peaks) / 2]),
        np.ones((1, len(peaks)), dtype=np.bool_),
        np.zeros(1),
        np.zeros(1),
    )
