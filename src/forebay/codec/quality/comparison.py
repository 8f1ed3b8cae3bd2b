"""What comparing two arrays finds, wherever they lie."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Compared:
    """What one pass over two arrays finds."""

    worst: float
    """error; infinite where a value is not finite in one array alone"""
    squares: float
    """sum of squared errors"""
    least: float
    most: float
    """the finite values of the original"""
    count: int

    @property
    def span(self) -> float:
        """The range of the original; 0 where nothing in it is finite."""
        return max(0.0, self.most - self.least)

    @property
    def psnr(self) -> float:
        """Decibels of the range over the root of the mean squared error."""
        if self.squares == 0:
            return math.inf
        if self.span == 0 or math.isinf(self.squares):
            return -math.inf
        return 20 * math.log10(self.span) - 10 * math.log10(self.squares / self.count)
