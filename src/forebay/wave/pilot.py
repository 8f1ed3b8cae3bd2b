"""Pilots: a shot that is migrated with an exact history tells which bound keeps its picture within an error."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import on_host
from forebay.wave.imaging import laplacian_filter, normalise
from forebay.wave.migrate import Migration, migrate
from forebay.wave.physics import EarthModel
from forebay.wave.survey.shot import Shot

LADDER = (0.1, 0.01, 0.001)
"""Of the image error: the bounds that a pilot tries, all in one passage. A picture is wrong by 10 to 150 times them."""
SHARE = 0.7
"""Of the image error: what a bound is chosen for, so that shots may differ."""
TIGHTEST = 1e-7
"""Of the range: what float32 tells apart."""

Picture = Callable[[Any, Any], NDArray[Any]]
"""``picture(image, illumination)`` makes what is looked at of both."""


@dataclass(frozen=True)
class TriedBound:
    """What a bound, relative to the range of each record, does to the picture of a shot."""

    bound: float
    error: float
    """of the picture, see `picture_error`"""
    ratio: float
    """how many times smaller the records are, all in all"""


@dataclass(frozen=True, eq=False)
class FoundBound:
    """The bound that a pilot found, and what it was found by."""

    codec: str | None
    """for `migrate`, as in "bounded:0.00041"; None where no bound is loose enough to be of use"""
    tried: list[TriedBound]
    exact: Migration
    """of the shot, with an exact history"""


def read_share(value: Any) -> float:
    """Return a share from a number such as 0.01, or from a text such as "1%"; refuse what no bound can keep.

    Examples
    --------
    >>> read_share("1%"), read_share("0.5 %"), read_share(0.01)
    (0.01, 0.005, 0.01)
    """
    try:
        text = str(value).strip()
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if isinstance(value, bool) or not TIGHTEST <= share < 1:
        raise WaveError(f"an image error of {value!r}: give a share between 1e-7 and 1, such as 0.01, or '1%'")
    return share


def picture_error(picture: Any, exact: Any) -> float:
    """Return how far a picture is from the exact one: the 2-norm of their difference over that of the exact one.

    Examples
    --------
    >>> picture_error(np.array([3.0, 4.5]), np.array([3.0, 4.0]))
    0.1
    """
    picture, exact = on_host(picture), on_host(exact)
    scale = float(np.abs(exact).max(initial=0.0)) or 1.0  # squares of small values vanish
    difference = (np.asarray(picture, np.float64) - exact) / scale
    size = float(np.linalg.norm(np.asarray(exact, np.float64) / scale))
    return float(np.linalg.norm(difference)) / size if size else math.inf


def find_bound(
    shot: Shot, model: EarthModel, image_error: float | str, picture: Picture | None = None, **migration: Any
) -> FoundBound:
    """Find the loosest bound on the history of a shot that keeps its picture within an error.

    The shot is migrated once, with an exact history. Its records are encoded with several bounds on the way, each of
    which has its part in an image of its own. Errors of pictures are proportional to bounds, so the bound in between is
    told. It is chosen for 0.7 of the error, and holds for shots like this one.

    Parameters
    ----------
    shot, model
        As for `migrate`.
    image_error
        How far the picture may be from the exact one, see `picture_error`: 0.01 or "1%".
    picture
        Makes the picture from image and illumination; unless told, as `Migration.clean` does.
    **migration
        For `migrate`: `dt`, `order`, `every`, `budget`, ...

    Examples
    --------
    >>> from forebay.wave import AcousticModel, Grid, ricker, simulate
    >>> true, smooth = np.full((60, 80), 2000.0), np.full((60, 80), 2000.0)
    >>> true[40:] = 2500.0
    >>> grid = Grid((60, 80), spacing=10.0, absorb=20)
    >>> shot = Shot((50, 400), [(50, x) for x in range(0, 800, 20)], ricker(15, 0.004, 150), dt=0.004)
    >>> echo = simulate(shot, AcousticModel(true, grid)) - simulate(shot, AcousticModel(smooth, grid))
    >>> shot, model = shot.with_data(echo), AcousticModel(smooth, grid)
    >>> found = find_bound(shot, model, "1%", budget="2MB")
    >>> lossy = migrate(shot, model, budget="2MB", codec=found.codec, encode_states=False)
    >>> picture_error(lossy.clean(), found.exact.clean()) <= 0.01
    True
    """
    allowed = read_share(image_error)
    if given := [name for name in ("codec", "plan", "compare") if migration.get(name) is not None]:
        raise WaveError(f"{given[0]}= beside image_error: the history is kept exactly here, so leave it out")
    exact, tried = try_bounds(shot, model, [allowed * rung for rung in LADDER], picture, **migration)
    bound = chosen_bound(tried, SHARE * allowed)
    return FoundBound(None if bound is None else codec_name(bound), tried, exact)


def try_bounds(
    shot: Shot, model: EarthModel, bounds: Sequence[float], picture: Picture | None = None, **migration: Any
) -> tuple[Migration, list[TriedBound]]:
    """Migrate a shot with an exact history, and tell what each bound does to its picture."""
    exact = migrate(shot, model, compare=[codec_name(bound) for bound in bounds], **migration)
    picture = picture or (lambda image, illumination: laplacian_filter(normalise(image, illumination), exact.grid))
    whole = picture(exact.image, exact.illumination)
    tried = []
    for bound in bounds:
        lossy = exact.compared[codec_name(bound)]
        tried.append(TriedBound(bound, picture_error(picture(lossy.image, lossy.illumination), whole), lossy.ratio))
    return exact, tried


def chosen_bound(tried: Sequence[TriedBound], allowed: float) -> float | None:
    """Return the bound that an error belongs to, in two digits, or None where it would be too tight to be of use.

    Between two that were tried it lies on the line through both, in logarithms. Beyond them errors are proportional to
    bounds, and no bound is taken that is ten times as loose as any that was tried.

    Examples
    --------
    >>> chosen_bound([TriedBound(1e-3, 0.1, 11.0), TriedBound(1e-4, 0.01, 7.0)], 0.0407)
    0.0004
    """
    rungs = sorted((math.log10(rung.bound), math.log10(max(rung.error, 1e-300))) for rung in tried)
    aim = math.log10(allowed)
    # The first that errs too much, and the one before it: a looser one that happens to err less is not believed.
    after = next((number for number, rung in enumerate(rungs) if rung[1] > aim), len(rungs))
    if 0 < after < len(rungs):
        (low, least), (high, most) = rungs[after - 1], rungs[after]
        power = low + (high - low) * (aim - least) / (most - least)
    else:
        nearest, error = rungs[0] if after == 0 else rungs[-1]
        power = nearest + min(aim - error, 1.0)
    bound = 10**power
    if bound < TIGHTEST:
        return None
    digits = 10.0 ** (math.floor(power) - 1)
    return float(f"{math.floor(bound / digits * (1 + 1e-9)) * digits:.1e}")


def codec_name(bound: float) -> str:
    """Return the name of the codec that keeps a bound."""
    return f"bounded:{bound:g}"
