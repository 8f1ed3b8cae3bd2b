"""Arrays and shots in files: .npy, .zarr and SEG-Y, chosen by how the name ends."""

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, reading
from forebay.tier.capacity import check_free
from forebay.wave.files.npy import load_array
from forebay.wave.files.volume import Volume
from forebay.wave.survey.geometry import Geometry
from forebay.wave.survey.shot import check_real

SUFFIXES = (".npy", ".zarr", ".segy", ".sgy")


def kind_of(path: Path) -> str:
    """Return the format of a file: "npy", "zarr" or "segy"."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise WaveError(f"{path}: its name must end in one of {', '.join(SUFFIXES)}")
    return {"sgy": "segy"}.get(suffix[1:], suffix[1:])


def read_field(path: Path) -> Volume:
    """Read a velocity model or an image, depth first.

    A Zarr array tells its grid by the attributes `spacing` and `origin`, in metres; SEG-Y tells it by its headers.
    """
    kind = kind_of(path)
    if not path.exists():
        raise WaveError(f"there is no {path}")
    if kind == "segy":
        from forebay.wave.files.segy import read_volume

        return read_volume(path)
    if kind == "zarr":
        with reading(path, "Zarr", WaveError):
            array = _zarr().open(str(path), mode="r")
            if not hasattr(array, "shape"):
                raise WaveError(f"{path} is a Zarr group: name the array in it")
            placed = [_numbers(array.attrs, name) for name in ("spacing", "origin")]
            return Volume(_whole_array(path, array), *placed)
    return Volume(load_array(path))


def write_field(path: Path, values: NDArray[Any], spacing: Sequence[float], origin: Sequence[float]) -> None:
    """Write values on a grid, whole or not at all."""
    kind = kind_of(path)
    with whole(path) as unfinished:
        if kind == "segy":
            from forebay.wave.files.segy import write_volume

            write_volume(unfinished, values, spacing, origin)
        elif kind == "zarr":
            chunks = tuple(min(length, 128 if values.ndim == 3 else 512) for length in values.shape)
            array = _zarr().create_array(str(unfinished), shape=values.shape, dtype=values.dtype, chunks=chunks)
            array[:] = values
            array.attrs.update(spacing=list(spacing), origin=list(origin))
        else:
            with unfinished.open("wb") as file:
                np.save(file, values)


def write_shots(path: Path, geometry: Geometry, gathers: Sequence[NDArray[Any]], dt: float) -> None:
    """Write the data of shots, samples by receivers each: Zarr and SEG-Y with positions, .npy without."""
    kind = kind_of(path)
    with whole(path) as unfinished:
        if kind == "segy":
            from forebay.wave.files.segy import write_shots as write

            write(unfinished, geometry, gathers, dt)
            return
        shapes = {gather.shape for gather in gathers}
        if len(shapes) != 1:
            raise WaveError(f"{path}: shots of different shapes ({shapes}) go into SEG-Y only")
        if kind == "npy":
            with unfinished.open("wb") as file:
                np.save(file, np.stack(gathers))
            return
        group = _zarr().create_group(str(unfinished))
        group.attrs["dt"] = dt
        receivers = np.stack([geometry.receivers_of(shot) for shot in range(geometry.count)])
        for name, values in (("data", np.stack(gathers)), ("sources", geometry.sources), ("receivers", receivers)):
            array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=(1, *values.shape[1:]))
            array[:] = values


@dataclass(frozen=True)
class ShotFile:
    """Shots in a file: where they are, how they are sampled, and how to read one."""

    geometry: Geometry | None
    """None where the file does not tell"""
    dt: float | None
    samples: int
    count: int
    traces: int
    """of a shot, at most"""


def look_at_shots(path: Path, ndim: int) -> ShotFile:
    """Find out what a file of shots holds, without reading the data."""
    kind = kind_of(path)
    if not path.exists():
        raise WaveError(f"there is no {path}")
    if kind == "segy":
        from forebay.wave.files.segy import read_geometry

        spread, interval, samples = read_geometry(path, ndim)
        return ShotFile(spread, interval, samples, spread.count, int(np.diff(spread.starts).max()))
    geometry: Geometry | None = None
    dt: float | None = None
    if kind == "zarr":
        from forebay.wave.survey.geometry import geometry_of

        with reading(path, "Zarr", WaveError):
            group = _zarr().open(str(path), mode="r")
            data, attributes = group, group.attrs
            if not hasattr(group, "shape"):
                missing = [name for name in ("data", "sources", "receivers") if name not in group]
                if missing:
                    raise WaveError(
                        f"{path}: a Zarr group of shots has data, sources and receivers; it lacks {missing}"
                    )
                data = group["data"]
                geometry = geometry_of(_whole_array(path, group["sources"]), _whole_array(path, group["receivers"]))
            dt = float(attributes["dt"]) if "dt" in attributes else None
    else:
        data = load_array(path)
    check_real(path, data.dtype)
    if data.ndim != 3:
        raise WaveError(f"{path}: data of shape {data.shape}; expected shots, samples, receivers")
    return ShotFile(geometry, dt, data.shape[1], data.shape[0], data.shape[2])


def read_shot(path: Path, shot: int, traces: NDArray[Any]) -> NDArray[np.float32]:
    """Read the data of one shot, samples by receivers."""
    kind = kind_of(path)
    if kind == "segy":
        from forebay.wave.files.segy import read_traces

        return read_traces(path, traces)
    if kind == "zarr":
        with reading(path, "Zarr", WaveError):
            stored = _zarr().open(str(path), mode="r")
            array = stored if hasattr(stored, "shape") else stored["data"]
            check_real(path, array.dtype)
            data = np.asarray(array[shot])
    else:
        array = load_array(path)
        check_real(path, array.dtype)
        with reading(path, "shots", WaveError):
            data = np.asarray(array[shot])
    with reading(path, f"the traces of shot {shot}", WaveError):
        return np.ascontiguousarray(data[:, traces], np.float32)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield another name for a file or folder until it is whole: a process that dies before leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{token_hex(4)}.{path.name}")
    try:
        yield unfinished
        if unfinished.is_dir():
            remove(path)  # a folder cannot replace another
        else:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            remove(unfinished)
        raise


def remove(path: Path) -> None:
    """Remove a file or a folder, where it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _whole_array(path: Path, array: Any) -> NDArray[Any]:
    """Read a Zarr array: numbers alone, since others may be code, and no more than there is memory for."""
    check_real(path, array.dtype)
    check_free(math.prod(array.shape) * array.dtype.itemsize, f"what {path} says that it holds")
    return np.asarray(array[:])


def _numbers(attributes: Any, name: str) -> tuple[float, ...] | None:
    return tuple(float(value) for value in attributes[name]) if name in attributes else None


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise WaveError("Zarr files need zarr: install Forebay with its extra wave") from error
    return zarr
