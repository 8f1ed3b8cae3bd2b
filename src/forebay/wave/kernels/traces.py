"""The loops of resampling, compiled: what `survey.resample` has the weights for."""

from typing import Any

from forebay.wave.kernels.jit import jit


@jit()
def pull(old: Any, first: Any, weights: Any, new: Any) -> None:
    """Fill new samples, each a weighted sum of old ones from its `first` on."""
    for i in range(len(new)):
        for k in range(weights.shape[1]):
            if weights[i, k] != 0:
                source = old[first[i] + k]
                for trace in range(new.shape[1]):
                    new[i, trace] += weights[i, k] * source[trace]


@jit()
def push(new: Any, first: Any, weights: Any, old: Any) -> None:
    """Add new samples to old ones: the transpose of `pull`."""
    for i in range(len(new)):
        for k in range(weights.shape[1]):
            if weights[i, k] != 0:
                target = old[first[i] + k]
                for trace in range(new.shape[1]):
                    target[trace] += weights[i, k] * new[i, trace]
