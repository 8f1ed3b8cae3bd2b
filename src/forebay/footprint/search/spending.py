"""What a search for a footprint may spend, and when it has found enough."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Spending:
    """The limits of a search."""

    samples: int
    deadline: float
    """on the clock of `time.perf_counter`"""
    tight: float
    """the fraction by which the bound may exceed the estimate"""
    smallest: int
    """length of an axis"""
    elements: float
    """of a sample, at most"""
    least: float
    """seconds left in which nothing more can be learned: a share of all"""
    target: tuple[int, ...] | None
    """the lengths that matter most, where they are known"""
