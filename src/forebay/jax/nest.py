"""How a loop is cut into scans in scans that keep the first states of their segments: arithmetic, without arrays.

A nest of k levels runs every step forward k + 1 times: once for the result, and once more in each level. Its segments
of a level are all of one length, which the next level divides without a remainder. What is left of the loop beside the
longest segments is cut into shorter ones, as an amount of money is paid in coins.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

Lengths = tuple[int, ...]
"""Steps of a segment of each level, longest first; the last are recorded at once."""

MOST_LEVELS = 8
"""Further levels run everything once more each, and save next to nothing."""
NEAR = 9
"""How far from the ideal counts are looked for, for the sake of those that leave little over; less with each level."""


@dataclass(frozen=True)
class Sizes:
    """The bytes that a nest is made of."""

    state: int
    graph: int
    """of each step that is recorded"""
    sums: int = 0
    """of the gradients of parameters, which each level sums by itself"""
    beside: int = 0
    """what is there once, whatever the nest"""


def segments(steps: int, lengths: Lengths) -> list[tuple[int, Lengths]]:
    """List the segments that follow each other in the outermost level: how many, and the lengths inside of them."""
    outermost, rest = [], steps
    for level, length in enumerate(lengths):
        count, rest = divmod(rest, length)
        if count:
            outermost.append((count, lengths[level:]))
    return [*outermost, (1, (rest,))] if rest else outermost


def nested_bytes(steps: int, lengths: Lengths, sizes: Sizes) -> int:
    """Compute the bytes of a nest: of the states kept in all levels, of the innermost recording, and beside."""
    kept = sum(count for count, _ in segments(steps, lengths))
    states = (kept + sum(_inner_counts(lengths))) * sizes.state
    return states + lengths[-1] * sizes.graph + (len(lengths) - 1) * sizes.sums + sizes.beside


def _inner_counts(lengths: Lengths) -> list[int]:
    """Return how many segments of the next level are in one of each."""
    return [longer // shorter for longer, shorter in pairwise(lengths)]


def choose(steps: int, sizes: Sizes, room: int) -> Lengths | None:
    """Choose the nest of the fewest levels that fits into the room, and of those the smallest; None where none fits."""
    for levels in range(1, MOST_LEVELS + 1):
        best = smallest(steps, levels, sizes)
        if best is not None and nested_bytes(steps, best, sizes) <= room:
            return best
    return None


def least_bytes(steps: int, sizes: Sizes) -> int:
    """Return the smallest room in which a nest is foreseen to fit."""
    nests = [smallest(steps, levels, sizes) for levels in range(1, MOST_LEVELS + 1)]
    return min(nested_bytes(steps, lengths, sizes) for lengths in nests if lengths is not None)


def smallest(steps: int, levels: int, sizes: Sizes) -> Lengths | None:
    """Find the nest of so many levels that takes the least memory; None where the loop is too short for it."""
    # Where all levels and the recording take the same.
    ideal = (steps * (sizes.state / max(1, sizes.graph)) ** levels) ** (1 / (levels + 1))
    far = max(1, NEAR - 2 * levels)
    tried = (
        lengths for span in _spans(steps, levels, ideal, far) for lengths in _grown((span,), steps, levels - 1, far)
    )
    return min(tried, key=lambda lengths: (nested_bytes(steps, lengths, sizes), lengths), default=None)


def _spans(steps: int, levels: int, ideal: float, far: int) -> set[int]:
    """Propose lengths of recordings that are about as long as they should be, or that there are about as many of."""
    longest = steps // 2 ** (levels - 1)
    many = (ceil(steps / count) for count in _near(steps / min(max(ideal, 1), steps), 1, steps, far))
    return {*_near(ideal, 1, longest, far), *(span for span in many if span <= longest)}


def _grown(lengths: Lengths, steps: int, levels: int, far: int) -> Iterator[Lengths]:
    """Put so many more levels around a nest."""
    if levels == 0:
        yield lengths
        return
    for count in _near((steps / lengths[0]) ** (1 / (levels + 1)), 2, steps // lengths[0], far):
        yield from _grown((count * lengths[0], *lengths), steps, levels - 1, far)


def _near(ideal: float, least: int, most: int, far: int) -> range:
    """Return the numbers near an ideal one, between those that make sense."""
    ideal = min(max(ideal, least), most)
    low, high = max(0.7 * ideal, ideal - far), min(1.4 * ideal, ideal + far)
    return range(max(least, int(low)), min(most, ceil(high)) + 1)


def counts_to_text(steps: int, lengths: Lengths) -> str:
    """Write the counts of a nest, outermost first: ``20 x 10 x 10 steps``, with what is left over behind a plus."""
    count, first = segments(steps, lengths)[0]
    over = steps - count * first[0]
    return " x ".join(map(str, (count, *_inner_counts(first), first[-1]))) + " steps" + (f" + {over}" if over else "")
