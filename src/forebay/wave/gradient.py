"""The gradient of a misfit of data with respect to the model: one iteration's worth of full-waveform inversion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from forebay.engine import Result, reverse
from forebay.errors import WaveError
from forebay.wave.imaging import Sensing, check_every
from forebay.wave.inversion.unknowns import names_of
from forebay.wave.loop import Adjoint, Loop, pairs, prepare, rehearsed
from forebay.wave.paged.door import reversal_within
from forebay.wave.physics import EarthModel, State
from forebay.wave.survey.batch import apart
from forebay.wave.survey.shot import Shot

Misfit = Callable[[NDArray[Any], NDArray[Any]], tuple[float, NDArray[Any]]]
PARAMETERS = ("velocity", "squared slowness")


@dataclass(frozen=True, eq=False)
class Gradient:
    """A misfit, and its derivative with respect to each value of the model."""

    misfit: float
    gradient: Any
    """an array like the model's, where that is; of a model of several arrays one for each of them, by name"""
    data: NDArray[Any]
    """what the receivers hear in the model"""
    result: Result
    """of the reversal: its plan and what it measured"""


def least_squares(data: NDArray[Any], observed: NDArray[Any]) -> tuple[float, NDArray[Any]]:
    """Return half the sum of squared differences, and its derivative with respect to the data."""
    residual = data.astype(np.float64) - observed
    return 0.5 * float(np.sum(residual**2)), residual


@overload
def gradient(shot: Shot, model: EarthModel, **options: Any) -> Gradient: ...


@overload
def gradient(shot: Sequence[Shot], model: EarthModel | Sequence[EarthModel], **options: Any) -> list[Gradient]: ...


def gradient(
    shot: Shot | Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    *,
    misfit: Misfit | Sequence[Misfit] = least_squares,
    parameter: str = "velocity",
    dt: float | None = None,
    order: int = 8,
    every: int = 1,
    dtype: Any = np.float32,
    **reversal: Any,
) -> Gradient | list[Gradient]:
    """Differentiate the misfit of a shot's data with respect to the model, inside a budget.

    With ``every=1`` it is the exact derivative of what `simulate` computes, up to rounding, for the absorbing layers as
    they are: what velocity they are made for is held fixed.

    Parameters
    ----------
    shot
        With its data. Several shots in two dimensions may be given at once: they advance together, in one reversal, and
        each has the gradient that it would have alone.
    model
        Where the derivative is taken; of several shots one for all, or one for each, of the same shape and spacing.
    misfit
        ``misfit(data, observed)`` returns a number and its derivative with respect to `data`; of several shots one for
        all, or one for each.
    parameter
        "velocity", or "squared slowness" of an acoustic model. Others are differentiated with respect to all of their
        arrays.
    dt, order, dtype
        As for `simulate`.
    every
        Steps between two contributions; above 1 the gradient is an approximation, good while the wavelet's band allows
        it, see `imaging.imaging_interval`; a `WaveWarning` says when it does not.
    **reversal
        For `forebay.reverse`: `budget`, `codec`, `schedule`, `plan`, `costs`, `directory`, ... Where the `budget` of an
        acoustic model on the host names a device, that computes, and fields larger than its part are paged.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, simulate, ricker
    >>> grid = Grid((40, 50), spacing=10.0, absorb=20)
    >>> true, guess = np.full((40, 50), 2000.0), np.full((40, 50), 2000.0)
    >>> true[20:24, 20:30] = 2100.0
    >>> shot = Shot((50, 250), [(350, x) for x in range(0, 500, 50)], ricker(15, 0.004, 100), dt=0.004)
    >>> shot = shot.with_data(simulate(shot, AcousticModel(true, grid)))
    >>> result = gradient(shot, AcousticModel(guess, grid), budget="4MB")
    >>> bool(result.misfit > 0), bool(result.gradient[20:24, 20:30].mean() < 0)  # faster there would fit better
    (True, True)
    """
    shots, models = pairs(shot, model)
    if any(own.data is None for own in shots):
        raise WaveError("a shot without data: add what its receivers heard with shot.with_data(...)")
    for own_model in models:
        check_parameter(parameter, own_model)
    check_every(every)
    with reversal_within(model, order, dtype, reversal, Sensing) as (paging, reversal):
        sensitivity = Sensitivity(prepare(shot, model, dt, order, dtype, every=every, paging=paging), every)
        loop, turned = sensitivity.loop, list[tuple[list[float], list[NDArray[Any]]]]()

        def turn(state: State) -> None:
            data = apart(loop.data(), shots)
            compared = [misfit] * len(shots) if callable(misfit) else misfit
            about = zip(compared, data, shots, strict=True)
            misfits = [compare(heard, np.asarray(own.data)) for compare, heard, own in about]
            turned.append(([value for value, _ in misfits], data))
            sensitivity.start_back(np.concatenate([slope for _, slope in misfits], axis=1), state)

        fields = loop.propagator.zeros()
        result = reverse(
            loop.forward, sensitivity.backward, fields, loop.steps, turn=turn, **sensitivity.options | reversal
        )
        (values, data), owed = turned[0], sensitivity.end(parameter)
        if isinstance(shot, Shot):
            return Gradient(values[0], owed, data[0], result)
        return [Gradient(value, own, heard, result) for value, own, heard in zip(values, owed, data, strict=True)]


def check_parameter(parameter: str, model: EarthModel) -> None:
    """Refuse what a model is not told by."""
    if parameter not in PARAMETERS:
        raise WaveError(f"parameter={parameter!r}: take one of {', '.join(map(repr, PARAMETERS))}")
    if parameter != "velocity" and len(names_of(model)) > 1:
        raise WaveError(
            f"parameter={parameter!r} of waves in {type(model).__name__}: leave it out, they have arrays by name"
        )


class Sensitivity:
    """What the way back through a loop adds up for the derivative of its data with respect to the model."""

    def __init__(self, loop: Loop, every: int) -> None:
        self.loop, self.every = loop, every
        self._sums = loop.propagator.sensitivity_sums()
        self._adjoint: Adjoint | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What `forebay.reverse` and `forebay.prepare` are to be told."""
        fields, signature = self.loop.propagator.sensitive_fields, self.loop.signature
        return {"record": fields, "every": self.every, "signature": signature, "rehearse": self._rehearse}

    def start_back(self, slope: NDArray[Any], final: State) -> None:
        """Take the derivative with respect to the data, at the loop's end."""
        self._adjoint = Adjoint(self.loop, slope)
        if self.loop.steps % self.every == 0:
            self.backward(final, self.loop.steps)

    def backward(self, record: State, step: int) -> None:
        """Add what a step owes to the model."""
        self.loop.propagator.add_sensitivity(self._sums, self._adjoint, record, step, self.every)

    def end(self, parameter: str) -> Any:
        """Return the derivative with respect to the model, and let go of the adjoint's fields."""
        self._adjoint = None
        return self.loop.propagator.gradient(self._sums, parameter)

    def _rehearse(self) -> Callable[[], None]:
        propagator = self.loop.propagator
        silence = np.zeros((self.loop.shot.samples, len(self.loop.shot.receivers)))
        fields, own = propagator.zeros(), propagator.sensitivity_sums()
        record = {name: fields[name] for name in propagator.sensitive_fields}
        return rehearsed(
            Adjoint(self.loop, silence),
            self.every,
            lambda wave, step: propagator.add_sensitivity(own, wave, record, step, self.every),
        )
