"""Peaks as a sum of few terms: chosen from the samples, with an estimate and a bound at any other point."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.fit.overtaking import PLAUSIBLE, Others, Overtaking
from forebay.footprint.fit.regression import Data, Posterior, of_constant, student_quantile
from forebay.footprint.fit.stages import follow
from forebay.footprint.fit.terms import Term, combine
from forebay.footprint.fit.whole_bytes import prefer_whole

Array = NDArray[np.float64]

RELATIVE = 0.002
"""how far off, of itself, a peak may be where nothing else is known"""
MARGIN = 0.01
PER_DOUBLING = 0.0075
"""what the bound adds to itself, at once and for each doubling beyond what was sampled"""
DEVIATIONS = 3
"""standard deviations of a reading that are its resolution"""
POORLY = 25.0
"""a misfit that is worth saying"""
LARGER, WIDE = 32.0, 1.5
"""how many times larger a shape is, and a bound than the estimate, where that is worth saying"""
FLAT, FLAT_FROM = 0.8, 8
"""the share of the largest peak, and the resolutions, above which a constant may hide what grows"""
UNFORESEEN = 0.05
THIN = 0.3
"""what the bound of a second stage adds to itself, for each sample less that it rests on"""


@dataclass(frozen=True)
class Fit:
    """The peaks of one place, the host or the device, as the samples leave them possible."""

    terms: tuple[Term, ...]
    posterior: Posterior
    """of the plausible sets of terms, best first"""
    bytes: Array
    """per element of each term of the best set"""
    others: Others
    """what may lead where those do not"""
    resolution: float
    relative: float
    missed: float
    """the largest relative error at a left-out sample, where that is more than a little; else 0"""
    largest: tuple[float, ...]
    """the largest value of every column that was sampled"""
    volume: float
    """the largest number of input elements that was sampled"""
    highest: float
    """the largest peak of a sample"""

    @property
    def coefficients(self) -> dict[str, float]:
        """Bytes per element of the chosen terms."""
        return self._named(self.posterior.sets[0], self.bytes)

    @property
    def overtaking(self) -> list[dict[str, float]]:
        """Bytes per element of the other stages that the estimate knows of: the highest of all counts."""
        stages = self.others.posterior
        return (
            []
            if stages is None
            else [self._named(stages.sets[row], stages.means[row]) for row in range(self.others.leading)]
        )

    @property
    def misfit(self) -> float:
        """How many times larger the squared residuals are than the noise explains."""
        return float(self.posterior.rates[0] / self.posterior.shapes[0])

    @property
    def notes(self) -> list[str]:
        """What makes it uncertain."""
        notes = []
        if self.misfit > POORLY:
            notes.append("no few terms follow its memory from shape to shape; the bound is wide")
        if self.others.leading:
            notes.append("its stages overtake each other: which of them leads depends on the shape")
        larger = np.array([self.largest]) * LARGER ** (1 / len(self.largest))
        (likeliest,), (upper,) = self.predict(larger, np.array([LARGER * self.volume]), 0.01)
        if upper > WIDE * likeliest + FLAT_FROM * self.resolution and likeliest > 0:
            times = f"{upper / likeliest:.1f}"
            notes.append(f"its samples leave much open: for larger shapes the bound is {times} times the estimate")
        if self.coefficients["1"] > max(FLAT * self.highest, FLAT_FROM * self.resolution):
            notes.append(
                "its memory hardly grew with the samples: a stage that grows may be hidden beneath what is always there"
            )
        return notes

    def estimate(self, points: Array) -> Array:
        """Return the likeliest peak at each point."""
        columns = self._columns(points)
        peaks = np.maximum(columns[:, self.posterior.sets[0]] @ self.bytes, 0.0)
        if self.others.posterior is not None:
            leading = self.others.posterior.predict(columns)[0][: self.others.leading]
            peaks = np.maximum(peaks, leading.max(axis=0, initial=0.0))
        return np.asarray(peaks)

    def predict(self, points: Array, volumes: Array, risk: float) -> tuple[Array, Array]:
        """Return the likeliest peak at each point, and what it exceeds only with some risk.

        The bound is the highest that any plausible set of terms says, and more beyond what was sampled.
        """
        columns = self._columns(points)
        highest = self._highest(self.posterior, columns, risk).max(axis=0)
        if self.others.posterior is not None:
            thin = 1 + THIN / self.others.posterior.kept.sum(axis=1, keepdims=True)
            seconds = (thin * self._highest(self.others.posterior, columns, risk)).max(axis=0)
            highest = np.maximum(highest, seconds)
        highest = highest * self.others.ratio + self.others.excess
        ratios = np.maximum((points / np.maximum(self.largest, 1e-9)).max(axis=1), volumes / self.volume)
        beyond = np.log2(np.maximum(ratios, 1.0))
        upper = np.maximum(highest, 0.0) * (1 + MARGIN + PER_DOUBLING * beyond) + self.resolution
        return self.estimate(points), upper

    def covariance(self, points: Array, others: Array) -> tuple[Array, Array, Array]:
        """Return the variances at both, and the covariances between them, over all plausible sets of terms."""
        posterior = self.posterior
        weights = posterior.weights
        first, second = self._columns(points)[:, posterior.sets], self._columns(others)[:, posterior.sets]
        scale = posterior.rates / posterior.shapes
        means = [np.einsum("mhk,hk->hm", design, posterior.means) for design in (first, second)]
        apart = [mean - weights @ mean for mean in means]
        within = np.einsum("h,h,mhk,hkl,nhl->mn", weights, scale, first, posterior.spreads, second, optimize=True)
        own = [
            np.einsum("h,h,mhk,hkl,mhl->m", weights, scale, design, posterior.spreads, design, optimize=True)
            + weights @ part**2
            for design, part in zip((first, second), apart, strict=True)
        ]
        return own[0], own[1], within + np.einsum("h,hm,hn->mn", weights, *apart)

    def _named(self, indices: NDArray[np.intp], each: Array) -> dict[str, float]:
        pairs = enumerate(zip(indices, each, strict=True))
        return {self.terms[index].name: float(mean) for place, (index, mean) in pairs if index or not place}

    @cached_property
    def _used(self) -> list[int]:
        seconds = () if self.others.posterior is None else self.others.posterior.sets.flat
        return [int(index) for index in np.unique([*self.posterior.sets.flat, *seconds])]

    def _highest(self, posterior: Posterior, columns: Array, risk: float) -> Array:
        means, spreads = posterior.predict(columns)
        wide = max(self.misfit, 1.0) ** 0.5
        noise = np.hypot(wide * self.resolution / DEVIATIONS, wide * self.relative * means)
        quantiles = student_quantile(1 - risk, 2 * posterior.shapes)[:, None]
        return np.asarray((1 + self.missed) * means + quantiles * np.hypot(spreads, noise))

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
    """Choose the terms, and the samples that they follow, and learn their bytes."""
    x, inverse = np.unique(np.array(points, dtype=float), axis=0, return_inverse=True)
    counts = np.bincount(
        inverse.ravel()
    )  # what runs at one point have in common is no more evidence for being seen twice
    y, sizes = (np.bincount(inverse.ravel(), values) / counts for values in (peaks, volumes))
    scales, leasts = np.array([[term.scale, term.least] for term in terms]).T
    noise = np.hypot(resolution / DEVIATIONS, relative * y)
    data = Data(np.stack([term.value(x) for term in terms], axis=1), y, noise, scales, leasts)
    groups = combine(terms)
    least = -2.0 * resolution
    followed = follow(data, sizes, groups, least)
    overtaking = Overtaking(data, sizes, groups, least)
    posterior = of_constant(y, noise) if followed is None else overtaking.plausible(followed)
    posterior, chosen = prefer_whole(posterior, terms, PLAUSIBLE, data, resolution)
    missed = _missed(posterior, data)
    return Fit(
        tuple(terms),
        posterior,
        chosen,
        overtaking.others(posterior),
        float(resolution),
        float(relative),
        missed if missed > UNFORESEEN else 0.0,
        tuple(float(value) for value in x.max(axis=0)),
        float(max(volumes)),
        float(y.max()),
    )


def _missed(posterior: Posterior, data: Data) -> float:
    """Return the largest relative error at a left-out sample, beyond what noise explains; tiny ones do not count."""
    chosen = posterior.sets[0][posterior.means[0] != 0]
    followed = posterior.kept[0]
    y, noise, columns = data.peaks[followed], data.noise[followed], data.columns[followed]
    design = columns[:, chosen] * data.scales[chosen] / noise[:, None]
    inverse = np.linalg.inv(design.T @ design + np.eye(len(chosen)))
    leverage = np.clip(np.einsum("nk,kl,nl->n", design, inverse, design), 0.0, 0.99)
    errors = np.maximum(np.abs(y - posterior.predict(columns)[0][0]) - 3 * noise, 0.0) / (1 - leverage)
    large = y >= y.max() / 8
    return float((errors / np.maximum(y, 1.0))[large].max())
