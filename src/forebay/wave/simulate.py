"""Modelling a shot: what its receivers hear in a model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.units import Budget
from forebay.wave.loop import Loop, pairs, prepare
from forebay.wave.paged.door import within
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
    budget: Budget | str | int | None = None,
    directory: Path | str | None = None,
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
    budget: Budget | str | int | None = None,
    directory: Path | str | None = None,
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
    budget
        Bytes that the fields of a shot in an acoustic model of three dimensions may take where they are computed: a
        device's, or the host's where no device is named. Fields that are larger are paged, from the host's memory or
        from a disk, which the budget then names too; a `WaveWarning` tells what that costs, and `fit_fields` before.
        Data are the same, bit for bit.
    directory
        Where fields on a disk are kept, in files without names; as for `forebay.reverse`.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker
    >>> model = AcousticModel(np.full((60, 81), 2000.0), Grid((60, 81), spacing=10.0))
    >>> shot = Shot((50, 400), [(50, 200), (50, 600)], ricker(15, 0.004, 100), dt=0.004)
    >>> data = simulate(shot, model)
    >>> data.shape, bool(np.allclose(data[:, 0], data[:, 1], atol=1e-6 * abs(data).max()))
    ((100, 2), True)
    """
    if budget is None:
        return _heard(prepare(shot, model, dt, order, dtype), shot, model, watch)
    if not isinstance(shot, Shot):
        raise WaveError("budget= is for a shot alone: give shots one by one, or leave it out")
    with within(model, budget, order, dtype, directory, None if watch is None else 1) as (own, paging):
        return _heard(prepare(shot, own, dt, order, dtype, paging=paging), shot, own, watch)


def _heard(
    loop: Loop, shot: Shot | Sequence[Shot], model: EarthModel | Sequence[EarthModel], watch: Watcher | None
) -> NDArray[Any] | list[NDArray[Any]]:
    """Run a loop, and return what was heard."""
    state = loop.propagator.zeros()
    if watch is None:
        loop.forward(state, 0, loop.steps)
    else:
        for step in range(loop.steps):
            watch(loop.pressure(state), step)
            state = loop.forward(state, step, step + 1)
    return loop.data() if isinstance(shot, Shot) else apart(loop.data(), pairs(shot, model)[0])
