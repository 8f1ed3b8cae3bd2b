"""What is worth saying before the first step of a setup that can be computed, but not as well as it might be."""

from typing import Any

from numpy.typing import NDArray

from forebay.wave.earth.absorption import absorbing_points
from forebay.wave.imaging import imaging_interval
from forebay.wave.physics import EarthModel
from forebay.wave.survey.wavelet import highest_frequency


class WaveWarning(UserWarning):
    """Waves or images that could be computed with a smaller error, or have to be computed again; it says how or why."""


def advice(
    model: EarthModel, wavelet: NDArray[Any], sampling: float, step: float, every: int | None = None
) -> list[str]:
    """Say of layers that they are too thin, and of an imaging interval that it is too long, with what works."""
    notes, absorb = [], model.grid.absorb
    # Without layers a closed box is wanted.
    if 0 < absorb < (needed := absorbing_points(model, wavelet, sampling)):
        notes.append(
            f"absorbing layers of {absorb} points may return more than a hundredth of this wavelet's longest waves at "
            f"{model.fastest:.6g} m/s: take absorb of at least {needed}"
        )
    frequency = highest_frequency(wavelet, sampling)
    if every is not None and frequency > 0 and every > (most := imaging_interval(frequency, step)):
        notes.append(
            f"waves of up to {frequency:.4g} Hz that are compared every {every} steps of {step:.6g} s leave in the "
            f"image what is not there: take every of at most {most}"
        )
    return notes
