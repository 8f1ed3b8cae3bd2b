"""What absorbing layers add to a half step on the CPU, forward, back and in a gradient; see `layers`.

All arrays have three axes here; in two dimensions the second has one point. A row of `terms` is a derivative: its axis,
whether it lies at half points, its memory field, and the field that is differentiated. Each has some targets: fields to
which its value is added, times a property of the medium and a number.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np

from forebay.wave.acoustic.cpu import MANY
from forebay.wave.elastic.layers import Layers, held
from forebay.wave.elastic.stencil import first_derivative
from forebay.wave.kernels.jit import jit, prange


@cache
def stretches(radius: int, dtype: np.dtype[Any], parallel: bool, back: bool) -> Any:
    """Compile what memory adds to fields: derivatives that are remembered or, on the way back, those of memory."""
    both, nought = 2 * radius, dtype.type(0)

    @jit(parallel=parallel)
    def stretch(
        new: Any, by: Any, fields: Any, memory: Any, a: Any, b: Any, tables: Any, ends: Any, terms: Any, targets: Any,
        scales: Any,
    ) -> None:  # fmt: skip
        planes, rows, width = new[0].shape
        aside = radius if rows > 1 else 0
        across = rows - 2 * aside
        for term in range(len(terms)):
            axis, half, number, source = terms[term, 0], terms[term, 1], terms[term, 2], terms[term, 3]
            low, high, last = ends[axis, 0], ends[axis, 1], ends[axis, 2]
            remembered, field, table = memory[axis][number], fields[source], tables[axis][half]
            a_along, b_along = a[axis][half], b[axis][half]
            reach = radius if back else 0
            for line in prange((planes - both) * across):
                z, y = radius + line // across, aside + line % across
                at = z if axis == 0 else y
                if axis < 2 and low + reach <= at < high - reach:
                    continue
                value = np.zeros(width, field.dtype)
                if axis < 2:
                    for k in range(both):
                        place, weight = at + k - radius + half, table[at, k]
                        if not back:
                            row = field[place, y] if axis == 0 else field[z, place]
                            for x in range(radius, width - radius):
                                value[x] += weight * row[x]
                        elif radius <= place < low or high <= place < last:
                            slot = place - radius if place < low else place - high + low - radius
                            row = remembered[slot, y] if axis == 0 else remembered[z, slot]
                            for x in range(radius, width - radius):
                                value[x] += weight * row[x]
                    if not back:
                        slot = at - radius if at < low else at - high + low - radius
                        row = remembered[slot, y] if axis == 0 else remembered[z, slot]
                        for x in range(radius, width - radius):
                            row[x] = b_along[at] * row[x] + a_along[at] * value[x]
                            value[x] = row[x]
                else:
                    row = remembered[z, y]
                    ours = np.zeros(width, field.dtype)
                    if back:
                        ours[radius:low] = row[: low - radius]
                        ours[high:last] = row[low - radius :]
                    else:
                        ours[:] = field[z, y]
                    for x in range(radius, width - radius):
                        if low + reach <= x < high - reach:
                            continue
                        total = nought
                        for k in range(both):
                            total += table[x, k] * ours[x + k - radius + half]
                        if not back:
                            slot = x - radius if x < low else x - high + low - radius
                            total = b_along[x] * row[slot] + a_along[x] * total
                            row[slot] = total
                        value[x] = total
                for target in range(targets.shape[1]):
                    if targets[term, target, 0] < 0:
                        continue
                    changed, factor = new[targets[term, target, 0]][z, y], by[targets[term, target, 1]][z, y]
                    scale = scales[term, target]
                    for x in range(radius, width - radius):
                        changed[x] += scale * factor[x] * value[x]

    return stretch


@cache
def keeps(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the memory of fields themselves, which the way back has in the place of that of derivatives."""

    @jit(parallel=parallel)
    def keep(fields: Any, memory: Any, a: Any, b: Any, ends: Any, terms: Any) -> None:
        for term in range(len(terms)):
            axis, half, number, source = terms[term, 0], terms[term, 1], terms[term, 2], terms[term, 3]
            low, high = ends[axis, 0], ends[axis, 1]
            remembered, field = memory[axis][number], fields[source]
            a_along, b_along = a[axis][half], b[axis][half]
            planes, rows, count = remembered.shape
            for line in prange(planes * rows):
                z, y = line // rows, line % rows
                at = z if axis == 0 else y
                if axis < 2:
                    at = at + radius if at < low - radius else at + radius + high - low
                    row, ours = remembered[z, y], field[at, y] if axis == 0 else field[z, at]
                    for x in range(count):
                        row[x] = b_along[at] * row[x] + a_along[at] * ours[x]
                else:
                    row, ours = remembered[z, y], field[z, y]
                    for slot in range(count):
                        x = slot + radius if slot < low - radius else slot + radius + high - low
                        row[slot] = b_along[x] * row[slot] + a_along[x] * ours[x]

    return keep


@cache
def senses(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the products of memory with derivatives, times a factor, which are added to totals."""
    both, nought = 2 * radius, dtype.type(0)

    @jit(parallel=parallel)
    def sense(totals: Any, fields: Any, memory: Any, tables: Any, ends: Any, terms: Any, factor: Any) -> None:
        for term in range(len(terms)):
            axis, half, number, source = terms[term, 0], terms[term, 1], terms[term, 2], terms[term, 3]
            low, high = ends[axis, 0], ends[axis, 1]
            remembered, field, table = memory[axis][number], fields[source], tables[axis][half]
            total = totals[terms[term, 4]]
            planes, rows, count = remembered.shape
            aside = radius if total.shape[1] > 1 else 0
            along = 1 if axis == 2 else 0
            for line in prange(planes * rows):
                z, y = line // rows, line % rows
                row, at = remembered[z, y], z if axis == 0 else y
                at = at + radius if at < low - radius else at + radius + high - low
                z, y = at if axis == 0 else z, at if axis == 1 else y
                if z < radius or z >= total.shape[0] - radius or y < aside or y >= total.shape[1] - aside:
                    continue
                for slot in range(0 if along else radius, count if along else count - radius):
                    x = slot
                    if along:
                        x = slot + radius if slot < low - radius else slot + radius + high - low
                        at = x
                    value = nought
                    for k in range(both):
                        step = k - radius + half
                        weight = table[at, k]
                        if axis == 0:
                            value += weight * field[z + step, y, x]
                        elif axis == 1:
                            value += weight * field[z, y + step, x]
                        else:
                            value += weight * field[z, y, x + step]
                    total[z, y, x] += factor * row[slot] * value

    return sense


@cache
def fades(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the fading of fields, along rows in the points before `low` and from `high` on."""
    one = dtype.type(1)

    @jit(parallel=parallel)
    def fade(fields: Any, g: Any, halves: Any, low: Any, high: Any) -> None:
        planes, rows, width = fields[0].shape
        aside = radius if rows > 1 else 0
        for number in range(len(fields)):
            field, along = fields[number], g[2][halves[number, 2]]
            for line in prange((planes - 2 * radius) * (rows - 2 * aside)):
                z, y = radius + line // (rows - 2 * aside), aside + line % (rows - 2 * aside)
                row, beside = field[z, y], g[0][halves[number, 0], z]
                if aside:
                    beside *= g[1][halves[number, 1], y]
                if beside != one:
                    for x in range(radius, width - radius):
                        row[x] *= beside * along[x]
                    continue
                for x in range(radius, low):
                    row[x] *= along[x]
                for x in range(high, width - radius):
                    row[x] *= along[x]

    return fade


class CpuLayers:
    """The layers of one propagator: what they add to each half of a step, and keep of it."""

    def __init__(self, layers: Layers, tables: Sequence[Any], spacing: Sequence[float], order: int) -> None:
        self.layers, self._radius, self._dtype = layers, order // 2, tables[0].dtype
        self._axes = (0, 2) if layers.ndim == 2 else (0, 1, 2)  # among three
        self._ends = np.zeros((3, 3), np.int64)
        for axis, (_, *rest) in zip(self._axes, layers.ends, strict=True):
            self._ends[axis] = rest
        self._a, self._b, self._g = (self._three(values) for values in (layers.a, layers.b, layers.g))
        still = np.flatnonzero((self._g[2] == 1).all(axis=0)[self._radius : -self._radius]) + self._radius
        self._faint = (int(still[0]), int(still[-1]) + 1) if len(still) else (layers.fields[-1], layers.fields[-1])
        pairs = [*combinations(range(layers.ndim), 2)]
        places = [(axis,) for axis in range(layers.ndim)], [()] * layers.ndim + pairs
        self._halves = []
        for fields in places:  # which of their axes each has at half points
            halves = np.zeros((len(fields), 3), np.int64)
            for row, axes in zip(halves, fields, strict=True):
                row[[self._axes[axis] for axis in axes]] = 1
            self._halves.append(halves)
        plain = np.concatenate([-first_derivative(order)[::-1], first_derivative(order)])
        along = [np.tile(plain / step, (2, size, 1)) for size, step in zip(layers.fields, spacing, strict=True)]
        self._tables = []
        for back in tables[1:]:  # for velocities and for stresses
            along[0] = np.stack([back, tables[0]])
            self._tables.append(self._three([rows.astype(self._dtype) for rows in along]))
        self._plans = {(half, back): self._plan(half, back) for half in (0, 1) for back in (False, True)}
        self._kept = [self._terms(half, False, [*range(layers.ndim)] if half == 0 else None) for half in (0, 1)]

    def fade(self, half: int, fields: Any) -> None:
        """Let velocities (half 0) or stresses (half 1) fade."""
        fades(self._radius, self._dtype, fields[0].size >= MANY)(
            tuple(map(_deep, fields)), self._g, self._halves[half], *self._faint
        )

    def stretch(self, half: int, new: Any, by: Any, fields: Any, pml: Any, *, back: bool, factor: float = 1.0) -> None:
        """Add what memory asks for to velocities (half 0) or stresses (half 1), on the way forward or back."""
        terms, targets, scales = self._plans[half, back]
        three = (tuple(map(_deep, arrays)) for arrays in (new, by, fields))
        stretches(self._radius, self._dtype, new[0].size >= MANY, back)(
            *three, self._memory(pml), self._a, self._b, self._tables[half], self._ends, terms, targets,
            (factor * scales).astype(self._dtype),
        )  # fmt: skip

    def keep(self, half: int, fields: Any, pml: Any) -> None:
        """Let velocities (half 0) or stresses (half 1) be remembered, on the way back."""
        self._keep(fields, self._memory(pml), self._a, self._b, self._kept[half])

    def sense(self, totals: Any, v: Any, t: Any, pml: Any, traces: Any, factor: float, every: int) -> None:
        """Add what strains in the layers owe to the medium to totals: of traces, inner products and shear stresses.

        `pml` is the adjoint's; `traces` holds the memory of its pressure, from one contribution to the next.
        """
        ndim, axes = self.layers.ndim, range(self.layers.ndim)
        a, b = zip(*(held(one, other, every) for one, other in zip(self._a, self._b, strict=True)), strict=True)
        remembered = self._memory(traces, 1)
        self._keep((sum(t[1:ndim], t[0]),), remembered, a, b, self._rows([(axis, 0, 0, 0) for axis in axes]))
        products = self._terms(1, False, [*axes])
        total = [[1 if of == axis else self._stress(of, axis) - ndim + 2] for axis in axes for of in axes]
        over_traces = self._rows([(axis, 0, 0, axis, 0) for axis in axes])
        for memory, terms in ((self._memory(pml), np.append(products, total, axis=1)), (remembered, over_traces)):
            senses(self._radius, self._dtype, v[0].size >= MANY)(
                tuple(map(_deep, totals)), tuple(map(_deep, v)), memory, self._tables[1], self._ends, terms,
                self._dtype.type(factor),
            )  # fmt: skip

    def _keep(self, fields: Any, memory: Any, a: Any, b: Any, terms: Any) -> None:
        keeps(self._radius, self._dtype, fields[0].size >= MANY)(
            tuple(map(_deep, fields)), memory, a, b, self._ends, terms
        )

    def _plan(self, half: int, back: bool) -> tuple[Any, Any, Any]:
        """List the derivatives of a half step, and for each its targets: field, property of the medium, and scale."""
        ndim = self.layers.ndim
        targets, scales = np.full((ndim * ndim, ndim + 1, 2), -1), np.ones((ndim * ndim, ndim + 1))
        for row, (axis, of) in enumerate(product(range(ndim), repeat=2)):
            if half == 0:
                targets[row, 0] = of, of
            elif axis != of:
                stress = self._stress(of, axis)
                targets[row, 0] = stress, stress - ndim + 2  # after lam and mu
            else:
                targets[row, :ndim] = [(normal, 0) for normal in range(ndim)]
                targets[row, ndim], scales[row, ndim] = (of, 1), 2.0
        return self._terms(half, back, None if half == 0 else [*range(ndim)]), targets, scales

    def _terms(self, half: int, back: bool, sources: Sequence[int] | None) -> Any:
        """List derivatives: axis, whether at half points, memory field, and what is differentiated, stresses if None.

        On the way back it is the memory of the other half that is differentiated.
        """
        ndim, rows = self.layers.ndim, []
        for axis, of in product(range(ndim), repeat=2):
            source = self._stress(of, axis) if sources is None else sources[of]
            rows.append((axis, int((axis == of) != (half == 1)), of + ndim * ((half == 1) != back), source))
        return self._rows(rows)

    def _rows(self, rows: Any) -> Any:
        """Count the axes of terms among three."""
        found = np.array(rows, np.int64)
        found[:, 0] = np.array(self._axes)[found[:, 0]]
        return found

    def _stress(self, one: int, other: int) -> int:
        """Return the number of a stress by its axes."""
        pairs = [(axis, axis) for axis in range(self.layers.ndim)]
        pairs += combinations(range(self.layers.ndim), 2)
        return pairs.index((min(one, other), max(one, other)))

    def _memory(self, pml: Any, count: int = 0) -> tuple[Any, ...]:
        return self._three([_deep(fields, 4) for fields in self.layers.of(pml, count)])

    def _three(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Put an array for the second of three axes in between, where there are two."""
        return tuple(arrays) if len(arrays) == 3 else (arrays[0], arrays[0][:0], arrays[1])


def _deep(values: Any, axes: int = 3) -> Any:
    """Return an array with an axis of one point before its last, where it has too few."""
    return values if values.ndim == axes else values[..., None, :]
