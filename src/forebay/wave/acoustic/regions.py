"""How a volume is parted among the thread blocks of a GPU: what each marches through, and which layers it knows.

Threads that march along the axis of a layer carry its memory with them. So the layers of planes are regions in which
threads march along planes, and between these the layers of rows are regions in which they march along rows. What is
left knows nothing of layers. Layers of rows inside those of planes, and all layers along rows, are computed by
themselves before a step: parts, which the stencils then need not look for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.layers import Side

Span = tuple[int, int]


@dataclass(frozen=True)
class Region:
    """A box whose threads march along an axis, from the first to the last of `march`, and own `lines` of the other."""

    axis: int
    march: Span
    lines: Span
    side: int | None = None
    """the layer along whose axis they march, whose whole extent it is"""


@dataclass(frozen=True)
class Part:
    """A part of a layer that is computed by itself: lines of its other axis, or rows, where it lies along them."""

    side: int
    lines: Span


def regions_of(sides: Sequence[Side], planes: Span, rows: Span) -> list[Region]:
    """Part all computed points of a volume into regions; those without layers come first, since they take longest.

    Examples
    --------
    >>> regions_of([], (4, 20), (4, 30))
    [Region(axis=0, march=(4, 20), lines=(4, 30), side=None)]
    """
    layers, plain = [], []
    for span, side in _spans(sides, 0, planes):
        if side is not None:
            layers.append(Region(0, span, rows, side))
            continue
        for across, other in _spans(sides, 1, rows):
            if other is None:
                plain.append(Region(0, span, across))
            else:
                layers.append(Region(1, across, span, other))
    return plain + layers


def parts_of(sides: Sequence[Side], planes: Span, rows: Span, *, everything: bool = False) -> list[Part]:
    """Return what no region knows of the layers, or all of them."""
    parts = []
    lines = (planes[1] - planes[0]) * (rows[1] - rows[0])
    for number, side in enumerate(sides):
        if side.axis == 2:
            parts.append(Part(number, (0, lines)))
        elif everything:
            parts.append(Part(number, rows if side.axis == 0 else planes))
        elif side.axis == 1:
            parts += [Part(number, span) for span, layer in _spans(sides, 0, planes) if layer is not None]
    return parts


def region_table(
    regions: Sequence[Region], across: int, chunk: Callable[[int, int], int]
) -> tuple[NDArray[np.int32], int]:
    """Return the rows that the kernels read, and how many units of work there are.

    Parameters
    ----------
    regions : sequence of Region
        In the order in which they begin.
    across : int
        Lines that a thread block owns.
    chunk : callable
        Chooses how far a thread marches, for so many thread blocks across and so many places. Through a layer
        it marches in one go.
    """
    table, units = [], 0
    for region in regions:
        length, blocks = region.march[1] - region.march[0], -(-(region.lines[1] - region.lines[0]) // across)
        step = chunk(blocks, length) if region.side is None else length
        number = 0 if region.side is None else region.side + 1
        table.append((units, region.axis, *region.march, step, *region.lines, blocks, number))
        units += blocks * -(-length // step)
    return np.array(table, np.int32).reshape(-1, 9), units


def part_table(parts: Iterable[Part], blocks: Callable[[Part], int]) -> tuple[NDArray[np.int32], int]:
    """Return the rows that the kernels read, and how many thread blocks there are, of which each part has so many."""
    table, units = [], 0
    for part in parts:
        table.append((units, part.side, *part.lines))
        units += blocks(part)
    return np.array(table, np.int32).reshape(-1, 4), units


def _spans(sides: Sequence[Side], axis: int, whole: Span) -> list[tuple[Span, int | None]]:
    """Cut an axis where its layers, with all that a step back changes, begin and end; tell which layer each is of."""
    spans: list[tuple[Span, int | None]] = []
    at = whole[0]
    for number, side in enumerate(sides):
        if side.axis == axis:
            first, last = side.start - side.lead, side.start + side.count + side.trail
            spans += [((at, first), None)] if first > at else []
            spans.append(((first, last), number))
            at = last
    return spans + ([((at, whole[1]), None)] if at < whole[1] else [])
