"""What a job names, read or made: the media of its waves, where and how they were recorded, and the wavelet."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import on_host
from forebay.wave.earth.builtin import make
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.model import AcousticModel, DensityModel, ElasticModel, VTIModel
from forebay.wave.earth.smoothing import smooth
from forebay.wave.earth.tilted import ANGLES, TTIModel
from forebay.wave.files.formats import look_at_shots, read_field
from forebay.wave.files.segy.dialect import SEGY, UNITS, WORDS, Dialect, HeaderWord
from forebay.wave.files.segy.volumes import read_line
from forebay.wave.job.job import Job
from forebay.wave.survey.geometry import Geometry, geometry_of, spread
from forebay.wave.survey.line import Line
from forebay.wave.survey.resample import Resampler
from forebay.wave.survey.wavelet import ricker

Fields = dict[str, NDArray[Any]]

WATER = 1510.0
"""metres per second up to which a medium without further word is taken for water, which has no shear"""
DEPTH, APART = 20.0, 25.0
"""metres: of sources and receivers, and from one receiver to the next, unless told"""
MOST_SAMPLES = 10**8
"""of a trace"""
ROUNDED = 0.1
"""metres by which headers may have rounded a position out of the model"""
CUT_OFF = 0.02
"""Of a Ricker wavelet's largest value: what it may still have where the data end."""
CUT_OFF_IN_FILE = 0.1
"""The same of one that was recorded, whose end is not that quiet."""
EARLIEST = 10
"""times the length of the data that a wavelet may begin before them"""
OTHERS = ("vs", "density", "epsilon", "delta", *ANGLES)
"""Fields beside the velocity that `physics` may name files of."""
MODELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "acoustic": (AcousticModel, ("velocity",)),
    "density": (DensityModel, ("velocity", "density")),
    "vti": (VTIModel, ("velocity", "epsilon", "delta")),
    "tti": (TTIModel, ("velocity", "epsilon", "delta")),
    "elastic": (ElasticModel, ("velocity", "vs", "density")),
}
"""The model of each kind of waves, and the fields that it is made of, beside the angles of an axis."""


@dataclass(frozen=True)
class Acquisition:
    """How the data of all shots are sampled."""

    geometry: Geometry
    dt: float
    samples: int
    notes: list[str] = field(default_factory=list)
    """what of a file is left out or moved"""


def data_dialect(job: Job, dt: float | None = None) -> Dialect:
    """Return how the shots of a job are read from SEG-Y; `dt` where the sampling is known, so that it is not read."""
    table = job.data
    told = {key: getattr(table, key) for key in ("byte_order", "sample_format", "units", "identification")}
    usual = {key: getattr(table, key) for key in ("group", "tolerance", "datum") if getattr(table, key) is not None}
    line = None if table.line is None else Line(*table.line)
    return Dialect("data", _words(table.headers), dt=dt or table.dt, line=line, **told, **usual)


def model_dialect(job: Job) -> Dialect:
    """Return how the model of a job, and what belongs to it, is read from SEG-Y."""
    table = job.model
    step = None if table.spacing is None else table.spacing[0]
    units = None if table.units is None else UNITS[table.units]
    return Dialect("model", _words(table.headers), units, table.byte_order, table.sample_format, step)


def _words(headers: Any) -> dict[str, HeaderWord]:
    return {name: HeaderWord(byte, kind or WORDS[name].type) for name, (byte, kind) in (headers or {}).items()}


@dataclass(frozen=True)
class SentWavelet:
    """What the sources send, at the sampling of the data and as long as they are."""

    values: NDArray[np.float64]
    """one value per sample, or a column of them for each shot"""
    lead: int
    """how many of them come before the time zero of the data"""


def media_of(job: Job, device: Any = None) -> tuple[Grid, dict[str, Fields]]:
    """Read or make what waves travel through: the grid, the "model" to migrate and, to model shots, the "true" one.

    Where the job leaves the layers open, the grid has the usual ones. A device makes and smooths, where one is given
    that has room for it; all is on the host in the end.
    """
    table = job.model
    if table.name is not None:
        sized = partial(make, table.name, size=table.size or "small", dims=table.dims, shape=table.shape)
        made = _with_room(partial(sized, seed=table.seed or 0), device)
        made_values, spacing, origin = made.values, made.spacing, made.origin
        velocity = on_host(made_values)
    else:
        assert table.velocity is not None
        volume = read_field(table.velocity, model_dialect(job))
        velocity = np.ascontiguousarray(_real(volume.values, "model.velocity", table.velocity), np.float32)
        velocity = _in_metres(job, table.velocity, velocity)
        spacing = table.spacing or volume.spacing
        if spacing is None or None in spacing:
            raise WaveError(f"model.spacing: expected metres along each axis, which {table.velocity} does not tell")
        origin = table.origin or volume.origin or (0.0,) * velocity.ndim
        made_values = velocity
    if len(spacing) == 1:
        spacing = spacing * velocity.ndim
    if velocity.ndim not in (2, 3) or len(spacing) != velocity.ndim or len(origin) != velocity.ndim:
        raise WaveError(
            f"model.spacing, model.origin: expected a number for each axis of a model of shape {velocity.shape}"
        )
    layers = {} if job.physics.absorb is None else {"absorb": job.physics.absorb}
    grid = Grid(velocity.shape, spacing, origin, free_surface=job.physics.free_surface, **layers)
    files = {"true": table.true, **{name: getattr(job.physics, name) for name in OTHERS}}
    read = {name: _like(job, velocity, path, name) for name, path in files.items() if path is not None}
    others = {name: values for name, values in read.items() if name != "true"}
    media = {"model": completed(job, {"velocity": velocity, **others})}
    if job.data.file is None:
        media["true"] = completed(job, {"velocity": read.get("true", velocity), **others})
    if table.smooth:
        media["model"] = _smoothed(job, media["model"] | {"velocity": made_values}, spacing, device)
    return grid, media


def _with_room(work: Callable[..., Any], device: Any) -> Any:
    """Do work on a device, if there is one that has room for it, or else on the host."""
    if device is not None:
        with suppress(MemoryError):
            return work(device=device)
    return work()


def completed(job: Job, fields: Fields) -> Fields:
    """Complete media by the shear velocity and density that no file tells, from the velocity."""
    velocity = fields["velocity"]
    water, made = velocity <= WATER, {}
    if job.physics.kind == "elastic":
        made["vs"] = np.where(water, 0, velocity / np.sqrt(3)).astype(velocity.dtype)
    if job.physics.kind in ("elastic", "density"):
        made["density"] = np.where(water, 1000, 310 * velocity**0.25).astype(velocity.dtype)
    return {**made, **fields}


def _smoothed(job: Job, fields: Fields, spacing: tuple[float, ...], device: Any) -> Fields:
    """Smooth all but angles; what was a fluid stays one, and nothing else becomes one: the sea floor does not move.

    Shear velocity that no file tells follows the smoothed velocity: averaged with that of the water, which is zero, it
    would ask for a needlessly fine grid.
    """

    def smoothed_field(name: str, device: Any = None) -> NDArray[Any]:
        put = on_host if device is None else device.arrays.asarray
        return on_host(smooth(put(fields[name]), spacing, job.model.smooth, slowness=name == "velocity", device=device))

    smoothed = {name: _with_room(partial(smoothed_field, name), device) for name in fields if name not in ANGLES}
    smoothed |= {name: fields[name] for name in ANGLES if name in fields}
    if "vs" in fields:
        vs = smoothed["vs"] if job.physics.vs is not None else smoothed["velocity"] / np.sqrt(3)
        smoothed["vs"] = np.where(fields["vs"] == 0, 0, vs).astype(fields["vs"].dtype)
    return smoothed


def _real(values: NDArray[Any], key: str, path: Path) -> NDArray[Any]:
    """Refuse values that are no finite numbers."""
    if values.dtype.kind not in "fiu":
        raise WaveError(f"{key}: expected real numbers; {path} has {values.dtype}")
    if not np.isfinite(values).all():
        raise WaveError(f"{key}: expected finite numbers; {path} has NaN or infinity")
    return values


def _in_metres(job: Job, path: Path, velocity: NDArray[Any]) -> NDArray[Any]:
    """Return velocities in metres per second, which SEG-Y has in feet where the job tells so."""
    in_feet = job.model.units == "feet" and path.suffix.lower() in SEGY
    return velocity * np.float32(UNITS["feet"]) if in_feet else velocity


def _like(job: Job, velocity: NDArray[Any], path: Path, name: str) -> NDArray[Any]:
    """Read a field that must have the shape of the velocity."""
    values = np.ascontiguousarray(_real(read_field(path, model_dialect(job)).values, name, path), np.float32)
    if name in ("true", "vs"):
        values = _in_metres(job, path, values)
    if values.shape != velocity.shape:
        raise WaveError(f"{name}: expected the shape {velocity.shape} of the velocity; {path} has {values.shape}")
    return values


def acquisition_of(job: Job, grid: Grid) -> Acquisition:
    """Find where the shots are and how they are sampled."""
    table, data = job.geometry, job.data
    geometry, notes = None, []
    if data.file is not None:
        shots = look_at_shots(data.file, grid.ndim, data_dialect(job), _section(job, grid))
        notes = shots.notes
        geometry, dt, samples = shots.geometry, data.dt or shots.dt, shots.samples
        if geometry is not None and geometry.ndim == grid.ndim:
            geometry, left_out = _over_model(geometry.drawn_into(grid, ROUNDED), grid)
            notes = notes + left_out
        if dt is None:
            raise WaveError(f"data.dt: expected seconds between samples, which {data.file} does not tell")
    else:
        assert data.dt is not None and data.length is not None
        dt, length = data.dt, data.length
        if length / dt > MOST_SAMPLES:
            raise WaveError(
                f"data.length: expected at most {MOST_SAMPLES:.0e} samples of {dt:.6g} s, not {length:.6g} s"
            )
        samples = round(length / dt) + 1
        if samples < 2:
            raise WaveError(f"data.length: expected more than data.dt, not {data.length} beside {data.dt}")
    if geometry is not None and (table.shots is not None or table.sources is not None):
        raise WaveError(f"geometry.shots, geometry.sources: {data.file} tells where its shots are: leave them out")
    if geometry is None:
        if table.shots is not None:
            geometry = spread(
                grid,
                table.shots,
                source_depth=DEPTH if table.source_depth is None else table.source_depth,
                receiver_depth=DEPTH if table.receiver_depth is None else table.receiver_depth,
                receiver_spacing=table.receiver_spacing or APART,
            )
        elif table.sources is not None and table.receivers is not None:
            geometry = geometry_of(*(read_field(path).values for path in (table.sources, table.receivers)))
        else:
            raise WaveError(f"geometry.sources, geometry.receivers: expected, since {data.file} does not tell them")
        if data.file is not None and (shots.count, shots.traces) != (geometry.count, len(geometry.receivers_of(0))):
            raise WaveError(
                f"data.file: expected {geometry.count} shots of {len(geometry.receivers_of(0))} receivers, as geometry "
                f"says; it has {shots.count} of {shots.traces}"
            )
    if table.max_offset is not None:
        geometry = geometry.within(table.max_offset)
    return Acquisition(geometry, dt, samples, notes)


def _over_model(geometry: Geometry, grid: Grid) -> tuple[Geometry, list[str]]:
    """Leave out receivers of a file beside the model, which may cover a part of a survey, and say so.

    Sources there, and too many receivers, are refused later: they tell of another place, or of other units.
    """
    over, count = geometry.over(grid), len(geometry.receivers)
    if over is None or len(over.receivers) == count:
        return geometry, []
    left_out = f"{count - len(over.receivers)} of {count} traces are dropped, whose receivers lie beside the model"
    return over, [left_out]


def _section(job: Job, grid: Grid) -> Line | None:
    """Return where the model runs on the map, where it is an oblique section whose file tells."""
    path = job.model.velocity
    if path is None or path.suffix.lower() not in SEGY or grid.ndim != 2 or job.model.origin is not None:
        return None
    return read_line(path, model_dialect(job))


def wavelet_of(job: Job, acquisition: Acquisition) -> SentWavelet:
    """Make or read the wavelet; what it has before the time zero of the data comes first."""
    table = job.wavelet
    if table.frequency is not None:
        half = 1.5 / table.frequency
        middle = half if table.delay is None else table.delay
        lead = _samples_in(max(0.0, half - middle), acquisition.dt)
        made = ricker(table.frequency, acquisition.dt, lead + acquisition.samples, middle + lead * acquisition.dt)
        length = acquisition.samples * acquisition.dt
        if length < middle or abs(made[-1]) > CUT_OFF:
            raise WaveError(
                f"wavelet.frequency, wavelet.delay, data.dt: expected a wavelet that is over with the data, which are "
                f"{length:.4g} s long; this one has its middle at {middle:.4g} s and lasts twice as long"
            )
        return SentWavelet(made, lead)
    assert table.file is not None
    read = np.asarray(_real(read_field(table.file).values, "wavelet.file", table.file), np.float64)
    count = acquisition.geometry.count
    if read.ndim != 1 and read.shape[:-1] != (count,):
        raise WaveError(
            f"wavelet.file: expected one value per sample, or a row of them for each of the {count} shots, not an "
            f"array of shape {read.shape}"
        )
    return _wavelet_of_file(np.atleast_2d(read), table.dt or acquisition.dt, table.time_zero or (0.0,), acquisition)


def _wavelet_of_file(
    rows: NDArray[np.float64], dt: float, zeros: tuple[float, ...], acquisition: Acquisition
) -> SentWavelet:
    """Resample wavelets, one or a row for each shot, so that all have their time zero at that of the data."""
    count, length = acquisition.geometry.count, rows.shape[1] * dt
    if len(zeros) not in (1, count):
        raise WaveError(f"wavelet.time_zero: expected a number, or one for each of the {count} shots, not {len(zeros)}")
    most = min(length, EARLIEST * acquisition.samples * acquisition.dt)
    if length < acquisition.dt:
        raise WaveError(
            f"wavelet.file, wavelet.dt: expected a wavelet as long as a sample of the data, {acquisition.dt:.6g} s, or "
            f"longer, not {length:.6g} s"
        )
    if max(zeros) >= most:
        what = "the wavelet's" if most == length else f"{EARLIEST} times the data's length,"
        raise WaveError(f"wavelet.time_zero: expected less than {what} {most:.6g} s, not {max(zeros):.6g}")
    lead = _samples_in(max(zeros), acquisition.dt)
    many = max(len(rows), len(zeros))
    columns = [
        Resampler(rows.shape[1], dt, lead + acquisition.samples, acquisition.dt, start=zero - lead * acquisition.dt)(
            row[:, None]
        )
        for row, zero in zip(np.broadcast_to(rows, (many, rows.shape[1])), np.broadcast_to(zeros, many), strict=True)
    ]
    values = np.concatenate(columns, axis=1)
    largest, last = np.abs(values).max(axis=0), np.abs(values[-1])
    if (largest == 0).any():
        raise WaveError(f"wavelet.file: expected a wavelet that sends something; {_whose(largest == 0)} is zero")
    if (cut := last > CUT_OFF_IN_FILE * largest).any():
        share = last[np.argmax(cut)] / largest[np.argmax(cut)]
        raise WaveError(
            f"wavelet.file: expected a wavelet that is over with the data; {_whose(cut)} still has {share:.1%} of its "
            "largest value there: fade it out"
        )
    return SentWavelet(values[:, 0] if many == 1 else values, lead)


def _whose(wrong: NDArray[Any]) -> str:
    return "this one" if len(wrong) == 1 else f"that of shot {np.argmax(wrong)}"


def _samples_in(seconds: float, dt: float) -> int:
    """Return how many samples there are in a time that begins or ends with one."""
    return math.ceil(seconds / dt - 1e-6)


def medium_of(job: Job, fields: Fields, grid: Grid, put: Callable[[Any], Any] = np.asarray) -> Any:
    """Bind fields, as `media_of` gives them, to the physics of a job; `put` brings them to where waves are computed."""
    model, names = MODELS[job.physics.kind]
    angles = {name: put(fields[name]) for name in ANGLES if name in fields}
    return model(*(put(fields[name]) for name in names), grid, **angles)
