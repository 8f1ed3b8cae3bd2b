"""The terms that the peak of array code may be made of: numbers of elements, each a function of the lengths alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from forebay.footprint.fit.fast_lengths import next_fast_len
from forebay.footprint.measure.inputs import InputLayout

Table = NDArray[np.float64]
"""one row a sample: its lengths, then its features by name"""
Sets = NDArray[np.intp]
Outputs = Callable[[tuple[float, ...]], int | None]
"""the number of elements of the output, from the lengths and the parameters after them"""

TRIMS = (1, 2, 4, 8)
PADS = (1, 2, 4, 8, 16)
FAST_PADS = (0, 8, 16, 32, 64, 128)
KERNELS = (2, 4)
"""what convolution with a small kernel adds to every axis before it is transformed"""
EDGES = (1, 2, 8)
"""what a window, one on each side, or a bell of four widths on each side adds to every axis, times a parameter"""

BYTE, BIT = 0.5, 0.1
"""bytes per element that an array has at least, where it grows faster than the input, or as fast"""
ELEMENT, LINE, PROCESS = 1e3, 1e5, 64e6
"""bytes per element, per line and per call that would not surprise"""


@dataclass(frozen=True)
class Term:
    """A number of elements, each of which costs some bytes."""

    name: str
    value: Callable[[Table], Table]
    leading: bool
    """whether it grows as the volume does, or faster"""
    doubt: float
    """how much more evidence it takes to believe in it than in the volume, in nats"""
    scale: float
    """bytes per element that would not surprise"""
    least: float = 0.0
    """bytes per element below which it is none: no array has less"""


def candidates(layout: InputLayout, features: Sequence[str] = (), outputs: Outputs | None = None) -> list[Term]:
    """List the terms worth trying, the constant first.

    Examples
    --------
    >>> [term.name for term in candidates(InputLayout.of(2))][:4]
    ['1', 'n0*n1', '(n0-1)*(n1-1)', '(n0-2)*(n1-2)']
    """
    terms = [Term("1", lambda x: np.ones(len(x)), False, 0.0, PROCESS)]
    start = 0
    for count in layout.ndims:
        growing = [axis for axis in layout.free if start <= axis < start + count]
        if growing:
            terms += _of_input(growing, layout.axes)
            for place, (name, _) in enumerate(layout.parameters, len(layout.axes)):
                terms += of_parameter(growing, layout.axes, place, name)
        start += count
    for place, (name, _) in enumerate(layout.parameters, len(layout.axes)):
        terms.append(Term(name, _column(place), False, 1.0, LINE))
        terms.append(Term(f"{name}^{layout.free_ndim}", _power(place, layout.free_ndim), False, 2.0, ELEMENT))
    if outputs is not None:
        terms.append(Term("output", lambda x: _outputs(outputs, x), True, 0.5, ELEMENT, BIT))
    first = len(layout.axes) + len(layout.parameters)
    for number, name in enumerate(features):
        terms.append(Term(name, _column(first + number), False, 0.5, LINE))
        terms.append(Term(f"volume*{name}", _volume_times(layout, first + number), True, 2.0, ELEMENT, BIT))
    return terms


def _of_input(axes: list[int], names: Sequence[str]) -> list[Term]:
    """List the terms of one input."""
    whole = _name([names[axis] for axis in axes])
    terms = [Term(whole, _product(axes), True, 0.0, ELEMENT, BIT)]
    for change in (*(-trim for trim in TRIMS), *PADS):
        if len(axes) > 1:  # for one axis the constant says the same
            name = _name([f"({names[axis]}{change:+d})" for axis in axes])
            terms.append(Term(name, _product(axes, change), True, 7.0, ELEMENT, BIT))
    for axis in axes:
        terms += _fast(axes, [axis], names)
        if len(axes) > 1:
            name = _name([names[a] + ("^2" if a == axis else "") for a in axes])
            terms.append(Term(name, _product([*axes, axis]), True, 8.0, ELEMENT, BYTE))
        terms.append(Term(f"{names[axis]}^2", _product([axis, axis]), len(axes) <= 2, 2.0, ELEMENT, BYTE))
    if len(axes) > 1:
        terms += _fast(axes, axes, names)
    if len(axes) > 2:
        for face in combinations(axes, len(axes) - 1):
            terms.append(Term(_name([names[axis] for axis in face]), _product(list(face)), False, 1.0, ELEMENT))
    if len(axes) == 3:  # what pads or shifts one axis after the other peaks at one or another of them
        for shared in axes:
            first, second = (axis for axis in axes if axis != shared)
            name = f"{names[shared]}*max({names[first]},{names[second]})"
            terms.append(Term(name, _larger_face(shared, first, second), False, 2.0, ELEMENT))
    if len(axes) > 1:
        terms += [Term(names[axis], _product([axis]), False, 1.5, LINE) for axis in axes]
        pairs = list(combinations(axes, 2)) if len(axes) <= 3 else [(axes[-2], axes[-1])]
        for pair in pairs:
            name = f"min({names[pair[0]]},{names[pair[1]]})^2"
            terms.append(Term(name, _least_squared(pair), len(axes) <= 2, 2.0, ELEMENT, BYTE))
        if len(axes) == 2:
            name = f"max({names[axes[0]]},{names[axes[1]]})^2"
            terms.append(Term(name, _longest_squared(axes), True, 2.0, ELEMENT, BYTE))
    return terms


def _fast(axes: list[int], padded: list[int], names: Sequence[str]) -> list[Term]:
    """List the volumes with some axes padded to lengths that transform fast."""
    terms = []
    doubt = 4.0 if padded == axes[-1:] else 8.0  # transforms run along the last axis unless told otherwise
    for largest, mark in ((11, "fast"), (5, "fast5")):
        pads = FAST_PADS if axes[-1] in padded else FAST_PADS[:1]
        for pad in (*pads, None, *(KERNELS if len(padded) > 1 else ())):
            plus = "" if pad == 0 else f"+{names[padded[0]]}" if pad is None and len(padded) == 1 else f"+{pad or 'n'}"
            name = _name([f"{mark}({names[a]}{plus})" if a in padded else names[a] for a in axes])
            terms.append(
                Term(name, _product_fast(axes, padded, pad, largest), True, doubt + (pad is None), ELEMENT, BIT)
            )
    return terms


def of_parameter(axes: list[int], names: Sequence[str], place: int, parameter: str) -> list[Term]:
    """List the terms of one input and one parameter: windows of each element, edges, and parts of the volume."""
    volume, whole = _product(axes), _name([names[axis] for axis in axes])
    terms = []
    for power in dict.fromkeys((1, 2, len(axes))):
        name = f"{whole}*{parameter}" + (f"^{power}" if power > 1 else "")
        terms.append(Term(name, _times(volume, place, power), True, 1.0 + power, ELEMENT, BIT))
    for power in dict.fromkeys((1, len(axes))):
        name = f"{whole}/{parameter}" + (f"^{power}" if power > 1 else "")
        terms.append(Term(name, _times(volume, place, -power), True, 4.0 + power, ELEMENT, BIT))
    for factor in EDGES:
        name = _name([f"({names[axis]}+{factor}*{parameter})" for axis in axes])
        terms.append(Term(name, _edged(axes, place, factor), True, 5.0, ELEMENT, BIT))
    for largest, mark in ((11, "fast"), (5, "fast5")):
        name = _name([f"{mark}({names[axis]}+{parameter}-1)" for axis in axes])
        terms.append(Term(name, _edged(axes, place, 1, largest), True, 6.0, ELEMENT, BIT))
    if len(axes) > 1:
        for axis in axes:
            others = [other for other in axes if other != axis]
            name = _name([*(names[other] for other in others), parameter])
            terms.append(Term(name, _times(_product(others), place, 1), False, 3.0, ELEMENT))
    return terms


def _times(value: Callable[[Table], Table], place: int, power: int) -> Callable[[Table], Table]:
    return lambda x: value(x) * np.maximum(x[:, place], 1e-9) ** power


def _power(place: int, power: int) -> Callable[[Table], Table]:
    return lambda x: x[:, place] ** power


def _edged(axes: list[int], place: int, factor: int, fast: int | None = None) -> Callable[[Table], Table]:
    """Return the volume with so many times a parameter along every axis, or with one element less, as fast lengths."""

    def value(x: Table) -> Table:
        wide = x[:, axes] + factor * x[:, [place]]
        if fast is None:
            return np.asarray(np.prod(wide, axis=1))
        return np.array([np.prod([float(next_fast_len(int(n) - 1, fast)) for n in row]) for row in wide])

    return value


def _name(parts: Sequence[str]) -> str:
    return "*".join(parts)


def _product(axes: list[int], change: int = 0) -> Callable[[Table], Table]:
    return lambda x: np.prod(np.maximum(x[:, axes] + change, 0.0), axis=1)


def _product_fast(axes: list[int], padded: list[int], pad: int | None, largest: int) -> Callable[[Table], Table]:
    others = [axis for axis in axes if axis not in padded]

    def value(x: Table) -> Table:
        result: Table = np.prod(x[:, others], axis=1)
        for axis in padded:
            result *= [next_fast_len(n + (n - 1 if pad is None else pad), largest) for n in _ints(x[:, axis])]
        return result

    return value


def _ints(column: Table) -> list[int]:
    return [int(value) for value in column]


def _least_squared(pair: Sequence[int]) -> Callable[[Table], Table]:
    return lambda x: np.min(x[:, list(pair)], axis=1) ** 2


def _longest_squared(axes: Sequence[int]) -> Callable[[Table], Table]:
    return lambda x: np.max(x[:, list(axes)], axis=1) ** 2


def _larger_face(shared: int, first: int, second: int) -> Callable[[Table], Table]:
    return lambda x: x[:, shared] * np.maximum(x[:, first], x[:, second])


def _column(index: int) -> Callable[[Table], Table]:
    return lambda x: x[:, index]


def _volume_times(layout: InputLayout, index: int) -> Callable[[Table], Table]:
    axes = len(layout.axes)
    return lambda x: x[:, index] * [layout.volume(_ints(row[:axes])) for row in x]


def _outputs(outputs: Outputs, x: Table) -> Table:
    return np.array([outputs(tuple(row.tolist())) or 0 for row in x], dtype=float)


NO_GROWTH = 4.0
"""how much more evidence it takes to believe that memory does not grow with the volume at all, in nats"""


def combine(terms: Sequence[Term]) -> list[tuple[Sets, Table]]:
    """Group the sets of terms worth trying by how many terms they have, with the doubt about each set.

    Each has the constant, which is term 0, one or two leading terms, of which one is the plain volume or the output,
    and up to two smaller ones.
    """
    return list(_combine(tuple((term.leading, term.doubt) for term in terms)))


@lru_cache(maxsize=16)
def _combine(terms: tuple[tuple[bool, float], ...]) -> list[tuple[Sets, Table]]:
    """Do it once for all fits of one kind of function: they differ in their samples alone."""
    leading = [i for i, (leads, _) in enumerate(terms) if leads]
    small = [i for i, (leads, _) in enumerate(terms) if not leads and i]
    plain = [i for i in leading if terms[i][1] < 1]
    tops: list[tuple[int, ...]] = [()] + [(i,) for i in leading]
    tops += sorted({tuple(sorted((i, j))) for i in plain for j in leading if i != j})
    if comb(len(small), 2) * len(leading) > 20_000:  # many inputs or axes: leave the rarest sets out
        pairs: list[tuple[int, ...]] = []
    else:
        pairs = list(combinations(small, 2))
    rests: list[tuple[int, ...]] = [(), *((i,) for i in small), *pairs]
    sets = [(0, *top, *rest) for top in tops for rest in rests if len(top) + len(rest) <= 3]
    groups = []
    for count in range(1, 5):
        if group := [chosen for chosen in sets if len(chosen) == count]:
            grows = [any(terms[index][0] for index in chosen) for chosen in group]
            doubts = [sum(terms[index][1] for index in chosen) for chosen in group]
            groups.append((np.array(group, dtype=np.intp), np.array(doubts) + NO_GROWTH * ~np.array(grows)))
    return groups
