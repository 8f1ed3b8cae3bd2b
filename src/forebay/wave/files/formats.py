"""Arrays and shots in files: .npy, .zarr, SEG-Y and SU, chosen by how the name ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, reading
from forebay.files import whole
from forebay.wave.files import chunked
from forebay.wave.files.npy import load_array
from forebay.wave.files.segy import shots as segy_shots
from forebay.wave.files.segy import volumes, writing
from forebay.wave.files.segy.dialect import SEGY, Dialect
from forebay.wave.files.volume import Volume
from forebay.wave.survey.geometry import Geometry, geometry_of
from forebay.wave.survey.line import Line
from forebay.wave.survey.shot import check_real

SUFFIXES = (".npy", ".zarr", *SEGY)


def format_of(path: Path) -> str:
    """Return the format of a file: "npy", "zarr" or "segy", which SU is a kind of."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise WaveError(f"{path}: its name must end in one of {', '.join(SUFFIXES)}")
    return "segy" if suffix in SEGY else suffix[1:]


def _written_format(path: Path) -> str:
    if path.suffix.lower() == ".su":
        raise WaveError(f"{path}: SU is read and not written: take .segy, .npy or .zarr")
    return format_of(path)


def read_field(path: Path, dialect: Dialect | None = None) -> Volume:
    """Read a velocity model or an image, depth first.

    A Zarr array tells its grid by the attributes `spacing` and `origin`, in metres; SEG-Y tells it by its headers,
    which a dialect explains.
    """
    kind = format_of(path)
    if not path.exists():
        raise WaveError(f"there is no {path}")
    if kind == "segy":
        return volumes.read_volume(path, dialect or Dialect("model"))
    if kind == "zarr":
        array = chunked.open_zarr(path)
        if not hasattr(array, "shape"):
            raise WaveError(f"{path} is a Zarr group: name the array in it")
        with reading(path, "Zarr", WaveError):
            values, attributes = chunked.read(array, path), dict(array.attrs)
            placed = [attributes.get(name) for name in ("spacing", "origin")]
            chunked.check(values, placed, attributes.get(chunked.CHECKSUM), path)
            spacing, origin = (None if lengths is None else tuple(map(float, lengths)) for lengths in placed)
            return Volume(values, spacing, origin)
    return Volume(load_array(path))


def write_field(path: Path, values: NDArray[Any], spacing: Sequence[float], origin: Sequence[float]) -> None:
    """Write values on a grid, whole or not at all."""
    kind = _written_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path, folder=kind == "zarr", private=False) as unfinished:
        if kind == "segy":
            writing.write_volume(unfinished, values, spacing, origin)
        elif kind == "zarr":
            chunks = tuple(min(length, 128 if values.ndim == 3 else 512) for length in values.shape)
            placed = [float(step) for step in spacing], [float(start) for start in origin]
            about = {"spacing": placed[0], "origin": placed[1], chunked.CHECKSUM: chunked.checksum_with(values, placed)}
            chunked.create(unfinished, values, chunks, about)
        else:
            with unfinished.open("wb") as file:
                np.save(file, values)


def write_shots(path: Path, geometry: Geometry, gathers: Sequence[NDArray[Any]], dt: float) -> None:
    """Write the data of shots, samples by receivers each: Zarr and SEG-Y with positions, .npy without."""
    kind = _written_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path, folder=kind == "zarr", private=False) as unfinished:
        if kind == "segy":
            writing.write_shots(unfinished, geometry, gathers, dt)
            return
        shapes = {gather.shape for gather in gathers}
        if len(shapes) != 1:
            raise WaveError(f"{path}: shots of different shapes ({shapes}) go into SEG-Y only")
        if kind == "npy":
            with unfinished.open("wb") as file:
                np.save(file, np.stack(gathers))
            return
        group = chunked.zarr_library().create_group(str(unfinished))
        group.attrs["dt"] = dt = float(dt)
        data, sources = np.stack(gathers), np.asarray(geometry.sources)
        receivers = np.stack([geometry.receivers_of(shot) for shot in range(geometry.count)])
        each = [chunked.checksum_with(gather, [shot, dt]) for shot, gather in enumerate(data)]
        for name, values, attributes in (
            ("data", data, {chunked.CHECKSUMS: each}),
            ("sources", sources, {chunked.CHECKSUM: chunked.checksum_with(sources, dt)}),
            ("receivers", receivers, {chunked.CHECKSUM: chunked.checksum_with(receivers, dt)}),
        ):
            chunked.create(group, values, (1, *values.shape[1:]), attributes, name)


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
    notes: list[str] = field(default_factory=list)
    """what of the file is left out or moved"""


def look_at_shots(path: Path, ndim: int, dialect: Dialect | None = None, section: Line | None = None) -> ShotFile:
    """Find out what a file of shots holds, without reading the data.

    Parameters
    ----------
    path
        Of the file.
    ndim
        Of the model.
    dialect, section
        Of SEG-Y: how it is read, and where the model runs, if it is a section that tells.
    """
    kind = format_of(path)
    if not path.exists():
        raise WaveError(f"there is no {path}")
    if kind == "segy":
        shots = segy_shots.read_shots(path, ndim, dialect or Dialect(), section)
        most = int(np.diff(shots.geometry.starts).max())
        return ShotFile(shots.geometry, shots.dt, shots.samples, shots.geometry.count, most, shots.notes)
    geometry: Geometry | None = None
    dt: float | None = None
    if kind == "zarr":
        with reading(path, "Zarr", WaveError):
            group = chunked.open_zarr(path)
            data, attributes = group, dict(group.attrs)
            dt = float(attributes["dt"]) if "dt" in attributes else None
            if not hasattr(group, "shape"):
                members = {name: chunked.member(group, name, path) for name in ("data", "sources", "receivers")}
                if missing := [name for name, array in members.items() if not hasattr(array, "shape")]:
                    raise WaveError(
                        f"{path}: a Zarr group of shots has data, sources and receivers; it lacks {missing}"
                    )
                data = members["data"]
                places = (_positions(members[name], dt, path / name) for name in ("sources", "receivers"))
                geometry = geometry_of(*places)
    else:
        data = load_array(path)
    check_real(path, data.dtype)
    if data.ndim != 3:
        raise WaveError(f"{path}: data of shape {data.shape}; expected shots, samples, receivers")
    return ShotFile(geometry, dt, data.shape[1], data.shape[0], data.shape[2])


def read_shot(
    path: Path, shot: int, traces: NDArray[Any], dialect: Dialect | None = None, samples: int | None = None
) -> NDArray[np.float32]:
    """Read the data of one shot, samples by receivers.

    Parameters
    ----------
    path
        Of the file.
    shot, traces
        Which one, and the numbers of its traces.
    dialect, samples
        Of SEG-Y: how it is read, and how many samples of records that begin after their shot, or before it.
    """
    kind = format_of(path)
    if kind == "segy":
        return segy_shots.read_traces(path, traces, dialect or Dialect(), samples)
    if kind == "zarr":
        with reading(path, "Zarr", WaveError):
            stored = chunked.open_zarr(path)
            array = stored if hasattr(stored, "shape") else chunked.member(stored, "data", path)
            if not hasattr(array, "shape"):
                raise WaveError(f"{path}: a Zarr group of shots has data; it lacks them")
            data, written = chunked.read(array, path, shot), array.attrs.get(chunked.CHECKSUMS)
            if written is not None:
                each = written if isinstance(written, list) else []
                chunked.check(data, [shot, stored.attrs.get("dt")], each[shot] if shot < len(each) else "", path)
    else:
        array = load_array(path)
        with reading(path, "shots", WaveError):
            data = np.asarray(array[shot])
    check_real(path, data.dtype)
    with reading(path, f"the traces of shot {shot}", WaveError):
        return np.ascontiguousarray(data[:, traces], np.float32)


def _positions(array: Any, dt: float | None, path: Path) -> NDArray[Any]:
    values = chunked.read(array, path)
    chunked.check(values, dt, array.attrs.get(chunked.CHECKSUM), path)
    return values
