"""Least-squares migration: the change of a model whose Born data are the echoes that were heard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.engine.showing import LONG, progress_bar
from forebay.errors import WaveError
from forebay.wave.born import jacobian
from forebay.wave.earth.arrays import beside
from forebay.wave.inversion.light import balance, light_of
from forebay.wave.physics import EarthModel
from forebay.wave.survey.shot import Shot


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
    watch: Callable[[NDArray[np.float64], int, float], None] | None = None,
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
    operator = jacobian(listed, model, parameter=parameter, **options)
    stepping = {name: options[name] for name in ("dt", "order", "dtype") if name in options}
    weight = balance(light_of(listed, model, **stepping)).ravel() if precondition else np.ones(operator.shape[1])
    left = np.concatenate([np.asarray(shot.data, np.float64).ravel() for shot in listed])
    whole = float(np.linalg.norm(left))
    if not whole:
        raise WaveError("data of zeros: there is no echo to explain")
    change, residuals = np.zeros(operator.shape[1]), [1.0]
    slope = weight * operator.rmatvec(left)
    direction, length = slope.copy(), float(slope @ slope)
    with progress_bar("migrating", iterations, LONG + 1, progress) as tick:
        for iteration in range(1, iterations + 1):
            if not length:
                break  # nothing is left that a change could explain
            modelled = operator.matvec(weight * direction)
            step = length / float(modelled @ modelled)
            change += step * weight * direction
            left -= step * modelled
            residuals.append(float(np.linalg.norm(left)) / whole)
            tick()
            if watch is not None:
                watch(change.reshape(model.grid.shape), iteration, residuals[-1])
            if iteration < iterations:
                slope = weight * operator.rmatvec(left)
                before, length = length, float(slope @ slope)
                direction = slope + length / before * direction
    found = beside(change.reshape(model.grid.shape), model.velocity)  # type: ignore[attr-defined]
    return Echoes(found, tuple(residuals))
