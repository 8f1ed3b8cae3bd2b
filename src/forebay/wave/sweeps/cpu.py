"""What the loops of such physics share for NumPy arrays: tiles, tables of layers, and the order of steps.

Fields are taken as rows: in two dimensions each plane has one. What layers remember is a matrix of rows as well, psi
and zeta of planes, then of rows; those along rows are matrices of their own.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.acoustic.cpu import CpuKernels
from forebay.wave.earth.grid import Grid
from forebay.wave.elastic.layers import Layers

TILE_Z, TILE_Y = 32, 8
"""Planes and rows of a tile."""

STRIDE, FIRST, LAST, PSI, ZETA, ACROSS, COUNT = range(7)
"""Columns of the table of axes across rows: rows from a point to the next, the first point that is computed and one
past the last, the first rows of psi and of zeta in the memory, rows there from a point to the next, and its points."""
AXIS, ROW, KEPT, PLACE = range(4)
"""Columns of the table of rows in layers: their axis, which they are of a field and of a memory, and along the axis."""


class SweepCpuKernels(CpuKernels, ABC):
    """The loops for one grid, one order and one type; arrays are NumPy's."""

    def __init__(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> None:
        super().__init__(grid, radius, dtype)
        self._prepared: dict[str, NDArray[Any]] = {}

    def run_forward(
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int], hears: Any
    ) -> Any:
        """Advance a state by several steps, in place, sending and hearing a row of values in each."""
        for step in steps:
            if hears is not None:
                propagator.record(state, hears[0], hears[1][step])
            state = self._step(propagator, state, senders, sent[step], back=False)
        return state

    def run_back(  # type: ignore[override]  # images are made by the propagator, and gradients by `sense`
        self, propagator: Any, state: Any, senders: Any, sent: Any, steps: Sequence[int]
    ) -> Any:
        """Take the adjoint's state back through steps, in place, sending a row of values in each."""
        for step in steps:
            state = self._step(propagator, state, senders, sent[step], back=True)
        return state

    @abstractmethod
    def _step(self, propagator: Any, state: Any, senders: Any, values: Any, back: bool) -> Any:
        """Step once, in place, and send values."""

    def _tables_of(self, propagator: Any) -> dict[str, NDArray[Any]]:
        if not self._prepared:
            self._prepared = tables_of(propagator.layers, self.dtype)
        return self._prepared


def rows_of(layers: Layers, pml: NDArray[Any], *fields: NDArray[Any], count: int = 2) -> list[NDArray[Any]]:
    """Return fields as rows, with the `count` memories of layers across rows, and those of layers along rows."""
    start, (*across, along) = layers.offsets(count)[-2], layers.shape(layers.ndim - 1)
    rows = [array.reshape(-1, fields[0].shape[-1]) for array in (*fields, pml[:start])]
    return [*rows, pml[start:].reshape(count, int(np.prod(across)), along)]


def tables_of(layers: Layers, dtype: np.dtype[Any], count: int = 2) -> dict[str, NDArray[Any]]:
    """Say where layers are, and what a thread needs of each axis, whose layers have `count` memories."""
    fields, last = layers.fields, layers.ndim - 1
    rows = fields[1] if last == 2 else 1
    about, jobs = np.zeros((layers.ndim, 7), np.int64), [np.zeros((0, 4), np.int64)]
    where, base = np.full((layers.ndim, max(fields)), -1), 0
    for axis, (first, low, high, end) in enumerate(layers.ends):
        inside = np.r_[first:low, high:end]
        where[axis, inside] = np.arange(len(inside))
        if axis < last:
            lines = np.arange(fields[0] if axis else rows)
            stride, across = (1, 1) if axis else (rows, rows)
            about[axis] = stride, first, end, base, base + len(inside) * len(lines), across, len(inside)
            place, line = (values.ravel() for values in np.meshgrid(inside, lines, indexing="ij"))
            kept = where[axis, place] * across + line * (len(inside) if axis else 1)
            row = line * rows + place if axis else place * rows + line
            jobs.append(np.stack([np.full_like(row, axis), row, kept, place], axis=1))
            base += count * len(inside) * len(lines)
    a, b = (np.zeros((layers.ndim, 2, max(fields)), dtype) for _ in range(2))
    for axis, points in enumerate(fields):
        a[axis, :, :points], b[axis, :, :points] = layers.a[axis], layers.b[axis]
    return {"about": about, "jobs": np.concatenate(jobs), "where": where, "columns": inside, "a": a, "b": b}
