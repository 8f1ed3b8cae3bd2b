"""Born modelling: how the data of a shot change where the model changes a little."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import computable, on_host
from forebay.wave.gradient import check_parameter, gradient
from forebay.wave.inversion.unknowns import names_of
from forebay.wave.loop import pairs, prepare
from forebay.wave.physics import NOT_SCATTERED, EarthModel, Physics, physics_of
from forebay.wave.survey.batch import apart
from forebay.wave.survey.shot import Shot


@overload
def born(
    shot: Shot,
    model: EarthModel,
    change: Any,
    *,
    parameter: str = "velocity",
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
) -> NDArray[Any]: ...


@overload
def born(
    shot: Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    change: Any,
    *,
    parameter: str = "velocity",
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
) -> list[NDArray[Any]]: ...


def born(
    shot: Shot | Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    change: Any,
    *,
    parameter: str = "velocity",
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
) -> NDArray[Any] | list[NDArray[Any]]:
    """Compute the derivative of a shot's data along a change of the model: what is scattered once there.

    It is the derivative of what `simulate` computes, up to rounding, and `gradient` applies its transpose.

    Parameters
    ----------
    shot, model, dt, order, dtype
        As for `simulate`.
    change
        Of "velocity", in metres per second, or of "squared slowness"; an array of the model's shape and memory. Of an
        elastic model such arrays by name, some or all of "vp", "vs" and "rho".
    parameter
        Which of the two it is, of an acoustic model; others have "velocity" alone.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker, simulate
    >>> smooth, grid = np.full((60, 81), 2000.0), Grid((60, 81), spacing=10.0)
    >>> change = np.zeros_like(smooth)
    >>> change[40] = 10.0
    >>> shot = Shot((50, 400), [(50, 200), (50, 600)], ricker(15, 0.004, 150), dt=0.004)
    >>> echo = born(shot, AcousticModel(smooth, grid, max_vel=2010.0), change)
    >>> both = [simulate(shot, AcousticModel(velocity, grid, max_vel=2010.0)) for velocity in (smooth, smooth + change)]
    >>> bool(abs(both[1] - both[0] - echo).max() < 0.02 * abs(echo).max())
    True
    """
    shots, models = pairs(shot, model)
    for own in models:
        check_scattering(own, parameter)
        _check_change(change, own)
    loop = prepare(shot, model, dt, order, dtype)
    propagator, waves = loop.propagator, (loop.propagator.zeros(), loop.propagator.zeros())
    strength = propagator.scatterers(change, parameter)
    hears = loop.receivers, loop.heard
    propagator.advance_scattered(waves, strength, loop.sources, loop.sent, range(loop.steps), hears)
    return loop.data() if isinstance(shot, Shot) else apart(loop.data(), shots)


def check_scattering(model: EarthModel, parameter: str) -> None:
    """Refuse models whose waves are not scattered, and parameters that theirs are not."""
    if physics_of(model).scatterers is Physics.scatterers:
        raise WaveError(f"{NOT_SCATTERED}: give an AcousticModel or an ElasticModel")
    check_parameter(parameter, model)


def _check_change(change: Any, model: EarthModel) -> None:
    """Refuse a change that is not of a model, in its memory, of real and finite numbers."""
    names, named = names_of(model), isinstance(change, Mapping)
    if named != (len(names) > 1) or (named and not (change and set(change) <= set(names))):
        given = f"names {', '.join(map(repr, change))}" if named else f"type {type(change).__name__}"
        asked = f"arrays by name, of {', '.join(map(repr, names))}" if len(names) > 1 else "an array of its shape"
        raise WaveError(f"a change of {given} for waves in {type(model).__name__}: give {asked}")
    for values in change.values() if named else [change]:
        if tuple(np.shape(values)) != model.grid.shape:
            raise WaveError(f"a change of shape {tuple(np.shape(values))} of a model of shape {model.grid.shape}")
        _check_numbers(values, getattr(model, names[0]))


def _check_numbers(values: Any, like: Any) -> None:
    """Refuse numbers that are not real, not finite, or in another memory than the model's."""
    change, own = computable(values, "a change"), computable(like)
    if isinstance(change, np.ndarray) != isinstance(own, np.ndarray):
        raise WaveError(
            f"a change in another memory than the model's, which is {type(own).__module__}'s: bring it there"
        )
    if change.dtype.kind not in "fiu":
        raise WaveError(f"a change of type {change.dtype}: give real numbers")
    if not bool((abs(change) < np.inf).all()):
        raise WaveError("a change holds values that are not finite: give numbers")


def scattered_back(shot: Shot, model: EarthModel, data: NDArray[Any], **options: Any) -> dict[str, NDArray[Any]]:
    """Apply the exact transpose of `born` to data of a shot; options are those of `gradient`.

    Return arrays of the host, by the names of the model's.
    """
    asked = shot.with_data(np.zeros(data.shape))
    slopes = gradient(asked, model, misfit=lambda *_: (0.0, data), **options).gradient
    by_name = slopes if isinstance(slopes, dict) else {names_of(model)[0]: slopes}
    return {name: on_host(values) for name, values in by_name.items()}
