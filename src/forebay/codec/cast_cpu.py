"""`cast` on the CPU, compiled by Numba: the twin of the kernels in ``cast.cu``."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec.compiled import jit


@jit
def largest(values: NDArray[Any]) -> float:
    """Find the largest finite magnitude."""
    largest = 0.0
    for value in values:
        magnitude = abs(value)
        if magnitude > largest and magnitude < np.inf:
            largest = magnitude
    return float(largest)


@jit
def encode(
    values: NDArray[Any], out: NDArray[np.uint16], first: float, second: float, mantissa: int, bias: int
) -> None:
    """Scale by two factors and round to 16 bits, to even where two are as near."""
    infinity = np.uint64((2 * bias + 1) << mantissa)
    smallest = 2.0 ** (1 - bias)
    spacing = 2.0 ** (mantissa + bias - 1)
    drop = np.uint64(52 - mantissa)
    below = (np.uint64(1) << (drop - np.uint64(1))) - np.uint64(1)
    rebias = np.uint64((1023 - bias) << mantissa)
    bits = np.empty(1, np.float64)
    word = bits.view(np.uint64)
    for index in range(values.size):
        value = np.float64(values[index])
        bits[0] = value
        sign = (word[0] >> np.uint64(63)) << np.uint64(15)
        if value != value:
            half = infinity | np.uint64(1 << (mantissa - 1))
        elif abs(value) == np.inf:
            half = infinity
        else:
            magnitude = abs(value) * first * second
            if magnitude < smallest:
                half = np.uint64(np.rint(magnitude * spacing))
            else:
                bits[0] = magnitude
                even = (word[0] >> drop) & np.uint64(1)
                half = ((word[0] + below + even) >> drop) - rebias
            half = min(half, infinity - np.uint64(1))
        out[index] = np.uint16(sign | half)


@jit
def decode(
    words: NDArray[np.uint16], out: NDArray[Any], first: float, second: float, most: float, mantissa: int, bias: int
) -> None:
    """Widen 16 bits and scale by two factors, staying below the largest number of the type."""
    infinity = np.uint64((2 * bias + 1) << mantissa)
    spacing = 2.0 ** (1 - mantissa - bias)
    rebias = np.uint64((1023 - bias) << mantissa)
    bits = np.empty(1, np.uint64)
    real = bits.view(np.float64)
    for index in range(out.size):
        half = np.uint64(words[index] & np.uint16(0x7FFF))
        if half > infinity:
            value = np.nan
        elif half == infinity:
            value = np.inf
        else:
            if half >> np.uint64(mantissa) == 0:
                value = np.float64(half) * spacing
            else:
                bits[0] = (half + rebias) << np.uint64(52 - mantissa)
                value = real[0]
            value = min(value * first * second, most)
        out[index] = -value if words[index] & np.uint16(0x8000) else value
