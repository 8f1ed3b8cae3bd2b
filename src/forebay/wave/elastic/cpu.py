"""The elastic loops for NumPy arrays, compiled for each order and number of axes: the twins of the GPU's kernels.

Arrays are those of `Grid.fields`: the outer `radius` points of every axis are read and never written. Each of the two
halves of a step, velocities and stresses, is one sweep; its innermost loops run over single rows and fill one field
each, so that the compiler can tell that nothing else changes. In three dimensions a step moves 140 bytes a point in
float32, as long as the rows around a cache tile stay in the second-level cache: 15 fields are read or written for the
velocities, 20 for the stresses.

The same sweeps serve the gradient: instead of stepping, they then add the product of what would have been added with a
field of the other wave to a total.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.cpu import MANY, CpuKernels
from forebay.wave.earth.model import ElasticModel
from forebay.wave.elastic.cpu_layers import CpuLayers
from forebay.wave.elastic.cpu_stress import stresses
from forebay.wave.elastic.cpu_velocity import velocities, weights_of
from forebay.wave.elastic.layers import MEMORY
from forebay.wave.elastic.medium import averaged
from forebay.wave.kernels.jit import jit, jits, prange, writable
from forebay.wave.kernels.subnormal import flush, restore

Fields = tuple[Any, ...]


@cache
def divergence(ndim: int, radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile ``spread(out, v, corner, back, w)``: the divergence of velocities, from the point `corner` on."""
    c, both = weights_of(radius, dtype), 2 * radius
    nought = dtype.type(0)
    if ndim == 2:

        @jit(parallel=parallel)
        def spread_plane(out: Any, v: Any, corner: Any, back: Any, w: Any) -> None:
            v_z, v_x = v
            for row in prange(out.shape[0]):
                setting = flush()
                z, new = row + corner[0], out[row]
                for x in range(len(new)):
                    along_z, along_x, here = nought, nought, x + corner[1]
                    for k in range(both):
                        along_z += back[z, k] * v_z[z + k - radius, here]
                    for k in range(radius):
                        along_x += c[k] * (v_x[z, here + k] - v_x[z, here - 1 - k])
                    new[x] = along_z + w[0] * along_x
                restore(setting)

        return spread_plane

    @jit(parallel=parallel)
    def spread_volume(out: Any, v: Any, corner: Any, back: Any, w: Any) -> None:
        v_z, v_y, v_x = v
        for plane in prange(out.shape[0]):
            setting = flush()
            for row in range(out.shape[1]):
                z, y, new = plane + corner[0], row + corner[1], out[plane, row]
                for x in range(len(new)):
                    along_z, along_y, along_x, here = nought, nought, nought, x + corner[2]
                    for k in range(both):
                        along_z += back[z, k] * v_z[z + k - radius, y, here]
                    for k in range(radius):
                        along_y += c[k] * (v_y[z, y + k, here] - v_y[z, y - 1 - k, here])
                        along_x += c[k] * (v_x[z, y, here + k] - v_x[z, y, here - 1 - k])
                    new[x] = along_z + w[0] * along_y + w[1] * along_x
            restore(setting)

    return spread_volume


@jits
def correlate_between(image: Any, illumination: Any, p: Any, q: Any, step: Any, factor: Any) -> None:
    """Add p q and p p to image and illumination, as means of the points before and after; `p` starts one earlier."""
    for z in prange(image.shape[0]):
        setting = flush()
        for y in range(image.shape[1]):
            bright, light = image[z, y], illumination[z, y]
            one, other = p[z, y], q[z, y]
            one_after, other_after = p[z + step[0], y + step[1]], q[z + step[0], y + step[1]]
            for x in range(len(bright)):
                after = x + step[2]
                bright[x] += factor * (one[x] * other[x] + one_after[after] * other_after[after])
                light[x] += factor * (one[x] * one[x] + one_after[after] * one_after[after])
        restore(setting)


class ElasticCpuKernels(CpuKernels):
    """The loops for one grid, one order and one type; arrays are NumPy's."""

    def medium(self, model: ElasticModel, halo: int, dt: float) -> dict[str, Any]:
        """Return the moduli, buoyancies and stiffnesses at their points, times dt."""
        return {name: self.put(values * dt) for name, values in averaged(model, halo).items()}

    def medium_at(self, medium: dict[str, Any], name: str, cells: NDArray[Any]) -> NDArray[np.float64]:
        """Return a property of the medium at cells."""
        return np.asarray(medium[name].reshape(-1)[cells], np.float64)

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        for step in steps:
            if hears is not None:
                self.hear(propagator, state, hears[0], hears[1][step], still=True)
            self._step(propagator, state, senders, sent[step], back=False)
            if hears is not None:
                self.hear(propagator, state, hears[0], hears[1][step], still=False)
        return state

    def run_back(  # type: ignore[override]  # a gradient is added up by `sense`
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], image: Any
    ) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each."""
        for step in steps:
            self._step(propagator, state, senders, sent[step], back=True)
        return state

    def _step(self, propagator: Any, state: Any, senders: Any, values: Any, back: bool) -> None:
        (v, t), pml, layers = propagator.fields(state), state[MEMORY], self._layers(propagator)
        b, m, table, w = propagator.buoyancies, propagator.stiffnesses, propagator.table, propagator.weights
        layers.fade(0, v)
        self.move(v, t, b, table, w)
        layers.stretch(0, v, b, t, pml, back=back)
        layers.fade(0, v)
        self._send(state, senders, values, still=False)
        if back:
            layers.keep(0, v, pml)
        layers.fade(1, t)
        self.strain(t, v, m, table, w)
        layers.stretch(1, t, m, v, pml, back=back)
        layers.fade(1, t)
        self._send(state, senders, values, still=True)
        if propagator.model.grid.free_surface:
            t[0][propagator.halo] = 0
        if back:
            layers.keep(1, t, pml)

    def _layers(self, propagator: Any) -> CpuLayers:
        if "_stretched" not in self.__dict__:
            grid = propagator.model.grid
            self._stretched = CpuLayers(propagator.layers, propagator.table, grid.spacing, propagator.order)
        return self._stretched

    def _send(self, state: Any, senders: Any, values: Any, still: bool) -> None:
        for group in senders:
            if group.acts_on_stress == still:
                for name in group.fields:
                    self.scatter(state[name], group.points, values[group.columns], group.factors)

    def hear(self, propagator: Any, state: Any, antenna: Any, out: Any, still: bool) -> None:
        """Read the pressure at an antenna's points, or the velocities."""
        for group in antenna:
            if group.acts_on_stress == still:
                heard = self.zeros((len(group.fields), len(group.columns)))
                for name, row in zip(group.fields, heard, strict=True):
                    self.gather(state[name], group.points, row)
                out[group.columns] = -heard.mean(axis=0) if still else heard[0]

    def see(self, propagator: Any, state: Any, images: Sequence[str]) -> dict[str, Any]:
        """Return what images need of a state: the divergence at the model's points, velocities around them."""
        seen, inside = {}, propagator.inside
        if "pp" in images:
            seen["div"] = self.zeros(propagator.model.grid.shape)
            v, corner = tuple(state[name] for name in propagator.velocities), tuple(axis.start for axis in inside)
            self.divergence(seen["div"], v, corner, propagator.table[2], propagator.weights)
        if "velocity" in images:
            for axis, name in enumerate(propagator.velocities):
                window = list(inside)
                window[axis] = slice(window[axis].start - 1, window[axis].stop)
                seen[name] = state[name][tuple(window)]
        return seen

    def picture(
        self, adjoint: Any, step: int, sums: dict[str, Any], seen: Any, factor: float, watched: bool
    ) -> dict[str, Any]:
        """Step an adjoint back, add to images what is to be seen there, and return what they need of it."""
        propagator = adjoint.loop.propagator
        other = self.see(propagator, adjoint.back_to(step), tuple(sums))
        for name, (image, illumination) in sums.items():
            if name == "pp":
                self.correlate(image, illumination, seen["div"], other["div"], factor)
            else:
                for axis, field in enumerate(propagator.velocities):
                    self.correlate_between(image, illumination, seen[field], other[field], axis, factor)
        return other

    def within(self, name: str, seen: Any, shape: tuple[int, ...], start: int) -> Any:
        """Return the model's part of what `see` returned, which is all of it."""
        return seen

    def sense(self, propagator: Any, totals: dict[str, Any], state: Any, adjoint: Any, every: int) -> None:
        """Add what velocities and the stresses of the adjoint owe to the medium to totals, `every` times."""
        v, t = (
            tuple(writable(fields[name]) for name in names)
            for fields, names in ((state, propagator.velocities), (adjoint, propagator.stresses))
        )
        scale = self.dtype.type(propagator.dt * every)
        table, w = (
            tuple(rows * scale for rows in propagator.table),
            tuple(slope * scale for slope in propagator.weights),
        )
        layers, pml = self._layers(propagator), adjoint[MEMORY]
        over_velocities = tuple(totals["b" + name[1:]] for name in propagator.velocities)
        self.move(over_velocities, t, v, table, w)
        layers.stretch(0, over_velocities, v, t, pml, back=True, factor=scale)
        over_stresses = [totals["traces"], totals["inner"]]
        over_stresses += [totals["m" + name[1:]] for name in propagator.stresses[len(v) :]]
        self.sense_strain(tuple(over_stresses), v, t, table, w)
        layers.sense(over_stresses, v, t, pml, totals[MEMORY], scale, every)

    def move(self, v: Fields, t: Fields, b: Fields, table: Fields, w: Fields) -> None:
        """Advance the velocities."""
        velocities(*self._kind, v[0].size >= MANY)(v, t, b, table, w)

    def strain(self, t: Fields, v: Fields, m: Fields, table: Fields, w: Fields) -> None:
        """Advance the stresses."""
        # In three dimensions a sweep that senses has one field more to read.
        m = m if len(v) == 2 else (m[0], m[1], m[1], *m[2:])
        stresses(*self._kind, v[0].size >= MANY, False)(t, v, m, table, w)

    def sense_strain(self, totals: Fields, v: Fields, t: Fields, table: Fields, w: Fields) -> None:
        """Add the products of stresses with the strains of velocities to totals."""
        totals = totals if len(v) == 2 else (*totals[:2], totals[1], *totals[2:])
        stresses(*self._kind, v[0].size >= MANY, True)(totals, v, t, table, w)

    def divergence(self, out: Any, v: Fields, corner: tuple[int, ...], back: Any, w: Fields) -> None:
        """Fill `out` with the divergence of velocities inside the model."""
        divergence(*self._kind, v[0].size >= MANY)(out, v, corner, back, w)

    def correlate_between(self, image: Any, illumination: Any, p: Any, q: Any, axis: int, factor: float) -> None:
        """Correlate fields that lie between the points of the image along an axis."""
        arrays = image, illumination, writable(p), writable(q)
        deep = [array if array.ndim == 3 else array[:, None] for array in arrays]
        axis = axis if image.ndim == 3 else 2 * axis
        step = tuple(int(place == axis) for place in range(3))
        correlate_between[image.size >= MANY](*deep, step, self.dtype.type(factor / 2))
