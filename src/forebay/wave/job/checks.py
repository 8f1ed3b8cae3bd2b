"""Checking a job: all that it names is read, and what would fail at the first step of some shot is refused."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay import planner
from forebay.codec.auto import choices
from forebay.codec.bounded import Bounded
from forebay.errors import BudgetError, CodecError, WaveError
from forebay.machine.packing import in_a_row, snapshot_bytes
from forebay.machine.spec import ArraySpec
from forebay.tier.capacity import check_free
from forebay.wave.advice import advice
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.stability import check_dispersion, check_dt, choose_dt
from forebay.wave.files.segy.dialect import SEGY
from forebay.wave.files.segy.writing import check_volume
from forebay.wave.imaging import imaging_interval
from forebay.wave.job.inputs import Acquisition, Fields, acquisition_of, media_of, medium_of
from forebay.wave.job.inversion.start import at_most, check_inversion, stage_frequencies, start_of
from forebay.wave.job.job import Job
from forebay.wave.job.place import check_memory, check_tools, device_of
from forebay.wave.job.wavelets import SentWavelet, wavelet_of
from forebay.wave.job.workspace.input_files import files_of
from forebay.wave.physics import Physics, physics_of
from forebay.wave.survey.geometry import Geometry, part_of, windows
from forebay.wave.survey.points import ON_GRID, checked_positions
from forebay.wave.survey.wavelet import highest_of_shots


@dataclass(frozen=True, eq=False)
class CheckedInputs:
    """What a job names, and what follows from it for all shots."""

    grid: Grid
    media: dict[str, Fields]
    """by the "model" that is migrated through and, where shots are modelled, the "true" one"""
    acquisition: Acquisition
    wavelet: SentWavelet
    step: float
    """seconds of a step"""
    every: int
    """steps from one contribution to an image to the next"""
    notes: list[str]
    """what the job might do better"""

    @property
    def frequency(self) -> float:
        """The highest of the wavelet, in Hz."""
        return highest_of_shots(self.wavelet.values, self.acquisition.dt)

    @property
    def steps(self) -> int:
        """Of one way through a shot."""
        return math.ceil(len(self.wavelet.values) * self.acquisition.dt / self.step - 1e-6)


def checked_inputs(job: Job, device: Any = None) -> CheckedInputs:
    """Read or make what a job names, on a device where one is given; refuse what no shot can be computed with."""
    grid, media = media_of(job, device)
    acquisition = acquisition_of(job, grid)
    _check_data(job, acquisition)
    wavelet = wavelet_of(job, acquisition)
    mediums = [medium_of(job, fields, grid) for fields in media.values()]
    frequency = highest_of_shots(wavelet.values, acquisition.dt)
    if job.inversion is not None:
        check_inversion(job, grid, acquisition.geometry.count)
        mediums, frequency = _tried(job, mediums, wavelet, acquisition)
    elif job.lsrtm is not None:
        mediums = [at_most(medium, mediums[0].fastest) for medium in mediums]
    step = _checked_step(job, mediums, acquisition.dt, frequency)
    # Gradients are exact unless the job says otherwise.
    every = job.imaging.every or (imaging_interval(frequency, step) if job.command == "rtm" else 1)
    _check_image(job, grid)
    _check_points(job, grid, acquisition)
    _check_weights(job, part_of(grid, windows(acquisition.geometry, grid, job.imaging.aperture)[0]))
    notes = acquisition.notes + advice(frequency, step, job.imaging.every)
    inputs = CheckedInputs(grid, media, acquisition, wavelet, step, every, notes)
    _check_budget(job, physics_of(mediums[0]), inputs)
    return inputs


def _tried(job: Job, mediums: list[Any], wavelet: SentWavelet, acquisition: Acquisition) -> tuple[list[Any], float]:
    """Return what step and grid of an inversion must suit: the fastest model that it may try, and what is sent."""
    start, _ = start_of(job, mediums[0], wavelet.values, acquisition.dt)
    highest = max(stage_frequencies(job, wavelet.values, acquisition.dt))
    if len(mediums) > 1:  # shots are modelled with all that the wavelet has
        highest = max(highest, highest_of_shots(wavelet.values, acquisition.dt))
    return [start, *(at_most(medium, start.max_vel) for medium in mediums[1:])], highest


def _check_data(job: Job, acquisition: Acquisition) -> None:
    """Refuse modelled shots so long that there is no memory for a wavelet and the data of one."""
    if job.data.file is None:
        traces = acquisition.geometry.most_receivers if job.run.scheduler is None else 0
        nbytes = acquisition.samples * (np.dtype(np.float64).itemsize + traces * np.dtype(np.float32).itemsize)
        check_free(nbytes, f"data.length: a shot of {acquisition.samples} samples")


def _checked_step(job: Job, mediums: list[Any], sampling: float, frequency: float) -> float:
    """Return the step that suits all shots, in which waves stay bounded and keep their speed."""
    order = job.physics.order
    for medium in mediums:
        check_dispersion(medium, frequency, order)
    step = job.physics.dt or min(choose_dt(medium, sampling, frequency, order) for medium in mediums)
    for medium in mediums:
        check_dt(medium, step, order, frequency)
    return step


def _check_image(job: Job, grid: Grid) -> None:
    """Refuse a grid that SEG-Y cannot tell, where the image is to be written so, and a mute that leaves no image."""
    depth = grid.end[0] - grid.origin[0]
    if job.imaging.mute >= 2 * depth:
        raise WaveError(
            f"imaging.mute: expected less than twice the model's depth of {depth:.6g} m, not {job.imaging.mute:.6g} m: "
            "nothing would be left of the image"
        )
    if "segy" in job.output.formats:
        check_volume(grid.shape, grid.spacing, grid.origin)


def _check_weights(job: Job, part: Grid) -> None:
    """Refuse weights of a codec that cannot be read, or do not fit the part of the model that a shot migrates in."""
    for codec in choices(job.memory.codec)[0]:
        if isinstance(codec, Bounded):
            try:
                codec.check_weight(part.shape, np.dtype(np.float32))
            except CodecError as error:
                raise WaveError(f"memory.codec: {error}") from error


def _check_points(job: Job, grid: Grid, acquisition: Acquisition) -> None:
    """Refuse sources and receivers that send or hear what a section has not, or lie outside of the model."""
    for key, kind in (("sends", job.physics.sends), ("hears", job.physics.hears)):
        if grid.ndim == 2 and kind.endswith(" y"):
            raise WaveError(f"physics.{key}: expected z or x of a section, which has no y, not {kind!r}")
    geometry = acquisition.geometry
    is_segy = job.data.file is not None and job.data.file.suffix.lower() in SEGY
    above = grid.origin[0] - min(geometry.sources[:, 0].min(), geometry.receivers[:, 0].min())
    if is_segy and above > ON_GRID * grid.spacing[0]:
        raise WaveError(
            f"data.datum: expected {(job.data.datum or 0.0) + above:.6g} or more, the elevation in metres of the "
            f"model's depth 0, since sources or receivers of {job.data.file} lie up to {above:.6g} m above the model. "
            "Where receivers have depths in place of elevations, data.headers = {receiver_elevation = 0, "
            "receiver_depth = 41} reads them"
        )
    for shot in range(geometry.count):
        for who, places in (("source", geometry.sources[shot]), ("receivers", geometry.receivers_of(shot))):
            try:
                checked_positions(places, grid, mirrored=job.physics.kind != "elastic")
            except WaveError as error:
                hints = ["model.origin and model.spacing say where the model lies"] if job.model.velocity else []
                if who == "receivers":
                    hints.append("geometry.max_offset leaves receivers out that are farther from their source")
                if is_segy:
                    hints.append("data.headers, data.units, data.datum and data.line say how SEG-Y tells positions")
                else:
                    hints.append("geometry says where sources and receivers are")
                raise WaveError(f"shot {shot}, {who}: {error}. {', '.join(hints)}") from error


def _check_budget(job: Job, physics: type[Physics], inputs: CheckedInputs) -> None:
    """Refuse a budget without room to reverse the waves in a shot's part of the model.

    What a codec makes of snapshots is seen when it runs.
    """
    budget = job.memory.budget
    if budget is None or job.memory.codec is not None:
        return
    part = part_of(inputs.grid, windows(inputs.acquisition.geometry, inputs.grid, job.imaging.aperture)[0])
    state = _kept(physics.state_shapes(part, job.physics.order).values())
    if job.command == "rtm":
        record = _kept([part.shape] * len(physics.record_fields(part.ndim, (job.imaging.image,))))
    else:  # gradients keep whole fields
        shapes = physics.state_shapes(part, job.physics.order)
        record = _kept(shapes[name] for name in physics.record_fields(part.ndim, ("velocity",)))
    # A pilot keeps exact histories, and whatever schedule holds them gives the same image.
    every, schedule = inputs.every, job.memory.schedule if job.memory.image_error is None else "auto"
    try:
        planner.check_budget(inputs.steps, state, budget, record_bytes=record, every=every, schedule=schedule)
    except BudgetError as error:
        raise BudgetError(f"memory: {error}. Give more, or set imaging.aperture") from error


def _kept(shapes: Iterable[tuple[int, ...]]) -> int:
    """Return the bytes of a snapshot of arrays of some shapes."""
    return snapshot_bytes(in_a_row([ArraySpec(shape, np.dtype(np.float32)).nbytes for shape in shapes]))


def check_directory(job: Job) -> None:
    """Refuse a memory.directory that is not there and cannot be made; that of a cluster's workers is theirs."""
    path = job.memory.directory
    if path is None or job.run.scheduler is not None:
        return
    folder = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise WaveError(f"memory.directory: {path} cannot be written, since {folder} cannot: choose another folder")


def sampled(geometry: Geometry, samples: int, dt: float) -> str:
    """Tell how many shots and receivers there are, and how they are sampled."""
    receivers = len(geometry.receivers) / geometry.count
    return f"{geometry.count}, of {receivers:.0f} receivers on average, {samples} samples of {dt * 1000:.6g} ms"


def _piloted(job: Job, geometry: Geometry) -> list[str]:
    """Say what a pilot will be for, where there is one."""
    error, order = job.memory.image_error, geometry.outwards()
    which = f"shot {order[0]}" + (f", and then shot {order[-1]}" if len(order) > 1 else "")
    what = f"migrated with an exact history, to find the bound that keeps the image within {error}"
    return [] if error is None else [f"pilot     {which} {what}"]


def _stages(job: Job) -> list[str]:
    """Say what an inversion will do, where there is one."""
    if job.inversion is None:
        return []
    stages = [f"{count} up to {limit:g} Hz" if limit else f"{count} of all" for limit, count in job.inversion.stages]
    of = f", of {job.inversion.mini_batch} shots at a time" if job.inversion.mini_batch else ""
    return [f"iterations {', '.join(stages)}, by {job.inversion.misfit}{of}"]


def inspect(job: Job, gpus: int = 0) -> str:
    """Check a job without leaving anything behind, and tell what it will do."""
    check_tools(job)
    device = device_of(job, gpus)
    check_memory(job, device)
    check_directory(job)
    files_of(job)
    inputs = checked_inputs(job)
    grid, acquisition, geometry = inputs.grid, inputs.acquisition, inputs.acquisition.geometry
    part = " x ".join(str(side.stop - side.start) for side in windows(geometry, grid, job.imaging.aperture)[0])
    velocity, spacing = inputs.media["model"]["velocity"], " x ".join(f"{step:.6g}" for step in grid.spacing)
    where = "on what the cluster's workers have" if job.run.scheduler else f"on the {device.upper()}"
    does = "migrates" if job.command == "rtm" else "is computed"
    return "\n".join(
        [
            f"model     {' x '.join(map(str, grid.shape))} points, {spacing} m, "
            f"{velocity.min():.0f} to {velocity.max():.0f} m/s",
            f"shots     {sampled(geometry, acquisition.samples, acquisition.dt)}"
            + (", modelled" if "true" in inputs.media else ""),
            f"positions {geometry.extents()}",
            f"wavelet   up to {inputs.frequency:.4g} Hz",
            f"steps     {inputs.steps} of {inputs.step * 1000:.6g} ms, imaged every {inputs.every}",
            *_piloted(job, geometry),
            *_stages(job),
            f"parts     each shot {does} in {part} points inside layers of {grid.absorb}, {where}",
            *(f"note      {note}" for note in inputs.notes),
        ]
    )
