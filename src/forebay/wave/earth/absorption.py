"""How wide absorbing layers must be for what a source sends."""

import math
from typing import Any

from numpy.typing import NDArray

from forebay.wave.physics import EarthModel, physics_of
from forebay.wave.survey.wavelet import lowest_frequency


def absorbing_points(model: EarthModel, wavelet: NDArray[Any], dt: float) -> int:
    """Return the points that absorbing layers need to return less than a hundredth of a wave at normal incidence.

    Waves are reflected where the damping changes within less than a wavelength, so the longest ones decide: those of
    the wavelet's lowest frequency at the largest velocity, for which the damping is made. A layer from whose end
    nothing can come back while the wavelet and the data last is always wide enough.

    Parameters
    ----------
    model
        What the waves travel through; the layers that its grid has are not looked at.
    wavelet
        What is sent, as of a `Shot`.
    dt
        Its sampling interval in seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from forebay.wave import ElasticModel, Grid, ricker
    >>> rock = (np.full((101, 201), value) for value in (2000.0, 1100.0, 2200.0))
    >>> model = ElasticModel(*rock, Grid((101, 201), spacing=10.0))
    >>> [absorbing_points(model, ricker(frequency, 0.002, 1000), 0.002) for frequency in (17, 8, 4)]
    [18, 37, 74]
    """
    if not wavelet.any():
        return 0
    span = physics_of(model).absorbing_wavelengths(model.grid.ndim)
    lowest, length = lowest_frequency(wavelet, dt), len(wavelet) * dt
    seconds = min(span / lowest, length / 2) if lowest > 0 else length / 2
    return math.ceil(model.fastest * seconds / min(model.grid.spacing))
