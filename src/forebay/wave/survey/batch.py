"""Shots that advance together, as one shot: the number of its own shot comes before the coordinates of a position."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.survey.shot import Shot


def together(shots: Sequence[Shot]) -> Shot:
    """Return one shot with the sources and receivers of all, those of the first one first; without data.

    Examples
    --------
    >>> shot = Shot((20.0, 500.0), [(20.0, 0.0), (20.0, 900.0)], np.ones(5), dt=0.004)
    >>> together([shot, shot]).receivers[:, 0].tolist(), together([shot, shot]).wavelet.shape
    ([0.0, 0.0, 1.0, 1.0], (5, 2))
    """
    if not shots:
        raise WaveError("no shots: give one, or a sequence of some")
    if len({(shot.samples, shot.dt) for shot in shots}) > 1:
        raise WaveError("shots of different samplings do not advance together: give those apart that differ")
    wavelets = [
        np.broadcast_to(shot.wavelet.reshape(shot.samples, -1), (shot.samples, len(shot.source))) for shot in shots
    ]
    return Shot(
        _numbered([shot.source for shot in shots]),
        _numbered([shot.receivers for shot in shots]),
        np.concatenate(wavelets, axis=1),
        shots[0].dt,
        sends=[kind for shot in shots for kind in shot.sends],
        hears=[kind for shot in shots for kind in shot.hears],
    )


def apart(data: NDArray[Any], shots: Sequence[Shot]) -> list[NDArray[Any]]:
    """Cut what was heard in all shots, a column for each receiver, into the data of each."""
    ends = np.cumsum([len(shot.receivers) for shot in shots])
    return [np.ascontiguousarray(own) for own in np.split(data, ends[:-1], axis=1)]


def _numbered(positions: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate([np.insert(rows, 0, number, axis=1) for number, rows in enumerate(positions)])
