"""What a lossy codec does to what backward sees, measured on bricks of a few sampled steps.

A codec's bound holds at each save. From a state that was restored the loop goes on with that error, and no codec can
say what becomes of it; so small bricks of the arrays are kept as they were in the first pass, and compared.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import quality
from forebay.engine.host_copies import to_host
from forebay.engine.layout import Layout, arrays_of
from forebay.machine.arrays.dispatch import array_library, stored_view
from forebay.metrics import Distortion

STEPS = 5
"""Steps that are sampled, spread over the loop."""
BRICKS = 8
"""Bricks of each array."""
EDGE = 16
"""Elements along each axis of a brick, where the array has as many."""


class Sampler:
    """Bricks of what backward should see, and of what it sees."""

    def __init__(self, layout: Layout, steps: int) -> None:
        self._left = sorted({(2 * number + 1) * steps // (2 * STEPS) for number in range(STEPS)}, reverse=True)
        self._before: dict[int, Any] = {}
        self._after: dict[int, Any] = {}
        random = np.random.default_rng(0)
        self._bricks = [
            [_brick(spec.shape, random) for _ in range(BRICKS)] if spec.dtype.kind == "f" and all(spec.shape) else []
            for spec in (leaf.spec for leaf in layout.leaves)
        ]

    def stops(self, start: int, stop: int) -> Iterator[int]:
        """Yield the sampled steps that a forward computation meets for the first time."""
        while self._left and start <= self._left[-1] < stop:
            yield self._left.pop()

    def keep(self, step: int, tree: Any) -> None:
        """Keep bricks of what backward should see of a step."""
        self._before[step] = (
            self._cut(tree),
            [
                _scale(stored_view(array)) if bricks else None
                for array, bricks in zip(arrays_of(tree), self._bricks, strict=True)
            ],
        )

    def sees(self, step: int) -> bool:
        """Tell whether a step is a sampled one."""
        return step in self._before

    def see(self, step: int, tree: Any) -> None:
        """Keep bricks of what backward sees of a step, where it is a sampled one."""
        if self.sees(step):
            self._after[step] = self._cut(tree)

    def samples(self) -> list[Distortion]:
        """Compare, once everything has been computed."""
        return [
            _compare(step, zip(self._before[step][0], seen, self._before[step][1], strict=True))
            for step, seen in sorted(self._after.items())
        ]

    def _cut(self, tree: Any) -> list[list[Any]]:
        return [
            [array_library(array).copy(array[brick]) for brick in bricks]
            for array, bricks in zip(arrays_of(tree), self._bricks, strict=True)
        ]


def _brick(shape: Sequence[int], random: np.random.Generator) -> tuple[slice, ...]:
    starts = [int(random.integers(max(1, extent - EDGE + 1))) for extent in shape]
    return tuple(slice(start, start + EDGE) for start in starts)


def _scale(array: Any) -> Callable[[], float]:
    """Return what tells the range of the finite values, or their size where all are the same.

    It is asked at the end: a host that waited for it, and for memory to be freed, would let a device run dry.
    """
    compared = quality.begin_compare(array, array)

    def scale() -> float:
        difference = compared()
        return difference.span or max(abs(difference.least), abs(difference.most))

    return scale


def _compare(step: int, leaves: Iterable[tuple[list[Any], list[Any], Callable[[], float] | None]]) -> Distortion:
    """Return the worst of all arrays, each by the range it had."""
    worst, relative, psnr, similar = 0.0, 0.0, math.inf, 1.0
    for before, after, scale in leaves:
        if scale is None:
            continue
        span = scale()
        pairs = [(to_host(exact), to_host(lossy)) for exact, lossy in zip(before, after, strict=True)]
        differences = [quality.compare(*pair) for pair in pairs]
        error = max(difference.worst for difference in differences)
        squares = sum(each.squares for each in differences) / sum(each.count for each in differences)
        worst = max(worst, error)
        if error:
            relative = max(relative, error / span if span else math.inf)
            psnr = min(psnr, 20 * math.log10(span) - 10 * math.log10(squares) if span and squares else -math.inf)
            similar = min(similar, *(_similarity(*pair, span) for pair in pairs))
    return Distortion(step, worst, relative, psnr, similar)


def _similarity(exact: NDArray[Any], lossy: NDArray[Any], span: float) -> float:
    shape = (-1, *exact.shape[-2:]) if exact.ndim > 3 else exact.shape
    exact, lossy = exact.reshape(shape), lossy.reshape(shape)
    window = min([7, *(extent - 1 + extent % 2 for extent in exact.shape if extent > 1)])
    return quality.ssim(exact, lossy, window, span) if exact.size > 1 and window >= 3 else 1.0
