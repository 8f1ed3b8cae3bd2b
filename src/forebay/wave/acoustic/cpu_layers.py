"""The loops of absorbing layers for NumPy arrays: `layers` says what they compute.

Fields of two axes are taken for ones of three with a middle axis of one row. Lines along the axis of a layer are
independent, so threads share them; where rows lie across that axis, whole rows are computed at once.
"""

from functools import cache
from typing import Any

import numpy as np

from forebay.wave.acoustic.layers import Layer, Layers
from forebay.wave.kernels.jit import jit, jits, prange
from forebay.wave.kernels.stencil import second_derivative

MANY = 1 << 14
"""Points of a layer from which several threads are worth waking."""


def change(layers: Layers, p: Any, memory: Any, weights: Any, radius: int, back: bool) -> None:
    """Take the memory of all layers a step further, and leave what they change in `layers.changes`."""
    for side in layers.sides:
        psi, zeta = (
            _deep(memory[begin : begin + side.size].reshape(side.shape))
            for begin in (side.offset, side.offset + side.size)
        )
        axis, out = side.axis if p.ndim == 3 else 2 * side.axis, _deep(changed_by(side, layers.changes))
        loop = (_back if back else _forward)(axis, radius, p.dtype, side.size >= MANY)
        a, b, half_a, half_b = side.coefficients.astype(p.dtype)
        edge = radius if p.ndim == 3 else 0
        loop(_deep(p), psi, zeta, out, (a, b, half_a, half_b), weights[side.axis], side.start, side.lead, edge)


def add(layers: Layers, total: Any, other: Any, factor: Any, back: bool) -> None:
    """Add what a step's layers change, times another field and a factor, to a total."""
    for side in layers.sides:
        lead, trail = (side.lead, side.trail) if back else (0, 0)
        out = changed_by(side, layers.changes)
        within = [slice(None)] * total.ndim
        within[side.axis] = slice(side.start - lead, side.start + side.count + trail)
        kept = [slice(None)] * total.ndim
        kept[side.axis] = slice(side.lead - lead, side.lead + side.count + trail)
        _add[side.size >= MANY](*(_deep(a[tuple(within)]) for a in (total, other)), _deep(out[tuple(kept)]), factor)


def changed_by(side: Layer, changes: Any) -> Any:
    """Return what a layer changes, in its shape."""
    return changes[side.changed : side.changed + int(np.prod(side.reach))].reshape(side.reach)


def _deep(array: Any) -> Any:
    return array if array.ndim == 3 else array[:, None]


def _fluxes(radius: int, dtype: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the weights c of the second derivative and f of its fluxes, f with a first one that is not used."""
    c = second_derivative(2 * radius)
    f = [0.0, *(float(c[j:].sum()) for j in range(1, radius + 1))]
    return tuple(dtype.type(weight) for weight in c), tuple(dtype.type(weight) for weight in f)


@jits
def _add(total: Any, other: Any, changed: Any, factor: Any) -> None:
    for z in prange(total.shape[0]):
        for y in range(total.shape[1]):
            for x in range(total.shape[2]):
                total[z, y, x] += factor * other[z, y, x] * changed[z, y, x]


@cache
def _forward(axis: int, radius: int, dtype: Any, parallel: bool) -> Any:
    """Compile the change of a step along an axis."""
    c, f = _fluxes(radius, dtype)
    none = dtype.type(0)
    if axis == 2:

        @jit(parallel=parallel)
        def along(
            p: Any, psi: Any, zeta: Any, out: Any, ab: Any, w: Any, start: int, lead: int, edge: int
        ) -> None:
            a, b, half_a, half_b = ab
            count = len(a)
            for z in prange(radius, p.shape[0] - radius):
                for y in range(edge, p.shape[1] - edge):
                    row, flux, bent, new = p[z, y], psi[z, y], zeta[z, y], out[z, y]
                    for k in range(1, count):
                        flow = none
                        for j in range(1, radius + 1):
                            flow += f[j] * (row[start + k - 1 + j] - row[start + k - j])
                        flux[k] = half_b[k] * flux[k] + half_a[k] * flow
                    for k in range(count):
                        lap = c[0] * row[start + k]
                        for j in range(1, radius + 1):
                            lap += c[j] * (row[start + k - j] + row[start + k + j])
                        shift = (flux[k + 1] if k + 1 < count else none) - flux[k]
                        bent[k] = b[k] * bent[k] + a[k] * (lap + shift)
                        new[lead + k] = w * (shift + bent[k])

        return along

    first = axis == 0

    @jit(parallel=parallel)
    def across(p: Any, psi: Any, zeta: Any, out: Any, ab: Any, w: Any, start: int, lead: int, edge: int) -> None:
        a, b, half_a, half_b = ab
        count, width = len(a), p.shape[2]
        low, high = (edge, p.shape[1] - edge) if first else (radius, p.shape[0] - radius)
        for line in prange(low, high):
            for k in range(count):
                # The flux out of the last point goes outside of the layer.
                ahead = k + 1 if k + 1 < count else 0
                keep, gain = half_b[ahead], half_a[ahead]
                for x in range(radius, width - radius):
                    i = start + k
                    lap = c[0] * (p[i, line, x] if first else p[line, i, x])
                    flow = none
                    for j in range(1, radius + 1):
                        above = p[i + j, line, x] if first else p[line, i + j, x]
                        lap += c[j] * (above + (p[i - j, line, x] if first else p[line, i - j, x]))
                        flow += f[j] * (above - (p[i + 1 - j, line, x] if first else p[line, i + 1 - j, x]))
                    at, next_at = (k, line) if first else (line, k), (ahead, line) if first else (line, ahead)
                    later = keep * psi[next_at[0], next_at[1], x] + gain * flow
                    shift = later - psi[at[0], at[1], x]
                    psi[next_at[0], next_at[1], x] = later
                    bent = b[k] * zeta[at[0], at[1], x] + a[k] * (lap + shift)
                    zeta[at[0], at[1], x] = bent
                    if first:
                        out[lead + k, line, x] = w * (shift + bent)
                    else:
                        out[line, lead + k, x] = w * (shift + bent)

    return across


@cache
def _back(axis: int, radius: int, dtype: Any, parallel: bool) -> Any:
    """Compile the change of a step of the adjoint along an axis: the transpose of `_forward`."""
    c, f = _fluxes(radius, dtype)
    none = dtype.type(0)
    far = 2 * radius
    if axis == 2:

        @jit(parallel=parallel)
        def along(
            q: Any, psi: Any, zeta: Any, out: Any, ab: Any, w: Any, start: int, lead: int, edge: int
        ) -> None:
            a, b, half_a, half_b = ab
            count, reach = len(a), out.shape[2]
            for z in prange(radius, q.shape[0] - radius):
                m, n = np.zeros(count + 2 * far, q.dtype), np.zeros(count + 2 * far, q.dtype)
                for y in range(edge, q.shape[1] - edge):
                    row, flux, bent, new = q[z, y], psi[z, y], zeta[z, y], out[z, y]
                    for k in range(count):
                        bent[k] = row[start + k] + b[k] * bent[k]
                        m[far + k] = a[k] * bent[k]
                    for k in range(1, count):
                        jump = (row[start + k - 1] + m[far + k - 1]) - (row[start + k] + m[far + k])
                        flux[k] = jump + half_b[k] * flux[k]
                        n[far + k] = half_a[k] * flux[k]
                    for at in range(reach):
                        k = far + at - lead
                        total = c[0] * m[k]
                        for j in range(1, radius + 1):
                            total += c[j] * (m[k - j] + m[k + j]) + f[j] * (n[k + 1 - j] - n[k + j])
                        new[at] = w * total

        return along

    first = axis == 0

    @jit(parallel=parallel)
    def across(q: Any, psi: Any, zeta: Any, out: Any, ab: Any, w: Any, start: int, lead: int, edge: int) -> None:
        a, b, half_a, half_b = ab
        count, width, reach = len(a), q.shape[2], out.shape[0] if first else out.shape[1]
        low, high = (edge, q.shape[1] - edge) if first else (radius, q.shape[0] - radius)
        for line in prange(low, high):
            m, n = np.zeros((count + 2 * far, width), q.dtype), np.zeros((count + 2 * far, width), q.dtype)
            for k in range(count):
                for x in range(radius, width - radius):
                    here = q[start + k, line, x] if first else q[line, start + k, x]
                    at = (k, line) if first else (line, k)
                    bent = here + b[k] * zeta[at[0], at[1], x]
                    zeta[at[0], at[1], x] = bent
                    m[far + k, x] = a[k] * bent
                    if k > 0:
                        before = q[start + k - 1, line, x] if first else q[line, start + k - 1, x]
                        jump = (before + m[far + k - 1, x]) - (here + m[far + k, x])
                        flux = jump + half_b[k] * psi[at[0], at[1], x]
                        psi[at[0], at[1], x] = flux
                        n[far + k, x] = half_a[k] * flux
            for place in range(reach):
                k = far + place - lead
                for x in range(radius, width - radius):
                    total = c[0] * m[k, x]
                    for j in range(1, radius + 1):
                        total += c[j] * (m[k - j, x] + m[k + j, x]) + f[j] * (n[k + 1 - j, x] - n[k + j, x])
                    if first:
                        out[place, line, x] = w * total
                    else:
                        out[line, place, x] = w * total

    return across
