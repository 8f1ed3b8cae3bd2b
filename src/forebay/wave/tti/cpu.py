"""The loops of TTI waves for NumPy arrays: the twins of the GPU's kernels.

Fields are rows, and what layers remember is rows as well, as in `sweeps.cpu`. A step is three sweeps, each of which
writes what the next one reads beside a point: axial stresses; slopes of both stresses along the symmetry axis; and what
the fluxes along it change. Above a free surface stresses are those below with their sign changed, and fluxes along
depth are those below. Of each point and axis layers remember slopes, or on the way back fluxes, of both stresses, then
what is done to both strains, or on the way back both stresses.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.cpu import MANY, weights_of
from forebay.wave.kernels.jit import jit, prange, writable
from forebay.wave.kernels.stencil import central_derivative
from forebay.wave.kernels.subnormal import flush, restore
from forebay.wave.sweeps.cpu import (
    ACROSS,
    COUNT,
    PSI,
    STRIDE,
    TILE_Y,
    TILE_Z,
    ZETA,
    SweepCpuKernels,
    rows_of,
    tables_of,
)
from forebay.wave.vti.fields import FIELDS, SUMS


@cache
def stress(dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the first sweep: axial stresses and, on the way back, what layers remember of both stresses."""

    @jit(parallel=parallel, lone=True)
    def rows_of_stress(
        p: Any, r: Any, share: Any, excess: Any, q: Any, memory: Any, along: Any, about: Any, where: Any, columns: Any,
        b: Any, remembers: Any
    ) -> None:  # fmt: skip
        wide, rows, last = p.shape[1], about[0, STRIDE], len(about) - 1
        for row in prange(p.shape[0]):
            setting = flush()
            z, y = row // rows, row % rows
            for x in range(wide):
                q[row, x] = share[row, x] * p[row, x] + excess[row, x] * r[row, x]
            for f in range(2 if remembers else 0):
                field = q if f else p
                for axis in range(last):
                    place = y if axis else z
                    if where[axis, place] >= 0:
                        base = about[axis, PSI] + (2 + f) * (about[axis, ZETA] - about[axis, PSI])
                        base += z * about[1, COUNT] if axis else y
                        held = memory[base + where[axis, place] * about[axis, ACROSS]]
                        for x in range(wide):
                            held[x] = b[axis, 0, place] * held[x] + field[row, x]
                for m in range(len(columns)):
                    x = columns[m]
                    along[2 + f, row, m] = b[last, 0, x] * along[2 + f, row, m] + field[row, x]
            restore(setting)

    return rows_of_stress


@cache
def slopes(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the second sweep: slopes of both stresses along the symmetry axis, as layers leave them."""
    d, zero = central_of(radius, dtype), dtype.type(0)

    @jit(parallel=parallel, lone=True)
    def tiles(
        p: Any, q: Any, normal: Any, u_p: Any, u_q: Any, memory: Any, along: Any, about: Any, where: Any, columns: Any,
        a: Any, b: Any, w: Any, count: Any, surface: Any, back: Any, remembers: Any
    ) -> None:  # fmt: skip
        wide, rows, last = p.shape[1], about[0, STRIDE], len(about) - 1
        first, width = radius if last == 2 else 0, wide - 2 * radius
        across = (rows - 2 * first + TILE_Y - 1) // TILE_Y
        for tile in prange((count - 2 * radius + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            z_0, y_0 = radius + tile // across * TILE_Z, first + tile % across * TILE_Y
            z_1, y_1 = min(z_0 + TILE_Z, count - radius), min(y_0 + TILE_Y, rows - first)
            thick = y_1 - y_0
            here, rise = np.empty(wide, p.dtype), np.empty((2, last + 1, width), p.dtype)
            for number in range((z_1 - z_0) * thick):
                z, y = z_0 + number // thick, y_0 + number % thick
                row = z * rows + y
                for f in range(2):
                    field = q if f else p
                    for axis in range(last):
                        line, place = rise[f, axis], y if axis else z
                        base = about[axis, PSI] + (2 + f) * (about[axis, ZETA] - about[axis, PSI])
                        base += z * about[1, COUNT] if axis else y
                        line[:] = zero
                        for tap in range(-radius, radius + 1):
                            if tap == 0:
                                continue
                            there = place + tap
                            weight = w[axis] * (d[tap - 1] if tap > 0 else -d[-tap - 1])
                            if back and where[axis, there] >= 0:
                                gain = weight * a[axis, 0, there]
                                held = memory[base + where[axis, there] * about[axis, ACROSS]]
                                for x in range(width):
                                    line[x] += gain * held[x + radius]
                            if surface and axis == 0 and there < radius:
                                there, weight = 2 * radius - there, -weight
                            beside = field[row + (there - place) * about[axis, STRIDE]]
                            for x in range(width):
                                line[x] += weight * beside[x + radius]
                    for x in range(wide):
                        here[x] = field[row, x]
                    for m in range(len(columns) if back else 0):
                        here[columns[m]] += a[last, 0, columns[m]] * along[2 + f, row, m]
                    line = rise[f, last]
                    for x in range(width):
                        total = zero
                        for k in range(radius):
                            total += d[k] * (here[x + radius + 1 + k] - here[x + radius - 1 - k])
                        line[x] = w[last] * total
                    if back:
                        continue
                    for axis in range(last):
                        place, line = y if axis else z, rise[f, axis]
                        if where[axis, place] >= 0:
                            base = about[axis, PSI] + f * (about[axis, ZETA] - about[axis, PSI])
                            base += z * about[1, COUNT] if axis else y
                            held = memory[base + where[axis, place] * about[axis, ACROSS]]
                            for x in range(width):
                                kept = b[axis, 0, place] * held[x + radius] + a[axis, 0, place] * line[x]
                                held[x + radius] = kept
                                line[x] += kept
                    for m in range(len(columns)):
                        x = columns[m]
                        kept = b[last, 0, x] * along[f, row, m] + a[last, 0, x] * rise[f, last, x - radius]
                        along[f, row, m] = kept
                        rise[f, last, x - radius] += kept
                for f in range(2):
                    slope = u_q if f else u_p
                    for x in range(width):
                        total = normal[0, row, x + radius] * rise[f, 0, x]
                        for axis in range(1, last + 1):
                            total += normal[axis, row, x + radius] * rise[f, axis, x]
                        slope[row, x + radius] = total
                    if not remembers:
                        continue
                    own = dtype.type(0 if f else 1)
                    for axis in range(last):
                        place = y if axis else z
                        if where[axis, place] >= 0:
                            base = about[axis, PSI] + f * (about[axis, ZETA] - about[axis, PSI])
                            base += z * about[1, COUNT] if axis else y
                            held = memory[base + where[axis, place] * about[axis, ACROSS]]
                            for x in range(width):
                                at = x + radius
                                flux = normal[axis, row, at] * slope[row, at] - own * rise[f, axis, x]
                                held[at] = b[axis, 0, place] * held[at] + flux
                    for m in range(len(columns)):
                        x = columns[m]
                        flux = normal[last, row, x] * slope[row, x] - own * rise[f, last, x - radius]
                        along[f, row, m] = b[last, 0, x] * along[f, row, m] + flux
            restore(setting)

    return tiles


@cache
def sweep(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile the third sweep, after which `p_old` and `r_old` are the newer fields; or what a gradient adds up.

    A gradient has its sums in the place of `p_old`, `r_old` and `third`, the stress that the step back has led to, and
    the fields of the other wave.
    """
    c, d, zero = weights_of(radius, dtype), central_of(radius, dtype), dtype.type(0)

    @jit(parallel=parallel, lone=True)
    def tiles(
        p: Any, r: Any, p_old: Any, r_old: Any, third: Any, newest: Any, other_p: Any, other_r: Any, hard: Any,
        share: Any, excess: Any, normal: Any, u_p: Any, u_q: Any, memory: Any, along: Any, about: Any, where: Any,
        columns: Any, a: Any, b: Any, w: Any, count: Any, surface: Any, back: Any, sense: Any, factor: Any
    ) -> None:  # fmt: skip
        wide, rows, last = p.shape[1], about[0, STRIDE], len(about) - 1
        first, width = radius if last == 2 else 0, wide - 2 * radius
        begin = radius + surface  # on the surface stresses are 0
        across = (rows - 2 * first + TILE_Y - 1) // TILE_Y
        for tile in prange((count - radius - begin + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            z_0, y_0 = begin + tile // across * TILE_Z, first + tile % across * TILE_Y
            z_1, y_1 = min(z_0 + TILE_Z, count - radius), min(y_0 + TILE_Y, rows - first)
            thick = y_1 - y_0
            here, flux_p, flux_q = np.empty(wide, p.dtype), np.empty(wide, p.dtype), np.empty(wide, p.dtype)
            bend, axial = np.empty(width, p.dtype), np.empty(width, p.dtype)  # of an axis
            beside, depth = np.empty(width, p.dtype), np.empty(width, p.dtype)  # of all
            for number in range((z_1 - z_0) * thick):
                z, y = z_0 + number // thick, y_0 + number % thick
                row = z * rows + y
                beside[:] = zero
                depth[:] = zero
                for axis in range(last):
                    place, square = y if axis else z, w[axis] * w[axis]
                    size, step = about[axis, ZETA] - about[axis, PSI], about[axis, ACROSS]
                    base = about[axis, PSI] + (z * about[1, COUNT] if axis else y)
                    bend[:] = zero
                    axial[:] = zero
                    for tap in range(-radius, radius + 1):
                        there, weight, curve = place + tap, zero, square * c[abs(tap)]
                        if tap:
                            weight = w[axis] * (d[tap - 1] if tap > 0 else -d[-tap - 1])
                        if where[axis, there] >= 0:
                            kept = base + where[axis, there] * step
                            held_p, held_q, zeta = memory[kept], memory[kept + size], memory[kept + 2 * size]
                            if back:
                                gain = a[axis, 0, there]
                                for x in range(width):
                                    at = x + radius
                                    bend[x] += gain * (curve * zeta[at] - weight * held_p[at])
                                    axial[x] += gain * weight * held_q[at]
                            else:
                                for x in range(width):
                                    bend[x] += weight * held_p[x + radius]
                        if surface and axis == 0 and there < radius:
                            there, curve = 2 * radius - there, -curve
                        far = row + (there - place) * about[axis, STRIDE]
                        for x in range(width):
                            at = x + radius
                            along_axis = weight * normal[axis, far, at]
                            bend[x] += curve * p[far, at] - along_axis * u_p[far, at]
                            axial[x] += along_axis * u_q[far, at]
                    if not back and where[axis, place] >= 0:
                        kept = base + where[axis, place] * step
                        zeta_p, zeta_q = memory[kept + 2 * size], memory[kept + 3 * size]
                        for x in range(width):
                            at = x + radius
                            zeta_p[at] = b[axis, 0, place] * zeta_p[at] + a[axis, 0, place] * bend[x]
                            zeta_q[at] = b[axis, 0, place] * zeta_q[at] + a[axis, 0, place] * axial[x]
                            bend[x] += zeta_p[at]
                            axial[x] += zeta_q[at]
                    for x in range(width):
                        beside[x] += bend[x]
                        depth[x] += axial[x]
                for x in range(wide):
                    here[x] = p[row, x]
                    flux_p[x] = normal[last, row, x] * u_p[row, x]
                    flux_q[x] = normal[last, row, x] * u_q[row, x]
                for m in range(len(columns)):
                    x = columns[m]
                    if back:
                        here[x] += a[last, 0, x] * along[2, row, m]
                        flux_p[x] += a[last, 0, x] * along[0, row, m]
                        flux_q[x] += a[last, 0, x] * along[1, row, m]
                    else:
                        flux_p[x] -= along[0, row, m]
                for x in range(width):
                    at = x + radius
                    curved, rise_p, rise_q = c[0] * here[at], zero, zero
                    for k in range(1, radius + 1):
                        curved += c[k] * (here[at - k] + here[at + k])
                        rise_p += d[k - 1] * (flux_p[at + k] - flux_p[at - k])
                        rise_q += d[k - 1] * (flux_q[at + k] - flux_q[at - k])
                    bend[x] = w[last] * w[last] * curved - w[last] * rise_p
                    axial[x] = w[last] * rise_q
                for m in range(0 if back else len(columns)):
                    at, x = columns[m], columns[m] - radius
                    along[2, row, m] = b[last, 0, at] * along[2, row, m] + a[last, 0, at] * bend[x]
                    along[3, row, m] = b[last, 0, at] * along[3, row, m] + a[last, 0, at] * axial[x]
                    bend[x] += along[2, row, m]
                    axial[x] += along[3, row, m]
                ease = a[0, 1, z] * a[1, 1, y] if last == 2 else a[0, 1, z]
                for x in range(width):
                    at, wide_part, deep_part = x + radius, beside[x] + bend[x], depth[x] + axial[x]
                    both = wide_part + share[row, at] * deep_part
                    eased = ease * a[last, 1, at]
                    if sense:
                        strain = other_p[row, at] / hard[row, at] - share[row, at] * other_r[row, at]
                        lag = (newest[row, at] - p[row, at]) / hard[row, at] - both
                        lag *= (dtype.type(1) - eased) * other_r[row, at]
                        p_old[row, at] += factor * (wide_part * strain - share[row, at] * lag)
                        r_old[row, at] += factor * (wide_part * other_r[row, at] + deep_part * strain + lag)
                        axial_stress = share[row, at] * other_p[row, at] + excess[row, at] * other_r[row, at]
                        third[row, at] += factor * (wide_part * other_p[row, at] + deep_part * axial_stress)
                    else:
                        p_old[row, at] = p[row, at] + p[row, at] - p_old[row, at] + hard[row, at] * both
                        moved = eased * (r[row, at] - r_old[row, at])
                        r_old[row, at] = r[row, at] + moved + deep_part
            restore(setting)

    return tiles


def central_of(radius: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the weights of first derivatives at the points themselves, from the nearest ones on."""
    return tuple(dtype.type(weight) for weight in central_derivative(2 * radius))


class TTICpuKernels(SweepCpuKernels):
    """The loops for one grid, one order and one type; arrays are NumPy's."""

    _scratch: tuple[NDArray[Any], ...] = ()

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the model, of the fields before that step."""
        p, r = state["p_old"], state["r_old"]
        others = state["p"], writable(record["p"]), writable(record["r"])
        changed = tuple(sums[name] for name in SUMS)
        self._sweep(propagator, (p, r, *changed, *others), state.get("pml"), factor, back=True, sense=True)

    def _step(self, propagator: Any, state: Any, senders: Any, values: Any, back: bool) -> Any:
        (p, p_old, r, r_old), pml = (state[name] for name in FIELDS), state.get("pml")
        self._sweep(propagator, (p, r, p_old, r_old, r_old, p, p, r), pml, 0.0, back=back, sense=False)
        self.scatter(p_old, senders.points, values, senders.factors)
        return state | {"p": p_old, "p_old": p, "r": r_old, "r_old": r}

    def _sweep(
        self, propagator: Any, fields: tuple[Any, ...], pml: Any, factor: float, *, back: bool, sense: bool
    ) -> None:
        layers, grid, tables = propagator.layers, propagator.model.grid, self._tables_of(propagator)
        if pml is None:
            pml = np.zeros(0, self.dtype)
        arrays = *fields, propagator.stiffness, propagator.share, propagator.excess, *self._scratch_of(propagator)
        *rows, memory, along = rows_of(layers, pml, *arrays, count=propagator.memories)
        (p, r), (hard, share, excess, q, u_p, u_q) = rows[:2], rows[8:]
        normal = propagator.axis.reshape(layers.ndim, *p.shape)
        about, where, columns, a, b = (tables[name] for name in ("about", "where", "columns", "a", "b"))
        many, weights = p.size >= MANY, np.array([1 / step for step in grid.spacing], self.dtype)
        kept, remembers = (memory, along, about, where, columns), back and not sense
        count, surface = len(fields[0]), int(grid.free_surface)
        stress(self.dtype, many)(p, r, share, excess, q, *kept, b, remembers)
        second, third = slopes(self.radius, self.dtype, many), sweep(self.radius, self.dtype, many)
        second(p, q, normal, u_p, u_q, *kept, a, b, weights, count, surface, back, remembers)
        how = weights, count, surface, back, sense, self.dtype.type(factor)
        third(*rows[:8], hard, share, excess, normal, u_p, u_q, *kept, a, b, *how)

    def _tables_of(self, propagator: Any) -> dict[str, NDArray[Any]]:
        if not self._prepared:
            self._prepared = tables_of(propagator.layers, self.dtype, propagator.memories)
        return self._prepared

    def _scratch_of(self, propagator: Any) -> tuple[NDArray[Any], ...]:
        """Return room for axial stresses and both slopes, which are 0 around what is computed."""
        if not self._scratch:
            self._scratch = tuple(np.zeros_like(propagator.stiffness) for _ in range(3))
        return self._scratch
