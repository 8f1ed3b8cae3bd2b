"""Modelling a shot: what its receivers hear in a model."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from forebay.wave.loop import pairs, prepare
from forebay.wave.physics import EarthModel
from forebay.wave.survey.batch import apart
from forebay.wave.survey.shot import Shot

Watcher = Callable[[NDArray[Any], int], None]


@overload
def simulate(
    shot: Shot,
    model: EarthModel,
    *,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    watch: Watcher | None = None,
) -> NDArray[Any]: ...


@overload
def simulate(
    shot: Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    *,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    watch: Watcher | None = None,
) -> list[NDArray[Any]]: ...


def simulate(
    shot: Shot | Sequence[Shot],
    model: EarthModel | Sequence[EarthModel],
    *,
    dt: float | None = None,
    order: int = 8,
    dtype: Any = np.float32,
    watch: Watcher | None = None,
) -> NDArray[Any] | list[NDArray[Any]]:
    """Compute what the receivers of a shot hear: one row per sample of its wavelet, one column per receiver.

    Parameters
    ----------
    shot
        Sources, wavelet, receivers; its data are not looked at. Several shots in two dimensions may be given at once:
        they advance together, which fills a GPU, and each has the data that it would have alone.
    model
        What the waves travel through; of several shots one for all, or one for each, of the same shape and spacing.
    dt
        Seconds per step; unless told, the shot's sampling, or a whole part of it that is stable and fine enough.
    order
        Of the stencil in space: any even number.
    dtype
        float32 or float64.
    watch
        ``watch(pressure, step)`` sees the pressure inside the model before every step; that of several shots has an
        axis for them before the others.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker
    >>> model = AcousticModel(np.full((60, 81), 2000.0), Grid((60, 81), spacing=10.0))
    >>> shot = Shot((50, 400), [(50, 200), (50, 600)], ricker(15, 0.004, 100), dt=0.004)
    >>> data = simulate(shot, model)
    >>> data.shape, bool(np.allclose(data[:, 0], data[:, 1], atol=1e-6 * abs(data).max()))
    ((100, 2), True)
    """
    loop = prepare(shot, model, dt, order, dtype)
    state = loop.propagator.zeros()
    if watch is None:
        loop.forward(state, 0, loop.steps)
    else:
        for step in range(loop.steps):
            watch(loop.pressure(state), step)
            state = loop.forward(state, step, step + 1)
    return loop.data() if isinstance(shot, Shot) else apart(loop.data(), pairs(shot, model)[0])
