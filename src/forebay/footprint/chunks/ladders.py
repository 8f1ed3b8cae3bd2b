"""Which chunk shapes to look at: lengths per axis, the limit of those that fit, and steps from one to the next."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from forebay.footprint.chunks.predictor import Shape

PROBES = 10_000
"""About how many shapes are looked at on the way along the limit."""
STARTS = 8
"""How many of the fastest shapes on the limit are improved upon."""
STRIDES = 1024, 32, 1
"""Places on a ladder from one shape to the next: axes of billions have ladders of hundreds of thousands."""
FINEST = 20_000
"""Lengths that differ by less than this part of themselves are not told apart: of huge axes there would be too many."""

Ladder = Sequence[int]
"""The lengths that an axis may be cut into, shortest first; the last is the whole axis."""


def search(
    fits: Callable[[Shape], bool],
    seconds: Callable[[Shape], float],
    ladders: Sequence[Ladder],
    starts: Sequence[Shape] = (),
) -> None:
    """Look at the largest shapes that fit, of every aspect ratio, then improve on the fastest and the starts.

    The caller remembers what was looked at.
    """
    starting = {*frontier(fits, [thin(ladder, len(ladders)) for ladder in ladders]), *filter(fits, starts)}
    for start in sorted(starting, key=lambda chunks: (seconds(chunks), chunks))[:STARTS]:
        here, moved = start, True
        while moved:
            moved = False
            for other in _steps(here, ladders):
                if fits(other) and seconds(other) < seconds(here):
                    here, moved = other, True
                    break


def frontier(fits: Callable[[Shape], bool], ladders: Sequence[Ladder]) -> Iterator[Shape]:
    """Yield the shapes that cannot grow along the last axis.

    Footprints grow with the shape, so along the last two axes the limit is a staircase, walked in one go.
    """
    if len(ladders) == 1:
        yield from ((length,) for length in ladders[0] if fits((length,)))
        return
    *others, rows, columns = ladders
    for before in product(*others):
        column = len(columns) - 1
        for row in rows:
            while column >= 0 and not fits((*before, row, columns[column])):
                column -= 1
            if column < 0:
                break
            yield (*before, row, columns[column])


def _steps(chunks: Shape, ladders: Sequence[Ladder]) -> Iterator[Shape]:
    for axis, ladder in enumerate(ladders):
        place = bisect_left(ladder, chunks[axis])
        for stride in STRIDES:
            for other in (place - stride, place + stride):
                if 0 <= other < len(ladder):
                    yield (*chunks[:axis], ladder[other], *chunks[axis + 1 :])


def lengths(extent: int, halo: int, least: int) -> list[int]:
    """List the lengths that cut an axis evenly into some number of chunks."""
    even = {1}
    length = extent
    while length > 1:
        even.add(length)
        shorter = max(1, length - 1 - length // FINEST)
        length = -(-extent // -(-extent // shorter))  # by the next number of chunks that makes them shorter
    return sorted(length for length in even if _allowed(extent, length, halo, least))


def aligned(ladder: Ladder, stored: int, halo: int, least: int) -> list[int]:
    """List the multiples of the stored length that are nearest below those of a ladder; the whole axis stays."""
    *shorter, extent = ladder
    multiples = {length // stored * stored for length in shorter}
    return sorted({extent, *(length for length in multiples if _allowed(extent, length, halo, least))})


def nearest(ladder: Ladder, stored: int, halo: int, least: int) -> int:
    """Return the stored length itself, or the whole axis where it is longer, too thin or the axis must not be cut."""
    extent = ladder[-1]
    return stored if len(ladder) > 1 and stored < extent and _allowed(extent, stored, halo, least) else extent


def _allowed(extent: int, length: int, halo: int, least: int) -> bool:
    """Return whether chunks are long enough, and the last one at least half of that."""
    return length >= max(1, min(extent, least)) and _thick(extent, length, max(halo, least // 2))


def _thick(extent: int, length: int, halo: int) -> bool:
    """Return whether no chunk is thinner than the halo: it comes from the next chunk, never from the one after."""
    return length == extent or (length >= halo and (extent % length or length) >= halo)


def thin(ladder: Ladder, ndim: int) -> list[int]:
    """Keep as many lengths as the search can look at, evenly spaced in their logarithm."""
    points = max(3, int((PROBES / 2) ** (1 / max(1, ndim - 1))))
    if len(ladder) <= points:
        return list(ladder)
    low, high = math.log(ladder[0]), math.log(ladder[-1])
    targets = (math.exp(low + (high - low) * place / (points - 1)) for place in range(points))
    return sorted({ladder[min(len(ladder) - 1, bisect_left(ladder, round(length)))] for length in targets})
