"""How wide absorbing layers must be for what a source sends."""

import math
from typing import Any

from numpy.typing import NDArray

from forebay.wave.earth.model import ElasticModel, Model
from forebay.wave.survey.wavelet import lowest_frequency

SPAN = {2: 0.6, 3: 0.5}
"""Of the longest wave in the wavelet's band, by the number of axes: the width of acoustic layers that return less than
a hundredth at normal incidence. Of Ricker wavelets, their derivatives and band-passed pulses, in two dimensions, that
took 0.48 to 0.68; of a Ricker wavelet 0.52, and 0.38 in three dimensions, where low frequencies have a smaller part."""
MATCHED = 0.3
"""The same of elastic layers, of the longest pressure wave. Plane waves fade in them without being reflected: far from
its source a Ricker wavelet took 0.1, and 0.12 as a shear wave. Less than a wavelength away, waves are curved, and it
took 0.29."""


def absorbing_points(model: Model, wavelet: NDArray[Any], dt: float) -> int:
    """Give the points that absorbing layers need to return less than a hundredth of a wave at normal incidence.

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
    >>> from forebay.wave import AcousticModel, Grid, ricker
    >>> model = AcousticModel(np.full((101, 201), 2000.0), Grid((101, 201), spacing=10.0))
    >>> [absorbing_points(model, ricker(frequency, 0.002, 1000), 0.002) for frequency in (17, 8, 4)]
    [36, 74, 148]
    """
    if not wavelet.any():
        return 0
    span = MATCHED if isinstance(model, ElasticModel) else SPAN[model.grid.ndim]
    lowest, length = lowest_frequency(wavelet, dt), len(wavelet) * dt
    seconds = min(span / lowest, length / 2) if lowest > 0 else length / 2
    return math.ceil(model.fastest * seconds / min(model.grid.spacing))
