"""How a volume is parted among the thread blocks of a GPU: what each marches through, and which layers it knows.

Threads that march along the axis of a layer carry its memory with them. So the layers of planes are zones in which
threads march along planes, and between these the layers of rows are zones in which they march along rows. Of each, and
of what lies between, the ends of rows are zones whose thread blocks have all words of a layer along them. What is left
knows nothing of layers. Where layers of planes and of rows meet, the latter are computed before a step: parts, which
the stencils then need not look for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.layers import Side
from forebay.wave.kernels.rows import WORD

Span = tuple[int, int]


@dataclass(frozen=True)
class Box:
    """Places along each axis; along rows they are words."""

    planes: Span
    rows: Span
    words: Span


@dataclass(frozen=True)
class Zone:
    """A box whose threads march along an axis."""

    axis: int
    box: Box
    side: int | None = None
    """the layer along the march, whose whole extent it is"""
    along: int | None = None
    """the layer along rows"""

    @property
    def march(self) -> Span:
        """Places along the march."""
        return self.box.rows if self.axis else self.box.planes

    @property
    def lines(self) -> Span:
        """Places of the other axis across rows."""
        return self.box.planes if self.axis else self.box.rows


@dataclass(frozen=True)
class Part:
    """A part of a layer of rows that is computed by itself."""

    side: int
    planes: Span


@dataclass(frozen=True)
class Tiles:
    """How a zone is cut into thread blocks: words and lines of each, and how far it marches."""

    words: int
    lines: int
    chunk: int


def zones_of(sides: Sequence[Side], whole: Box) -> list[Zone]:
    """Part all computed points of a volume into zones, those with layers first, since they take longest.

    Examples
    --------
    >>> zones_of([], Box((4, 20), (4, 30), (1, 9)))
    [Zone(axis=0, box=Box(planes=(4, 20), rows=(4, 30), words=(1, 9)), side=None, along=None)]
    """
    layers, edges, plain = list[Zone](), list[Zone](), list[Zone]()
    for planes, side in _spans(sides, 0, whole.planes):
        for rows, other in _spans(sides, 1, whole.rows) if side is None else [(whole.rows, None)]:
            for words, along in _spans(sides, 2, whole.words):
                box = Box(planes, rows, words)
                if side is not None:
                    layers.append(Zone(0, box, side, along))
                elif other is not None:
                    layers.append(Zone(1, box, other, along))
                else:
                    (plain if along is None else edges).append(Zone(0, box, along=along))
    return edges + layers + plain


def parts_of(sides: Sequence[Side], whole: Box) -> list[Part]:
    """Return what no zone knows of the layers."""
    between = [planes for planes, layer in _spans(sides, 0, whole.planes) if layer is not None]
    return [Part(number, planes) for number, side in enumerate(sides) if side.axis == 1 for planes in between]


def extent(side: Side) -> int:
    """Return how many points, or words along rows, a layer has with all that a step back changes."""
    points = side.lead + side.count + side.trail
    return points // WORD if side.axis == 2 else points


def zone_table(zones: Sequence[Zone], tiles: Callable[[Zone], Tiles]) -> tuple[NDArray[np.int32], int]:
    """Return the rows that the kernels read, and how many thread blocks there are."""
    table, blocks = [], 0
    for zone in zones:
        cut, words = tiles(zone), zone.box.words
        across, columns = -(-_length(zone.lines) // cut.lines), -(-_length(words) // cut.words)
        layers = (0 if side is None else side + 1 for side in (zone.side, zone.along))
        table.append((blocks, zone.axis, *zone.march, cut.chunk, *zone.lines, across, *words, columns, *layers))
        blocks += columns * across * -(-_length(zone.march) // cut.chunk)
    return np.array(table, np.int32), blocks


def part_table(parts: Sequence[Part], blocks_of: Callable[[Part], int]) -> tuple[NDArray[np.int32], int]:
    """Return the rows that the kernels read, and how many thread blocks there are, of which each part has so many."""
    table, blocks = [], 0
    for part in parts:
        table.append((blocks, part.side, part.planes[0], _length(part.planes)))
        blocks += blocks_of(part)
    return np.array(table, np.int32), blocks


def _length(span: Span) -> int:
    return span[1] - span[0]


def _spans(sides: Sequence[Side], axis: int, whole: Span) -> list[tuple[Span, int | None]]:
    """Cut an axis where its layers, with all that a step back changes, begin and end; tell which layer each is of.

    A layer is on it whole, or not at all.
    """
    spans: list[tuple[Span, int | None]] = []
    at = whole[0]
    for number, side in enumerate(sides):
        first = (side.start - side.lead) // (WORD if axis == 2 else 1)
        last = first + extent(side)
        if side.axis == axis and at <= first < whole[1]:
            spans += [((at, first), None)] if first > at else []
            spans.append(((first, last), number))
            at = last
    return spans + ([((at, whole[1]), None)] if at < whole[1] else [])
