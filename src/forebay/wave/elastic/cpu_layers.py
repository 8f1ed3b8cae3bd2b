"""What absorbing layers add to a half step on the CPU, forward, back and in a gradient; see `layers`.

What is to be done is written into tables once, which the loops of `kernels.elastic_layers` read. A term is a
derivative: its axis, whether it lies at half points, its memory field, and the field that is differentiated. Each has
some targets: fields to which its value is added, times a property of the medium and a number.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from forebay.wave.acoustic.cpu import MANY
from forebay.wave.elastic.layers import Layers, held
from forebay.wave.elastic.stencil import first_derivative
from forebay.wave.kernels.elastic_layers import (
    COLUMNS,
    FIELDS,
    TARGETS,
    TILE,
    WORD,
    fades,
    keeps,
    stretches,
    transposes,
)

Term = tuple[int, int, int, int]
Targets = list[tuple[int, int]]


class Half(NamedTuple):
    """The tables of one half of a step."""

    slopes: Any
    ways: tuple[tuple[Any, Any], tuple[Any, Any]]
    """derivatives and the scales of their targets, on the way forward and back"""
    kept: Any
    """what is remembered on the way back"""


class CpuLayers:
    """The layers of one propagator: what they add to each half of a step, and keep of it."""

    def __init__(self, layers: Layers, tables: Sequence[Any], spacing: Sequence[float], order: int) -> None:
        self.layers, self._radius, self._dtype = layers, order // 2, tables[0].dtype
        self._parallel = max(prod(layers.shape(axis)) for axis in range(layers.ndim)) >= MANY
        self._places, self._ab = self._coefficients(layers.a, layers.b)
        plain = np.concatenate([-first_derivative(order)[::-1], first_derivative(order)])
        numbers, slopes = range(layers.ndim), []
        for back in tables[1:]:  # for velocities and for stresses; along rows, all points have the same
            along = [np.tile(plain / step, (2, size, 1)) for size, step in zip(layers.fields, spacing, strict=True)]
            along[0], along[-1] = np.stack([back, tables[0]]), np.full(1, 1 / spacing[-1])
            slopes.append(np.concatenate([rows.ravel() for rows in along]).astype(self._dtype))
        kept = [self._table(self._terms(half, False, [*numbers] if half == 0 else None)) for half in (0, 1)]
        self._halves = [
            Half(slopes[half], (self._plan(half, False), self._plan(half, True)), kept[half]) for half in (0, 1)
        ]
        self._kept_traces = self._table([(axis, 0, 0, 0) for axis in numbers], count=1)
        total = [1 if of == axis else self._stress(of, axis) - layers.ndim + 2 for axis in numbers for of in numbers]
        self._products = self._table(self._terms(1, False, [*numbers]), [[(place, 0)] for place in total])
        self._over_traces = self._table([(axis, 0, 0, axis) for axis in numbers], [[(0, 0)]] * layers.ndim, count=1)
        self._held = cache(self._hold)
        self._fading = self._fadings()

    def fade(self, half: int, fields: Any) -> None:
        """Let velocities (half 0) or stresses (half 1) fade."""
        g, halves, shape, ends = self._fading
        fades(self._dtype, self._parallel)(_flat(fields), len(fields), g, halves[half], shape, self._radius, ends)

    def stretch(self, half: int, new: Any, by: Any, fields: Any, pml: Any, *, back: bool, factor: float = 1.0) -> None:
        """Add what memory asks for to velocities (half 0) or stresses (half 1), on the way forward or back."""
        slopes, ways, _ = self._halves[half]
        table, scales = ways[back]
        scales = scales if factor == 1 else (factor * scales).astype(self._dtype)
        if back:
            loop = transposes(self._radius, self._dtype, self._parallel)
            loop(_flat(new), _flat(by), pml, table, slopes, scales)
        else:
            loop = stretches(self._radius, self._dtype, self._parallel)
            loop(_flat(new), _flat(by), _flat(fields), pml, table, self._ab, slopes, scales, False)

    def keep(self, half: int, fields: Any, pml: Any) -> None:
        """Let velocities (half 0) or stresses (half 1) be remembered, on the way back."""
        keeps(self._dtype, self._parallel)(_flat(fields), pml, self._halves[half].kept, self._ab)

    def sense(self, totals: Any, v: Any, t: Any, pml: Any, traces: Any, factor: float, every: int) -> None:
        """Add what strains in the layers owe to the medium to totals: of traces, inner products and shear stresses.

        `pml` is the adjoint's; `traces` holds the memory of its pressure, from one contribution to the next.
        """
        trace = sum(t[1 : self.layers.ndim], t[0])
        keeps(self._dtype, self._parallel)(_flat((trace,)), traces, self._kept_traces, self._held(every))
        loop = stretches(self._radius, self._dtype, self._parallel)
        for memory, table in ((pml, self._products), (traces, self._over_traces)):
            scales = np.full((len(table), TARGETS), factor, self._dtype)
            loop(_flat(totals), _flat(v), _flat(v), memory, table, self._ab, self._halves[1].slopes, scales, True)

    def _plan(self, half: int, back: bool) -> tuple[Any, Any]:
        """List the derivatives of a half step, and for each its targets: field, property of the medium, and scale."""
        ndim, targets = self.layers.ndim, list[Targets]()
        for axis, of in product(range(ndim), repeat=2):
            if half == 0:
                targets.append([(of, of)])
            elif axis != of:
                stress = self._stress(of, axis)
                targets.append([(stress, stress - ndim + 2)])  # after lam and mu
            else:
                targets.append([(of, 1), *((normal, 0) for normal in range(ndim))])
        table = self._table(self._terms(half, back, None if half == 0 else [*range(ndim)]), targets)
        scales = np.ones((len(table), TARGETS), self._dtype)
        scales[table[:, 2 - 2 * TARGETS] >= 0, 0] = 2  # that of mu
        return table, scales

    def _terms(self, half: int, back: bool, sources: Sequence[int] | None) -> list[Term]:
        """List derivatives: axis, whether at half points, memory field, and what is differentiated, stresses if None.

        On the way back it is the memory of the other half that is differentiated.
        """
        ndim, terms = self.layers.ndim, []
        for axis, of in product(range(ndim), repeat=2):
            source = self._stress(of, axis) if sources is None else sources[of]
            terms.append((axis, int((axis == of) != (half == 1)), of + ndim * ((half == 1) != back), source))
        return terms

    def _table(self, terms: list[Term], targets: list[Targets] | None = None, count: int = 0) -> Any:
        """Write terms, of all memory fields or of `count` for an axis, into a table of the loops."""
        rows = []
        for term, ends in zip(terms, targets or [[]] * len(terms), strict=True):
            places = [value for pair in ends for value in pair] + [-1] * (2 * (TARGETS - len(ends)))
            rows += [(*row, *places) for row in self._rows(*term, count)]
        return np.array(rows, np.int64).reshape(-1, COLUMNS)

    def _rows(self, axis: int, half: int, number: int, source: int, count: int) -> list[tuple[int, ...]]:
        """Return what a term's rows have before the targets: one for each side, or one for both along rows."""
        layers, radius, last = self.layers, self._radius, self.layers.ndim - 1
        along, others = axis == last, [other for other in range(last + 1) if other != axis]
        row, line = (last - 1 if along else axis), (others[0] if last == 2 else None)

        def first(whole: tuple[int, ...], start: int) -> tuple[int, int, int]:
            steps = [prod(whole[number + 1 :]) for number in range(last + 1)]
            start += radius * sum(steps[other] for other in others)
            return start, steps[line] if line is not None else 0, steps[row]

        step, shape = prod(layers.fields[axis + 1 :]), layers.shape(axis)
        remembered = layers.offsets(count)[axis] + number * prod(shape)
        inner = [points - 2 * radius for points in layers.fields]
        which = (int(along), 1 if line is None else inner[line], inner[row if along else last])
        begin, end, sides = layers.ends[axis][0], layers.ends[axis][-1], list[tuple[int, ...]]()
        for start, stop in _sides(layers.ends[axis]):
            low, high = max(begin, start - radius), min(end, stop + radius)
            # Where rows of a layer are rounded up to whole vectors, they must not leave the fields.
            wide = min(-(-(stop - start) // WORD) * WORD, (radius + 1) * layers.fields[-1] - start - radius)
            at = first(layers.fields, start * step)[0]
            sides.append((at, stop - start, start - low, high - low, wide) if stop > start else (at, 0, 0, 0, 0))
        steps, slopes = first(layers.fields, 0)[1:], sum(2 * size * 2 * radius for size in layers.fields[:axis])
        ab = self._places[axis, half]
        if along:
            pairs = [value for pair in zip(*sides, strict=True) for value in pair]
            if not any(pairs[2:4]):
                return []
            return [(*which, *pairs, *steps, *first(shape, remembered), ab, slopes, half, source)]
        rows, slot = [], 0
        for (start, _), side in zip(_sides(layers.ends[axis]), sides, strict=True):
            pairs = [value for one in side for value in (one, 0)]
            memory = first(shape, remembered + slot * prod(shape[axis + 1 :]))
            slope = slopes + (half * layers.fields[axis] + start) * 2 * radius
            if side[1]:
                rows.append((*which, *pairs, *steps, *memory, ab + 2 * slot, slope, half, source))
            slot += side[1]
        return rows

    def _coefficients(self, a: Sequence[Any], b: Sequence[Any]) -> tuple[dict[tuple[int, int], int], Any]:
        """Return a and b of all sides, one after the other, and where those of an axis and its halves begin.

        Along rows both sides are together, as often as rows are taken at once.
        """
        parts, places = list[Any](), dict[tuple[int, int], int]()
        for axis, half in product(range(self.layers.ndim), range(2)):
            places[axis, half] = sum(map(len, parts))
            sides = [[values[axis][half][slice(*side)] for values in (a, b)] for side in _sides(self.layers.ends[axis])]
            if axis == self.layers.ndim - 1:
                sides = [[np.tile(np.concatenate(both), TILE) for both in zip(*sides, strict=True)]]
            parts += [values for side in sides for values in side]
        return places, np.concatenate(parts).astype(self._dtype)

    def _hold(self, every: int) -> Any:
        """Return the coefficients of a memory that is asked once in several steps."""
        a, b = zip(*(held(*pair, every) for pair in zip(self.layers.a, self.layers.b, strict=True)), strict=True)
        return self._coefficients(a, b)[1]

    def _fadings(self) -> tuple[Any, list[Any], tuple[int, ...], int]:
        """Return what fields fade by, where that begins for each and its axes, their shape, and the ends of rows."""
        layers, radius = self.layers, self._radius
        g = np.concatenate([*(values.ravel() for values in layers.g), np.ones(1)]).astype(self._dtype)
        begins = np.cumsum([0, *(2 * size for size in layers.fields)])
        pairs = [*combinations(range(layers.ndim), 2)]
        tables = []
        for fields in ([(axis,) for axis in range(layers.ndim)], [()] * layers.ndim + pairs):
            rows = [
                [int(begins[axis]) + (axis in halves) * layers.fields[axis] for axis in range(layers.ndim)]
                for halves in fields
            ]
            if layers.ndim == 2:
                rows = [[deep, len(g) - 1, along] for deep, along in rows]
            tables.append(np.array(rows, np.int64))
        still = np.flatnonzero((layers.g[-1] == 1).all(axis=0)[radius:-radius])
        long = layers.fields[-1] - 2 * radius
        ends = -(-max(still[0], long - 1 - still[-1]) // WORD) * WORD if len(still) else long
        shape = layers.fields if layers.ndim == 3 else (layers.fields[0], 1, layers.fields[1])
        return g, tables, shape, int(ends) if 2 * ends <= long else -1

    def _stress(self, one: int, other: int) -> int:
        """Return the number of a stress by its axes."""
        pairs = [(axis, axis) for axis in range(self.layers.ndim)]
        pairs += combinations(range(self.layers.ndim), 2)
        return pairs.index((min(one, other), max(one, other)))


def _sides(ends: tuple[int, int, int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return where the layers before and after a model begin and end along an axis."""
    first, low, high, last = ends
    return (first, low), (high, last)


def _flat(arrays: Any) -> tuple[Any, ...]:
    """Return arrays flat, and as many of them as loops take."""
    flat = tuple(array.reshape(-1) for array in arrays)
    return flat + flat[:1] * (FIELDS - len(flat))
