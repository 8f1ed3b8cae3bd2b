"""Least-squares migration: the change of a model whose Born data are the echoes that were heard."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.engine.showing import LONG, progress_bar
from forebay.errors import WaveError
from forebay.wave.born import born, scattered_back
from forebay.wave.earth.arrays import beside
from forebay.wave.gradient import check_parameter
from forebay.wave.inversion.light import balance, light_of
from forebay.wave.inversion.unknowns import names_of
from forebay.wave.physics import EarthModel
from forebay.wave.survey.shot import Shot

AfterChange = Callable[[NDArray[np.float64], int, float], None]


@dataclass(frozen=True, eq=False)
class Echoes:
    """A change of a model, and how much of the echoes it leaves unexplained."""

    change: Any
    """of the parameter, an array like the model's, where that is"""
    residuals: tuple[float, ...]
    """of the echoes' norm, what is left before the first and after each iteration"""


def lsrtm(
    shots: Shot | Sequence[Shot],
    model: EarthModel,
    *,
    iterations: int = 10,
    parameter: str = "velocity",
    precondition: bool = True,
    watch: AfterChange | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Echoes:
    """Find the small change of a model that explains the echoes of shots, by conjugate gradients, inside a budget.

    Parameters
    ----------
    shots
        With the echoes as data: what was heard, less what `simulate` gives in the model.
    model
        A smooth one.
    iterations
        Of conjugate gradients for least squares: each models all shots, and migrates them, once.
    parameter
        "velocity" or "squared slowness".
    precondition
        Whether changes are made larger where the sources cast little light, which takes fewer iterations.
    watch
        ``watch(change, iteration, residual)`` is called after each iteration.
    progress
        Whether to show progress; None shows it on a terminal.
    **options
        `dt`, `order` and `dtype` as for `simulate`, and what `forebay.reverse` takes: `budget`, `codec`, ...

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, born, ricker
    >>> smooth, change = np.full((40, 60), 2000.0), np.zeros((40, 60))
    >>> change[20:24, 25:35] = 100.0
    >>> model = AcousticModel(smooth, Grid((40, 60), spacing=10.0), max_vel=2200.0)
    >>> shot = Shot((20, 300), [(20, x) for x in range(0, 600, 20)], ricker(14, 0.002, 250), dt=0.002)
    >>> found = lsrtm(shot.with_data(born(shot, model, change)), model, iterations=4, budget="32MB")
    >>> found.residuals[-1] < 0.4, bool(found.change[20:24, 25:35].mean() > abs(found.change[:10]).mean())
    (True, True)
    """
    listed = [shots] if isinstance(shots, Shot) else list(shots)
    if not listed or any(shot.data is None for shot in listed):
        raise WaveError("no shots, or one without data: add the echoes that its receivers heard by shot.with_data(...)")
    if iterations < 1:
        raise WaveError(f"iterations={iterations}: give 1 or more")
    if names_of(model) != ["velocity"]:
        raise WaveError(f"least-squares migration of waves in {type(model).__name__}: give an AcousticModel")
    check_parameter(parameter, model)
    if not any(np.any(shot.data) for shot in listed):
        raise WaveError("data of zeros: there is no echo to explain")
    stepping = {name: options[name] for name in ("dt", "order", "dtype") if name in options}
    weight = balance(light_of(listed, model, **stepping)) if precondition else np.ones(model.grid.shape)
    with progress_bar("migrating", iterations, LONG + 1, progress) as tick:

        def after(change: NDArray[np.float64], iteration: int, residual: float) -> None:
            tick()
            if watch is not None:
                watch(change, iteration, residual)

        shots_here = EchoesHere(listed, model, {"parameter": parameter} | options)
        change, residuals = explain(shots_here, weight, iterations, after)
    return Echoes(beside(change, model.velocity), residuals)  # type: ignore[attr-defined]


class EchoShots(Protocol):
    """Shots whose echoes a change of the model is to explain, wherever they are computed."""

    def squared(self) -> float:
        """Return the sum of squares of all echoes."""

    def back(self) -> NDArray[np.float64]:
        """Apply the transpose of Born modelling to what is left of the echoes, added up in the shots' order."""

    def scatter(self, direction: NDArray[np.float64]) -> tuple[float, float]:
        """Model what a change scatters; return the sum of its squares, and of its products with what is left."""

    def take(self, step: float) -> None:
        """Take so many times what was scattered last from what is left."""


def explain(
    shots: EchoShots, weight: NDArray[np.float64], iterations: int, after: AfterChange
) -> tuple[NDArray[np.float64], tuple[float, ...]]:
    """Find the change that explains echoes, by conjugate gradients for least squares; see `lsrtm`.

    Return it with what is left of the echoes' norm, before the first and after each iteration.
    """
    change, residuals, whole = np.zeros(weight.shape), [1.0], shots.squared()
    left, slope = whole, weight * shots.back()
    direction, length = slope.copy(), float(np.vdot(slope, slope))
    for iteration in range(1, iterations + 1):
        if not length:
            break  # nothing is left that a change could explain
        squared, along = shots.scatter(weight * direction)
        step = length / squared
        change += step * weight * direction
        left += step * (step * squared - 2 * along)
        residuals.append(math.sqrt(max(left, 0.0) / whole))
        after(change, iteration, residuals[-1])
        if iteration < iterations:
            shots.take(step)
            slope = weight * shots.back()
            before, length = length, float(np.vdot(slope, slope))
            direction = slope + length / before * direction
    return change, tuple(residuals)


class EchoesHere:
    """Shots in memory, computed by this process one after the other."""

    def __init__(self, shots: Sequence[Shot], model: EarthModel, options: dict[str, Any]) -> None:
        self._shots, self._model, self._options = shots, model, options
        self._stepping = {name: options[name] for name in ("parameter", "dt", "order", "dtype") if name in options}
        self._left = [np.asarray(shot.data, np.float64).copy() for shot in shots]
        self._scattered: list[NDArray[np.float64]] = []

    def squared(self) -> float:
        """Return the sum of squares of all echoes."""
        return sum(float(np.vdot(left, left)) for left in self._left)

    def back(self) -> NDArray[np.float64]:
        """Apply the transpose of Born modelling to what is left of the echoes."""
        owed = np.zeros(self._model.grid.shape)
        for shot, left in zip(self._shots, self._left, strict=True):
            owed += scattered_back(shot, self._model, left, **self._options)["velocity"]
        return owed

    def scatter(self, direction: NDArray[np.float64]) -> tuple[float, float]:
        """Model what a change scatters."""
        velocity, dtype = self._model.velocity, self._stepping.get("dtype", np.float32)  # type: ignore[attr-defined]
        bent = beside(direction, velocity, dtype)
        self._scattered = [born(shot, self._model, bent, **self._stepping).astype(np.float64) for shot in self._shots]
        squared = sum(float(np.vdot(own, own)) for own in self._scattered)
        return squared, sum(float(np.vdot(own, left)) for own, left in zip(self._scattered, self._left, strict=True))

    def take(self, step: float) -> None:
        """Take so many times what was scattered last from what is left."""
        self._left = [left - step * own for left, own in zip(self._left, self._scattered, strict=True)]
