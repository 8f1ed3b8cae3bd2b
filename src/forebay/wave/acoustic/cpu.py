"""The acoustic loops for NumPy arrays, compiled for each order and number of axes: the twins of the GPU's kernels.

Arrays are those of `Grid.fields`: the outer `radius` points of every axis are read and never written. The innermost
loops run over single rows, with offsets that the compiler knows, and become vector instructions. A step reads p, p_old
and the squared velocity and writes one field: 16 bytes a point in float32, as long as the rows around a cache
tile stay in the second-level cache.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.codec import Codec
from forebay.wave.acoustic.cpu_layers import LayerTable, add, change, table_of
from forebay.wave.acoustic.layers import AcousticLayers
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import Sensing
from forebay.wave.kernels.jit import jit, jits, prange, writable
from forebay.wave.kernels.points import gather, scatter
from forebay.wave.kernels.rows import Rows
from forebay.wave.kernels.stencil import second_derivative
from forebay.wave.kernels.subnormal import flush, restore
from forebay.wave.survey.points import Points

TILE_Z, TILE_Y = 16, 16
"""Points of a cache tile along the slower axes in three dimensions."""
ROWS = 8
"""Rows of a cache tile in two."""
MANY = 1 << 16
"""Points from which several threads are worth waking."""


@cache
def advance(ndim: int, radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile ``step(p, p_old, squared, w)``, after which `p_old` is the newer field.

    `w` has one over the squared spacing of each axis. The stencil's own weights are the same for all axes and known to
    the compiler, which leaves registers for what is loaded. Sums are kept apart by axis: three short chains rather than
    a long one, in which each sum would wait for the last.
    """
    c = weights_of(radius, dtype)
    if ndim == 2:

        @jit(parallel=parallel, lone=True)
        def step_plane(p: Any, p_old: Any, squared: Any, w: Any) -> None:
            rows, width = p.shape[0] - 2 * radius, p.shape[1] - 2 * radius
            for tile in prange((rows + ROWS - 1) // ROWS):
                setting = flush()
                first = radius + tile * ROWS
                for z in range(first, min(first + ROWS, radius + rows)):
                    new, speed = p_old[z, radius : radius + width], squared[z, radius : radius + width]
                    for x in range(width):
                        here = p[z, x + radius]
                        along_z = along_x = c[0] * here
                        for k in range(1, radius + 1):
                            along_z += c[k] * (p[z - k, x + radius] + p[z + k, x + radius])
                            along_x += c[k] * (p[z, x + radius - k] + p[z, x + radius + k])
                        lap = w[0] * along_z + w[1] * along_x
                        new[x] = here + here - new[x] + speed[x] * lap
                restore(setting)

        return step_plane

    @jit(parallel=parallel, lone=True)
    def step_volume(p: Any, p_old: Any, squared: Any, w: Any) -> None:
        planes, rows, width = p.shape[0] - 2 * radius, p.shape[1] - 2 * radius, p.shape[2] - 2 * radius
        across = (rows + TILE_Y - 1) // TILE_Y
        for tile in prange((planes + TILE_Z - 1) // TILE_Z * across):
            setting = flush()
            first_z, first_y = radius + tile // across * TILE_Z, radius + tile % across * TILE_Y
            for z in range(first_z, min(first_z + TILE_Z, radius + planes)):
                for y in range(first_y, min(first_y + TILE_Y, radius + rows)):
                    new, speed = p_old[z, y, radius : radius + width], squared[z, y, radius : radius + width]
                    for x in range(width):
                        here = p[z, y, x + radius]
                        along_z = along_y = along_x = c[0] * here
                        for k in range(1, radius + 1):
                            along_z += c[k] * (p[z - k, y, x + radius] + p[z + k, y, x + radius])
                            along_y += c[k] * (p[z, y - k, x + radius] + p[z, y + k, x + radius])
                            along_x += c[k] * (p[z, y, x + radius - k] + p[z, y, x + radius + k])
                        lap = w[0] * along_z + w[1] * along_y + w[2] * along_x
                        new[x] = here + here - new[x] + speed[x] * lap
            restore(setting)

    return step_volume


@cache
def curvature(ndim: int, radius: int, dtype: np.dtype[Any], parallel: bool) -> Any:
    """Compile ``add(total, other, p, w, factor)``: total += factor other lap(p)."""
    c = weights_of(radius, dtype)
    if ndim == 2:

        @jit(parallel=parallel)
        def add_plane(total: Any, other: Any, p: Any, w: Any, factor: Any) -> None:
            width = p.shape[1] - 2 * radius
            for z in prange(radius, p.shape[0] - radius):
                setting = flush()
                row, beside = total[z, radius : radius + width], other[z, radius : radius + width]
                for x in range(width):
                    along_z = along_x = c[0] * p[z, x + radius]
                    for k in range(1, radius + 1):
                        along_z += c[k] * (p[z - k, x + radius] + p[z + k, x + radius])
                        along_x += c[k] * (p[z, x + radius - k] + p[z, x + radius + k])
                    row[x] += factor * beside[x] * (w[0] * along_z + w[1] * along_x)
                restore(setting)

        return add_plane

    @jit(parallel=parallel)
    def add_volume(total: Any, other: Any, p: Any, w: Any, factor: Any) -> None:
        rows, width = p.shape[1] - 2 * radius, p.shape[2] - 2 * radius
        for z in prange(radius, p.shape[0] - radius):
            setting = flush()
            for y in range(radius, radius + rows):
                row, beside = total[z, y, radius : radius + width], other[z, y, radius : radius + width]
                for x in range(width):
                    along_z = along_y = along_x = c[0] * p[z, y, x + radius]
                    for k in range(1, radius + 1):
                        along_z += c[k] * (p[z - k, y, x + radius] + p[z + k, y, x + radius])
                        along_y += c[k] * (p[z, y - k, x + radius] + p[z, y + k, x + radius])
                        along_x += c[k] * (p[z, y, x + radius - k] + p[z, y, x + radius + k])
                    row[x] += factor * beside[x] * (w[0] * along_z + w[1] * along_y + w[2] * along_x)
            restore(setting)

    return add_volume


def weights_of(radius: int, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return the weights of a stencil as numbers of the fields' type."""
    return tuple(dtype.type(weight) for weight in second_derivative(2 * radius))


@jits
def correlate(image: Any, illumination: Any, p: Any, q: Any, factor: Any) -> None:
    """Add p q to an image and p p to the illumination, both times a factor; all have three axes."""
    for z in prange(image.shape[0]):
        setting = flush()
        for y in range(image.shape[1]):
            bright, light, one, other = image[z, y], illumination[z, y], p[z, y], q[z, y]
            for x in range(len(bright)):
                bright[x] += factor * one[x] * other[x]
                light[x] += factor * one[x] * one[x]
        restore(setting)


class CpuKernels:
    """The loops for one grid's number of axes, one order and one type; arrays are NumPy's."""

    def __init__(self, grid: Grid, radius: int, dtype: np.dtype[Any], shots: int | None = None) -> None:
        self.radius, self.dtype, self.rows = radius, dtype, Rows()
        self.lead: tuple[int, ...] = () if shots is None else (shots,)
        self.window = grid.inside(radius)
        self._kind = (grid.ndim, radius, dtype)
        self._known: list[LayerTable] = []

    def zeros(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Make an array of zeros."""
        return np.zeros(shape, self.dtype)

    def put(self, values: NDArray[Any]) -> NDArray[Any]:
        """Bring values to where the kernels work: numbers in their type, indices as they are."""
        return np.ascontiguousarray(values, self.dtype if values.dtype.kind == "f" else values.dtype)

    def get(self, values: Any) -> NDArray[Any]:
        """Bring values back to NumPy."""
        return np.asarray(values)

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, sending and hearing a row of values in each."""
        for step in steps:
            if hears is not None:
                propagator.record(state, hears[0], hears[1][step])
            state = propagator.step(state, senders, sent[step])
        return state

    def run_back(
        self,
        propagator: Any,
        state: Any,
        senders: Any,
        sent: Any,
        steps: Sequence[int],
        image: Any,
        sensing: Sensing | None = None,
    ) -> Any:
        """Take the adjoint's state back through steps, sending a row of values in each, and look at the last one."""
        for step in steps:
            state = propagator.step_back(state, senders, sent[step])
        if image is not None:
            self.correlate(image.image, image.illumination, image.record, state["p"], image.factor)
        if sensing is not None:
            self.curvature(sensing, state["p_old"], propagator.weights, propagator.layers)
        return state

    def advance(
        self, p: Any, p_old: Any, squared: Any, weights: Any, layers: AcousticLayers, pml: Any, back: bool = False
    ) -> None:
        """Step once: `p_old` becomes the newer field, and `pml` what the layers know after the step."""
        speeds = squared if squared.ndim == p.ndim else [squared] * len(p)
        tables = self._tables(layers, p, weights)
        for p_of, old_of, speed, known, changes, table in self._shots(p, p_old, speeds, pml, layers.changes, tables):
            if table is not None:
                change(table, p_of, old_of, speed, known, changes, self.radius, back)
            advance(*self._kind, p_of.size >= MANY)(p_of, old_of, speed, weights)

    def mirror(self, p: Any) -> None:
        """Fill the halo above a free surface with the field below, its sign changed, as if the medium were mirrored."""
        for (own,) in self._shots(p):
            np.negative(own[2 * self.radius : self.radius : -1], out=own[: self.radius])

    def gather(self, p: Any, points: Points, out: Any) -> None:
        """Read a field at points."""
        gather[len(points.cells) >= MANY](p.reshape(-1), points.starts, points.cells, points.weights, out)

    def scatter(self, p: Any, points: Points, values: Any, factors: Any) -> None:
        """Add values at points to a field, each cell's share times its factor: the transpose of `gather`."""
        scatter[len(points.cells) >= MANY](
            p.reshape(-1), points.touched, points.shares, points.sharers, points.share_weights, values, factors
        )

    def changes(self, layers: AcousticLayers) -> int:
        """Return how many values layers put somewhere for a gradient."""
        return layers.reach

    def curvature(self, sensing: Sensing, p: Any, weights: Any, layers: AcousticLayers) -> None:
        """Add a record times lap(p), with what layers have just changed in it in a step back, to a total."""
        scale, tables = self.dtype.type(sensing.factor), self._tables(layers, p, weights)
        arrays = self._shots(sensing.total, writable(sensing.record), p, layers.changes, tables)
        for total_of, other_of, p_of, changes, table in arrays:
            curvature(*self._kind, p_of.size >= MANY)(total_of, other_of, p_of, weights, scale)
            if table is not None:
                add(table, total_of, other_of, changes, scale)

    def _shots(self, *arrays: Any) -> Iterable[tuple[Any, ...]]:
        """Take arrays apart by the shots of a batch; there may be none in the place of one."""
        if not self.lead:
            return [arrays]
        return zip(*(array if array is not None else [None] * self.lead[0] for array in arrays), strict=True)

    def _tables(self, layers: AcousticLayers, p: Any, weights: Any) -> Any:
        """Return what the loops need to know of the layers, which are always the same; in a batch, of each shot's."""
        if layers.sides and not self._known:
            each = [layers.of_shot(number) for number in range(self.lead[0])] if self.lead else [layers]
            shape = p.shape[len(self.lead) :]
            self._known += [table_of(own, shape, weights, self.radius) for own in each]
        known = self._known or None
        return known if known is None or self.lead else known[0]

    def compile_ahead(self, layers: AcousticLayers) -> None:
        """Do nothing: loops are kept compiled, and begin one after the other."""

    def crop(self, p: Any) -> Any:
        """Return what records and images cover of a field."""
        return p[(..., *self.window)]

    def correlates_encoded(self, codec: Codec) -> bool:
        """Return False: records are decoded."""
        return False

    def correlate(self, image: Any, illumination: Any, p: Any, q: Any, factor: float) -> None:
        """Add p q to an image and p p to its illumination; q may be a whole field."""
        q = q if q.shape == image.shape else self.crop(q)
        deep = [array if array.ndim == 3 else array[None] for array in (image, illumination, writable(p), writable(q))]
        correlate[image.size >= MANY](*deep, self.dtype.type(factor))
