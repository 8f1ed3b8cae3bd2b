"""What seals and `bitcomp` compute on the CPU, compiled by Numba: the twins of ``seal.cu`` and ``spread.cu``."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.compiled import jit


@jit
def mixed_sum(words: NDArray[np.uint64], place: int) -> np.uint64:
    """Add up words, each mixed with its place; the first has the place that is given."""
    total = np.uint64(0)
    half = np.uint64(32)
    step = np.uint64(0x9E3779B97F4A7C15)
    factor = np.uint64(0xD6E8FEB86659FD93)
    salt = np.uint64(place) * step
    for word in words:
        x = word ^ salt
        x ^= x >> half
        x *= factor
        total += x ^ (x >> half)
        salt += step
    return total


@jit
def spread(values: NDArray[Any], deviation: bool) -> float:
    """Return the range of the finite values, or their standard deviation; 0 where there is none."""
    least, most, total, squares, count = np.inf, -np.inf, 0.0, 0.0, 0
    centre = np.float64(values[0]) if np.isfinite(values[0]) else 0.0
    for index in range(values.size):
        value = np.float64(values[index])  # Numba's `float` would leave it a float32
        if np.isfinite(value):
            least, most = min(least, value), max(most, value)
            away = value - centre
            total += away
            squares += away * away
            count += 1
    if count == 0:
        return 0.0
    if deviation:
        if not np.isfinite(squares):
            return np.inf
        mean = total / count
        return math.sqrt(max(squares / count - mean * mean, 0.0))
    return most - least
