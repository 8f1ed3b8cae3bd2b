"""Fields within a budget: whether they fit, and what pages them where they do not."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forebay.cuda.available import gpu_count
from forebay.errors import BudgetError, DeviceError, WaveError
from forebay.filesystems import spill_directory
from forebay.units import Budget, to_text
from forebay.wave.acoustic.layers import layers_of
from forebay.wave.earth.arrays import computable, on_host
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel
from forebay.wave.kernels.rows import Rows
from forebay.wave.paged.kernels import PagedKernels, Place
from forebay.wave.paged.pages import Window, pages_of
from forebay.wave.paged.place import DevicePlace, DiskPlace
from forebay.wave.paged.plan import PagingPlan


@dataclass(frozen=True)
class Paging:
    """What makes kernels of fields that are larger than the memory in which they are computed."""

    budget: int
    """bytes of that memory"""
    place: Callable[[], Place]

    def __call__(self, grid: Grid, radius: int, dtype: np.dtype[Any]) -> PagedKernels:
        return PagedKernels(grid, radius, dtype, self.budget, self.place())


def field_bytes(grid: Grid, order: int, dtype: Any) -> int:
    """Return the bytes of a model's fields, velocities and layers as waves are computed with them."""
    radius, rows = order // 2, Rows()
    shape, layers = grid.fields(radius), layers_of(grid, radius, rows, 1.0, 1.0)
    return Window(pages_of(shape, layers), np.dtype(dtype).itemsize, shape[0]).nbytes
