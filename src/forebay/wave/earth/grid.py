"""The regular grid of a model, and the larger one on which its waves are computed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError


@dataclass(frozen=True)
class Grid:
    """The points of a model; the first axis is depth, the last one the fastest in memory.

    Waves are computed on a larger grid: absorbing layers go around the model, and a halo of zeros around them, so that
    a stencil can be applied everywhere. With a free surface the first row of the model is the surface, where the
    pressure is zero; there is no layer above it.

    Examples
    --------
    >>> grid = Grid((101, 201), spacing=10.0, absorb=30)
    >>> grid.end, grid.fields(halo=4)
    ((1000.0, 2000.0), (169, 269))
    """

    shape: tuple[int, ...]
    spacing: tuple[float, ...]
    """metres from one point to the next along each axis; one number serves for all"""
    origin: tuple[float, ...]
    """position of the first point"""
    absorb: int
    """points of each absorbing layer"""
    free_surface: bool

    def __init__(
        self,
        shape: Sequence[int],
        spacing: float | Sequence[float],
        origin: float | Sequence[float] = 0.0,
        *,
        absorb: int = 20,
        free_surface: bool = False,
    ) -> None:
        object.__setattr__(self, "shape", tuple(int(points) for points in shape))
        object.__setattr__(self, "spacing", self._each(spacing, "spacing"))
        object.__setattr__(self, "origin", self._each(origin, "origin"))
        object.__setattr__(self, "absorb", int(absorb))
        object.__setattr__(self, "free_surface", bool(free_surface))
        if self.ndim not in (2, 3) or min(self.shape) < 2:
            raise WaveError(f"a grid of shape {self.shape}: give two or three axes of at least 2 points each")
        if not all(0 < step < math.inf for step in self.spacing):
            raise WaveError(f"a spacing of {self.spacing}: give metres above 0 for each axis")
        if self.absorb < 0:
            raise WaveError(f"absorbing layers of {self.absorb} points: give 0 for none, or more")

    def _each(self, value: float | Sequence[float], what: str) -> tuple[float, ...]:
        values = np.broadcast_to(np.asarray(value, float), (len(self.shape),)) if np.ndim(value) == 0 else value
        if len(values) != len(self.shape):  # type: ignore[arg-type]
            raise WaveError(f"{what}={value!r}: give one number, or one for each of the {len(self.shape)} axes")
        return tuple(float(number) for number in values)  # type: ignore[union-attr]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def cell(self) -> float:
        """The volume of a cell, or its area in two dimensions."""
        return math.prod(self.spacing)

    @property
    def end(self) -> tuple[float, ...]:
        """Position of the last point."""
        return tuple(
            start + (points - 1) * step
            for start, points, step in zip(self.origin, self.shape, self.spacing, strict=True)
        )

    def layers(self) -> tuple[tuple[int, int], ...]:
        """Return the points of the absorbing layers before and after the model along each axis."""
        top = 0 if self.free_surface else self.absorb
        return ((top, self.absorb), *((self.absorb, self.absorb) for _ in self.shape[1:]))

    def fields(self, halo: int) -> tuple[int, ...]:
        """Return the shape of the arrays in which waves are computed."""
        return tuple(
            points + before + after + 2 * halo
            for points, (before, after) in zip(self.shape, self.layers(), strict=True)
        )

    def inside(self, halo: int) -> tuple[slice, ...]:
        """Return where the model lies in those arrays."""
        return tuple(
            slice(halo + before, halo + before + points)
            for points, (before, _) in zip(self.shape, self.layers(), strict=True)
        )

    def extend(self, values: NDArray[Any], halo: int, planes: slice | None = None) -> NDArray[Any]:
        """Continue values of the model through layers and halo by those at its edges; in all planes, or in some."""
        around = [(before + halo, after + halo) for before, after in self.layers()]
        if planes is not None:
            count, begin, points = planes.stop - planes.start, planes.start - around[0][0], self.shape[0]
            inner = values[min(max(begin, 0), points - 1) : max(min(begin + count, points), 1)]
            before = min(max(-begin, 0), count - len(inner))
            values, around[0] = inner, (before, count - len(inner) - before)
        return np.pad(values, around, mode="edge")
