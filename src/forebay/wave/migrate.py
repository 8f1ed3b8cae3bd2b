"""Reverse-time migration of one shot: where the source's wave and the data, sent back in time, meet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine import Result, reverse
from forebay.errors import WaveError
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import check_every, imaging_interval, laplacian_filter, normalise
from forebay.wave.loop import Adjoint, prepare
from forebay.wave.physics import Condition, EarthModel, State, physics_of
from forebay.wave.survey.shot import Shot
from forebay.wave.survey.wavelet import band_limited, highest_frequency


@dataclass(frozen=True, eq=False)
class Migration:
    """The image of a shot, and how it came about."""

    image: NDArray[Any]
    """the product of both waves, integrated over time"""
    illumination: NDArray[Any]
    """the square of the source's wave, integrated over time"""
    every: int
    """steps between two contributions to the image"""
    dt: float
    """seconds of a step"""
    grid: Grid
    result: Result
    """of the reversal: its plan and what it measured"""
    images: dict[str, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict)
    """image and illumination by name, where a model has several; the first one is `image`"""

    def clean(self) -> NDArray[Any]:
        """Return the image divided by the illumination and rid of its smooth part."""
        return laplacian_filter(normalise(self.image, self.illumination), self.grid)


def migrate(
    shot: Shot,
    model: EarthModel,
    *,
    dt: float | None = None,
    order: int = 8,
    every: int | None = None,
    dtype: Any = np.float32,
    images: Sequence[str] = ("pp",),
    zero_phase: bool = False,
    condition: Condition | None = None,
    **reversal: Any,
) -> Migration:
    """Migrate one shot through a (smooth) model, inside a budget.

    Without a lossy codec the image is bit-equal for every budget and schedule.

    Parameters
    ----------
    shot
        With its data, from which the direct wave has been removed where that matters. They are limited to the band of
        the wavelet, beyond which the source's wave has nothing to be compared with. At their end they fade out.
    model
        What the waves travel through.
    dt, order, dtype
        As for `simulate`.
    every
        Steps between two contributions to the image. Unless told, they are as many as the wavelet's band allows, see
        `imaging.imaging_interval`; a `WaveWarning` says when they are more.
    images
        Of an elastic model: "pp", "velocity" or both, see `elastic.images`. An acoustic one has the image of its
        pressure.
    zero_phase
        Whether the image of a step in velocity has its peak there, positive where the velocity rises with depth. The
        acoustic image of the exact adjoint otherwise falls through zero there: receivers side by side send the integral
        of what they heard. So the derivative of the data is sent back instead.
    condition
        An imaging condition of your own, ``condition(source, receiver, step)``, beside the built-in one. At each
        contribution, latest first, it sees the pressure of both waves inside the model, read-only. Of an elastic model
        it sees the fields that its images need, by name.
    **reversal
        For `forebay.reverse`: `budget`, `codec`, `schedule`, `plan`, `costs`, `directory`, ... With `resume`, a
        directory for this shot alone, a process that is killed loses a part of the shot only: the same call goes on.
        What `condition` writes is its own to keep.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, simulate, ricker
    >>> grid = Grid((60, 80), spacing=10.0, absorb=20)
    >>> true, smooth = np.full((60, 80), 2000.0), np.full((60, 80), 2000.0)
    >>> true[40:] = 2500.0
    >>> shot = Shot((50, 400), [(50, x) for x in range(0, 800, 20)], ricker(15, 0.004, 150), dt=0.004)
    >>> echo = simulate(shot, AcousticModel(true, grid)) - simulate(shot, AcousticModel(smooth, grid))
    >>> migration = migrate(shot.with_data(echo), AcousticModel(smooth, grid), budget="2MB")
    >>> bool(abs(migration.clean()[20:, 40].argmax() - 20) <= 2)
    True
    """
    if shot.data is None:
        raise WaveError("a shot without data: add what its receivers heard with shot.with_data(...)")
    physics_of(model).check_images(images)
    names = tuple(dict.fromkeys(images))
    check_every(every)
    loop = prepare(shot, model, dt, order, dtype, every=every, listens=False)
    propagator = loop.propagator
    sums = propagator.image_sums(names)
    frequency = highest_frequency(shot.wavelet, shot.dt)
    steps_between = every if every is not None else imaging_interval(frequency, loop.dt)
    # Summed over time, what the data hold beyond the source's band meets nothing; taken every few steps only, it would.
    data = band_limited(shot.data, shot.dt, frequency) if frequency > 0 else np.zeros(shot.data.shape)
    data = propagator.in_phase(data, shot.dt) if zero_phase else data
    adjoint = Adjoint(loop, propagator.sent_back(data, shot))

    def backward(record: State, step: int) -> None:
        propagator.add_image(adjoint, step, sums, record, steps_between * loop.dt, condition)

    if reversal.get("resume") is not None:
        reversal["adjoint"] = adjoint.kept_with(sums)
    result = reverse(
        loop.forward,
        backward,
        propagator.zeros(),
        loop.steps,
        record=lambda state, step: propagator.image_record(state, names),
        every=steps_between,
        **reversal,
    )
    arrays = propagator.image_arrays(sums)
    for name in set(names) & set(propagator.negative_images if zero_phase else ()):
        arrays[name] = -arrays[name][0], arrays[name][1]
    named = arrays if propagator.image_names else {}
    return Migration(*arrays[names[0]], steps_between, loop.dt, model.grid, result, named)
