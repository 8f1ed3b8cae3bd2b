"""SEG-Y: velocities and shots from files, and images into them, with their coordinates and scalars.

Positions are in metres, depth first and x last; in three dimensions y is between them. A header's coordinate is
multiplied by its scalar where that is positive and divided by it where it is negative, as the standard says. The
sampling interval of a file in depth is taken as millimetres, as is usual.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, reading
from forebay.wave.files.volume import Volume
from forebay.wave.survey.geometry import Geometry

try:
    segyio: Any = import_module("segyio")
except ImportError as error:  # pragma: no cover - an optional library
    raise WaveError("SEG-Y needs segyio: install Forebay with its extra wave") from error

BinField, TraceField = segyio.BinField, segyio.TraceField
SCALE = -100
"""The scalar of coordinates that we write: centimetres."""
LARGEST = 2**16 - 1
"""The largest sampling interval."""
SAME = 0.01
"""Metres within which coordinates are the same: what headers usually tell."""
FEET, IEEE = 2, 5
"""The numbers of the standard for lengths in feet, and for four-byte floats."""


def read_volume(path: Path) -> Volume:
    """Read a section or a volume in depth; traces may be in any order, as long as they fill a rectangle."""
    with _open(path) as file:
        _check(file, path)
        depth = _interval(file) / 1000
        scale = _scales(file, TraceField.SourceGroupScalar)
        x, y = (scale * file.attributes(field)[:] for field in (TraceField.CDP_X, TraceField.CDP_Y))
        placed = bool(np.ptp(x) or np.ptp(y))
        if not placed:
            y, x = (file.attributes(field)[:] for field in (TraceField.INLINE_3D, TraceField.CROSSLINE_3D))
            if np.ptp(x) == 0 and np.ptp(y) == 0:
                x = np.arange(file.tracecount)
        axes = [x] if np.ptp(y) == 0 else [y] if np.ptp(x) == 0 else [y, x]
        lines = [np.unique(axis, return_inverse=True) for axis in axes]
        shape = tuple(len(values) for values, _ in lines)
        order = np.ravel_multi_index(tuple(where for _, where in lines), shape)
        if len(np.unique(order)) != file.tracecount or np.prod(shape) != file.tracecount:
            raise WaveError(
                f"{path}: its {file.tracecount} traces do not fill a rectangle of {' by '.join(map(str, shape))} "
                "positions along the axes: turn or interpolate them onto one, or give a .npy or .zarr array"
            )
        values = np.empty((len(file.samples), file.tracecount), np.float32)
        values[:, order] = file.trace.raw[:].T
    steps = [_step(positions, path) if placed else None for positions, _ in lines]
    origin = [float(positions[0]) if placed else 0.0 for positions, _ in lines]
    return Volume(values.reshape(len(values), *shape), (depth or None, *steps), (0.0, *origin))


def _step(positions: NDArray[Any], path: Path) -> float:
    steps = np.diff(positions)
    if np.ptp(steps) > 1e-3 * steps.mean():
        raise WaveError(f"{path}: traces are {steps.min():.6g} to {steps.max():.6g} m apart: interpolate them evenly")
    return float(steps.mean())


def read_geometry(path: Path, ndim: int) -> tuple[Geometry, float, int]:
    """Read where shots and receivers are, the sampling interval in seconds and the samples of a trace.

    Traces of one source position belong to one shot, wherever they are in the file. Depths are those of the source
    below its surface, and below zero elevation for receivers. A line in two dimensions runs along x or along y: the
    other coordinate is the same for all its sources and receivers.
    """
    with _open(path) as file:
        _check(file, path)
        scale = _scales(file, TraceField.SourceGroupScalar)
        high = _scales(file, TraceField.ElevationScalar)

        def read(field: int, factor: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(factor * file.attributes(field)[:], float)

        depth = read(TraceField.SourceDepth, high) - read(TraceField.SourceSurfaceElevation, high)
        sources = [depth, read(TraceField.SourceY, scale), read(TraceField.SourceX, scale)]
        receivers = [
            -read(TraceField.ReceiverGroupElevation, high),
            read(TraceField.GroupY, scale),
            read(TraceField.GroupX, scale),
        ]
        if ndim == 2:
            across = [np.ptp([sources[axis], receivers[axis]]) <= SAME for axis in (1, 2)]
            if not any(across):
                raise WaveError(
                    f"{path}: SourceX and GroupX vary, and so do SourceY and GroupY, but the model is a section: turn "
                    "the line, so that one pair is the same everywhere, or take a model in three dimensions"
                )
            del sources[1 if across[0] else 2], receivers[1 if across[0] else 2]
        interval = _interval(file)
        samples = len(file.samples)
    if not interval:
        raise WaveError(f"{path}: neither its binary header nor its traces tell a sampling interval")
    places, which = np.unique(np.stack(sources, axis=1), axis=0, return_inverse=True)
    # Shots are numbered as they come in the file.
    first = np.full(len(places), len(which))
    np.minimum.at(first, which.ravel(), np.arange(len(which)))
    rank = np.empty(len(places), int)
    rank[np.argsort(first)] = np.arange(len(places))
    shot = rank[which.ravel()]
    traces = np.argsort(shot, kind="stable")
    starts = np.searchsorted(shot[traces], np.arange(len(places) + 1))
    geometry = Geometry(places[np.argsort(first)], np.stack(receivers, axis=1)[traces], starts, traces)
    return geometry, interval / 1e6, samples


def read_traces(path: Path, traces: NDArray[Any]) -> NDArray[np.float32]:
    """Read traces by their numbers: one row per sample, one column per trace."""
    with _open(path) as file:
        return np.stack([file.trace.raw[int(number)] for number in traces], axis=1).astype(np.float32)


def check_volume(rows: int, spacing: Sequence[float], origin: Sequence[float]) -> None:
    """Refuse a grid that the headers of a file in depth cannot tell."""
    _whole(1000 * spacing[0], "mm", rows)
    if origin[0] != 0:
        raise WaveError(f"SEG-Y in depth begins at 0 m, not at {origin[0]:.6g} m: take npy or zarr")


def write_volume(path: Path, values: NDArray[Any], spacing: Sequence[float], origin: Sequence[float]) -> None:
    """Write a section or a volume in depth, with the position of each trace in its header."""
    check_volume(len(values), spacing, origin)
    lines = [start + step * np.arange(count) for start, step, count in zip(origin, spacing, values.shape, strict=True)]
    positions = np.stack(np.meshgrid(*lines[1:], indexing="ij"), axis=-1).reshape(-1, values.ndim - 1)
    number = np.stack(np.unravel_index(np.arange(len(positions)), values.shape[1:]), axis=1)
    traces = np.asarray(values, np.float32).reshape(len(values), -1).T
    headers = [
        {
            TraceField.CDP: trace + 1,
            TraceField.INLINE_3D: place[0] + 1 if values.ndim == 3 else 1,
            TraceField.CROSSLINE_3D: place[-1] + 1,
            TraceField.CDP_X: _fixed(position[-1]),
            TraceField.CDP_Y: _fixed(position[0]) if values.ndim == 3 else 0,
        }
        for trace, (place, position) in enumerate(zip(number.tolist(), positions, strict=True))
    ]
    _write(path, traces, _whole(1000 * spacing[0], "mm", len(values)), headers)


def write_shots(path: Path, geometry: Geometry, gathers: Sequence[NDArray[Any]], dt: float) -> None:
    """Write the data of shots, samples by receivers each, with the positions of `geometry` in their headers."""
    headers = []
    for shot in range(geometry.count):
        source, receivers = geometry.sources[shot], geometry.receivers_of(shot)
        headers += [
            {
                TraceField.FieldRecord: shot + 1,
                TraceField.TraceNumber: number + 1,
                TraceField.SourceDepth: _fixed(source[0]),
                TraceField.SourceX: _fixed(source[-1]),
                TraceField.SourceY: _fixed(source[1]) if len(source) == 3 else 0,
                TraceField.ReceiverGroupElevation: -_fixed(receiver[0]),
                TraceField.GroupX: _fixed(receiver[-1]),
                TraceField.GroupY: _fixed(receiver[1]) if len(source) == 3 else 0,
            }
            for number, receiver in enumerate(receivers)
        ]
    traces = np.concatenate([np.asarray(gather, np.float32).T for gather in gathers])
    _write(path, traces, _whole(dt * 1e6, "µs", traces.shape[1]), headers)


def _whole(interval: float, unit: str, samples: int) -> int:
    """Return a sampling interval as headers tell it; by rounding, the last sample may move by a tenth of one."""
    rounded = round(interval)
    if not 0 < rounded <= LARGEST or abs(rounded - interval) * samples > 0.1 * interval:
        raise WaveError(
            f"SEG-Y tells a sampling interval in whole {unit} up to {LARGEST}, not {interval:.6g}: take npy or zarr"
        )
    return rounded


def _write(path: Path, traces: NDArray[np.float32], interval: int, headers: Sequence[dict[int, int]]) -> None:
    interval -= LARGEST + 1 if interval > LARGEST // 2 else 0  # segyio has it with a sign
    spec = segyio.spec()
    spec.format, spec.samples, spec.tracecount = IEEE, np.arange(traces.shape[1]), len(traces)
    with segyio.create(str(path), spec) as file:
        file.bin.update({BinField.Interval: interval, BinField.Samples: traces.shape[1], BinField.Format: IEEE})
        for number, (trace, header) in enumerate(zip(traces, headers, strict=True)):
            file.header[number] = {
                TraceField.TRACE_SEQUENCE_FILE: number + 1,
                TraceField.TRACE_SAMPLE_COUNT: traces.shape[1],
                TraceField.TRACE_SAMPLE_INTERVAL: interval,
                TraceField.SourceGroupScalar: SCALE,
                TraceField.ElevationScalar: SCALE,
                **header,
            }
            file.trace[number] = np.ascontiguousarray(trace)


def _fixed(metres: float) -> int:
    return round(float(metres) * -SCALE)


def _interval(file: Any) -> int:
    """Return the sampling interval as the standard has it: two bytes without a sign, 0 where it is not told."""
    interval = file.bin[BinField.Interval] or file.attributes(TraceField.TRACE_SAMPLE_INTERVAL)[0][0]
    return int(interval) & LARGEST


def _check(file: Any, path: Path) -> None:
    """Refuse headers that say what we would misread."""
    if file.bin[BinField.MeasurementSystem] == FEET:
        raise WaveError(f"{path}: its MeasurementSystem is feet: convert its coordinates to metres, and set it to 1")
    interval = int(file.bin[BinField.Interval]) & LARGEST
    for name, good, advice in (
        ("CoordinateUnits", (0, 1), "project the coordinates to metres, and set it to 1"),
        ("DelayRecordingTime", (0,), "pad or cut the traces to begin at 0, and set it to 0"),
        (
            "TRACE_SAMPLE_INTERVAL",
            (0, interval),
            f"the binary header's Interval is {interval}: resample or correct one",
        ),
    ):
        values = file.attributes(getattr(TraceField, name))[:] & LARGEST
        wrong = ~np.isin(values, good)
        if wrong.any() and (interval or name != "TRACE_SAMPLE_INTERVAL"):
            first = int(np.argmax(wrong))
            raise WaveError(f"{path}: {name} of trace {first + 1} is {values[first]}: {advice}")


def _scales(file: Any, field: int) -> NDArray[np.float64]:
    """Return what each trace's coordinates are multiplied by; 0 means 1."""
    scalar = file.attributes(field)[:].astype(float)
    scalar[scalar == 0] = 1
    return np.asarray(np.where(scalar > 0, scalar, 1 / np.abs(scalar)), np.float64)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file for as long as it is read; whatever segyio raises over it is told."""
    with reading(path, "SEG-Y", WaveError), segyio.open(str(path), ignore_geometry=True) as file:
        yield file
