"""The loops of waves in variable density for NumPy arrays: the twins of the GPU's kernels.

Fields and memory lie as in `sweeps.cpu`. A step is two sweeps: layers take their psi further, which is next to nothing;
then fluxes and their derivatives are computed tile by tile, in buffers that stay in a near cache: fluxes along depth in
a ring of as many rows as the stencil has, the others as they are needed.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.cpu import MANY
from forebay.wave.elastic.stencil import first_derivative
from forebay.wave.kernels.jit import jit, prange, writable
from forebay.wave.kernels.subnormal import flush, restore
from forebay.wave.sweeps.cpu import (
    ACROSS,
    AXIS,
    COUNT,
    FIRST,
    KEPT,
    LAST,
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


@cache
def remember(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile what layers do before a sweep: zeta of what is differentiated on the way back, then psi of fluxes."""
    c, zero = tuple(dtype.type(weight) for weight in first_derivative(2 * radius)), dtype.type(0)

    @jit(parallel=parallel, lone=True)
    def layers(
        p: Any, rho: Any, memory: Any, along: Any, about: Any, jobs: Any, where: Any, columns: Any, a: Any, b: Any,
        w: Any, back: bool
    ) -> None:  # fmt: skip
        last, wide, (psi_x, zeta_x) = len(about) - 1, p.shape[1], (along[0], along[1])
        if back:
            for number in prange(len(jobs)):
                axis, row, place = jobs[number, AXIS], jobs[number, ROW], jobs[number, PLACE]
                kept = memory[about[axis, ZETA] + jobs[number, KEPT]]
                for x in range(wide):
                    kept[x] = b[axis, 0, place] * kept[x] + a[axis, 0, place] * p[row, x]
        for number in prange(len(jobs)):
            axis, row, place = jobs[number, AXIS], jobs[number, ROW], jobs[number, PLACE]
            stride, shift = about[axis, STRIDE], about[axis, ACROSS]
            if about[axis, FIRST] <= place and place + 1 < about[axis, LAST]:
                setting = flush()
                line = np.zeros(wide, p.dtype)
                for k in range(radius):
                    after, before = p[row + (1 + k) * stride], p[row - k * stride]
                    for x in range(wide):
                        line[x] += c[k] * (after[x] - before[x])
                    if back:
                        for side in range(2):
                            there = where[axis, place - k if side else place + 1 + k]
                            if there >= 0:
                                at = about[axis, ZETA] + jobs[number, KEPT] + (there - where[axis, place]) * shift
                                weight, other = -c[k] if side else c[k], memory[at]
                                for x in range(wide):
                                    line[x] += weight * other[x]
                kept, gain = memory[about[axis, PSI] + jobs[number, KEPT]], a[axis, 1, place] * w[axis]
                for x in range(radius, wide - radius):
                    kept[x] = b[axis, 1, place] * kept[x] + gain / (rho[row, x] + rho[row + stride, x]) * line[x]
                restore(setting)
        for tile in prange((p.shape[0] + TILE_Z - 1) // TILE_Z):
            setting = flush()
            here = np.empty(wide, p.dtype)
            for row in range(tile * TILE_Z, min((tile + 1) * TILE_Z, p.shape[0])):
                for x in range(wide):  # to copy a row whole takes Numba seconds to compile
                    here[x] = p[row, x]
                if back:
                    for m in range(len(columns)):
                        x = columns[m]
                        zeta_x[row, m] = b[last, 0, x] * zeta_x[row, m] + a[last, 0, x] * p[row, x]
                        here[x] += zeta_x[row, m]
                for m in range(len(columns)):
                    x = columns[m]
                    if x + 1 < wide - radius:
                        total = zero
                        for k in range(radius):
                            total += c[k] * (here[x + 1 + k] - here[x - k])
                        light = a[last, 1, x] * w[last] / (rho[row, x] + rho[row, x + 1])
                        psi_x[row, m] = b[last, 1, x] * psi_x[row, m] + light * total
            restore(setting)

    return layers


@cache
def sweep(radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile a step, after which `old` is the newer field; or what a gradient adds up of a step back.

    A gradient has the fields of its sums in the place of `old` and `stiff`, and the pressure of the other wave.
    """
    c = tuple(dtype.type(weight) for weight in first_derivative(2 * radius))
    both, zero, half = 2 * radius, dtype.type(0), dtype.type(0.5)

    @jit(parallel=parallel, lone=True)
    def tiles(
        p: Any, old: Any, stiff: Any, rho: Any, memory: Any, along: Any, about: Any, where: Any, columns: Any, a: Any,
        b: Any, w: Any, count: Any, surface: Any, other: Any, factor: Any, back: bool, sense: bool
    ) -> None:  # fmt: skip
        rows, last, wide, (psi_x, zeta_x) = about[0, STRIDE], len(about) - 1, p.shape[1], (along[0], along[1])
        first, width = radius if last == 2 else 0, wide - both
        across = (rows - 2 * first + TILE_Y - 1) // TILE_Y
        for tile in prange((count - both + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            z_0, y_0 = radius + tile // across * TILE_Z, first + tile % across * TILE_Y
            z_1, y_1 = min(z_0 + TILE_Z, count - radius), min(y_0 + TILE_Y, rows - first)
            thick = y_1 - y_0
            ring, beside = np.zeros((both * TILE_Y, wide), p.dtype), np.zeros((TILE_Y + both, wide), p.dtype)
            here, flux = np.empty(wide, p.dtype), np.zeros(wide, p.dtype)
            slope, out, share = np.empty(width, p.dtype), np.empty(width, p.dtype), np.empty(wide, p.dtype)
            for ahead in range(z_0 - radius, z_1 + radius - 1):
                z = ahead - radius + 1
                # Fluxes after a plane, which above a free surface are those below, and after the rows around the tile.
                for job in range(thick + (thick + both - 1 if last == 2 and z >= z_0 else 0)):
                    axis = 0 if job < thick else 1
                    place, y, line = ahead, y_0 + job, ring[ahead % both * TILE_Y + job % TILE_Y]
                    if axis == 1:
                        y = place = y_0 - radius + job - thick
                        line = beside[job - thick]
                    elif surface and ahead < radius:
                        place = both - 1 - ahead
                    stride, shift = about[axis, STRIDE], about[axis, ACROSS]
                    row, base = (z if axis else place) * rows + y, z * about[1, COUNT] if axis else y
                    line[:] = zero
                    if place < about[axis, FIRST] or place + 1 >= about[axis, LAST]:
                        continue
                    for k in range(radius):
                        after, before = p[row + (1 + k) * stride], p[row - k * stride]
                        for x in range(radius, wide - radius):
                            line[x] += c[k] * (after[x] - before[x])
                    if back:
                        for tap in range(both):
                            there = where[axis, place + tap - radius + 1]
                            if there >= 0:
                                kept = memory[about[axis, ZETA] + base + there * shift]
                                weight = c[tap - radius] if tap >= radius else -c[radius - 1 - tap]
                                for x in range(radius, wide - radius):
                                    line[x] += weight * kept[x]
                    heavy, heavier, twice = rho[row], rho[row + stride], w[axis]
                    for x in range(radius, wide - radius):
                        line[x] *= twice / (heavy[x] + heavier[x])
                    if where[axis, place] >= 0:
                        kept = memory[about[axis, PSI] + base + where[axis, place] * shift]
                        for x in range(radius, wide - radius):
                            line[x] += kept[x]
                for y in range(y_0, y_1 if z >= z_0 else y_0):
                    row = z * rows + y
                    now, weights, new, strength, seen = p[row], rho[row], old[row], stiff[row], other[row]
                    # Fluxes along the row.
                    for x in range(wide):
                        here[x] = now[x]
                    if back:
                        for m in range(len(columns)):
                            here[columns[m]] += zeta_x[row, m]
                    for x in range(radius, wide - radius - 1):
                        total = zero
                        for k in range(radius):
                            total += c[k] * (here[x + 1 + k] - here[x - k])
                        flux[x] = total * (w[last] / (weights[x] + weights[x + 1]))
                    for m in range(len(columns)):
                        flux[columns[m]] += psi_x[row, m]
                    flux[wide - radius - 1] = zero
                    # Their derivatives, axis by axis, with what layers remember of them.
                    for x in range(width):
                        total = zero
                        for k in range(radius):
                            total += c[k] * (flux[x + radius + k] - flux[x + radius - 1 - k])
                        out[x] = w[last] * half * total
                    if not back:
                        for m in range(len(columns)):
                            x = columns[m]
                            zeta_x[row, m] = b[last, 0, x] * zeta_x[row, m] + a[last, 0, x] * out[x - radius]
                            out[x - radius] += zeta_x[row, m]
                    for axis in range(last):
                        slope[:] = zero
                        for k in range(radius):
                            weight = c[k] * w[axis] * half
                            after, before = beside[y - y_0 + radius + k], beside[y - y_0 + radius - 1 - k]
                            if axis == 0:
                                after = ring[(z + k) % both * TILE_Y + y - y_0]
                                before = ring[(z + both - 1 - k) % both * TILE_Y + y - y_0]
                            for x in range(width):
                                slope[x] += weight * (after[x + radius] - before[x + radius])
                        place = y if axis else z
                        if not back and where[axis, place] >= 0:
                            base = z * about[1, COUNT] if axis else y
                            kept = memory[about[axis, ZETA] + base + where[axis, place] * about[axis, ACROSS]]
                            for x in range(width):
                                kept[x + radius] = b[axis, 0, place] * kept[x + radius] + a[axis, 0, place] * slope[x]
                                slope[x] += kept[x + radius]
                        for x in range(width):
                            out[x] += slope[x]
                    if not sense:
                        for x in range(width):
                            at = x + radius
                            new[at] = now[at] + now[at] - new[at] + strength[at] * out[x]
                        continue
                    # Half of the product of both fluxes at each half point belongs to either side of it.
                    share[:] = zero
                    for x in range(radius, wide - radius - 1):
                        total = zero
                        for k in range(radius):
                            total += c[k] * (seen[x + 1 + k] - seen[x - k])
                        total *= w[last] / (weights[x] + weights[x + 1]) * flux[x]
                        share[x] += total
                        share[x + 1] += total
                    for part in range(2 * last):
                        axis, side = part // 2, part % 2
                        stride, place = about[axis, STRIDE], (y if axis else z) - side
                        if place < about[axis, FIRST] or place + 1 >= about[axis, LAST]:
                            continue
                        line = beside[y - y_0 + radius - side] if axis else ring[place % both * TILE_Y + y - y_0]
                        at = row - side * stride
                        for x in range(radius, wide - radius):
                            total = zero
                            for k in range(radius):
                                total += c[k] * (other[at + (1 + k) * stride, x] - other[at - k * stride, x])
                            share[x] += w[axis] / (rho[at, x] + rho[at + stride, x]) * total * line[x]
                    for x in range(width):
                        new[x + radius] += factor * seen[x + radius] * out[x]
                        strength[x + radius] += half * factor * share[x + radius]
            restore(setting)

    return tiles


class DensityCpuKernels(SweepCpuKernels):
    """The loops for one grid, one order and one type; arrays are NumPy's."""

    def sense(self, propagator: Any, sums: dict[str, Any], state: Any, record: Any, factor: float) -> None:
        """Add what the step back that has led to a state owes to the medium, of the pressure before that step."""
        fields, other = (state["p_old"], sums["stiffness"], sums["density"]), writable(record)
        self._sweep(propagator, fields, state.get("pml"), other, factor, back=True, sense=True)

    def _step(self, propagator: Any, state: Any, senders: Any, values: Any, back: bool) -> Any:
        p, old, pml = state["p"], state["p_old"], state.get("pml")
        if pml is not None:
            fields = rows_of(propagator.layers, pml, p, propagator.density)
            remember(self.radius, self.dtype, p.size >= MANY)(*fields, *self._tables_of(propagator).values(), back)
        self._sweep(propagator, (p, old, propagator.stiffness), pml, p, 0.0, back=back, sense=False)
        self.scatter(old, senders.points, values, senders.factors)
        if propagator.model.grid.free_surface:
            self.mirror(old)
        return state | {"p": old, "p_old": p}

    def _sweep(
        self, propagator: Any, fields: Any, pml: Any, other: Any, factor: float, *, back: bool, sense: bool
    ) -> None:
        rows = rows_of(propagator.layers, np.zeros(0, self.dtype) if pml is None else pml, *fields, propagator.density)
        how = (table for name, table in self._tables_of(propagator).items() if name != "jobs")
        loop, surface = sweep(self.radius, self.dtype, other.size >= MANY), propagator.model.grid.free_surface
        beside = other.reshape(-1, other.shape[-1])
        loop(*rows, *how, len(other), surface, beside, self.dtype.type(factor), back, sense)

    def _tables_of(self, propagator: Any) -> dict[str, NDArray[Any]]:
        if "w" not in self._prepared:
            weights = np.array([2 / step for step in propagator.model.grid.spacing], self.dtype)
            self._prepared = super()._tables_of(propagator) | {"w": weights}
        return self._prepared
