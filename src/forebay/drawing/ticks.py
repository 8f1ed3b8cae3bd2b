"""Round numbers along an axis."""

from math import ceil, floor, log10


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two ends, at most so many.

    Examples
    --------
    >>> ticks(0, 9.3), ticks(0, 0.0007, most=4)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 0.0002, 0.0004, 0.0006])
    """
    if not high > low:
        return [low]
    scale = 10.0 ** floor(log10((high - low) / most))
    apart = next(scale * times for times in (1, 2, 5, 10) if high - low <= scale * times * most)
    return [float(f"{number * apart:.12g}") for number in range(ceil(low / apart), floor(high / apart + 1e-9) + 1)]


def label(value: float) -> str:
    """Write a tick.

    Examples
    --------
    >>> label(2.0), label(0.0002), label(12000.0)
    ('2', '0.0002', '12000')
    """
    return f"{value:.6g}"
