"""Which shape to run next: tiny ones that tell the terms apart, where the most is learned for what it costs.

Everything here is arithmetic on lengths; `learn.py` runs the samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.fit.peaks import Fit
from forebay.footprint.measure.inputs import InputLayout

Array = NDArray[np.float64]

STRETCH = 3
SIDES = {1: 1024, 2: 48, 3: 16, 4: 8}
"""the side of the first sample, for so many axes"""
STEP = {1: 8.0, 2: 2.8, 3: 2.0, 4: 1.7}
"""how much longer the sides of a sample may at most be than those of any before"""


@dataclass(frozen=True)
class Proposal:
    """A shape that could be run."""

    lengths: tuple[int, ...]
    stretched: int | None
    """the axis that is long for the others, where there is one"""
    even: bool = False
    """whether no axis is long or short for the others"""


def first_side(layout: InputLayout) -> int:
    """Return the side to begin with."""
    return SIDES.get(max(layout.ndims), 6)


def step(layout: InputLayout) -> float:
    """Return the factor by which sides may grow from sample to sample."""
    return STEP.get(max(layout.ndims), 1.5)


def even(layout: InputLayout, side: float, smallest: int = 1, grain: int = 1) -> tuple[int, ...]:
    """Return lengths near a side, no two the same: equal ones would hide which axis matters.

    All are multiples of the grain, for functions that take no others.
    """
    count = len(layout.axes)
    if grain == 1:
        middle = (count - 1) / 2
        return tuple(max(round(side * (1 + 0.12 * (axis - middle))), smallest) for axis in range(count))
    whole = max(round(side / grain), -(-smallest // grain) + count // 2)
    return tuple(grain * max(whole + axis - count // 2, 1) for axis in range(count))


def proposals(layout: InputLayout, side: float, most: float, smallest: int = 1, grain: int = 1) -> Iterator[Proposal]:
    """List shapes with sides between the first and the most allowed: even ones, and ones with one axis long or short.

    Every second rung has odd lengths: those that transform fast would hide padding.
    """
    rung = 0
    while side <= most * 1.001:
        odd = rung % 2 if grain == 1 else 0
        lengths = tuple(length | odd for length in even(layout, side, smallest, grain))
        yield Proposal(lengths, None, even=True)
        for axis in range(len(lengths)):
            for factor in (STRETCH, 1 / STRETCH):
                length = max(grain * max(round(lengths[axis] * factor / grain), 1) | odd, smallest)
                shape = (*lengths[:axis], length, *lengths[axis + 1 :])
                yield Proposal(shape, axis if factor > 1 else None)
        side *= 2**0.5 if len(lengths) > 1 else 2.0
        rung += 1


def horizon(layout: InputLayout, volume: float) -> Array:
    """Return even and long shapes of a volume, at which a bound is to be tight where no shape is asked for."""
    axes = len(layout.axes)
    side = volume ** (1 / max(layout.ndims))
    shapes = [np.full(axes, side)]
    for axis in range(axes if axes > 1 else 0):
        long = np.full(axes, side * STRETCH ** (-1 / (axes - 1)))
        long[axis] = side * STRETCH
        shapes.append(long)
    return np.round(np.array(shapes))


def gains(fit: Fit, tried: Array, goals: Array) -> Array:
    """Return how much of the doubt about the goals each shape would remove, as a share between 0 and 1.

    All plausible sets of terms, weighed by how plausible they are, are taken as one normal belief: a shape tells most
    where it is uncertain together with the goals.
    """
    at_goals, at_tried, between = fit.covariance(goals, tried)
    noise = fit.resolution**2 + (fit.relative * fit.estimate(tried)) ** 2
    share = between**2 / np.maximum(at_goals[:, None] * (at_tried + noise)[None, :], 1e-30)
    size = np.maximum(fit.estimate(goals), 1.0)
    importance = at_goals / size**2
    return np.asarray(importance @ share / max(importance.sum(), 1e-30))


def choose(
    proposed: Sequence[Proposal], gain: Array, seconds: Array, seconds_left: float, samples_left: int
) -> Proposal:
    """Take the shape that tells most for its share of what is left of seconds and samples."""
    cost = seconds / max(seconds_left, 1e-3) + 1 / max(samples_left, 1)
    return proposed[int(np.argmax(gain / cost))]
