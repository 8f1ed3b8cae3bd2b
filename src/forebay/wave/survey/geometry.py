"""Where the shots of a survey are, and the part of a model that each of them needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.files.npy import load_arrays
from forebay.wave.survey.shot import check_real

Box = tuple[slice, ...]

MOST_TRACES = 10**8
"""of all shots that are spread evenly; their positions are kept in memory"""


@dataclass(frozen=True, eq=False)
class Geometry:
    """Sources and receivers of all shots; positions in metres, depth first."""

    sources: NDArray[np.float64]
    """one position a row, one row a shot"""
    receivers: NDArray[np.float64]
    """one position a row, shot after shot"""
    starts: NDArray[np.int64]
    """where each shot's receivers begin, and one past the last"""
    traces: NDArray[np.int64]
    """the number of each receiver's trace in its file, or in its shot's gather"""

    @property
    def count(self) -> int:
        """Number of shots."""
        return len(self.sources)

    @property
    def ndim(self) -> int:
        """Number of coordinates."""
        return int(self.sources.shape[1])

    @property
    def most_receivers(self) -> int:
        """Number of receivers of the shot that has the most."""
        return int(np.diff(self.starts).max())

    def receivers_of(self, shot: int) -> NDArray[np.float64]:
        """Return the positions of one shot's receivers."""
        return self.receivers[self.starts[shot] : self.starts[shot + 1]]

    def traces_of(self, shot: int) -> NDArray[np.int64]:
        """Return the numbers of one shot's traces."""
        return self.traces[self.starts[shot] : self.starts[shot + 1]]

    def outwards(self) -> list[int]:
        """Order shots from the middle of all sources outwards."""
        away = np.linalg.norm(self.sources - self.sources.mean(axis=0), axis=1)
        return [int(shot) for shot in np.argsort(away, kind="stable")]

    def within(self, offset: float) -> "Geometry":
        """Leave out receivers farther from their source than an offset, in metres along the surface."""
        shot = np.repeat(np.arange(self.count), np.diff(self.starts))
        away = np.linalg.norm((self.receivers - self.sources[shot])[:, 1:], axis=1)
        near = self._with(away <= offset)
        if (np.diff(near.starts) == 0).any():
            raise WaveError(
                f"a largest offset of {offset:.6g} m leaves shot {int(np.argmin(np.diff(near.starts)))} without "
                "receivers"
            )
        return near

    def over(self, grid: Grid) -> "Geometry | None":
        """Leave out receivers beside a model; return None where a shot has no other ones, or most are beside it.

        Depth is not looked at: who is above or below the model is misplaced.
        """
        low, high = grid.origin[1:], grid.end[1:]
        lateral = self.receivers[:, 1:]
        over = np.all((lateral >= low) & (lateral <= high), axis=1)
        left = self._with(over)
        return left if 2 * over.sum() >= len(over) and (np.diff(left.starts) > 0).all() else None

    def _with(self, kept: NDArray[np.bool_]) -> "Geometry":
        """Return all shots with some of their receivers."""
        shot = np.repeat(np.arange(self.count), np.diff(self.starts))
        starts = np.searchsorted(shot[kept], np.arange(self.count + 1))
        return Geometry(self.sources, self.receivers[kept], starts, self.traces[kept])

    def drawn_into(self, grid: Grid, slack: float) -> "Geometry":
        """Move positions that are at most `slack` metres outside of a model to its edge."""

        def drawn(places: NDArray[np.float64]) -> NDArray[np.float64]:
            inside = np.clip(places, grid.origin, grid.end)
            return np.where(np.abs(inside - places) <= slack, inside, places)

        return replace(self, sources=drawn(self.sources), receivers=drawn(self.receivers))

    def extents(self) -> str:
        """Tell from where to where sources and receivers lie, along each axis.

        Examples
        --------
        >>> geometry_of([(10, 0), (10, 500)], [(5, x) for x in range(0, 501, 25)]).extents()
        'sources at depth 10 m, x 0 to 500 m; receivers at depth 5 m, x 0 to 500 m'
        """
        sides = []
        for name, places in (("sources", self.sources), ("receivers", self.receivers)):
            ends = zip(("depth", "y", "x")[:: 1 if self.ndim == 3 else 2], places.min(0), places.max(0), strict=True)
            along = [f"{axis} {low:.6g}" + (f" to {high:.6g} m" if high > low else " m") for axis, low, high in ends]
            sides.append(f"{name} at {', '.join(along)}")
        return "; ".join(sides)

    def save(self, path: Any) -> None:
        """Write the positions into an .npz file, by its path or open."""
        np.savez(path, sources=self.sources, receivers=self.receivers, starts=self.starts, traces=self.traces)

    @classmethod
    def load(cls, path: Path) -> "Geometry":
        """Read what `save` wrote."""
        return cls(*load_arrays(path, "sources", "receivers", "starts", "traces"))


def geometry_of(sources: Any, receivers: Any) -> Geometry:
    """Make a geometry from arrays: receivers as one list for all shots, or as one for each.

    Examples
    --------
    >>> spread = geometry_of([(10, 0), (10, 500)], [(10, x) for x in range(0, 501, 25)])
    >>> spread.count, spread.receivers_of(1).shape
    (2, (21, 2))
    """
    for name, positions in (("sources", sources), ("receivers", receivers)):
        check_real(name, np.asarray(positions).dtype)
    sources, receivers = np.atleast_2d(np.asarray(sources, float)), np.asarray(receivers, float)
    if receivers.ndim == 2:
        receivers = np.broadcast_to(receivers, (len(sources), *receivers.shape))
    if sources.ndim != 2 or receivers.ndim != 3 or receivers.shape[::2] != sources.shape:
        raise WaveError(
            f"sources of shape {sources.shape} and receivers of shape {receivers.shape}: give a position a row, and "
            "receivers for all shots together or for each"
        )
    count, each = receivers.shape[:2]
    return Geometry(
        sources, receivers.reshape(-1, sources.shape[1]), each * np.arange(count + 1), np.tile(np.arange(each), count)
    )


def spread(
    grid: Grid, shots: int | Sequence[int], *, source_depth: float, receiver_depth: float, receiver_spacing: float
) -> Geometry:
    """Spread shots evenly over a model, with receivers all over its surface.

    Parameters
    ----------
    grid
        Of the model.
    shots
        How many along x or, in three dimensions, along y and x.
    source_depth, receiver_depth, receiver_spacing
        Metres.
    """
    counts = [shots] if isinstance(shots, int) else [int(number) for number in shots]
    if len(counts) != grid.ndim - 1 or min(counts) < 1:
        raise WaveError(f"shots = {counts}: give how many along each of the {grid.ndim - 1} horizontal axes")
    lengths = [grid.end[axis] - grid.origin[axis] for axis in range(1, grid.ndim)]
    many = math.prod(counts) * math.prod(length / receiver_spacing + 1 for length in lengths)
    if many > MOST_TRACES:
        raise WaveError(
            f"{many:.3g} traces of all shots are more than {MOST_TRACES:.0e}: take fewer shots or receivers"
        )
    lines, rows = [], []
    for axis, number in enumerate(counts, start=1):
        start, stop = grid.origin[axis], grid.end[axis]
        lines.append(start + (stop - start) * (np.arange(number) + 0.5) / number)
        rows.append(np.arange(start, stop + 1e-6 * receiver_spacing, receiver_spacing))

    def at(depth: float, places: list[NDArray[Any]]) -> NDArray[np.float64]:
        flat = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(places))
        return np.column_stack([np.full(len(flat), grid.origin[0] + depth), flat])

    return geometry_of(at(source_depth, lines), at(receiver_depth, rows))


def windows(geometry: Geometry, grid: Grid, aperture: float | None) -> list[Box]:
    """Return each shot's part of the model: what lies within `aperture` metres of its source and receivers.

    All parts have one shape, that of the widest, so that one plan serves all shots: near an edge of the model a part
    is moved inwards, not cut. Depth is never cut. Without an aperture every part is the whole model.
    """
    if aperture is None:
        return [tuple(slice(0, points) for points in grid.shape)] * geometry.count
    if aperture < 0:
        raise WaveError(f"an aperture of {aperture} m: give 0 or more")
    low, high = (np.empty((geometry.count, grid.ndim)) for _ in range(2))
    for shot in range(geometry.count):
        points = np.vstack([geometry.sources[shot], geometry.receivers_of(shot)])
        low[shot], high[shot] = points.min(axis=0) - aperture, points.max(axis=0) + aperture
    shape, spacing, origin = (np.asarray(value) for value in (grid.shape, grid.spacing, grid.origin))
    first = np.floor((low - origin) / spacing + 1e-6).astype(int)
    last = np.ceil((high - origin) / spacing - 1e-6).astype(int)
    size = np.minimum(np.maximum((last - first).max(axis=0) + 1, 2), shape)
    size[0] = shape[0]
    begin = np.clip((first + last + 1 - size) // 2, 0, shape - size)
    return [tuple(slice(int(a), int(a + n)) for a, n in zip(start, size, strict=True)) for start in begin]


def part_of(grid: Grid, box: Box) -> Grid:
    """Return the grid of a part of a model."""
    origin = [start + side.start * step for start, side, step in zip(grid.origin, box, grid.spacing, strict=True)]
    return Grid(
        [side.stop - side.start for side in box],
        grid.spacing,
        origin,
        absorb=grid.absorb,
        free_surface=grid.free_surface,
    )
