"""What the sources of a job send, made or read."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.files.formats import read_field
from forebay.wave.job.inputs import Acquisition, real_values
from forebay.wave.job.job import Job
from forebay.wave.survey.resample import Resampler
from forebay.wave.survey.wavelet import ricker

CUT_OFF = 0.02
"""Of a Ricker wavelet's largest value: what it may still have where the data end."""
CUT_OFF_IN_FILE = 0.1
"""The same of one that was recorded, whose end is not that quiet."""
EARLIEST = 10
"""times the length of the data that a wavelet may begin before them"""


@dataclass(frozen=True)
class SentWavelet:
    """What the sources send, at the sampling of the data and as long as they are."""

    values: NDArray[np.float64]
    """one value per sample, or a column of them for each shot"""
    lead: int
    """how many of them come before the time zero of the data"""


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
    read = np.asarray(real_values(read_field(table.file).values, "wavelet.file", table.file), np.float64)
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
