"""What an elastic medium is at the points of a staggered grid, and the exact derivative of that.

Normal stresses are at whole points; a velocity lies half a point further along its own axis, a shear stress along both
of its own. Densities are averaged to the velocities; stiffnesses to the shear stresses, harmonically, so that next to a
fluid there is no shear. At a free surface the normal stress across it is zero: the others follow from the strains along
it alone, with moduli that give the stress across no say.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.wave.earth.arrays import computable
from forebay.wave.earth.model import ElasticModel

Array = NDArray[np.float64]
AXES = {2: "zx", 3: "zyx"}
"""The letters of the axes, slowest first."""


def averaged(model: ElasticModel, halo: int, planes: slice | None = None) -> dict[str, Array]:
    """Return the moduli lam and mu at whole points, buoyancies b and stiffnesses m, on the grid of the fields.

    Of some planes, the last one of which then goes on unchanged.
    """
    rho, lam, mu = at_whole_points(model, halo, planes)
    axes, averages = AXES[model.grid.ndim], {}
    for axis, letter in enumerate(axes):
        averages[f"b{letter}"] = 1 / _mean(rho, axis)
    with np.errstate(divide="ignore"):
        softness = 1 / mu
        for first, second in combinations(range(len(axes)), 2):
            averages[f"m{axes[first]}{axes[second]}"] = 1 / _mean(_mean(softness, first), second)
    return {"lam": lam, "mu": mu, **averages}


def at_whole_points(model: ElasticModel, halo: int, planes: slice | None = None) -> tuple[Array, Array, Array]:
    """Return density, lam and mu on the grid of the fields, from which all averages are made; of some planes."""
    rho, lam, mu = _moduli(model, halo, planes)
    if (row := _surface_row(model, halo, planes)) is not None:
        lam = lam.copy()
        lam[row] = _across(lam[row], mu[row])
    return rho, lam, mu


def _surface_row(model: ElasticModel, halo: int, planes: slice | None) -> int | None:
    """Return where the free surface is among some planes of the fields; None where it is not."""
    inside = planes is None or planes.start <= halo < planes.stop
    return halo - (planes.start if planes else 0) if model.grid.free_surface and inside else None


def bulk(lam: Array, mu: Array, ndim: int, at_surface: NDArray[np.bool_]) -> Array:
    """Return the stress, per normal component, that a unit of volume pressed into points takes away.

    Half of it, or a third, is strain along each axis; at a free surface the one across it has no effect.
    """
    return np.where(at_surface, ((ndim - 1) * lam + 2 * mu) / ndim, lam + 2 / ndim * mu)


def stiffest(model: ElasticModel) -> float:
    """Return the largest velocity that the averages make of a medium: a point's modulus over a density beside it."""
    rho, lam, mu = _moduli(model, 0)
    lightest = rho.copy()
    for axis in range(model.grid.ndim):
        beside = np.moveaxis(_mean(rho, axis), axis, 0)
        least = np.moveaxis(lightest, axis, 0)
        np.minimum(least, beside, out=least)
        np.minimum(least[1:], beside[:-1], out=least[1:])
    return float(np.sqrt(np.max((lam + 2 * mu) / lightest)))


def slopes(model: ElasticModel, halo: int, planes: slice, totals: dict[str, Array]) -> dict[str, Array]:
    """Turn derivatives with respect to logarithms of the averages into those with respect to vp, vs and rho.

    `totals` has them for each b and m; for the normal stresses it has the products that `Elastic.add_sensitivity` sums,
    "traces" and "inner", from which the parts that change volume and shape follow. All are of some planes of the
    fields, not yet folded. What is returned is right but for the first plane and the last, unless they are the fields'.
    """
    grid, ndim = model.grid, model.grid.ndim
    axes, medium = AXES[ndim], averaged(model, halo, planes)
    rho, lam, mu = _moduli(model, halo, planes)
    of_rho, of_softness = np.zeros_like(rho), np.zeros_like(rho)
    for axis, letter in enumerate(axes):
        of_rho += _spread(-totals[f"b{letter}"] * medium[f"b{letter}"], axis)
    for first, second in combinations(range(len(axes)), 2):
        name = f"m{axes[first]}{axes[second]}"
        of_softness += _spread(_spread(-totals[name] * medium[name], second), first)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A fluid's stiffness has no first-order effect through the shear velocity, which is all that moves it.
        of_mu = np.where(mu > 0, -of_softness / mu**2, 0.0)
        volume = totals["traces"] / ndim
        shape = np.where(mu > 0, (totals["inner"] - volume) / mu, 0.0)
        volume = volume / (lam + 2 / ndim * mu)
    of_lam, of_mu = volume, of_mu + shape + 2 / ndim * volume
    if (row := _surface_row(model, halo, planes)) is not None:
        of_mu[row] -= shape[row] + 2 / ndim * volume[row]  # once more, along the surface only
        of_lam[row], more = _surface_slopes(totals, lam[row], mu[row], ndim, row)
        of_mu[row] += more
    vp, vs = (grid.extend(values, halo, planes).astype(np.float64) for values in model.arrays[:2])
    return {
        "vp": 2 * rho * vp * of_lam,
        "vs": 2 * rho * vs * (of_mu - 2 * of_lam),
        "rho": of_rho + (vp**2 - 2 * vs**2) * of_lam + vs**2 * of_mu,
    }


def parts(model: ElasticModel, halo: int, change: Mapping[str, Any]) -> dict[str, Array]:
    """Return by which parts the averages change with a small change of vp, vs and rho: the transpose of `slopes`.

    "trace" and "same" are for normal stresses: by how much their sum and each itself add to it, see `_normal_parts`.
    """
    grid, axes = model.grid, AXES[model.grid.ndim]
    rho, lam, mu = _moduli(model, halo)
    vp, vs = (grid.extend(values, halo).astype(np.float64) for values in model.arrays[:2])
    of_arrays = {
        name: grid.extend(computable(values, "a change"), halo).astype(np.float64) for name, values in change.items()
    }
    of_vp, of_vs, of_rho = (of_arrays.get(name, np.zeros_like(rho)) for name in ("vp", "vs", "rho"))
    of_mu = of_rho * vs**2 + 2 * rho * vs * of_vs
    of_lam = of_rho * vp**2 + 2 * rho * vp * of_vp - 2 * of_mu
    shares = {f"b{letter}": -_mean(of_rho, axis) / _mean(rho, axis) for axis, letter in enumerate(axes)}
    with np.errstate(divide="ignore", invalid="ignore"):
        softness, softer = 1 / mu, np.where(mu > 0, of_mu / mu**2, 0.0)
        for first, second in combinations(range(len(axes)), 2):
            stiffness = 1 / _mean(_mean(softness, first), second)
            shares[f"m{axes[first]}{axes[second]}"] = stiffness * _mean(_mean(softer, first), second)
    shares["trace"], shares["same"] = _normal_parts(lam, mu, of_lam, of_mu, grid.ndim)
    if (row := _surface_row(model, halo, None)) is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            across = 4 * mu[row] ** 2 * of_lam[row] + 2 * lam[row] ** 2 * of_mu[row]
            across = np.where(mu[row] > 0, across / (lam[row] + 2 * mu[row]) ** 2, 0.0)
        along = _normal_parts(_across(lam[row], mu[row]), mu[row], across, of_mu[row], grid.ndim - 1)
        shares["trace"][row], shares["same"][row] = along
    return shares


def _normal_parts(lam: Array, mu: Array, of_lam: Array, of_mu: Array, ndim: int) -> tuple[Array, Array]:
    """Return what a change of moduli makes of normal stresses, times their sum and times each of them.

    From stresses t = lam e + 2 mu e_i follow the sum of strains, e = sum(t) / (n lam + 2 mu), and each, by 2 e_i =
    (t - lam e) / mu.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        same = np.where(mu > 0, of_mu / mu, 0.0)  # a fluid stays one, to first order
        whole = ndim * lam + 2 * mu
        return np.where(whole > 0, (of_lam - same * lam) / whole, 0.0), same


def _surface_slopes(totals: dict[str, Array], lam: Array, mu: Array, ndim: int, row: int) -> tuple[Array, Array]:
    """Return the derivatives with respect to lam and mu of the stresses along a free surface."""
    along, across = _across(lam, mu), np.where(mu > 0, (lam + 2 * mu) ** 2, np.inf)
    volume = totals["traces"][row] / (ndim - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.where(mu > 0, (totals["inner"][row] - volume) / mu, 0.0)
        volume = np.where(mu > 0, volume / (along + 2 / (ndim - 1) * mu), 0.0)
    return 4 * mu**2 / across * volume, shape + (2 / (ndim - 1) + 2 * lam**2 / across) * volume


def _moduli(model: ElasticModel, halo: int, planes: slice | None = None) -> tuple[Array, Array, Array]:
    """Return rho, lam and mu on the grid of the fields, or on that of the model where there is no halo."""
    arrays, extend = model.arrays, model.grid.extend
    if halo:
        arrays = tuple(extend(values, halo, planes) for values in arrays)  # type: ignore[assignment]
    vp, vs, rho = (values.astype(np.float64) for values in arrays)  # on a GPU too
    return rho, rho * (vp**2 - 2 * vs**2), rho * vs**2


def _across(lam: Array, mu: Array) -> Array:
    """Return the modulus that takes the place of lam where the normal stress across a surface is zero."""
    with np.errstate(invalid="ignore"):
        return np.where(mu > 0, 2 * lam * mu / (lam + 2 * mu), 0.0)


def _mean(values: Array, axis: int) -> Array:
    """Average each point and the next along an axis; after the last one it goes on unchanged."""
    moved = np.moveaxis(values, axis, 0)
    after = np.concatenate([moved[1:], moved[-1:]])
    return np.moveaxis((moved + after) / 2, 0, axis)


def _spread(values: Array, axis: int) -> Array:
    """Share each average between its two points: the transpose of `_mean`."""
    moved = np.moveaxis(values, axis, 0) / 2
    shared = moved.copy()
    shared[1:] += moved[:-1]
    shared[-1] += moved[-1]
    return np.moveaxis(shared, 0, axis)
