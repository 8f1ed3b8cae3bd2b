"""What is done to the traces of a shot before they are migrated."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.strips import in_strips
from forebay.wave.survey.shot import Shot


def without_spoilt(data: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
    """Return data with zeros, which send nothing back, in traces that are not finite, and how many those are."""
    spoilt = ~np.isfinite(data).all(axis=0)
    if spoilt.all():
        raise WaveError(
            "none of its traces is finite: look at its data; of SEG-Y, data.sample_format and data.byte_order say how "
            "samples are read"
        )
    return np.where(spoilt, np.float32(0), data), int(spoilt.sum())


def mute(
    data: NDArray[Any], shot: Shot, velocity: float, delay: float | None = None, time_zero: float = 0.0
) -> NDArray[Any]:
    """Silence each trace until the direct wave has passed.

    Parameters
    ----------
    data
        Samples by receivers.
    shot
        With their positions and the wavelet.
    velocity
        Of the direct wave, in metres per second.
    delay
        Seconds from the wave's time zero to its end; unless told, until the wavelet has had 99.9 % of its energy.
    time_zero
        Seconds after the first sample.
    """
    energy = np.cumsum(np.sum(np.reshape(shot.wavelet, (shot.samples, -1)) ** 2, axis=1))
    if delay is None:
        begin, end = (float(np.searchsorted(energy, share * energy[-1])) * shot.dt for share in (0.001, 0.999))
        ramp = end - begin
    else:
        ramp, end = 0.5 * delay, time_zero + delay
    away = np.linalg.norm(shot.receivers - shot.source.mean(axis=0), axis=1)
    passed = away / velocity + end
    times, muted = np.arange(len(data))[:, None] * shot.dt, np.empty_like(data)

    def silence(part: slice) -> None:
        late = np.clip((times - passed[part]) / max(ramp, shot.dt), 0, 1)
        muted[:, part] = data[:, part] * np.sin(np.pi / 2 * late) ** 2

    in_strips(silence, data.shape, axis=1)
    return muted
