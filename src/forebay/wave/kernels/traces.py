"""The loops of resampling, compiled: what `survey.resample` has the weights for."""

from typing import Any

from forebay.wave.kernels.jit import jit


@jit()
def pull(old: Any, first: Any, weights: Any, new: Any, begin: int, end: int) -> None:
    """Fill new samples of traces from `begin` to `end`, each a weighted sum of old ones from its `first` on."""
    for i in range(len(new)):
        for k in range(weights.shape[1]):
            if weights[i, k] != 0:
                source, target = old[first[i] + k, begin:end], new[i, begin:end]
                for trace in range(len(target)):
                    target[trace] += weights[i, k] * source[trace]


@jit()
def push(new: Any, first: Any, weights: Any, old: Any, begin: int, end: int) -> None:
    """Add new samples to old ones: the transpose of `pull`."""
    for i in range(len(new)):
        for k in range(weights.shape[1]):
            if weights[i, k] != 0:
                target, source = old[first[i] + k, begin:end], new[i, begin:end]
                for trace in range(len(target)):
                    target[trace] += weights[i, k] * source[trace]
