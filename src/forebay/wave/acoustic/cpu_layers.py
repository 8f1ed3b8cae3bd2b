"""The loops of absorbing layers for NumPy arrays: `layers` says what they compute.

What layers change is taken from the older field before the step, which adds it to the newer one: layers of several
axes then need no pass of their own. One call does all of them. Arrays are flat here, and indices into them have no
sign: no slice is cut for the short rows of a layer, and the compiler makes vector instructions of all inner loops.

Layers across rows are parted into pieces of rows. Layers along rows are taken many rows at a time: what they remember
is contiguous, and a flux that is never stretched stands where a row begins, so loops over it need not know of rows.
Loops are given the memory twice: what they reach by one of both they never reach by the other.
"""

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.layers import AcousticLayers, Side
from forebay.wave.kernels.jit import jit, jits, prange
from forebay.wave.kernels.stencil import second_derivative
from forebay.wave.kernels.subnormal import flush, restore

MANY = 1 << 16
"""Points of a layer from which several threads are worth waking."""
PIECE = 128
"""Points of a piece of a row: what a step keeps of it for a layer stays in a near cache."""
TILE = 32
"""Rows that are taken at once, of layers along them."""
WORD = 8
"""Points of a vector."""

(
    ALONG,  # whether the layer's axis is that of rows
    LINES,  # independent lines of rows: one in two dimensions
    EXTENT,  # points of a row across which the layer lies, or rows along which it does
    COUNT,  # points of the layer along its axis, as of a `Side`, those before it that it reaches, and all of these
    LEAD,
    REACH,
    WIDE,  # its points along rows in whole vectors, or those of a piece across them
    AT,  # of the first point in the fields, and steps from there to the next line and row
    LINE,
    ROW,
    MEMORY,  # the same of psi, in what layers remember
    MEMORY_LINE,
    MEMORY_ROW,
    SIZE,  # of psi, and of zeta, which follows
    OUT,  # the same of changes
    OUT_LINE,
    OUT_ROW,
    COEFFICIENTS,  # where they begin
) = range(18)
"""Columns of a table that tells where layers lie in flat arrays."""

unsigned = np.uint64


@dataclass(frozen=True, eq=False)
class LayerTable:
    """What the loops are called with for all layers of some fields."""

    sides: NDArray[np.int64]
    """a row for each, with the columns above"""
    coefficients: NDArray[np.floating]
    """of each side, as a `Side` has them; those along rows once for each row of a tile"""
    weights: NDArray[np.floating]
    """one over the squared spacing of each side's axis"""
    parallel: bool


def table_of(layers: AcousticLayers, shape: tuple[int, ...], weights: Any, radius: int) -> LayerTable:
    """Tell the loops of layers, which there must be, in fields of a shape."""
    rows, coefficients = [], list[Any]()
    for side in layers.sides:
        rows.append((*_place(side, shape, radius), sum(map(len, coefficients))))
        copies = TILE if side.axis == len(shape) - 1 else 1
        coefficients.append(np.tile(side.coefficients, (1, copies)).ravel())
    scales = np.array([weights[side.axis] for side in layers.sides])
    parallel = max(side.size for side in layers.sides) >= MANY
    return LayerTable(np.array(rows, np.int64), np.concatenate(coefficients), scales, parallel)


def _place(side: Side, shape: tuple[int, ...], radius: int) -> tuple[int, ...]:
    """Return the columns of a table, but for the coefficients; nothing of the halo is in a layer's lines and rows."""
    axis, last = side.axis, len(shape) - 1
    along = axis == last
    row, others = (last - 1 if along else axis), [other for other in range(last + 1) if other != axis]
    line = others[0] if last == 2 else None

    def first(whole: tuple[int, ...], start: int) -> tuple[int, int, int]:
        steps = [prod(whole[number + 1 :]) for number in range(last + 1)]
        start += radius * sum(steps[other] for other in others)
        return start, steps[line] if line is not None else 0, steps[row]

    inner = [points - 2 * radius for points in shape]
    # Where rows of a layer are rounded up to whole vectors, they must not leave the fields; pieces are about equal.
    long = side.count if along else -(-inner[-1] // -(-inner[-1] // PIECE))
    wide = (
        min(-(-long // WORD) * WORD, (radius + 1) * shape[-1] - side.start - radius)
        if along
        else -(-long // WORD) * WORD
    )
    return (
        *(int(along), 1 if line is None else inner[line], inner[row if along else last]),
        *(side.count, side.lead, side.lead + side.count + side.trail, wide),
        *first(shape, side.start * prod(shape[axis + 1 :])),
        *first(side.shape, side.offset),
        side.size,
        *first(side.reach, side.changed),
    )


def change(
    table: LayerTable, p: Any, p_old: Any, squared: Any, pml: Any, changes: Any, radius: int, back: bool
) -> None:
    """Take the memory of all layers a step further, and what they change in it from the older field.

    After a step back, `changes` has what they change.
    """
    loop = (_back if back else _forward)(radius, p.dtype, table.parallel)
    fields = (array.reshape(-1) for array in (p, p_old, squared))
    loop(*fields, pml, pml, changes, table.sides, table.coefficients, table.weights)


def add(table: LayerTable, total: Any, other: Any, changes: Any, factor: Any) -> None:
    """Add what layers have changed in a step back, times another field and a factor, to a total."""
    _add[table.parallel](total.reshape(-1), other.reshape(-1), changes, table.sides, factor)


@jits
def _add(total: Any, other: Any, changes: Any, sides: Any, factor: Any) -> None:
    for number in range(len(sides)):
        side = sides[number]
        along, rows = side[ALONG], side[EXTENT] if side[ALONG] else side[REACH]
        long = unsigned(side[REACH] if along else side[EXTENT])
        begin = side[AT] - side[LEAD] * (1 if along else side[ROW])
        for each in prange(side[LINES] * rows):
            line, row = each // rows, each % rows
            at = unsigned(begin + line * side[LINE] + row * side[ROW])
            out = unsigned(side[OUT] + line * side[OUT_LINE] + row * side[OUT_ROW])
            for x in range(long):
                total[at + x] += factor * other[at + x] * changes[out + x]


def _weights(radius: int, dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Return the weights of the second derivative, those of its fluxes, and numbers up to the radius without a sign."""
    c = second_derivative(2 * radius)
    f = (float(c[j:].sum()) for j in range(1, radius + 1))
    return tuple(map(dtype.type, c)), tuple(map(dtype.type, f)), tuple(map(unsigned, range(radius + 1)))


@cache
def _forward(radius: int, dtype: Any, parallel: bool) -> Any:
    """Compile what all layers do in a step."""
    c, f, n = _weights(radius, dtype)

    @jit(parallel=parallel, lone=True)
    def forward(
        p: Any, old: Any, speed: Any, pml: Any, zetas: Any, changes: Any, sides: Any, ab: Any, weights: Any
    ) -> None:
        for number in range(len(sides)):
            side, w = sides[number], weights[number]
            count, extent, size = side[COUNT], side[EXTENT], unsigned(side[SIZE])
            if side[ALONG]:
                all_a, wide = side[COEFFICIENTS], side[WIDE]
                a, b = ab[all_a : all_a + TILE * count], ab[all_a + TILE * count : all_a + 2 * TILE * count]
                all_a += 2 * TILE * count
                half_a, half_b = ab[all_a : all_a + TILE * count], ab[all_a + TILE * count : all_a + 2 * TILE * count]
                tiles = (extent + TILE - 1) // TILE
                for tile in prange(side[LINES] * tiles):
                    setting = flush()
                    line, first = tile // tiles, tile % tiles * TILE
                    rows = min(TILE, extent - first)
                    begin = side[AT] + line * side[LINE] + first * side[ROW]
                    flow, lap = np.empty(TILE * count + wide, p.dtype), np.empty(TILE * count + wide, p.dtype)
                    for row in range(rows):
                        at, to = unsigned(begin + row * side[ROW]), unsigned(row * count)
                        for k in range(unsigned(wide)):
                            bend, total = c[0] * p[at + k], f[0] * (p[at + k] - p[at + k - n[1]])
                            for j in range(1, radius + 1):
                                bend += c[j] * (p[at + k + n[j]] + p[at + k - n[j]])
                            for j in range(1, radius):
                                total += f[j] * (p[at + k + n[j]] - p[at + k - n[j + 1]])
                            lap[to + k] = bend
                            flow[to + k] = total
                    end = unsigned(rows * count) - n[1]
                    psi = unsigned(side[MEMORY] + line * side[MEMORY_LINE] + first * count)
                    zeta = psi + size
                    for i in range(end):
                        ahead = half_b[i + n[1]] * pml[psi + i + n[1]] + half_a[i + n[1]] * flow[i + n[1]]
                        here = half_b[i] * pml[psi + i] + half_a[i] * flow[i]
                        pml[psi + i] = here
                        bend = b[i] * zetas[zeta + i] + a[i] * (lap[i] + (ahead - here))
                        zetas[zeta + i] = bend
                        lap[i] = (ahead - here) + bend
                    here = half_b[end] * pml[psi + end] + half_a[end] * flow[end]
                    pml[psi + end] = here
                    bend = b[end] * zetas[zeta + end] + a[end] * (lap[end] - here)
                    zetas[zeta + end] = bend
                    lap[end] = bend - here
                    for row in range(rows):
                        at, to = unsigned(begin + row * side[ROW]), unsigned(row * count)
                        for k in range(unsigned(count)):
                            old[at + k] -= w * speed[at + k] * lap[to + k]
                    restore(setting)
            else:
                a, step, fold = side[COEFFICIENTS], unsigned(side[ROW]), unsigned(side[MEMORY_ROW])
                width = side[WIDE]
                pieces = (extent + width - 1) // width
                for piece in prange(side[LINES] * pieces):
                    setting = flush()
                    line, first = piece // pieces, piece % pieces * width
                    long = unsigned(min(width, extent - first))
                    at = unsigned(side[AT] + line * side[LINE] + first)
                    psi = unsigned(side[MEMORY] + line * side[MEMORY_LINE] + first)
                    flow = np.zeros(2 * PIECE, p.dtype)
                    for x in range(long):
                        total = f[0] * (p[at + x] - p[at - step + x])
                        for j in range(1, radius):
                            total += f[j] * (p[at + n[j] * step + x] - p[at - n[j + 1] * step + x])
                        flow[x] = total
                    for k in range(count):
                        ahead = k + 1 if k + 1 < count else 0  # the flux out of the last point is not stretched
                        turn, fade = ab[a + k], ab[a + count + k]
                        gain, keep = ab[a + 2 * count + ahead], ab[a + 3 * count + ahead]
                        before, after = psi + unsigned(k) * fold, psi + unsigned(ahead) * fold
                        zeta = before + size
                        below, hold = at + step, unsigned(PIECE)
                        for x in range(long):
                            total = f[0] * (p[below + x] - p[at + x])
                            for j in range(1, radius):
                                total += f[j] * (p[below + n[j] * step + x] - p[below - n[j + 1] * step + x])
                            known = keep * pml[after + x] + gain * total
                            pull = known - flow[hold + x]
                            flow[hold + x] = known
                            pml[after + x] = known
                            memory = fade * zetas[zeta + x] + turn * ((total - flow[x]) + pull)
                            zetas[zeta + x] = memory
                            flow[x] = total
                            old[at + x] -= w * speed[at + x] * (pull + memory)
                        at += step
                    restore(setting)

    return forward


@cache
def _back(radius: int, dtype: Any, parallel: bool) -> Any:
    """Compile what all layers do in a step of the adjoint: the transpose of `_forward`.

    With r_i = n_i + m_{i-1} - m_i, what both memories change together is sum_j f_j (r_{i+1-j} - r_{i+j}).
    """
    _, f, n = _weights(radius, dtype)
    far = 2 * radius

    @jit(parallel=parallel, lone=True)
    def back(
        q: Any, old: Any, speed: Any, pml: Any, zetas: Any, changes: Any, sides: Any, ab: Any, weights: Any
    ) -> None:
        for number in range(len(sides)):
            side, w = sides[number], weights[number]
            count, extent, size = side[COUNT], side[EXTENT], unsigned(side[SIZE])
            if side[ALONG]:
                all_a = side[COEFFICIENTS]
                a, b = ab[all_a : all_a + TILE * count], ab[all_a + TILE * count : all_a + 2 * TILE * count]
                all_a += 2 * TILE * count
                half_a, half_b = ab[all_a : all_a + TILE * count], ab[all_a + TILE * count : all_a + 2 * TILE * count]
                tiles = (extent + TILE - 1) // TILE
                for tile in prange(side[LINES] * tiles):
                    setting = flush()
                    line, first = tile // tiles, tile % tiles * TILE
                    rows = min(TILE, extent - first)
                    begin = side[AT] + line * side[LINE] + first * side[ROW]
                    here, m = np.empty(TILE * count, q.dtype), np.empty(TILE * count, q.dtype)
                    r = np.zeros(count + 1 + 2 * far, q.dtype)
                    for row in range(rows):
                        at, to = unsigned(begin + row * side[ROW]), unsigned(row * count)
                        for k in range(unsigned(count)):
                            here[to + k] = q[at + k]
                    all_rows = unsigned(rows * count)
                    psi = unsigned(side[MEMORY] + line * side[MEMORY_LINE] + first * count)
                    zeta = psi + size
                    for i in range(all_rows):
                        value = here[i] + b[i] * zetas[zeta + i]
                        zetas[zeta + i] = value
                        m[i] = a[i] * value
                        here[i] += a[i] * value
                    for i in range(n[1], all_rows):  # that of the first point of a row is multiplied by 0
                        pml[psi + i] = (here[i - n[1]] - here[i]) + half_b[i] * pml[psi + i]
                    for i in range(all_rows):
                        here[i] = half_a[i] * pml[psi + i] - m[i]
                    for row in range(rows):
                        to, middle = unsigned(row * count), unsigned(far)
                        r[middle], r[middle + unsigned(count)] = here[to], m[to + unsigned(count) - n[1]]
                        for k in range(n[1], unsigned(count)):
                            r[middle + k] = here[to + k] + m[to + k - n[1]]
                        at = unsigned(begin + row * side[ROW] - side[LEAD])
                        out = unsigned(side[OUT] + line * side[OUT_LINE] + (first + row) * side[OUT_ROW])
                        middle = unsigned(far - side[LEAD])
                        for k in range(unsigned(side[REACH])):
                            total = f[0] * (r[middle + k] - r[middle + k + n[1]])
                            for j in range(1, radius):
                                total += f[j] * (r[middle + k - n[j]] - r[middle + k + n[j + 1]])
                            changes[out + k] = w * total
                            old[at + k] -= speed[at + k] * (w * total)
                    restore(setting)
            else:
                a, step, fold = side[COEFFICIENTS], unsigned(side[ROW]), unsigned(side[MEMORY_ROW])
                width, wide = side[WIDE], unsigned(PIECE)
                pieces = (extent + width - 1) // width
                for piece in prange(side[LINES] * pieces):
                    setting = flush()
                    line, first = piece // pieces, piece % pieces * width
                    long = unsigned(min(width, extent - first))
                    at = unsigned(side[AT] + line * side[LINE] + first)
                    psi = unsigned(side[MEMORY] + line * side[MEMORY_LINE] + first)
                    m, r = np.zeros(PIECE, q.dtype), np.zeros((count + 1 + 2 * far) * PIECE, q.dtype)
                    for k in range(count):
                        turn, fade = ab[a + k], ab[a + count + k]
                        gain, keep = ab[a + 2 * count + k], ab[a + 3 * count + k]
                        to, zeta = unsigned((far + k) * PIECE), psi + size
                        for x in range(long):  # what the first point remembers of a flux is multiplied by 0
                            value = q[at + x] + fade * zetas[zeta + x]
                            zetas[zeta + x] = value
                            now = turn * value
                            flux = (q[at - step + x] + m[x]) - (q[at + x] + now)
                            memory = flux + keep * pml[psi + x]
                            pml[psi + x] = memory
                            r[to + x] = gain * memory + (m[x] - now)
                            m[x] = now
                        at, psi = at + step, psi + fold
                    to = unsigned((far + count) * PIECE)
                    for x in range(long):
                        r[to + x] = m[x]
                    at = unsigned(side[AT] + line * side[LINE] + first - side[LEAD] * side[ROW])
                    out = unsigned(side[OUT] + line * side[OUT_LINE] + first)
                    to = unsigned((far - side[LEAD]) * PIECE)
                    for _ in range(side[REACH]):
                        for x in range(long):
                            total = f[0] * (r[to + x] - r[to + wide + x])
                            for j in range(1, radius):
                                total += f[j] * (r[to - n[j] * wide + x] - r[to + n[j + 1] * wide + x])
                            changes[out + x] = w * total
                            old[at + x] -= speed[at + x] * (w * total)
                        at, out, to = at + step, out + unsigned(side[OUT_ROW]), to + wide
                    restore(setting)

    return back
