"""The loops that read a field at points and add to it there, compiled: what `survey.points` has the weights for."""

from typing import Any

from forebay.wave.kernels.jit import jits, prange


@jits
def gather(flat: Any, starts: Any, cells: Any, weights: Any, out: Any) -> None:
    """Read a field at points."""
    for point in prange(len(starts) - 1):
        total = weights[0] * 0
        for k in range(starts[point], starts[point + 1]):
            total += weights[k] * flat[cells[k]]
        out[point] = total


@jits
def scatter(flat: Any, touched: Any, shares: Any, sharers: Any, weights: Any, values: Any, factors: Any) -> None:
    """Add values at points to a field, each cell's share times its factor."""
    for number in prange(len(touched)):
        total = weights[0] * 0
        for k in range(shares[number], shares[number + 1]):
            total += weights[k] * values[sharers[k]]
        flat[touched[number]] += factors[number] * total
