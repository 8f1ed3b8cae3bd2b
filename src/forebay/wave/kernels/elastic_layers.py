"""The loops of absorbing layers of elastic waves for NumPy arrays: `elastic.layers` says what they compute.

They are written like those of acoustic waves: flat arrays, indices without a sign, many short rows at a time. Fields
come in tuples of one length, so that waves in two dimensions and in three run the same code.

A row of a table is a derivative: where its layers lie, what it takes from where, and what it is added to. Layers across
rows have a row for each side; those along rows have one for both, which share the rows of their memory.
"""

from functools import cache
from typing import Any

import numpy as np

from forebay.wave.elastic.stencil import first_derivative
from forebay.wave.kernels.jit import jit, prange
from forebay.wave.kernels.subnormal import flush, restore

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


def _constants(radius: int, dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the weights of the derivative, and small numbers without a sign."""
    return tuple(map(dtype.type, first_derivative(2 * radius))), tuple(map(unsigned, range(2 * radius + 1)))


@cache
def stretches(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile a half step: derivatives are remembered, and what is remembered is added to fields.

    Where it is to `sense`, the memory stays as it is, and its product with derivatives is added to totals.
    """
    c, n = _constants(radius, dtype)
    both = 2 * radius

    @jit(parallel=parallel)
    def stretch(
        new: Any, by: Any, fields: Any, pml: Any, table: Any, ab: Any, slopes: Any, scales: Any, sense: bool
    ) -> None:
        for number in range(len(table)):
            term = table[number]
            field, half, pitch, extent = fields[term[SOURCE]], unsigned(term[HALF]), term[MEMORY_ROW], term[EXTENT]
            if term[ALONG]:
                a, w = unsigned(term[COEFFICIENTS]), slopes[term[SLOPES]]
                b = a + unsigned(TILE * pitch)
                tiles = (extent + TILE - 1) // TILE
                for tile in prange(term[LINES] * tiles):
                    setting = flush()
                    line, first = tile // tiles, tile % tiles * TILE
                    rows = min(TILE, extent - first)
                    begin = line * term[LINE] + first * term[ROW]
                    here = unsigned(term[MEMORY] + line * term[MEMORY_LINE] + first * pitch)
                    flow = np.empty(TILE * pitch + WORD, pml.dtype)
                    for row in range(rows):
                        for side in range(2):  # what is too much of a vector is replaced by what follows
                            at = unsigned(begin + row * term[ROW] + term[AT + side]) + half
                            to = unsigned(row * pitch + side * term[COUNT])
                            for k in range(unsigned(term[WIDE + side])):
                                total = c[0] * (field[at + k] - field[at + k - n[1]])
                                for j in range(1, radius):
                                    total += c[j] * (field[at + k + n[j]] - field[at + k - n[j + 1]])
                                flow[to + k] = w * total
                    if sense:
                        for i in range(unsigned(rows * pitch)):
                            flow[i] *= pml[here + i]
                    else:
                        for i in range(unsigned(rows * pitch)):
                            pml[here + i] = ab[b + i] * pml[here + i] + ab[a + i] * flow[i]
                        for i in range(unsigned(rows * pitch)):
                            flow[i] = pml[here + i]
                    for target in range(TARGETS):
                        place = term[TARGET + 2 * target]
                        if place >= 0:
                            out, medium, scale = new[place], by[term[TARGET + 2 * target + 1]], scales[number, target]
                            for row in range(rows):
                                for side in range(2):
                                    at = unsigned(begin + row * term[ROW] + term[AT + side])
                                    to = unsigned(row * pitch + side * term[COUNT])
                                    if sense:
                                        for k in range(unsigned(term[COUNT + side])):
                                            out[at + k] += scale * flow[to + k]
                                    else:
                                        for k in range(unsigned(term[COUNT + side])):
                                            out[at + k] += scale * medium[at + k] * flow[to + k]
                    restore(setting)
            else:
                pieces, count, step = (extent + PIECE - 1) // PIECE, term[COUNT], unsigned(term[ROW])
                for piece in prange(term[LINES] * pieces):
                    setting = flush()
                    line, first = piece // pieces, piece % pieces * PIECE
                    long = unsigned(min(PIECE, extent - first))
                    value = np.empty(PIECE, pml.dtype)
                    for i in range(count):
                        at = unsigned(term[AT] + line * term[LINE] + first + i * term[ROW])
                        here = unsigned(term[MEMORY] + line * term[MEMORY_LINE] + first + i * pitch)
                        source, slope = at + half * step - n[radius] * step, unsigned(term[SLOPES] + i * both)
                        for x in range(long):
                            total = slopes[slope] * field[source + x]
                            for k in range(1, both):
                                total += slopes[slope + n[k]] * field[source + n[k] * step + x]
                            value[x] = total
                        turn, fade = ab[term[COEFFICIENTS] + i], ab[term[COEFFICIENTS] + count + i]
                        if sense:
                            for x in range(long):
                                value[x] *= pml[here + x]
                        else:
                            for x in range(long):
                                pml[here + x] = fade * pml[here + x] + turn * value[x]
                            for x in range(long):
                                value[x] = pml[here + x]
                        for target in range(TARGETS):
                            place = term[TARGET + 2 * target]
                            if place >= 0:
                                out, medium = new[place], by[term[TARGET + 2 * target + 1]]
                                scale = scales[number, target]
                                if sense:
                                    for x in range(long):
                                        out[at + x] += scale * value[x]
                                else:
                                    for x in range(long):
                                        out[at + x] += scale * medium[at + x] * value[x]
                    restore(setting)

    return stretch


@cache
def transposes(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile a half step of the way back: derivatives of what is remembered are added to fields."""
    c, n = _constants(radius, dtype)
    both, far = 2 * radius, 2 * radius

    @jit(parallel=parallel)
    def transpose(new: Any, by: Any, pml: Any, table: Any, slopes: Any, scales: Any) -> None:
        for number in range(len(table)):
            term = table[number]
            half, pitch, extent = unsigned(term[HALF]), term[MEMORY_ROW], term[EXTENT]
            if term[ALONG]:
                w, tiles = slopes[term[SLOPES]], (extent + TILE - 1) // TILE
                longest = max(term[COUNT], term[COUNT + 1]) + 2 * far
                for tile in prange(term[LINES] * tiles):
                    setting = flush()
                    line, first = tile // tiles, tile % tiles * TILE
                    rows = min(TILE, extent - first)
                    begin = line * term[LINE] + first * term[ROW]
                    here = term[MEMORY] + line * term[MEMORY_LINE] + first * pitch
                    around, value = np.zeros(2 * longest, pml.dtype), np.empty(TILE * 2 * longest, pml.dtype)
                    for row in range(rows):
                        for side in range(2):
                            to = unsigned(side * longest + far)
                            memory = unsigned(here + row * pitch + side * term[COUNT])
                            for k in range(unsigned(term[COUNT + side])):
                                around[to + k] = pml[memory + k]
                            at, into = to + half - unsigned(term[LEAD + side]), unsigned((2 * row + side) * longest)
                            for k in range(unsigned(term[REACH + side])):
                                total = c[0] * (around[at + k] - around[at + k - n[1]])
                                for j in range(1, radius):
                                    total += c[j] * (around[at + k + n[j]] - around[at + k - n[j + 1]])
                                value[into + k] = w * total
                    for target in range(TARGETS):
                        place = term[TARGET + 2 * target]
                        if place >= 0:
                            out, medium, scale = new[place], by[term[TARGET + 2 * target + 1]], scales[number, target]
                            for row in range(rows):
                                for side in range(2):
                                    at = unsigned(begin + row * term[ROW] + term[AT + side] - term[LEAD + side])
                                    into = unsigned((2 * row + side) * longest)
                                    for k in range(unsigned(term[REACH + side])):
                                        out[at + k] += scale * medium[at + k] * value[into + k]
                    restore(setting)
            else:
                pieces, count, wide = (extent + PIECE - 1) // PIECE, term[COUNT], unsigned(PIECE)
                for piece in prange(term[LINES] * pieces):
                    setting = flush()
                    line, first = piece // pieces, piece % pieces * PIECE
                    long = unsigned(min(PIECE, extent - first))
                    around, value = np.zeros((count + 2 * far) * PIECE, pml.dtype), np.empty(PIECE, pml.dtype)
                    for i in range(count):
                        to = unsigned((far + i) * PIECE)
                        memory = unsigned(term[MEMORY] + line * term[MEMORY_LINE] + first + i * pitch)
                        for x in range(long):
                            around[to + x] = pml[memory + x]
                    for i in range(term[REACH]):
                        source = unsigned((far - term[LEAD] + i - radius) * PIECE) + half * wide
                        slope = unsigned(term[SLOPES] + (i - term[LEAD]) * both)
                        for x in range(long):
                            total = slopes[slope] * around[source + x]
                            for k in range(1, both):
                                total += slopes[slope + n[k]] * around[source + n[k] * wide + x]
                            value[x] = total
                        at = unsigned(term[AT] + line * term[LINE] + first + (i - term[LEAD]) * term[ROW])
                        for target in range(TARGETS):
                            place = term[TARGET + 2 * target]
                            if place >= 0:
                                out, medium = new[place], by[term[TARGET + 2 * target + 1]]
                                scale = scales[number, target]
                                for x in range(long):
                                    out[at + x] += scale * medium[at + x] * value[x]
                    restore(setting)

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
                setting = flush()
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
                restore(setting)

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
                setting = flush()
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
                restore(setting)

    return fade
