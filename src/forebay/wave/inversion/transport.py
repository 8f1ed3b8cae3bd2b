"""Optimal transport along a line, compiled: masses go in their order, and none overtakes another."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.kernels.jit import jit


@jit()
def move(mass: Any, wanted: Any, price: Any) -> Any:
    """Return the squared distance at which a row of masses becomes another, and tell what more of each would cost.

    Both sum up to one. Where a mass goes from i to j, the prices of a mass more at i and of a want more at j add up to
    (i - j)^2, which tells all of them but for a constant.
    """
    i, j, cost = 0, 0, 0.0
    left, missing = mass[0], wanted[0]
    price[0], last = 0.0, len(mass) - 1
    want_price = 0.0
    while True:
        goes = min(left, missing)
        cost += goes * (i - j) ** 2
        left, missing = left - goes, missing - goes
        if i == last and j == last:
            return cost
        if j == last or (i < last and left <= missing):
            i += 1
            left = mass[i]
            price[i] = (i - j) ** 2 - want_price
        else:
            j += 1
            missing = wanted[j]
            want_price = (i - j) ** 2 - price[i]


def transported(
    masses: NDArray[np.float64], wanted: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what moving each row of masses costs, and what more of each mass would.

    Examples
    --------
    >>> masses, wanted = np.array([[0.5, 0.5, 0.0, 0.0]]), np.array([[0.0, 0.0, 0.5, 0.5]])
    >>> transported(masses, wanted)[0].tolist()
    [4.0]
    """
    costs, prices = np.empty(len(masses)), np.empty_like(masses)
    for row in range(len(masses)):
        costs[row] = move(masses[row], wanted[row], prices[row])
    return costs, prices
