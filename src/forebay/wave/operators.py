"""Modelling as linear operators, F of what sources send and J of a change of the model, whose transposes are exact.

They are operators of SciPy, so that its solvers invert them, and PyLops and others compose them with their own.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, needs
from forebay.wave.born import born, check_scattering, scattered_back
from forebay.wave.earth.arrays import beside
from forebay.wave.inversion.unknowns import names_of
from forebay.wave.loop import Adjoint, Loop, prepare
from forebay.wave.physics import EarthModel
from forebay.wave.survey.shot import Shot

Flat = NDArray[np.float64]


def modelling(
    shots: Shot | Sequence[Shot], model: EarthModel, *, dt: float | None = None, order: int = 8, dtype: Any = np.float32
) -> Any:
    """Return modelling of shots as a `scipy.sparse.linalg.LinearOperator` of their wavelets, whose adjoint is exact.

    It takes the wavelets of all shots one after the other, each of its `wavelet`'s shape, and gives their data
    likewise; both are flat arrays of the host. The transpose sends data back from the receivers, and hears them at the
    sources.

    Parameters
    ----------
    shots, model
        As for `simulate`, of any physics. Steps in time are those that the shots' own wavelets ask for, whose band
        others should not leave.
    dt, order, dtype
        As for `simulate`.

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker, simulate
    >>> model = AcousticModel(np.full((30, 41), 2000.0), Grid((30, 41), spacing=10.0))
    >>> shot = Shot((50, 200), [(50, 100), (50, 300)], ricker(15, 0.004, 100), dt=0.004)
    >>> F = modelling(shot, model, dtype=np.float64)
    >>> bool(np.array_equal(F @ shot.wavelet, simulate(shot, model, dtype=np.float64).ravel()))
    True
    >>> rng = np.random.default_rng(0)
    >>> wavelet, data = rng.standard_normal(F.shape[1]), rng.standard_normal(F.shape[0])
    >>> bool(np.isclose(data @ (F @ wavelet), (F.T @ data) @ wavelet, rtol=1e-10))
    True
    """
    listed = _listed(shots, model)
    sent, heard = [shot.wavelet.shape for shot in listed], [(shot.samples, len(shot.receivers)) for shot in listed]

    def forward(wavelets: Flat) -> Flat:
        return joined(
            [
                _sending(prepare(shot, model, dt, order, dtype), own)
                for shot, own in zip(listed, parted(wavelets, sent), strict=True)
            ]
        )

    def back(data: Flat) -> Flat:
        return joined(
            [
                _sent_back(prepare(shot, model, dt, order, dtype, listens=False), own)
                for shot, own in zip(listed, parted(data, heard), strict=True)
            ]
        )

    return operator(forward, back, (sum(map(math.prod, heard)), sum(map(math.prod, sent))))


def _sending(loop: Loop, wavelet: NDArray[Any]) -> NDArray[Any]:
    """Return what receivers hear of another wavelet."""
    loop.sent = loop.impulses(wavelet)
    loop.forward(loop.propagator.zeros(), 0, loop.steps)
    return loop.data()


def _sent_back(loop: Loop, data: NDArray[Any]) -> NDArray[Any]:
    """Return what sources hear of data that receivers send back, in the wavelet's shape."""
    owed = loop.impulses_transposed(Adjoint(loop, data).at_sources())
    return owed if loop.shot.wavelet.ndim == 2 else owed.sum(axis=1)


def jacobian(shots: Shot | Sequence[Shot], model: EarthModel, *, parameter: str = "velocity", **options: Any) -> Any:
    """Return Born modelling of shots as a `scipy.sparse.linalg.LinearOperator`, whose adjoint is exact.

    It takes a change of the model, of an elastic one those of vp, vs and rho one after the other, and gives the data of
    all shots likewise; both are flat arrays of the host. So SciPy's solvers invert it, and PyLops and others compose it
    with operators of their own.

    Parameters
    ----------
    shots, model, parameter
        As for `born`.
    **options
        `dt`, `order` and `dtype` as for `simulate`, and for the adjoint what `forebay.reverse` takes: `budget`,
        `codec`, ...

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker
    >>> model = AcousticModel(np.full((30, 41), 2000.0), Grid((30, 41), spacing=10.0))
    >>> shot = Shot((50, 200), [(50, 100), (50, 300)], ricker(15, 0.004, 100), dt=0.004)
    >>> J = jacobian(shot, model, budget="8MB", dtype=np.float64)
    >>> rng = np.random.default_rng(0)
    >>> change, data = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
    >>> bool(np.isclose(data @ (J @ change), (J.T @ data) @ change, rtol=1e-10))
    True
    """
    listed = _listed(shots, model)
    check_scattering(model, parameter)
    stepping = {name: options.pop(name) for name in ("dt", "order", "dtype") if name in options}
    heard = [(shot.samples, len(shot.receivers)) for shot in listed]
    names, dtype = names_of(model), np.dtype(stepping.get("dtype", np.float32))
    shapes = [model.grid.shape] * len(names)

    def forward(change: Flat) -> Flat:
        changes = {
            name: beside(own, getattr(model, name), dtype)
            for name, own in zip(names, parted(change, shapes), strict=True)
        }
        change_of_all = changes if len(names) > 1 else changes[names[0]]
        return joined([born(shot, model, change_of_all, parameter=parameter, **stepping) for shot in listed])

    def back(data: Flat) -> Flat:
        owed = np.zeros(sum(map(math.prod, shapes)))
        for shot, own in zip(listed, parted(data, heard), strict=True):
            slopes = scattered_back(shot, model, own, parameter=parameter, **stepping, **options)
            owed += joined([slopes[name] for name in names])
        return owed

    return operator(forward, back, (sum(map(math.prod, heard)), sum(map(math.prod, shapes))))


def _listed(shots: Shot | Sequence[Shot], model: EarthModel) -> list[Shot]:
    """Return shots, be it one or several; refuse none, and a model for each of them."""
    if isinstance(model, Sequence):
        raise WaveError("several models: an operator is of one, so give one model for all shots")
    listed = [shots] if isinstance(shots, Shot) else list(shots)
    if not listed:
        raise WaveError("no shots: give those that an operator is of")
    return listed


def operator(forward: Callable[[Flat], Flat], back: Callable[[Flat], Flat], shape: tuple[int, int]) -> Any:
    """Return an operator of SciPy."""
    try:
        from scipy.sparse.linalg import LinearOperator
    except ImportError as error:
        raise WaveError(needs("an operator", "scipy", "wave")) from error
    return LinearOperator(shape, matvec=forward, rmatvec=back, dtype=np.float64)


def joined(arrays: Sequence[NDArray[Any]]) -> Flat:
    """Return arrays one after the other, flat."""
    return np.concatenate([values.ravel() for values in arrays]).astype(np.float64)


def parted(flat: Flat, shapes: Sequence[tuple[int, ...]]) -> list[Flat]:
    """Return the arrays of some shapes that were joined."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [own.reshape(shape) for own, shape in zip(np.split(flat.ravel(), ends[:-1]), shapes, strict=True)]
