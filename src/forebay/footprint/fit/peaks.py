"""Peaks as a sum of few terms: chosen from the samples, with an estimate and a bound at any other point."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.fit.regression import Posterior, regress, student_quantile
from forebay.footprint.fit.terms import Term, combine
from forebay.footprint.fit.whole_bytes import MISFIT, prefer_whole

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

RELATIVE = 0.002
"""how far off, of itself, a peak may be where nothing else is known"""
PLAUSIBLE = 4.0
"""sets of terms within so many nats of the best take part in the bound"""
KEPT = 48
MARGIN = 0.01
PER_DOUBLING = 0.005
"""what the bound adds to itself, at once and for each doubling beyond what was sampled"""
FEWEST = 4
UNFORESEEN = 0.05
BEYOND, ENOUGH = 2.0, 4
"""how far beyond a cap, and in how many samples, memory must have been seen not to grow"""


@dataclass(frozen=True)
class Fit:
    """The peaks of one place, the host or the device, as the samples leave them possible."""

    terms: tuple[Term, ...]
    posterior: Posterior
    """of the plausible sets of terms, best first"""
    bytes: Array
    """per element of each term of the best set"""
    resolution: float
    relative: float
    missed: float
    """the largest relative error at a left-out sample, where that is more than a little; else 0"""
    largest: tuple[float, ...]
    """the largest value of every column that was sampled"""
    volume: float
    """the largest number of input elements that was sampled"""
    used: int
    """how many samples it rests on: the smallest are left out where they follow another rule"""

    @property
    def coefficients(self) -> dict[str, float]:
        """Bytes per element of the chosen terms."""
        pairs = zip(self.posterior.sets[0], self.bytes, strict=True)
        return {self.terms[index].name: float(mean) for place, (index, mean) in enumerate(pairs) if index or not place}

    @property
    def misfit(self) -> float:
        """How many times larger the squared residuals are than the noise explains."""
        return float(self.posterior.rates[0] / self.posterior.shape)

    def estimate(self, points: Array) -> Array:
        """Return the likeliest peak at each point."""
        return np.asarray(np.maximum(self._columns(points)[:, self.posterior.sets[0]] @ self.bytes, 0.0))

    def predict(self, points: Array, volumes: Array, risk: float) -> tuple[Array, Array]:
        """Return the likeliest peak at each point, and what it exceeds only with some risk.

        The bound is the highest that any plausible set of terms says, and more beyond what was sampled.
        """
        means, spreads = self.posterior.predict(self._columns(points))
        wide = max(self.misfit, 1.0) ** 0.5
        noise = np.hypot(wide * self.resolution, max(wide * self.relative, self.missed) * means)
        highest = (means + student_quantile(1 - risk, self.posterior.freedom) * np.hypot(spreads, noise)).max(axis=0)
        ratios = np.maximum((points / np.maximum(self.largest, 1e-9)).max(axis=1), volumes / self.volume)
        beyond = np.log2(np.maximum(ratios, 1.0))
        upper = np.maximum(highest, 0.0) * (1 + MARGIN + PER_DOUBLING * beyond) + 2 * self.resolution
        return self.estimate(points), upper

    def covariance(self, points: Array, others: Array) -> tuple[Array, Array, Array]:
        """Return the variances at both, and the covariances between them, over all plausible sets of terms."""
        posterior = self.posterior
        weights = posterior.weights
        first, second = self._columns(points)[:, posterior.sets], self._columns(others)[:, posterior.sets]
        scale = posterior.rates / posterior.shape
        means = [np.einsum("mhk,hk->hm", design, posterior.means) for design in (first, second)]
        apart = [mean - weights @ mean for mean in means]
        within = np.einsum("h,h,mhk,hkl,nhl->mn", weights, scale, first, posterior.spreads, second, optimize=True)
        own = [
            np.einsum("h,h,mhk,hkl,mhl->m", weights, scale, design, posterior.spreads, design, optimize=True)
            + weights @ part**2
            for design, part in zip((first, second), apart, strict=True)
        ]
        return own[0], own[1], within + np.einsum("h,hm,hn->mn", weights, *apart)

    @cached_property
    def _used(self) -> list[int]:
        return [int(index) for index in np.unique(self.posterior.sets)]

    def _columns(self, points: Array) -> Array:
        columns = np.zeros((len(points), len(self.terms)))
        for index in self._used:
            columns[:, index] = self.terms[index].value(points)
        return columns


def fit(
    points: Sequence[Sequence[float]],
    volumes: Sequence[float],
    peaks: Sequence[float],
    terms: Sequence[Term],
    resolution: float,
    relative: float = RELATIVE,
) -> Fit:
    """Choose the terms and learn their bytes.

    A peak is the highest of several stages of a function, and a stage that leads at tiny shapes may not lead at others:
    where no set of terms follows all samples, the smallest are left out while enough remain.
    """
    x, y = np.array(points, dtype=float), np.array(peaks, dtype=float)
    beyond = np.array(volumes, dtype=float)[:, None] >= np.array([BEYOND * term.cap for term in terms])
    terms = [term for term, seen in zip(terms, beyond.sum(axis=0), strict=True) if term.cap == inf or seen >= ENOUGH]
    columns = np.stack([term.value(x) for term in terms], axis=1)
    groups = combine(terms)
    scales, leasts = np.array([[term.scale, term.least] for term in terms]).T
    noise = np.hypot(resolution / 2, relative * y)
    order = np.argsort(-y, kind="stable")
    best: tuple[Posterior, Rows, float] | None = None
    for used in range(len(y), min(FEWEST, len(y)) - 1, -1):
        rows, rest = order[:used], order[used:]
        regressed = regress(columns[rows], y[rows], noise[rows], groups, scales, -2 * resolution, leasts)
        if regressed is None:
            continue
        kept = regressed.best(KEPT, PLAUSIBLE)
        missed = _missed(kept, columns[rows], y[rows], noise[rows], scales)
        if best is None or (
            (_misfit(kept) < _misfit(best[0]) / 4 or missed <= UNFORESEEN < best[2])
            and _begins_later(kept, columns, y, noise, rows, rest)
        ):
            best = kept, rows, missed
        if _misfit(best[0]) <= MISFIT and best[2] <= UNFORESEEN:
            break
    if best is None:
        flat = _constant(y, noise)
        best = flat, order, _missed(flat, columns, y, noise, scales)
    posterior, rows, missed = best
    posterior, chosen = prefer_whole(posterior, terms, PLAUSIBLE)
    return Fit(
        tuple(terms),
        posterior,
        chosen,
        float(resolution),
        float(relative),
        missed if missed > UNFORESEEN else 0.0,
        tuple(float(value) for value in x.max(axis=0)),
        float(max(volumes)),
        len(rows),
    )


def _misfit(posterior: Posterior) -> float:
    return float(posterior.rates[0] / posterior.shape)


def _begins_later(posterior: Posterior, columns: Array, y: Array, noise: Array, rows: Rows, rest: Rows) -> bool:
    """Return whether samples may be left out: another stage leads there, above these terms, and these are few.

    The very smallest may lie below: libraries set up more for larger arrays than for tiny ones.
    """
    means = posterior.predict(columns[rest])[0][0]
    few = np.count_nonzero(posterior.means[0]) <= len(rows) - 2
    above = y[rest] >= means - 3 * noise[rest]
    return bool(few and above[:-1].all() and (above.all() or len(rows) > FEWEST))


def _missed(posterior: Posterior, columns: Array, y: Array, noise: Array, scales: Array) -> float:
    """Return the largest relative error at a left-out sample, beyond what noise explains; tiny ones do not count."""
    chosen = posterior.sets[0][posterior.means[0] != 0]
    design = columns[:, chosen] * scales[chosen] / noise[:, None]
    inverse = np.linalg.inv(design.T @ design + np.eye(len(chosen)))
    leverage = np.clip(np.einsum("nk,kl,nl->n", design, inverse, design), 0.0, 0.99)
    errors = np.maximum(np.abs(y - posterior.predict(columns)[0][0]) - 3 * noise, 0.0) / (1 - leverage)
    large = y >= y.max() / 8
    return float((errors / np.maximum(y, 1.0))[large].max())


def _constant(y: Array, noise: Array) -> Posterior:
    """Take the peak as one number, with all the spread that leaves: what is left where every term would be negative."""
    shape = 3.0 + len(y) / 2
    rate = 2.0 + 0.5 * float((((y - y.mean()) / noise) ** 2).sum())
    return Posterior(
        np.zeros((1, 1), dtype=np.intp),
        np.array([[y.mean()]]),
        np.array([[[float(np.mean(noise**2)) / len(y)]]]),
        np.array([rate]),
        shape,
        np.zeros(1),
        np.zeros(1),
    )
