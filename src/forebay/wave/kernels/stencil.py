"""The coefficients of finite differences, for any even order."""

from math import factorial

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError


def second_derivative(order: int) -> NDArray[np.float64]:
    """Return the central stencil of the second derivative: the weights at distances 0, 1, ..., order / 2.

    Examples
    --------
    >>> second_derivative(4) * 12
    array([-30.,  16.,  -1.])
    """
    if order < 2 or order % 2:
        raise WaveError(f"a stencil of order {order}: give an even order of at least 2")
    radius = order // 2
    beside = [
        -2 * (-1) ** k * factorial(radius) ** 2 / (k**2 * factorial(radius - k) * factorial(radius + k))
        for k in range(1, radius + 1)
    ]
    return np.array([-2 * sum(beside), *beside])


def central_derivative(order: int) -> NDArray[np.float64]:
    """Return the central stencil of the first derivative: the weights at distances 1, ..., order / 2 after a point.

    Examples
    --------
    >>> central_derivative(4) * 12
    array([ 8., -1.])
    """
    return second_derivative(order)[1:] * np.arange(1, order // 2 + 1) / 2


def symbol(coefficients: NDArray[np.float64], angle: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return what a second derivative multiplies a plane wave by, for `angle` radians from one point to the next."""
    k = np.arange(1, len(coefficients))
    return np.asarray(coefficients[0] + 2 * np.cos(np.multiply.outer(angle, k)) @ coefficients[1:])
