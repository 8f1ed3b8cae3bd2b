"""Velocities and images in depth, read from SEG-Y and SU.

The sampling interval is taken as thousandths of the unit of lengths, millimetres for instance, as is usual.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, reading
from forebay.wave.files.segy.dialect import Dialect
from forebay.wave.files.segy.layout import TraceFile, open_traces
from forebay.wave.files.segy.lengths import FEET, interval_of, metres_of_unit, scaled
from forebay.wave.files.segy.sections import SAME, STRAY
from forebay.wave.files.volume import Volume
from forebay.wave.survey.line import Line, line_through

UNEVEN = 0.05
"""of a step: how far from its place on an even grid a trace may lie, as coordinates in whole metres do"""
STRAIGHT = 0.01
"""of its length: how far off a line a section may run"""


def read_volume(path: Path, dialect: Dialect) -> Volume:
    """Read a section or a volume in depth; traces may be in any order, as long as they fill a rectangle."""
    with reading(path, "SEG-Y", WaveError):
        file = open_traces(path, dialect)
        file.check_lengths()
        if file.system == FEET and dialect.units is None:
            raise WaveError(
                f"{dialect.key('units')}: expected, since the MeasurementSystem of {path} is feet: 'feet' takes its "
                "velocities as feet per second and its interval as thousandths of a foot, 'metres' takes all as metres"
            )
        if "delay" not in dialect.headers and (delays := file.word("delay")).any():
            raise WaveError(
                f"{dialect.key('headers.delay')}: {path}: DelayRecordingTime of trace {np.argmax(delays != 0) + 1} is "
                f"{delays[np.argmax(delays != 0)]:.0f}, and depth is taken to begin at 0: set headers.delay to 0, and "
                "model.origin where it begins elsewhere"
            )
        unit = metres_of_unit(file)
        depth = dialect.dt or unit * _depth_step(file)
        axes, placed, line = _axes(file, unit)
        lines = [np.unique(axis, return_inverse=True) for axis in axes]
        shape = tuple(len(values) for values, _ in lines)
        order = np.ravel_multi_index(tuple(where.ravel() for _, where in lines), shape)
        if len(np.unique(order)) != file.count or np.prod(shape) != file.count:
            raise WaveError(
                f"{dialect.key('headers', 'file')}: {path}: its {file.count} traces do not fill a rectangle of "
                f"{' by '.join(map(str, shape))} positions along the axes: turn or interpolate them onto one, give a "
                ".npy or .zarr array, or set headers.cdp_x and headers.cdp_y to 0: inlines and crosslines count then"
            )
        values = np.empty((file.samples, file.count), np.float32)
        values[:, order] = file.read(np.arange(file.count))
    steps = [_step(positions, path) if placed else None for positions, _ in lines]
    origin = [float(positions[0]) if placed else 0.0 for positions, _ in lines]
    return Volume(values.reshape(len(values), *shape), (depth or None, *steps), (0.0, *origin), line)


def read_line(path: Path, dialect: Dialect) -> Line | None:
    """Read where a section runs on the map, if it is oblique: along x or y its coordinates tell."""
    with reading(path, "SEG-Y", WaveError):
        file = open_traces(path, dialect)
        return _axes(file, metres_of_unit(file))[2]


def _axes(file: TraceFile, unit: float) -> tuple[list[NDArray[Any]], bool, Line | None]:
    """Return the position of each trace along each horizontal axis, whether in metres, and the line of a section."""
    x, y = (unit * scaled(file, name) for name in ("cdp_x", "cdp_y"))
    placed = bool(np.ptp(x) or np.ptp(y))
    if not placed:
        y, x = (file.word(name) for name in ("inline", "crossline"))
        if np.ptp(x) == 0 and np.ptp(y) == 0:
            x = np.arange(float(file.count))
    elif len(np.unique(x)) * len(np.unique(y)) > file.count:  # no rectangle
        if min(np.ptp(x), np.ptp(y)) <= max(SAME, STRAY * max(np.ptp(x), np.ptp(y))):
            return [x if np.ptp(x) > np.ptp(y) else y], True, None  # as it is taken of a survey
        line = line_through(x, y)
        along, off = line.project(x, y)
        if off.max() <= STRAIGHT * np.ptp(along):
            return [_rounded(along)], True, line
    return [x] if np.ptp(y) == 0 else [y] if np.ptp(x) == 0 else [y, x], placed, None


def _rounded(along: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round positions to millimetres, so that equal ones are."""
    return np.asarray(np.round(along - along.min(), 3))


def _depth_step(file: TraceFile) -> float:
    return interval_of(file, "spacing") / 1000 if file.interval or file.word("interval").any() else 0.0


def _step(positions: NDArray[Any], path: Path) -> float:
    """Return the distance of positions that are even, but for how headers round them."""
    steps = np.diff(positions)
    even = np.linspace(positions[0], positions[-1], len(positions))
    if np.abs(positions - even).max() > UNEVEN * steps.mean():
        raise WaveError(f"{path}: traces are {steps.min():.6g} to {steps.max():.6g} m apart: interpolate them evenly")
    return float(steps.mean())
