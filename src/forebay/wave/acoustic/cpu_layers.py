"""The loops of absorbing layers for NumPy arrays: `layers` says what they compute.

Fields of two axes are taken for ones of three with a middle axis of one row. Lines along the axis of a layer are
independent, so threads share them. What layers change is taken from the older field
before the step, which adds it to the newer one: layers of several axes then need no pass of their own.
"""

from functools import cache
from math import prod
from typing import Any

import numpy as np

from forebay.wave.acoustic.layers import AcousticLayers, Side
from forebay.wave.kernels.jit import jit, jits, prange
from forebay.wave.kernels.stencil import second_derivative

MANY = 1 << 16
"""Points of a layer from which several threads are worth waking."""


def change(
    layers: AcousticLayers, p: Any, p_old: Any, squared: Any, pml: Any, weights: Any, radius: int, back: bool
) -> None:
    """Take the memory of all layers a step further, and what they change in it from the older field.

    Afterwards `layers.changes` has what they change.
    """
    p, p_old, squared = _deep(p), _deep(p_old), _deep(squared)
    plane, edge = len(weights) == 2, 0 if len(weights) == 2 else radius
    for side in layers.sides:
        loop = (_back if back else _forward)(2 * side.axis if plane else side.axis, radius, p.dtype, side.size >= MANY)
        # Numbers, not views: a step of a small model takes about as long as what is passed here.
        places = (side.start, side.lead, side.trail, side.offset, side.size, side.changed)
        loop(p, p_old, squared, pml, layers.changes, side.coefficients, weights[side.axis], edge, places)


def add(layers: AcousticLayers, total: Any, other: Any, factor: Any) -> None:
    """Add what layers have changed in a step back, times another field and a factor, to a total."""
    for side in layers.sides:
        changed = _changed(side, layers)
        within = [slice(None)] * total.ndim
        within[side.axis] = slice(side.start - side.lead, side.start + side.count + side.trail)
        _add[side.size >= MANY](*(_deep(values[tuple(within)]) for values in (total, other)), _deep(changed), factor)


def _changed(side: Side, layers: AcousticLayers) -> Any:
    return layers.changes[side.changed : side.changed + prod(side.reach)].reshape(side.reach)


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
    none, first = dtype.type(0), axis == 0
    if axis == 2:

        @jit(parallel=parallel)
        def along(
            p: Any, old: Any, speed: Any, pml: Any, changes: Any, ab: Any, w: Any, edge: int, places: Any
        ) -> None:
            a, b, half_a, half_b = ab[0], ab[1], ab[2], ab[3]
            start, lead, trail, offset, size, changed = places
            shape, reached = (p.shape[0], p.shape[1], len(a)), (p.shape[0], p.shape[1], lead + len(a) + trail)
            psi, zeta = (
                pml[offset : offset + size].reshape(shape),
                pml[offset + size : offset + 2 * size].reshape(shape),
            )
            out = changes[changed : changed + reached[0] * reached[1] * reached[2]].reshape(reached)
            count = len(a)
            for z in prange(radius, p.shape[0] - radius):
                flow, lap, shift = np.zeros(count + 1, p.dtype), np.zeros(count, p.dtype), np.zeros(count, p.dtype)
                for y in range(edge, p.shape[1] - edge):
                    row, flux, bent = p[z, y, start - radius : start + radius + count], psi[z, y], zeta[z, y]
                    for k in range(count):
                        bend, total = c[0] * row[radius + k], none
                        for j in range(1, radius + 1):
                            bend += c[j] * (row[radius + k - j] + row[radius + k + j])
                            total += f[j] * (row[radius + k - 1 + j] - row[radius + k - j])
                        lap[k] = bend
                        shift[k] = total
                    for k in range(count):
                        flow[k] = half_b[k] * flux[k] + half_a[k] * shift[k]
                    for k in range(count):
                        flux[k] = flow[k]
                    for k in range(count):
                        shift[k] = flow[k + 1] - flow[k]  # the flux out of the last point is not stretched
                    for k in range(count):
                        bent[k] = b[k] * bent[k] + a[k] * (lap[k] + shift[k])
                    for k in range(count):
                        shift[k] = w * (shift[k] + bent[k])
                    new, older, faster = out[z, y, lead : lead + count], old[z, y, start:], speed[z, y, start:]
                    for k in range(count):
                        new[k] = shift[k]
                    for k in range(count):
                        older[k] -= faster[k] * shift[k]

        return along

    @jit(parallel=parallel)
    def across(p: Any, old: Any, speed: Any, pml: Any, changes: Any, ab: Any, w: Any, edge: int, places: Any) -> None:
        a, b, half_a, half_b = ab[0], ab[1], ab[2], ab[3]
        start, lead, trail, offset, size, changed = places
        planes, rows, long = p.shape[0], p.shape[1], lead + len(a) + trail
        shape = (len(a), rows, p.shape[2]) if first else (planes, len(a), p.shape[2])
        reached = (long, rows, p.shape[2]) if first else (planes, long, p.shape[2])
        psi, zeta = pml[offset : offset + size].reshape(shape), pml[offset + size : offset + 2 * size].reshape(shape)
        out = changes[changed : changed + reached[0] * reached[1] * reached[2]].reshape(reached)
        count, width = len(a), p.shape[2]
        low, high = (edge, p.shape[1] - edge) if first else (radius, p.shape[0] - radius)
        for line in prange(low, high):
            flow, before, lap = np.zeros(width, p.dtype), np.zeros(width, p.dtype), np.zeros(width, p.dtype)
            # One short loop for each sum: the compiler makes vector instructions of those that touch few arrays.
            for k in range(count):
                i = start + k
                for x in range(radius, width - radius):
                    bend = c[0] * (p[i, line, x] if first else p[line, i, x])
                    total = none
                    for j in range(1, radius + 1):
                        above = p[i + j, line, x] if first else p[line, i + j, x]
                        bend += c[j] * (above + (p[i - j, line, x] if first else p[line, i - j, x]))
                        total += f[j] * (above - (p[i + 1 - j, line, x] if first else p[line, i + 1 - j, x]))
                    lap[x] = bend
                    flow[x] = total
                ahead = k + 1 if k + 1 < count else 0  # the flux out of the last point is not stretched
                flux, bent = (psi[ahead, line], zeta[k, line]) if first else (psi[line, ahead], zeta[line, k])
                new = out[lead + k, line] if first else out[line, lead + k]
                keep, gain, fade, turn = half_b[ahead], half_a[ahead], b[k], a[k]
                for x in range(width):
                    flux[x] = keep * flux[x] + gain * flow[x]
                for x in range(width):
                    before[x] = flux[x] - before[x]
                for x in range(width):
                    bent[x] = fade * bent[x] + turn * (lap[x] + before[x])
                for x in range(width):
                    new[x] = w * (before[x] + bent[x])
                for x in range(width):
                    before[x] = flux[x]
                older, faster = (old[i, line], speed[i, line]) if first else (old[line, i], speed[line, i])
                for x in range(radius, width - radius):
                    older[x] -= faster[x] * new[x]

    return across


@cache
def _back(axis: int, radius: int, dtype: Any, parallel: bool) -> Any:
    """Compile the change of a step of the adjoint along an axis: the transpose of `_forward`."""
    c, f = _fluxes(radius, dtype)
    far, first = 2 * radius, axis == 0
    if axis == 2:

        @jit(parallel=parallel)
        def along(
            q: Any, old: Any, speed: Any, pml: Any, changes: Any, ab: Any, w: Any, edge: int, places: Any
        ) -> None:
            a, b, half_a, half_b = ab[0], ab[1], ab[2], ab[3]
            start, lead, trail, offset, size, changed = places
            shape, reached = (q.shape[0], q.shape[1], len(a)), (q.shape[0], q.shape[1], lead + len(a) + trail)
            psi, zeta = (
                pml[offset : offset + size].reshape(shape),
                pml[offset + size : offset + 2 * size].reshape(shape),
            )
            out = changes[changed : changed + reached[0] * reached[1] * reached[2]].reshape(reached)
            count, reach = len(a), out.shape[2]
            for z in prange(radius, q.shape[0] - radius):
                m, n = np.zeros(count + 2 * far, q.dtype), np.zeros(count + 2 * far, q.dtype)
                for y in range(edge, q.shape[1] - edge):
                    row, flux, bent, new = q[z, y, start - 1 :], psi[z, y], zeta[z, y], out[z, y]
                    for k in range(count):
                        bent[k] = row[1 + k] + b[k] * bent[k]
                    for k in range(count):
                        m[far + k] = a[k] * bent[k]
                    for k in range(count):
                        n[far + k] = (row[k] + m[far + k - 1]) - (row[1 + k] + m[far + k])
                    for k in range(count):
                        flux[k] = n[far + k] + half_b[k] * flux[k]
                    for k in range(count):
                        n[far + k] = half_a[k] * flux[k]  # that of the first point is 0
                    older, faster = old[z, y, start - lead :], speed[z, y, start - lead :]
                    for k in range(reach):
                        total, at = c[0] * m[far - lead + k], far - lead + k
                        for j in range(1, radius + 1):
                            total += c[j] * (m[at - j] + m[at + j]) + f[j] * (n[at + 1 - j] - n[at + j])
                        new[k] = w * total
                    for k in range(reach):
                        older[k] -= faster[k] * new[k]

        return along

    @jit(parallel=parallel)
    def across(q: Any, old: Any, speed: Any, pml: Any, changes: Any, ab: Any, w: Any, edge: int, places: Any) -> None:
        a, b, half_a, half_b = ab[0], ab[1], ab[2], ab[3]
        start, lead, trail, offset, size, changed = places
        planes, rows, long = q.shape[0], q.shape[1], lead + len(a) + trail
        shape = (len(a), rows, q.shape[2]) if first else (planes, len(a), q.shape[2])
        reached = (long, rows, q.shape[2]) if first else (planes, long, q.shape[2])
        psi, zeta = pml[offset : offset + size].reshape(shape), pml[offset + size : offset + 2 * size].reshape(shape)
        out = changes[changed : changed + reached[0] * reached[1] * reached[2]].reshape(reached)
        count, width, reach = len(a), q.shape[2], out.shape[0] if first else out.shape[1]
        low, high = (edge, q.shape[1] - edge) if first else (radius, q.shape[0] - radius)
        for line in prange(low, high):
            m, n = np.zeros((count + 2 * far, width), q.dtype), np.zeros((count + 2 * far, width), q.dtype)
            for k in range(count):
                flux, bent = (psi[k, line], zeta[k, line]) if first else (psi[line, k], zeta[line, k])
                here = q[start + k, line] if first else q[line, start + k]
                before = q[start + k - 1, line] if first else q[line, start + k - 1]
                fade, turn, keep, gain = b[k], a[k], half_b[k], half_a[k]
                for x in range(radius, width - radius):
                    bent[x] = here[x] + fade * bent[x]
                for x in range(width):
                    m[far + k, x] = turn * bent[x]
                if k > 0:
                    for x in range(radius, width - radius):
                        n[far + k, x] = (before[x] + m[far + k - 1, x]) - (here[x] + m[far + k, x])
                    for x in range(width):
                        flux[x] = n[far + k, x] + keep * flux[x]
                    for x in range(width):
                        n[far + k, x] = gain * flux[x]
            for place in range(reach):
                k, at = far + place - lead, start - lead + place
                new = out[place, line] if first else out[line, place]
                for x in range(radius, width - radius):
                    total = c[0] * m[k, x]
                    for j in range(1, radius + 1):
                        total += c[j] * (m[k - j, x] + m[k + j, x]) + f[j] * (n[k + 1 - j, x] - n[k + j, x])
                    new[x] = w * total
                older, faster = (old[at, line], speed[at, line]) if first else (old[line, at], speed[line, at])
                for x in range(radius, width - radius):
                    older[x] -= faster[x] * new[x]

    return across
