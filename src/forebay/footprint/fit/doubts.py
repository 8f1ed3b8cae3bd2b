"""What makes a footprint uncertain: memory that depends on the data or on chance, or that falls as shapes grow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forebay.footprint.measure.sample import Sample

NOTABLE = 0.01
"""a relative difference between runs that is worth saying"""


@dataclass(frozen=True)
class Doubts:
    """How far peaks stray from what the shape says, of themselves, and why."""

    relative: float
    notes: tuple[str, ...] = ()


def find_doubts(samples: Sequence[Sample], peaks: Sequence[float], resolution: float) -> Doubts:
    """Compare runs at the same shape, and runs of which one had the larger shape on every axis."""
    notes, relative = [], 0.0
    chance = _spread(samples, peaks, resolution, lambda a, b: a.seed == b.seed)
    data = _spread(samples, peaks, resolution, lambda a, b: a.seed != b.seed)
    if chance > NOTABLE:
        notes.append(
            f"its memory is random: two runs on the same data differ by {chance:.0%}; the bound is wide, "
            "and a peak above it is possible"
        )
    elif data > NOTABLE:
        notes.append(
            f"its memory depends on the data: two random inputs of one shape differ by {data:.0%}; learn it on data "
            "like yours (inputs=), or name what it depends on (features=)"
        )
    falls = _falls(samples, peaks, resolution)
    if falls > NOTABLE:
        notes.append(
            f"its memory is not monotone: a larger shape needed {falls:.0%} less than a smaller one; the bound is wide"
        )
    for spread in (chance, data, falls):
        relative = max(relative, spread if spread > NOTABLE / 4 else 0.0)
    return Doubts(relative, tuple(notes))


def _spread(
    samples: Sequence[Sample], peaks: Sequence[float], resolution: float, alike: Callable[[Sample, Sample], bool]
) -> float:
    """Return the largest relative difference between two runs at one point that are alike otherwise."""
    worst = 0.0
    for i, first in enumerate(samples):
        for j in range(i):
            if first.point == samples[j].point and alike(first, samples[j]):
                worst = max(worst, (abs(peaks[i] - peaks[j]) - 2 * resolution) / max(peaks[i], peaks[j], 1))
    return worst


def _falls(samples: Sequence[Sample], peaks: Sequence[float], resolution: float) -> float:
    """Return the largest relative fall of the peak from a point to one that is larger on every axis, all else alike."""
    worst = 0.0
    points = np.array([sample.point for sample in samples])
    for i, point in enumerate(points):
        for j in np.flatnonzero((points >= point).all(axis=1) & (points > point).any(axis=1)):
            if samples[i].parameters != samples[int(j)].parameters:
                continue
            worst = max(worst, (peaks[i] - peaks[int(j)] - 2 * resolution) / max(peaks[i], 1))
    return worst
