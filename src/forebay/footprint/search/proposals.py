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
AT_MOST = 0.95
"""the share of what a sample may have that the largest of them have, of whatever proportions"""
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
    alike: bool = False
    """whether it has the proportions of the shape that is asked for"""
    parameters: tuple[float, ...] = ()
    """what the function is called with, by name"""

    @property
    def called(self) -> tuple[float, ...]:
        """The lengths, and the parameters after them."""
        return (*self.lengths, *self.parameters)


def usual(layout: InputLayout) -> tuple[float, ...]:
    """Return what parameters are called with when others are varied: the middle of what they may be."""
    return tuple(
        values.nearest((values.low * values.high) ** 0.5 if values.low > 0 else (values.low + values.high) / 2)
        for _, values in layout.parameters
    )


def settings(layout: InputLayout) -> list[tuple[float, ...]]:
    """List parameters of which one is as high or as low as it may be, then those that all are."""
    middle, listed = usual(layout), []
    for place, (_, values) in enumerate(layout.parameters):
        ends = (values.high, values.low)
        listed += [(*middle[:place], values.nearest(end), *middle[place + 1 :]) for end in ends]
    for end in ("high", "low"):
        listed.append(tuple(getattr(values, end) for _, values in layout.parameters))
    return [called for called in dict.fromkeys(listed) if called != middle]


def first_side(layout: InputLayout) -> int:
    """Return the side to begin with."""
    return SIDES.get(layout.free_ndim, 6)


def step(layout: InputLayout) -> float:
    """Return the factor by which sides may grow from sample to sample."""
    return STEP.get(layout.free_ndim, 1.5)


def even(layout: InputLayout, side: float, smallest: int = 1, grain: int = 1) -> tuple[int, ...]:
    """Return lengths near a side, no two the same: equal ones would hide which axis matters.

    All are multiples of the grain, for functions that take no others.
    """
    count = len(layout.axes)
    if grain == 1:
        middle = (count - 1) / 2
        return layout.fit([max(round(side * (1 + 0.12 * (axis - middle))), smallest) for axis in range(count)])
    whole = max(round(side / grain), -(-smallest // grain) + count // 2)
    return layout.fit([grain * max(whole + axis - count // 2, 1) for axis in range(count)])


def proposals(layout: InputLayout, side: float, most: float, smallest: int = 1, grain: int = 1) -> Iterator[Proposal]:
    """List shapes with sides between the first and the most allowed: even ones, and ones with one axis long or short.

    Every second rung has odd lengths: those that transform fast would hide padding. Of parameters, one at a time is
    as low or as high as it may be, in even shapes.
    """
    rung, called = 0, usual(layout)
    while side <= most * 1.001:
        odd = rung % 2 if grain == 1 else 0
        lengths = layout.fit([length | odd for length in even(layout, side, smallest, grain)])
        yield Proposal(lengths, None, even=True, parameters=called)
        for others in settings(layout):
            yield Proposal(lengths, None, parameters=others)
        for axis in layout.free:
            for factor in (STRETCH, 1 / STRETCH):
                length = max(grain * max(round(lengths[axis] * factor / grain), 1) | odd, smallest)
                shape = layout.fit((*lengths[:axis], length, *lengths[axis + 1 :]))
                if shape[axis] != lengths[axis]:
                    yield Proposal(shape, axis if factor > 1 else None, parameters=called)
        side *= 2**0.5 if layout.free_ndim > 1 else 2.0
        rung += 1
    for shape in horizon(layout, AT_MOST * layout.volume(layout.fit([round(most)] * len(layout.axes)))):
        lengths = layout.fit([max(int(length) | (grain == 1), smallest) for length in shape])
        if grain == 1:
            yield Proposal(lengths, None, parameters=called)


def alike(layout: InputLayout, target: tuple[int, ...], most: float, smallest: int, grain: int) -> Proposal:
    """Return the largest shape of the proportions that are asked for: whichever stage leads there leads here."""
    factor = min(AT_MOST * most / layout.volume(target), 1.0) ** (1 / layout.free_ndim)
    lengths = layout.fit([grain * max(round(factor * n / grain), -(-smallest // grain), 1) for n in target])
    return Proposal(lengths, None, alike=True, parameters=usual(layout))


def horizon(layout: InputLayout, volume: float) -> Array:
    """Return even and long shapes of a volume, at which a bound is to be tight where no shape is asked for."""
    growing = len(layout.free)
    side = layout.side(volume)
    shapes = [np.full(len(layout.axes), side)]
    for axis in layout.free if growing > 1 else ():
        long = np.full(len(layout.axes), side * STRETCH ** (-1 / (growing - 1)))
        long[axis] = side * STRETCH
        shapes.append(long)
    return np.array([layout.fit([round(length) for length in shape]) for shape in shapes], dtype=float)


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
