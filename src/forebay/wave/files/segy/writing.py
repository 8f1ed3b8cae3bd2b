"""SEG-Y as the standard's first revision says: with a text header, units and what each trace is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.files.segy.layout import BINARY, HEADER, IEEE, TEXT
from forebay.wave.survey.geometry import Geometry

SCALE = -100
"""The scalar of coordinates: centimetres."""
MOVED = 0.02
"""of the distance between traces: how far rounding may move them, and they are read as even"""
LARGEST = 2**16 - 1
"""The largest sampling interval, and the most samples."""
METRES, LENGTH, SEISMIC, AS_RECORDED, STACKED, FIRST_REVISION, SAME_LENGTH = 1, 1, 1, 1, 4, 0x0100, 1
"""The standard's codes for the unit of lengths, for coordinates that are lengths, for traces of seismic data, for their
order in the file, for the revision, and for traces that are all as long as the first."""

BINARY_WORDS = {"traces": 13, "interval": 17, "samples": 21, "format": 25, "sorting": 29, "system": 55}
BINARY_WORDS |= {"revision": 301, "same_length": 303}
TRACE_WORDS = {
    "sequence": (1, "i4"),
    "in_file": (5, "i4"),
    "field_record": (9, "i4"),
    "channel": (13, "i4"),
    "cdp": (21, "i4"),
    "identification": (29, "i2"),
    "receiver_elevation": (41, "i4"),
    "source_depth": (49, "i4"),
    "elevation_scalar": (69, "i2"),
    "coordinate_scalar": (71, "i2"),
    "source_x": (73, "i4"),
    "source_y": (77, "i4"),
    "receiver_x": (81, "i4"),
    "receiver_y": (85, "i4"),
    "coordinate_units": (89, "i2"),
    "samples": (115, "u2"),
    "interval": (117, "u2"),
    "cdp_x": (181, "i4"),
    "cdp_y": (185, "i4"),
    "inline": (189, "i4"),
    "crossline": (193, "i4"),
}
"""The first byte of each word that is written, and its type."""


def check_volume(shape: Sequence[int], spacing: Sequence[float], origin: Sequence[float]) -> None:
    """Refuse a grid that the headers of a file in depth cannot tell."""
    _whole(1000 * spacing[0], "mm", shape[0])
    if origin[0] != 0:
        raise WaveError(f"SEG-Y in depth begins at 0 m, not at {origin[0]:.6g} m: take npy or zarr")
    for points, step, start in list(zip(shape, spacing, origin, strict=True))[1:]:
        places = start + step * np.arange(points, dtype=np.float64)
        if np.abs(_fixed(places) / -SCALE - places).max() > MOVED * step:
            raise WaveError(
                f"SEG-Y tells positions in centimetres, and traces are {step:.6g} m apart: take npy or zarr"
            )


def write_volume(path: Path, values: NDArray[Any], spacing: Sequence[float], origin: Sequence[float]) -> None:
    """Write a section or a volume in depth, with the position of each trace in its header."""
    check_volume(values.shape, spacing, origin)
    lines = [start + step * np.arange(count) for start, step, count in zip(origin, spacing, values.shape, strict=True)]
    positions = np.stack(np.meshgrid(*lines[1:], indexing="ij"), axis=-1).reshape(-1, values.ndim - 1)
    numbers = np.stack(np.unravel_index(np.arange(len(positions)), values.shape[1:]), axis=1)
    is_volume = values.ndim == 3
    words = {
        "cdp": np.arange(1, len(positions) + 1),
        "inline": numbers[:, 0] + 1 if is_volume else 1,
        "crossline": numbers[:, -1] + 1,
        "cdp_x": _fixed(positions[:, -1]),
        "cdp_y": _fixed(positions[:, 0]) if is_volume else 0,
    }
    interval = _whole(1000 * spacing[0], "mm", len(values))
    text = [
        "Values in depth, on a regular grid: not in time.",
        f"Grid, depth first: {' by '.join(map(str, values.shape))} points",
        f"Spacing in metres: {' by '.join(f'{step:.6g}' for step in spacing)}",
        f"Sampling interval: {interval} mm, in the place of microseconds",
        "CDP X 181-184, CDP Y 185-188, inline 189-192, crossline 193-196",
    ]
    _write(path, np.asarray(values, np.float32).reshape(len(values), -1).T, interval, words, text, STACKED)


def write_shots(path: Path, geometry: Geometry, gathers: Sequence[NDArray[Any]], dt: float) -> None:
    """Write the data of shots, samples by receivers each, with the positions of `geometry` in their headers."""
    shot = np.repeat(np.arange(geometry.count), np.diff(geometry.starts))
    source, receiver = geometry.sources[shot], geometry.receivers
    in_space = geometry.ndim == 3
    words = {
        "field_record": shot + 1,
        "channel": np.arange(len(shot)) - geometry.starts[shot] + 1,
        "source_depth": _fixed(source[:, 0]),
        "source_x": _fixed(source[:, -1]),
        "source_y": _fixed(source[:, 1]) if in_space else 0,
        "receiver_elevation": -_fixed(receiver[:, 0]),
        "receiver_x": _fixed(receiver[:, -1]),
        "receiver_y": _fixed(receiver[:, 1]) if in_space else 0,
    }
    traces = np.concatenate([np.asarray(gather, np.float32).T for gather in gathers])
    interval = _whole(dt * 1e6, "µs", traces.shape[1])
    text = [
        f"{geometry.count} shots, {len(traces)} traces of {traces.shape[1]} samples of {interval} microseconds",
        "Field record 9-12, source X 73-76, Y 77-80, depth 49-52",
        "Receiver X 81-84, Y 85-88, elevation 41-44, which is less than 0 below 0",
    ]
    _write(path, traces, interval, words, text, AS_RECORDED)


def _whole(interval: float, unit: str, samples: int) -> int:
    """Return a sampling interval as headers tell it; by rounding, the last sample may move by a tenth of one."""
    rounded = round(interval)
    if not 0 < rounded <= LARGEST or abs(rounded - interval) * samples > 0.1 * interval:
        raise WaveError(
            f"SEG-Y tells a sampling interval in whole {unit} up to {LARGEST}, not {interval:.6g}: take npy or zarr"
        )
    if samples > LARGEST:
        raise WaveError(f"SEG-Y tells up to {LARGEST} samples of a trace, not {samples}: take npy or zarr")
    return rounded


def _fixed(metres: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return lengths as headers tell them."""
    fixed = np.rint(metres * -SCALE)
    if np.abs(fixed).max(initial=0) >= 2**31:
        raise WaveError(f"SEG-Y tells positions up to {2**31 / -SCALE:.0f} m, in centimetres: take npy or zarr")
    return fixed.astype(np.int64)


def _write(
    path: Path,
    traces: NDArray[np.float32],
    interval: int,
    words: Mapping[str, Any],
    text: Sequence[str],
    sorting: int,
) -> None:
    """Write headers and traces.

    Parameters
    ----------
    path
        Of the file.
    traces
        One a row.
    interval
        Between samples, as headers tell it.
    words
        Of trace headers: for each trace, or the same for all.
    text
        Lines of the text header.
    sorting
        The standard's code for the order of traces.
    """
    count, samples = traces.shape
    numbers = {"traces": min(count, LARGEST // 2), "interval": interval, "samples": samples, "format": IEEE}
    numbers |= {"sorting": sorting, "system": METRES, "revision": FIRST_REVISION, "same_length": SAME_LENGTH}
    binary = np.zeros(1, _packed({name: (byte, "u2") for name, byte in BINARY_WORDS.items()}, BINARY))
    for name, number in numbers.items():
        binary[name] = number
    header = _packed(TRACE_WORDS, HEADER)
    every = {"sequence": np.arange(1, count + 1), "in_file": np.arange(1, count + 1), "identification": SEISMIC}
    every |= {"coordinate_scalar": SCALE, "elevation_scalar": SCALE, "coordinate_units": LENGTH}
    every |= {"samples": samples, "interval": interval}
    written = np.zeros(count, [("header", header), ("samples", ">f4", (samples,))])
    for name, values in (every | dict(words)).items():
        written["header"][name] = values
    written["samples"] = traces
    with path.open("wb") as file:
        file.write(_text(text))
        file.write(binary.tobytes())
        written.tofile(file)


def _packed(words: Mapping[str, tuple[int, str]], size: int) -> np.dtype[Any]:
    """Return the type of a header whose words begin at some bytes, counted from 1."""
    return np.dtype(
        {
            "names": list(words),
            "formats": [f">{kind}" for _, kind in words.values()],
            "offsets": [byte - 1 for byte, _ in words.values()],
            "itemsize": size,
        }
    )


def _text(lines: Sequence[str]) -> bytes:
    """Return a text header: forty lines of eighty characters, in EBCDIC."""
    common = ["Written by Forebay", *lines, "Lengths in metres, coordinates in centimetres by their scalar of -100"]
    common += [""] * (38 - len(common)) + ["SEG Y REV1", "END TEXTUAL HEADER"]
    text = "".join(f"C{number:2d} {line}"[:80].ljust(80) for number, line in enumerate(common, start=1))
    assert len(text) == TEXT
    return text.encode("cp037", "replace")
