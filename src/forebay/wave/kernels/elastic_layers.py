"""The loops of absorbing layers of elastic waves for NumPy arrays: `elastic.layers` says what they compute.

They are written like those of acoustic waves: flat arrays, indices without a sign, many short rows at a time. Fields
come in tuples of one length, so that waves in two dimensions and in three run the same code.

A row of a table is a derivative: where its layers lie, what it takes from where, and what it is added to. Layers across
rows have a row for each side; those along rows have one for both, which share the rows of their memory.
"""

from functools import cache
from typing import Any

import numpy as np

from forebay.wave.kernels.jit import jit, prange

FIELDS = 6
"""Fields of a tuple."""
PIECE, TILE, WORD = 256, 32, 8
"""Points of a piece of a row across which a layer lies, rows along which one does that are taken at once, and points of
a vector."""
TARGETS = 4
"""Fields to which a derivative is added at most."""

ALONG, LINES, EXTENT = range(3)
"""Whether it lies along rows; independent lines of rows; and points of a row, or rows of a line along which it lies."""
AT, COUNT, LEAD, REACH, WIDE = range(3, 13, 2)
"""For each side: its first point in the fields, its points along the axis, points before them that a derivative of its
memory reaches, all of these, and its points in whole vectors."""
LINE, ROW, MEMORY, MEMORY_LINE, MEMORY_ROW = range(13, 18)
"""Steps to the next line and row in the fields; where the memory begins, and the same steps there."""
COEFFICIENTS, SLOPES, HALF, SOURCE, TARGET = range(18, 23)
"""Where its a and b begin, and the weights of its derivative; whether it lies at half points; the field that it is
of; and its targets, each a field and a property of the medium, or -1."""
COLUMNS = TARGET + 2 * TARGETS

unsigned = np.uint64


@cache
def stretches(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile a half step: derivatives are remembered, and what is remembered is added to fields.

    Where it is to `sense`, the memory stays as it is, and its product with derivatives is added to totals. Layers along
    rows are taken some rows at once, those across them row by row; the same loops serve both, which halves compiling.
    """
    n, both = tuple(map(unsigned, range(2 * radius + 1))), 2 * radius

    @jit(parallel=parallel)
    def stretch(
        new: Any, by: Any, fields: Any, pml: Any, table: Any, ab: Any, slopes: Any, scales: Any, sense: bool
    ) -> None:
        for number in range(len(table)):
            term = table[number]
            along, count, pitch = term[ALONG], term[COUNT], term[MEMORY_ROW]
            field, extent, size = fields[term[SOURCE]], term[EXTENT], TILE if along else PIECE
            step = unsigned(1) if along else unsigned(term[ROW])
            before = unsigned(radius - term[HALF]) * step
            tiles, sides, layer_rows = (extent + size - 1) // size, 2 if along else 1, 1 if along else count
            for tile in prange(term[LINES] * tiles):
                line, first = tile // tiles, tile % tiles * size
                long = min(size, extent - first)
                rows, values = (long, unsigned(long * pitch)) if along else (1, unsigned(long))
                begin = line * term[LINE] + first * (term[ROW] if along else 1)
                memory = term[MEMORY] + line * term[MEMORY_LINE] + first * (pitch if along else 1)
                flow = np.empty(TILE * pitch + WORD if along else PIECE, pml.dtype)
                for i in range(layer_rows):
                    here, slope = unsigned(memory + i * pitch), unsigned(term[SLOPES] + i * both)
                    for row in range(rows):
                        for side in range(sides):  # what is too much of a vector is replaced by what follows
                            at = unsigned(begin + (row + i) * term[ROW] + term[AT + side]) - before
                            to, many = unsigned(row * pitch + side * count), unsigned(term[WIDE + side] if along else long)
                            for k in range(many):
                                total = slopes[slope] * field[at + k]
                                for j in range(1, both):
                                    total += slopes[slope + n[j]] * field[at + n[j] * step + k]
                                flow[to + k] = total
                    a = unsigned(term[COEFFICIENTS] + i)
                    b = a + unsigned(TILE * pitch if along else count)
                    if sense:
                        for k in range(values):
                            flow[k] *= pml[here + k]
                    elif along:
                        for k in range(values):
                            kept = ab[b + k] * pml[here + k] + ab[a + k] * flow[k]
                            pml[here + k] = kept
                            flow[k] = kept
                    else:
                        turn, fade = ab[a], ab[b]
                        for k in range(values):
                            kept = fade * pml[here + k] + turn * flow[k]
                            pml[here + k] = kept
                            flow[k] = kept
                    for target in range(TARGETS):
                        place = term[TARGET + 2 * target]
                        if place >= 0:
                            out, medium, scale = new[place], by[term[TARGET + 2 * target + 1]], scales[number, target]
                            for row in range(rows):
                                for side in range(sides):
                                    at = unsigned(begin + (row + i) * term[ROW] + term[AT + side])
                                    to = unsigned(row * pitch + side * count)
                                    many = unsigned(term[COUNT + side] if along else long)
                                    if sense:
                                        for k in range(many):
                                            out[at + k] += scale * flow[to + k]
                                    else:
                                        for k in range(many):
                                            out[at + k] += scale * medium[at + k] * flow[to + k]

    return stretch


@cache
def transposes(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile a half step of the way back: derivatives of what is remembered are added to fields.

    Memory is copied to where there is nothing around it: the strips of both sides of a row, or the rows of a layer.
    """
    n, both, far = tuple(map(unsigned, range(2 * radius + 1))), 2 * radius, 2 * radius

    @jit(parallel=parallel)
    def transpose(new: Any, by: Any, pml: Any, table: Any, slopes: Any, scales: Any) -> None:
        for number in range(len(table)):
            term = table[number]
            along, count, pitch, extent = term[ALONG], term[COUNT], term[MEMORY_ROW], term[EXTENT]
            size = TILE if along else PIECE
            tiles, strips, reached = (extent + size - 1) // size, 2 if along else count, 2 if along else term[REACH]
            # From one strip to the next: in the memory, its copy, fields, and what is added to them.
            wide = max(count, term[COUNT + 1]) + 2 * far if along else PIECE
            margin, step = (far, unsigned(1)) if along else (far * PIECE, unsigned(PIECE))
            before = (radius - term[HALF]) * (1 if along else PIECE)
            for tile in prange(term[LINES] * tiles):
                line, first = tile // tiles, tile % tiles * size
                long = min(size, extent - first)
                rows = long if along else 1
                begin = line * term[LINE] + first * (term[ROW] if along else 1)
                memory = term[MEMORY] + line * term[MEMORY_LINE] + first * (pitch if along else 1)
                around = np.zeros(strips * wide + 2 * margin, pml.dtype)
                value = np.empty(rows * reached * wide, pml.dtype)
                for row in range(rows):
                    for strip in range(strips):
                        to, many = unsigned(strip * wide + margin), unsigned(term[COUNT + strip] if along else long)
                        here = unsigned(memory + (row + strip) * pitch if not along else memory + row * pitch + strip * count)
                        for k in range(many):
                            around[to + k] = pml[here + k]
                    for strip in range(reached):
                        lead = term[LEAD + strip] if along else term[LEAD] * PIECE
                        at, to = unsigned(strip * wide + margin - lead - before), unsigned((row * reached + strip) * wide)
                        slope = unsigned(term[SLOPES] + (0 if along else strip - term[LEAD]) * both)
                        many = unsigned(term[REACH + strip] if along else long)
                        for k in range(many):
                            total = slopes[slope] * around[at + k]
                            for j in range(1, both):
                                total += slopes[slope + n[j]] * around[at + n[j] * step + k]
                            value[to + k] = total
                for target in range(TARGETS):
                    place = term[TARGET + 2 * target]
                    if place >= 0:
                        out, medium, scale = new[place], by[term[TARGET + 2 * target + 1]], scales[number, target]
                        for row in range(rows):
                            for strip in range(reached):
                                if along:
                                    shift, many = term[AT + strip] - term[LEAD + strip], unsigned(term[REACH + strip])
                                else:
                                    shift, many = term[AT] + (strip - term[LEAD]) * term[ROW], unsigned(long)
                                at = unsigned(begin + row * term[ROW] + shift)
                                to = unsigned((row * reached + strip) * wide)
                                for k in range(many):
                                    out[at + k] += scale * medium[at + k] * value[to + k]

    return transpose


@cache
def keeps(dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the memory of fields themselves, which the way back has in the place of that of derivatives."""

    @jit(parallel=parallel)
    def keep(fields: Any, pml: Any, table: Any, ab: Any) -> None:
        for number in range(len(table)):
            term = table[number]
            field, pitch, extent, a = fields[term[SOURCE]], term[MEMORY_ROW], term[EXTENT], term[COEFFICIENTS]
            along = term[ALONG]
            rows = extent if along else term[COUNT]
            for each in prange(term[LINES] * rows):
                line, row = each // rows, each % rows
                begin = line * term[LINE] + row * term[ROW]
                here = term[MEMORY] + line * term[MEMORY_LINE] + row * pitch
                if along:
                    for side in range(2):
                        skip = side * term[COUNT]
                        at, to, turn = unsigned(begin + term[AT + side]), unsigned(here + skip), unsigned(a + skip)
                        fade = turn + unsigned(TILE * pitch)
                        for k in range(unsigned(term[COUNT + side])):
                            pml[to + k] = ab[fade + k] * pml[to + k] + ab[turn + k] * field[at + k]
                else:
                    at, to = unsigned(begin + term[AT]), unsigned(here)
                    gain, loss = ab[a + row], ab[a + term[COUNT] + row]
                    for x in range(unsigned(extent)):
                        pml[to + x] = loss * pml[to + x] + gain * field[at + x]

    return keep


@cache
def fades(dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the fading of fields: of whole rows where another axis fades, or `ends` is below 0, or of their ends."""
    one = dtype.type(1)

    @jit(parallel=parallel)
    def fade(fields: Any, count: int, g: Any, halves: Any, shape: Any, radius: int, ends: int) -> None:
        planes, rows, width = shape
        aside = radius if rows > 1 else 0
        lines, long = rows - 2 * aside, unsigned(width - 2 * radius)
        for number in range(count):
            field = fields[number]
            deep, beside, along = halves[number, 0], halves[number, 1], unsigned(halves[number, 2] + radius)
            for line in prange((planes - 2 * radius) * lines):
                z, y = radius + line // lines, aside + line % lines
                factor, at = g[deep + z] * g[beside + y], unsigned((z * rows + y) * width + radius)
                if factor != one or ends < 0:
                    for x in range(long):
                        field[at + x] *= factor * g[along + x]
                else:
                    for x in range(unsigned(ends)):
                        field[at + x] *= g[along + x]
                    skip = long - unsigned(ends)
                    for x in range(unsigned(ends)):
                        field[at + skip + x] *= g[along + skip + x]

    return fade
