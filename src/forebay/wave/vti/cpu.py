"""The loops of VTI waves for NumPy arrays: the twins of the GPU's kernels.

Fields and memory lie as in `sweeps.cpu`, psi at the half points before those of a layer. A step is two sweeps: layers
take their psi further, and on the way back zeta before; then all is computed tile by tile. Vertical stresses of a tile
and of the planes around it wait in a buffer, which stays in a near cache. Above a free surface they are those below
with their sign changed.
"""

from functools import cache
from typing import Any

import numpy as np

from forebay.wave.acoustic.cpu import MANY, weights_of
from forebay.wave.kernels.jit import jit, prange, writable
from forebay.wave.kernels.stencil import second_derivative
from forebay.wave.kernels.subnormal import flush, restore
from forebay.wave.sweeps.cpu import (
    ACROSS,
    AXIS,
    COUNT,
    KEPT,
    PLACE,
    PSI,
    ROW,
    STRIDE,
    TILE_Y,
    TILE_Z,
    ZETA,
    SweepCpuKernels,
    rows_of,
)
from forebay.wave.vti.fields import FIELDS, SUMS


def fluxes_of(radius: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the weights of fluxes, whose differences are the second derivative, from the nearest points on."""
    return tuple(dtype.type(weight) for weight in second_derivative(2 * radius)[:0:-1].cumsum()[::-1])


@cache
def remember_whole(parallel: bool) -> Any:
    """Compile what layers do first on the way back: zeta of what is differentiated across rows.

    It is a function of its own because Numba would fuse its loop with the next one, which reads what this one writes.
    """

    @jit(parallel=parallel, lone=True)
    def layers(p: Any, r: Any, share: Any, excess: Any, memory: Any, about: Any, jobs: Any, b: Any) -> None:
        for number in prange(len(jobs)):
            setting = flush()
            axis, row, place = jobs[number, AXIS], jobs[number, ROW], jobs[number, PLACE]
            kept, fade = memory[about[axis, ZETA] + jobs[number, KEPT]], b[axis, 0, place]
            for x in range(p.shape[1]):
                stress = p[row, x] if axis else share[row, x] * p[row, x] + excess[row, x] * r[row, x]
                kept[x] = stress + fade * kept[x]
            restore(setting)

    return layers


@cache
def remember(ndim: int, radius: int, dtype: np.dtype[Any], back: bool, parallel: bool) -> Any:
    """Compile what layers do before a sweep: psi, and zeta along rows on the way back."""
    f, zero, last = fluxes_of(radius, dtype), dtype.type(0), ndim - 1

    @jit(parallel=parallel, lone=True)
    def layers(
        p: Any, r: Any, share: Any, excess: Any, memory: Any, along: Any, about: Any, jobs: Any, where: Any,
        columns: Any, a: Any, b: Any
    ) -> None:  # fmt: skip
        wide, (psi_x, zeta_x) = p.shape[1], (along[0], along[1])
        for number in prange(len(jobs)):
            setting = flush()
            axis, row, place = jobs[number, AXIS], jobs[number, ROW], jobs[number, PLACE]
            stride, line = about[axis, STRIDE], np.zeros(wide, p.dtype)
            for tap in range(1 if back else radius):
                weight = -dtype.type(1) if back else f[tap]
                after, before = row + tap * stride, row - (1 + tap) * stride
                for x in range(wide):
                    if axis:
                        line[x] += weight * (p[after, x] - p[before, x])
                    else:
                        below = share[after, x] * p[after, x] + excess[after, x] * r[after, x]
                        above = share[before, x] * p[before, x] + excess[before, x] * r[before, x]
                        line[x] += weight * (below - above)
            base = about[axis, ZETA] + jobs[number, KEPT] - where[axis, place] * about[axis, ACROSS]
            for side in range(2 if back else 0):
                there = where[axis, place - side]
                if there >= 0:
                    kept = memory[base + there * about[axis, ACROSS]]
                    weight = a[axis, 0, place - side] if side else -a[axis, 0, place]
                    for x in range(wide):
                        line[x] += weight * kept[x]
            kept = memory[about[axis, PSI] + jobs[number, KEPT]]
            gain = dtype.type(1) if back else a[axis, 1, place]
            for x in range(wide):
                kept[x] = b[axis, 1, place] * kept[x] + gain * line[x]
            restore(setting)
        for tile in prange((p.shape[0] + TILE_Z - 1) // TILE_Z if len(columns) else 0):
            setting = flush()
            here = np.empty(wide, p.dtype)
            for row in range(tile * TILE_Z, min((tile + 1) * TILE_Z, p.shape[0])):
                here[:] = p[row]
                for m in range(len(columns) if back else 0):
                    x = columns[m]
                    zeta_x[row, m] = p[row, x] + b[last, 0, x] * zeta_x[row, m]
                    here[x] += a[last, 0, x] * zeta_x[row, m]
                for m in range(len(columns)):
                    x = columns[m]
                    if back:
                        psi_x[row, m] = (here[x - 1] - here[x]) + b[last, 1, x] * psi_x[row, m]
                        continue
                    total = zero
                    for k in range(radius):
                        total += f[k] * (here[x + k] - here[x - 1 - k])
                    psi_x[row, m] = b[last, 1, x] * psi_x[row, m] + a[last, 1, x] * total
            restore(setting)

    return layers


@cache
def sweep(ndim: int, radius: int, dtype: np.dtype[Any], back: bool, sense: bool, parallel: bool) -> Any:
    """Compile a step, after which `p_old` and `r_old` are the newer fields; or what a gradient adds up of a step back.

    A gradient has its sums in the place of `p_old`, `r_old` and `third`, and the fields of the other wave.
    """
    c, f = weights_of(radius, dtype), fluxes_of(radius, dtype)
    zero, last, far = dtype.type(0), ndim - 1, 2 * radius

    @jit(parallel=parallel, lone=True)
    def tiles(
        p: Any, r: Any, p_old: Any, r_old: Any, third: Any, other_p: Any, other_r: Any, hard: Any, share: Any,
        excess: Any, memory: Any, along: Any, about: Any, where: Any, columns: Any, a: Any, b: Any, w: Any, count: Any,
        surface: Any, ends: Any, factor: Any
    ) -> None:  # fmt: skip
        wide, (psi_x, zeta_x), rows = p.shape[1], (along[0], along[1]), about[0, STRIDE]
        first, width = radius if last == 2 else 0, wide - far
        across = (rows - 2 * first + TILE_Y - 1) // TILE_Y
        for tile in prange((count - far + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            z_0, y_0 = radius + tile // across * TILE_Z, first + tile % across * TILE_Y
            z_1, y_1 = min(z_0 + TILE_Z, count - radius), min(y_0 + TILE_Y, rows - first)
            thick = y_1 - y_0
            q = np.empty(((z_1 - z_0 + far) * thick, wide), p.dtype)
            for line in range(len(q)):
                z, sign = z_0 - radius + line // thick, dtype.type(1)
                if surface and z < radius:
                    z, sign = far - z, -sign
                row = z * rows + y_0 + line % thick
                for x in range(wide):
                    q[line, x] = sign * (share[row, x] * p[row, x] + excess[row, x] * r[row, x])
            bends = np.empty((ndim, width), p.dtype)  # along each axis, in its spacings
            jumps, change = np.zeros(wide + far, p.dtype), np.empty(width, p.dtype)
            for line in range((z_1 - z_0) * thick):
                z, y, down = z_0 + line // thick, y_0 + line % thick, line + radius * thick
                row = z * rows + y
                along_z, along_y, along_x = bends[0], bends[1 % last], bends[last]
                for x in range(width):
                    at = x + radius
                    bend_z, bend_x = c[0] * q[down, at], c[0] * p[row, at]
                    bend_y = bend_x
                    for k in range(1, radius + 1):
                        bend_z += c[k] * (q[down - k * thick, at] + q[down + k * thick, at])
                        bend_x += c[k] * (p[row, at - k] + p[row, at + k])
                        if last == 2:
                            bend_y += c[k] * (p[row - k, at] + p[row + k, at])
                    if last == 2:
                        along_y[x] = bend_y
                    along_z[x], along_x[x] = bend_z, bend_x
                # What layers change, in those along the row first.
                marks = len(columns)
                if back and marks:
                    jumps[:] = zero
                    for m in range(marks):
                        x, turned = columns[m], a[last, 0, columns[m]] * zeta_x[row, m]
                        jumps[x] += a[last, 1, x] * psi_x[row, m] - turned
                        jumps[x + 1] += turned
                    for part in range(2):
                        begin = max(ends[2] - radius, ends[1] + radius) if part else ends[0]
                        for at in range(begin, ends[3] if part else min(ends[1] + radius, ends[3])):
                            total = f[0] * (jumps[at] - jumps[at + 1])
                            for j in range(1, radius):
                                total += f[j] * (jumps[at - j] - jumps[at + 1 + j])
                            along_x[at - radius] += total
                elif marks:
                    for m in range(marks):
                        x, ahead = columns[m], psi_x[row, m + 1] if m + 1 < marks else zero
                        bend = along_x[x - radius] + (ahead - psi_x[row, m])
                        zeta_x[row, m] = b[last, 0, x] * zeta_x[row, m] + a[last, 0, x] * bend
                        along_x[x - radius] = bend + zeta_x[row, m]
                for axis in range(last):
                    place, step, bends_of = y if axis else z, about[axis, ACROSS], bends[axis]
                    base = z * about[1, COUNT] if axis else y
                    psi, zeta = about[axis, PSI] + base, about[axis, ZETA] + base
                    if back:
                        for tap in range(1 - radius, radius + 1):  # of jumps, two of which a memory has a part in
                            weight, there = -f[tap - 1] if tap > 0 else f[-tap], place + tap
                            for side in range(2):
                                kept = where[axis, there - side]
                                if kept >= 0:
                                    turn = weight * a[axis, 0, there - side]
                                    held, gain = memory[zeta + kept * step], turn if side else -turn
                                    for x in range(width):
                                        bends_of[x] += gain * held[x + radius]
                            if where[axis, there] >= 0:
                                held, gain = memory[psi + where[axis, there] * step], weight * a[axis, 1, there]
                                for x in range(width):
                                    bends_of[x] += gain * held[x + radius]
                    elif where[axis, place] >= 0:
                        kept, ahead = where[axis, place], where[axis, place + 1]
                        flux, held = memory[psi + kept * step], memory[zeta + kept * step]
                        change[:] = zero
                        if ahead >= 0:
                            next_flux = memory[psi + ahead * step]
                            for x in range(width):
                                change[x] = next_flux[x + radius]
                        for x in range(width):
                            at = x + radius
                            bend = bends_of[x] + (change[x] - flux[at])
                            held[at] = b[axis, 0, place] * held[at] + a[axis, 0, place] * bend
                            bends_of[x] = bend + held[at]
                for x in range(width):
                    at, beside = x + radius, w[last] * along_x[x]
                    if last == 2:
                        beside += w[1] * along_y[x]
                    depth = w[0] * along_z[x]
                    if sense:
                        strain = other_p[row, at] / hard[row, at] - share[row, at] * other_r[row, at]
                        p_old[row, at] += factor * (beside * strain)
                        r_old[row, at] += factor * (beside * other_r[row, at] + depth * strain)
                        stress = share[row, at] * other_p[row, at] + excess[row, at] * other_r[row, at]
                        third[row, at] += factor * (beside * other_p[row, at] + depth * stress)
                    else:
                        both = beside + share[row, at] * depth
                        p_old[row, at] = p[row, at] + p[row, at] - p_old[row, at] + hard[row, at] * both
                        r_old[row, at] = r[row, at] + r[row, at] - r_old[row, at] + depth
            restore(setting)

    return tiles


class VTICpuKernels(SweepCpuKernels):
    """The loops for one grid, one order and one type; arrays are NumPy's."""

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the model, of the fields before that step."""
        fields = state["p_old"], state["r_old"], *(sums[name] for name in SUMS)
        others = writable(record["p"]), writable(record["r"])
        self._sweep(propagator, fields, others, state.get("pml"), factor, back=True, sense=True)

    def _step(self, propagator: Any, state: Any, senders: Any, values: Any, back: bool) -> Any:
        (p, p_old, r, r_old), pml = (state[name] for name in FIELDS), state.get("pml")
        if pml is not None:
            fields = rows_of(propagator.layers, pml, p, r, propagator.share, propagator.excess)
            tables = self._tables_of(propagator)
            if back:
                whole = remember_whole(p.size >= MANY)
                whole(*fields[:5], *(tables[name] for name in ("about", "jobs", "b")))
            remember(*self._kind, back, p.size >= MANY)(*fields, *tables.values())
        self._sweep(propagator, (p, r, p_old, r_old, r_old), (p, r), pml, 0.0, back=back, sense=False)
        self.scatter(p_old, senders.points, values, senders.factors)
        return state | {"p": p_old, "p_old": p, "r": r_old, "r_old": r}

    def _sweep(
        self, propagator: Any, fields: Any, others: Any, pml: Any, factor: float, *, back: bool, sense: bool
    ) -> None:
        layers, model = propagator.layers, propagator.model
        medium = propagator.stiffness, propagator.share, propagator.excess
        rows = rows_of(layers, np.zeros(0, self.dtype) if pml is None else pml, *fields, *others, *medium)
        how = (table for name, table in self._tables_of(propagator).items() if name != "jobs")
        weights = np.array([step**-2 for step in model.grid.spacing], self.dtype)
        loop = sweep(*self._kind, back, sense, fields[0].size >= MANY)
        where = len(fields[0]), model.grid.free_surface, layers.ends[-1]
        loop(*rows, *how, weights, *where, self.dtype.type(factor))
