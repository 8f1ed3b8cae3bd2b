"""Gathers of images: what each distance from the source adds to an image, by which velocities are judged.

A shot sees a reflector at many angles, one for each distance of the reflector's point from the source, and other shots
see the same point from elsewhere. So images of single shots, sorted by that distance instead of added up, show at each
point of the surface the same ground from all sides: where the velocity is right, at one depth; where it is too low, at
depths that get smaller with the distance, and where it is too high, larger. Shots are migrated one by one, those of two
dimensions on a GPU too, where `migrate` takes several together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import beside, computable, returned
from forebay.wave.earth.grid import Grid
from forebay.wave.imaging import normalise, scattered
from forebay.wave.migrate import migrate
from forebay.wave.physics import EarthModel
from forebay.wave.survey.shot import Shot


@dataclass(frozen=True, eq=False)
class ImageGathers:
    """Images of shots by the distance from their sources; arrays are where the model's are, of the same library."""

    images: Any
    """first along distances, then as the model; their sum is the image of all shots within the last distance"""
    illuminations: Any
    """likewise"""
    scattered: Any
    """likewise, of the images after half a negative Laplacian, which is taken before they are shared out"""
    distances: NDArray[np.float64]
    """metres along the surface from a source"""
    grid: Grid

    def clean(self) -> Any:
        """Return the gathers of the inverse-scattering condition, each distance divided by its own light."""
        even = computable(self.scattered, "images").copy()
        for number, light in enumerate(computable(self.illuminations, "illuminations")):
            even[number] = normalise(even[number], light)
        return returned(even, self.images)


def gathers(
    shots: Shot | Sequence[Shot], model: EarthModel, distances: Sequence[float], **options: Any
) -> ImageGathers:
    """Migrate shots one after the other, and sort their images by the distance of each point from the source.

    Parameters
    ----------
    shots
        With their data, as for `migrate`.
    model
        What the waves travel through.
    distances
        Metres along the surface, ascending. A point between two of them is shared by both in proportion; those farther
        off than the last fade out over as much as it is from the one before. Of sources of several points their mean
        counts. In flat ground a reflector at a depth z is seen at the angle whose tangent is the distance over z, by
        receivers twice as far from the source.
    **options
        As for `migrate`: `zero_phase`, `images`, of which the first is gathered, `budget`, `codec`, ...

    Examples
    --------
    >>> from forebay.wave import AcousticModel, ricker, simulate
    >>> grid = Grid((60, 80), spacing=10.0, absorb=20)
    >>> true, smooth = np.full((60, 80), 2000.0), np.full((60, 80), 2000.0)
    >>> true[40:] = 2500.0
    >>> shots = [Shot((50, x), [(50, y) for y in range(0, 800, 20)], ricker(15, 0.004, 150), 0.004) for x in (200, 500)]
    >>> before, after = (AcousticModel(values, grid, max_vel=2500.0) for values in (smooth, true))
    >>> shots = [shot.with_data(simulate(shot, after) - simulate(shot, before)) for shot in shots]
    >>> found = gathers(shots, before, [0.0, 100.0, 200.0], zero_phase=True, budget="2MB")
    >>> [bool(abs(image[20:, 30].argmax() + 20 - 40) <= 1) for image in found.clean()[1:]]
    [True, True]
    """
    places = np.asarray(distances, np.float64)
    if places.ndim != 1 or len(places) < 2 or not (np.all(np.diff(places) > 0) and np.isfinite(places).all()):
        raise WaveError(f"distances={distances!r}: give two or more, in metres, each above the one before")
    listed = [shots] if isinstance(shots, Shot) else list(shots)
    if not listed or any(shot.data is None for shot in listed):
        raise WaveError("no shots, or one without data: add what its receivers heard with shot.with_data(...)")
    sums: list[Any] = []
    like = None
    for shot in listed:
        migration = migrate(shot, model, **options)
        # The Laplacian comes first: that of a share would make stripes of the shade where shares bend.
        filtered = scattered(migration.image, model.grid)
        image, light, echoes = (
            computable(values, "an image") for values in (migration.image, migration.illumination, filtered)
        )
        if not sums:
            sums, like = [_nothing(image, len(places)) for _ in range(3)], migration.image
        for number, share in enumerate(shares(shot, model.grid, places)):
            weight = computable(beside(share, image), "weights")
            for total, values in zip(sums, (image, light, echoes), strict=True):
                total[number] += weight * values
    images, lights, filtered = (returned(total, like) for total in sums)
    return ImageGathers(images, lights, filtered, places, model.grid)


def shares(shot: Shot, grid: Grid, distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much of the image at each point of the surface belongs to each distance: hats that add up to one."""
    source = shot.source.mean(axis=0)[1:]
    axes = [
        start + step * np.arange(points) - own
        for start, step, points, own in zip(grid.origin[1:], grid.spacing[1:], grid.shape[1:], source, strict=True)
    ]
    away = np.sqrt(sum(along**2 for along in np.meshgrid(*axes, indexing="ij")))
    known = np.append(distances, 2 * distances[-1] - distances[-2])
    return np.array([np.interp(away, known, row, left=row[0]) for row in np.eye(len(known))[:-1]])


def _nothing(image: Any, count: int) -> Any:
    """Return zeros for several images like one, in its memory."""
    return (image[None] * 0).repeat(count, axis=0)
