"""Optimal transport along a line, compiled: masses go in their order, and none overtakes another.

Each mass is spread over its sample, so what is moved by less than one sample costs the square of that.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.kernels.jit import jit


@jit()
def move(mass: Any, wanted: Any, price: Any) -> Any:
    """Return the squared distance at which a row of masses becomes another, and tell what more of each would cost.

    Both sum up to one, and all are above zero. From t0 to t1 goes to where is linear, between e0 and e1 samples away.
    The price of mass at t, but for a constant, has twice that distance as its slope; that of a sample is its mean.
    """
    i, j, cost, here, last = 0, 0, 0.0, 0.0, len(mass) - 1
    left, missing, t, there = mass[0], wanted[0], 0.0, 0.0
    price[:] = 0.0
    while True:
        goes = min(left, missing)
        ahead, onward = goes / mass[i], goes / wanted[j]
        e0, e1 = t - there, t + ahead - there - onward
        cost += goes * (e0 * e0 + e0 * e1 + e1 * e1) / 3
        price[i] += ahead * (here + ahead * (e0 + (e1 - e0) / 3))
        here += ahead * (e0 + e1)
        left, missing, t, there = left - goes, missing - goes, t + ahead, there + onward
        if i == last and j == last:
            return cost
        if j == last or (i < last and left <= missing):
            i += 1
            left, t = mass[i], float(i)
        else:
            j += 1
            missing, there = wanted[j], float(j)


def transported(
    masses: NDArray[np.float64], wanted: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what moving each row of masses costs, and what more of each mass would.

    Examples
    --------
    >>> tiny = 1e-12
    >>> masses, wanted = np.array([[0.5, 0.5, tiny, tiny]]), np.array([[tiny, tiny, 0.5, 0.5]])
    >>> transported(masses, wanted)[0].round(6).tolist()
    [4.0]
    """
    costs, prices = np.empty(len(masses)), np.empty_like(masses)
    for row in range(len(masses)):
        costs[row] = move(masses[row], wanted[row], prices[row])
    return costs, prices
