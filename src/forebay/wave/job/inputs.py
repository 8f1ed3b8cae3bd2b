"""What a job names, read or made: the media of its waves, and where and how they were recorded."""

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
from forebay.wave.visco.model import ViscoModel

Fields = dict[str, NDArray[Any]]

WATER = 1510.0
"""metres per second up to which a medium without further word is taken for water, which has no shear"""
DEPTH, APART = 20.0, 25.0
"""metres: of sources and receivers, and from one receiver to the next, unless told"""
MOST_SAMPLES = 10**8
"""of a trace"""
ROUNDED = 0.1
"""metres by which headers may have rounded a position out of the model"""
OTHERS = ("vs", "density", "epsilon", "delta", *ANGLES, "q")
"""Fields beside the velocity that `physics` may name files of."""
MODELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "acoustic": (AcousticModel, ("velocity",)),
    "density": (DensityModel, ("velocity", "density")),
    "vti": (VTIModel, ("velocity", "epsilon", "delta")),
    "tti": (TTIModel, ("velocity", "epsilon", "delta")),
    "visco": (ViscoModel, ("velocity", "attenuation")),
    "elastic": (ElasticModel, ("velocity", "vs", "density")),
}
"""The model of each kind of waves, and the fields that it is made of, beside the angles of an axis."""
FIELDS = tuple(dict.fromkeys([*(name for _, names in MODELS.values() for name in names), *ANGLES]))
"""All of these fields, and the angles."""


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
        velocity = np.ascontiguousarray(real_values(volume.values, "model.velocity", table.velocity), np.float32)
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
    others = {"attenuation" if name == "q" else name: values for name, values in read.items() if name != "true"}
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


def real_values(values: NDArray[Any], key: str, path: Path) -> NDArray[Any]:
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
    """Read a field that must have the shape of the velocity; of quality factors, what waves lose."""
    read = read_field(path, model_dialect(job)).values
    if read.shape != velocity.shape:
        raise WaveError(f"{name}: expected the shape {velocity.shape} of the velocity; {path} has {read.shape}")
    if name == "q" and read.dtype.kind in "fiu":
        least = read.min()
        if not (least > 1 and np.float32(1 / least) < 1):
            raise WaveError(f"q: expected quality factors above 1, infinite where nothing is lost; {path} has {least}")
        read = 1 / read
    values = np.ascontiguousarray(real_values(read, name, path), np.float32)
    if name in ("true", "vs"):
        values = _in_metres(job, path, values)
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


def medium_of(job: Job, fields: Fields, grid: Grid, put: Callable[[Any], Any] = np.asarray) -> Any:
    """Bind fields, as `media_of` gives them, to the physics of a job; `put` brings them to where waves are computed."""
    model, names = MODELS[job.physics.kind]
    angles = {name: put(fields[name]) for name in ANGLES if name in fields}
    return model(*(put(fields[name]) for name in names), grid, **angles, **beside_arrays(job))


def beside_arrays(job: Job) -> dict[str, float]:
    """Return what the model of a job has beside its arrays, by name."""
    frequency = job.physics.q_frequency
    return {} if frequency is None else {"frequency": frequency}
