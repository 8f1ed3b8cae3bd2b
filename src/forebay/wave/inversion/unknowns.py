"""The unknowns of an inversion: a model's values as one vector, in which equal steps do about as much everywhere.

With y the vector, b what balances the light that the sources cast (see `light`), and S a smoothing, the values are

    v = v_start + a m S b y

kept between bounds, where m leaves out what is fixed. S is its own transpose, so the derivative goes the same way back.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError, needs
from forebay.wave.earth.arrays import beside, on_host
from forebay.wave.earth.tilted import ANGLES
from forebay.wave.inversion.light import balance
from forebay.wave.visco.solid import speeds

FIRST = 0.02
"""By which part of the values the first step may change them at most."""
DENSITIES = ("rho", "density")
"""Names of arrays that make no wave too short for a grid."""
ANISOTROPIES = ("epsilon", "delta")
"""Names of arrays that are ratios of any sign, 0 where there is nothing to tell."""
LOSSES = ("attenuation",)
"""Names of arrays that are ratios from 0 to below 1, 0 where nothing is lost."""
RATIOS = (*ANISOTROPIES, *LOSSES)
SETTINGS = ("frequency",)
"""Names of numbers that waves follow from beside arrays, grid and largest velocity."""

Arrays = dict[str, NDArray[np.float64]]


class Unknowns:
    """Values of a model on the host, in double precision, and the vector that they are a function of."""

    def __init__(
        self,
        model: Any,
        bounds: Mapping[str, tuple[float, float]],
        fixed: NDArray[np.bool_] | None,
        smooth: float,
        light: NDArray[np.float64] | None,
    ) -> None:
        self._model, self._bounds, self._smooth = model, bounds, smooth
        self._start = arrays_of(model)
        free = np.ones(model.grid.shape, bool) if fixed is None else ~fixed
        self._free = {  # a fluid stays one
            name: free & ((values > 0) | (name in RATIOS)) for name, values in self._start.items()
        }
        weight = np.ones(model.grid.shape) if light is None else balance(light)
        self._sizes = {  # a part of the velocity changes phases about as much as so many ratios do, or amplitudes
            name: 1.0 if name in RATIOS else float(values.max()) or 1.0 for name, values in self._start.items()
        }
        self._weights = {name: weight * size for name, size in self._sizes.items()}
        self._factor = 1.0
        self.size = len(self._start) * weight.size

    def scale(self, owed: Arrays) -> float:
        """Have the first step of a search change no value by more than `FIRST`; return what its misfit is divided by.

        `owed` is the derivative of the misfit where the search starts. A search whose first step is the negative slope,
        or that divided by its length, goes as far: the slope has length one.
        """
        slope = self.slope(np.zeros(self.size), owed)
        length = float(np.linalg.norm(slope))
        if not length:
            return 1.0
        step = self._step(slope / length)
        self._factor = FIRST / max(np.abs(step[name]).max() / size for name, size in self._sizes.items())
        return length * self._factor

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the bounds of the vector's elements; None where a smoothing ties them together."""
        if self._smooth:
            return None
        low, high = [], []
        for name, start in self._start.items():
            step = self._factor * self._weights[name]
            least, most = self._bounds[name]
            low.append((self._free[name] * (least - start) / step).ravel())
            high.append((self._free[name] * (most - start) / step).ravel())
        return np.concatenate(low), np.concatenate(high)

    def model_at(self, vector: NDArray[np.float64]) -> Any:
        """Return the model of a vector, its arrays where the first model's are."""
        values = self._values(vector)
        within = {name: np.clip(values[name], *self._bounds[name]) for name in values}
        kept = {name: np.where(self._free[name], within[name], start) for name, start in self._start.items()}
        if "epsilon" in kept:
            kept["epsilon"] = np.maximum(kept["epsilon"], kept["delta"])  # below it waves would grow without end
        return with_arrays(self._model, kept)

    def slope(self, vector: NDArray[np.float64], owed: Arrays) -> NDArray[np.float64]:
        """Return the derivative with respect to the vector, of one with respect to the values."""
        values = self._values(vector)
        parts = []
        if "epsilon" in owed:
            epsilon, delta = (np.clip(values[name], *self._bounds[name]) for name in ANISOTROPIES)
            lifted = epsilon < delta
            lifted_owed = {"epsilon": owed["epsilon"] * ~lifted, "delta": owed["delta"] + owed["epsilon"] * lifted}
            owed = {**owed, **lifted_owed}
        for name, own in owed.items():
            least, most = self._bounds[name]
            counts = own * self._free[name] * ((values[name] >= least) & (values[name] <= most))
            parts.append((self._factor * self._weights[name] * self._smoothed(counts)).ravel())
        return np.concatenate(parts)

    def _values(self, vector: NDArray[np.float64]) -> Arrays:
        """Return values that bounds have not yet cut off."""
        step = self._step(vector)
        values = {name: start + step[name] for name, start in self._start.items()}
        near = {name: np.clip(own, *self._bounds[name]) for name, own in values.items()}
        # By rounding alone none is beyond a bound that the vector has reached.
        return {
            name: np.where(abs(own - near[name]) < 1e-9 * abs(near[name]), near[name], own)
            for name, own in values.items()
        }

    def _step(self, vector: NDArray[np.float64]) -> Arrays:
        shape = self._model.grid.shape
        parts = np.split(vector, len(self._start))
        return {
            name: self._free[name] * self._smoothed(self._factor * self._weights[name] * part.reshape(shape))
            for name, part in zip(self._start, parts, strict=True)
        }

    def _smoothed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self._smooth:
            return values
        try:
            from scipy.ndimage import gaussian_filter
        except ImportError as error:
            raise WaveError(needs("smoothing an update", "scipy", "wave")) from error
        widths = [self._smooth / spacing for spacing in self._model.grid.spacing]
        return np.asarray(gaussian_filter(values, widths, mode="reflect"))  # which alone is its own transpose


def names_of(model: Any) -> list[str]:
    """Return the names of a model's arrays that derivatives are taken of: the axis of a `TTIModel` is known."""
    return [name for name in told_by(model) if name not in ANGLES]


def told_by(model: Any) -> list[str]:
    """Return the names of all arrays that a model, or one of its kind, may be told by."""
    return [each.name for each in fields(model) if each.name not in ("grid", "max_vel", *SETTINGS)]


def settings_of(model: Any) -> dict[str, Any]:
    """Return the numbers that waves follow from beside a model's arrays, grid and largest velocity, by name."""
    return {each.name: getattr(model, each.name) for each in fields(model) if each.name in SETTINGS}


def angles_of(model: Any) -> dict[str, NDArray[Any]]:
    """Return the angles of a model's axis, if it has one, on the host."""
    told = {name: getattr(model, name) for name in told_by(model) if name in ANGLES}
    return {name: on_host(values) for name, values in told.items() if values is not None}


def arrays_of(model: Any) -> Arrays:
    """Return a model's arrays on the host, in double precision."""
    return {name: on_host(getattr(model, name)).astype(np.float64) for name in names_of(model)}


def with_arrays(model: Any, values: Mapping[str, NDArray[np.float64]]) -> Any:
    """Return a model with other values in arrays of the same kind, which lie where the old ones do."""
    return replace(model, **{name: beside(own, getattr(model, name)) for name, own in values.items()})


def bounds_of(model: Any, bounds: Any, slowest: float) -> dict[str, tuple[float, float]]:
    """Return bounds for each array of a model: as given, or from half its smallest value to 1.5 times its largest.

    Unless given, those of ratios are their smallest and largest value. Where waves are slower than the `slowest`, they
    are too short for the grid.
    """
    arrays = arrays_of(model)
    given = {} if bounds is None else bounds if isinstance(bounds, Mapping) else {next(iter(arrays)): bounds}
    for name in given:
        if name not in arrays:
            raise WaveError(f"bounds of {name!r}: this model has {', '.join(map(repr, arrays))}")
    given = {name: _pair_of(name, pair) for name, pair in given.items()}
    for name in arrays.keys() & LOSSES:  # where the slowest waves are slower than the velocity
        slowest /= float(speeds(given[name][1] if name in given else arrays[name].max())[0])
    found = {}
    for name, values in arrays.items():
        if name in RATIOS:
            found[name] = float(values.min()), float(values.max())
            continue
        moves = values[values > 0]
        least = 0.5 * float(moves.min()) if len(moves) else 0.0
        if name not in DENSITIES:
            least = max(least, slowest)
        found[name] = min(least, float(moves.min(initial=np.inf))), 1.5 * float(values.max())
    for name, (least, most) in given.items():
        moves = arrays[name][(arrays[name] > 0) | (name in RATIOS)]
        if not least <= moves.min(initial=least) <= moves.max(initial=least) <= most < float("inf"):
            raise WaveError(
                f"bounds of {name} from {least:.6g} to {most:.6g}, where the model has {moves.min():.6g} to "
                f"{moves.max():.6g}: give bounds that hold the model from which the inversion begins"
            )
        if name not in (*DENSITIES, *RATIOS) and 0 < least < slowest * (1 - 1e-9):
            raise WaveError(
                f"{name} of {least:.6g} m/s makes waves that are too short for a spacing of "
                f"{max(model.grid.spacing):.6g} m: give bounds from {math.ceil(slowest)} m/s on, lower frequencies, or "
                "a finer grid"
            )
        found[name] = least, most
    return found


def _pair_of(name: str, pair: Any) -> tuple[float, float]:
    """Return bounds of an array as numbers; refuse what is no pair, and what no attenuation can be."""
    try:
        least, most = map(float, pair)
    except (TypeError, ValueError, OverflowError):
        raise WaveError(f"bounds of {name}: {pair!r} is no pair: give the least and the largest value") from None
    if name in LOSSES and not 0 <= least <= most < 1:
        raise WaveError(f"bounds of {name} from {least:.6g} to {most:.6g}: give some from 0 to below 1")
    return least, most


def fastest_of(limits: Mapping[str, tuple[float, float]]) -> float:
    """Return the velocity that no wave exceeds in models within bounds, whose first array is one."""
    most = next(iter(limits.values()))[1]
    for name in limits.keys() & LOSSES:
        most *= float(speeds(limits[name][1])[1])
    return most * math.sqrt(1 + 2 * max([0.0, *(limits[name][1] for name in ANISOTROPIES if name in limits)]))
