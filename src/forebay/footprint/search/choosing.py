"""Which sample to take next: what may be run, where the bound is to be tight, and whether it is."""

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.model import Model
from forebay.footprint.search.proposals import (
    Proposal,
    alike,
    choose,
    gains,
    horizon,
    proposals,
    settings,
    step,
    usual,
)
from forebay.footprint.search.spending import Spending

Array = NDArray[np.float64]

AMPLE = 32e6
FAR_SHARE = 0.005
MOST = 256e6
"""peak bytes that a sample may have: the first, or that share of what is to be foreseen, but never above the last"""
REACH = 32.0
"""where no shape is asked for, the bound is to be tight for arrays so many times larger than the largest sample"""
OVERHEAD = 0.01


def pool(
    model: Model, limits: Spending, side: float, grain: int, refused: Set[tuple[float, ...]], seconds_left: float
) -> list[Proposal]:
    """List what may be run next: nothing that was run before, or would take too much memory or time."""
    layout = model.layout
    largest = max(layout.volume(sample.lengths) for sample in model.samples)
    most = min(limits.elements, largest * step(layout) ** layout.free_ndim)  # no leaps: the fit may still be wrong
    done = {sample.called for sample in model.samples} | refused
    proposed = [*proposals(layout, side, layout.side(most), limits.smallest, grain)]
    if limits.target is not None:
        proposed.append(Proposal(limits.target, None, parameters=usual(layout)))
        proposed.append(alike(layout, limits.target, most, limits.smallest, grain))
    listed = [
        proposal
        for proposal in proposed
        if proposal.called not in done
        and layout.volume(proposal.lengths) <= most
        and model.timing(proposal.called) <= max(seconds_left / 3, OVERHEAD)
    ]
    if not listed:
        return []
    peaks = model.main.estimate(_points(model, [proposal.called for proposal in listed]))
    far = float(model.main.estimate(_goals(model, limits)).max())
    ample = min(max(AMPLE, FAR_SHARE * far), MOST)
    return [proposal for proposal, peak in zip(listed, peaks, strict=True) if peak <= ample]


def pick(
    model: Model, limits: Spending, listed: Sequence[Proposal], seconds_left: float, samples_left: int
) -> Proposal:
    """Take the proposal that tells most for what it costs."""
    gain = gains(model.main, _points(model, [proposal.called for proposal in listed]), _goals(model, limits))
    seconds = np.array([model.timing(proposal.called) + OVERHEAD for proposal in listed])
    return choose(listed, gain, seconds, seconds_left, samples_left)


def is_tight(model: Model, limits: Spending) -> bool:
    """Return whether the bound is near enough, and rests on what grows rather than on what is always there."""
    fit, goals = model.main, _goals(model, limits)
    volumes = np.array([float(model.layout.volume(goal)) for goal in goals])
    estimate, upper = fit.predict(goals, volumes, model.risk)
    near = upper <= (1 + limits.tight) * np.maximum(estimate, 1.0)
    largest = max(sample.peak for sample in model.samples)
    fixed = fit.coefficients["1"]
    return bool(near.all()) and fixed <= largest / 2


def _goals(model: Model, limits: Spending) -> Array:
    """Return the points at which the bound is to be tight."""
    layout = model.layout
    if limits.target is not None:
        shapes = [limits.target]
    else:
        largest = max(layout.volume(sample.lengths) for sample in model.samples)
        shapes = [tuple(int(n) for n in shape) for shape in horizon(layout, REACH * largest)]
    middle = usual(layout)
    return _points(model, [(*s, *middle) for s in shapes] + [(*shapes[0], *ends) for ends in settings(layout)])


def _points(model: Model, called: Sequence[tuple[float, ...]]) -> Array:
    """Add features to lengths and parameters, at the density they had in the samples."""
    points = np.array(called, dtype=float)
    volumes = np.array([model.layout.volume(row) for row in called], dtype=float)
    sampled = np.array([model.layout.volume(sample.lengths) for sample in model.samples], dtype=float)
    for name in sorted(model.samples[0].features):
        density = np.array([sample.features[name] for sample in model.samples]).sum() / sampled.sum()
        points = np.column_stack([points, density * volumes])
    return points
