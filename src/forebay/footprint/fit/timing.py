"""Seconds of a run, from those of the samples: a constant and one term that grows, fitted to relative errors.

Times are noisy and only weigh chunks against each other, so there is no bound here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from forebay.footprint.measure.inputs import InputLayout

BETTER = 0.3
"""a term other than the volume must leave this share of the volume's error, or less"""
JITTER = 1e-3
"""seconds by which a run may be longer for reasons of the machine's"""


@dataclass(frozen=True)
class Timing:
    """Seconds at once, and for each unit of a term."""

    fixed: float
    each: float
    term: str
    value: Callable[[Sequence[float]], float]

    def __call__(self, lengths: Sequence[float]) -> float:
        """Return the likeliest seconds for inputs of these lengths, with the parameters after them."""
        return self.fixed + self.each * self.value(lengths)


def learn_timing(lengths: Sequence[Sequence[float]], seconds: Sequence[float], layout: InputLayout) -> Timing:
    """Choose the term that follows the samples best: the volume, unless it is off and another is clearly better.

    Where the volume misses no sample by more than the machine's own jitter, what another term follows better is noise,
    and one that grows faster would be the wrong one by far at the lengths that are asked for.
    """
    (first, value), *others = _terms(layout)
    kept, least = _fit(first, value, lengths, np.array(seconds))
    if all(abs(kept(point) - measured) <= JITTER for point, measured in zip(lengths, seconds, strict=True)):
        return kept
    for name, value in others:
        timing, error = _fit(name, value, lengths, np.array(seconds))
        if error < BETTER * least:
            kept, least = timing, error
    return kept


def _terms(layout: InputLayout) -> list[tuple[str, Callable[[Sequence[float]], float]]]:
    def times(axis: int) -> Callable[[Sequence[float]], float]:
        return lambda lengths: float(layout.volume(lengths)) * lengths[axis]

    plain: list[tuple[str, Callable[[Sequence[float]], float]]] = [
        ("volume", lambda lengths: float(layout.volume(lengths))),
        ("volume*log(volume)", lambda lengths: layout.volume(lengths) * float(np.log2(layout.volume(lengths) + 1))),
    ]
    names = (*layout.axes, *(name for name, _ in layout.parameters))
    return plain + [(f"volume*{name}", times(place)) for place, name in enumerate(names)]


def _fit(
    name: str, value: Callable[[Sequence[float]], float], lengths: Sequence[Sequence[float]], seconds: np.ndarray
) -> tuple[Timing, float]:
    """Fit by least squares of relative errors, neither part negative; what is shorter than the jitter hardly counts."""
    weight = 1 / (seconds + JITTER)
    goal = seconds * weight
    each = np.array([value(point) for point in lengths]) * weight
    once = weight
    tries = [(0.0, float(goal @ each / (each @ each))), (float(goal @ once / (once @ once)), 0.0)]
    design = np.stack([once, each], axis=1)
    both = np.linalg.lstsq(design, goal, rcond=None)[0]
    if (both >= 0).all():
        tries.append((float(both[0]), float(both[1])))
    errors = [float(np.mean((design @ np.array(pair) - goal) ** 2)) for pair in tries]
    best = int(np.argmin(errors))
    return Timing(*tries[best], name, value), errors[best]
