"""What is worth saying before the first step of a setup that can be computed, but not as well as it might be."""

from forebay.wave.imaging import imaging_interval


class WaveWarning(UserWarning):
    """Waves or images that could be computed with a smaller error, or have to be computed again; it says how or why."""


def advice(frequency: float, step: float, every: int | None = None) -> list[str]:
    """Say of an imaging interval that it is too long for waves of up to a frequency, with what works."""
    notes = []
    if every is not None and frequency > 0 and every > (most := imaging_interval(frequency, step)):
        notes.append(
            f"waves of up to {frequency:.4g} Hz that are compared every {every} steps of {step:.6g} s leave in the "
            f"image what is not there: take every of at most {most}"
        )
    return notes
