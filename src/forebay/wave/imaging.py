"""Images: how often two waves must be compared, and what is done to the sum afterwards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import WaveError
from forebay.wave.earth.arrays import computable, returned
from forebay.wave.earth.grid import Grid
from forebay.wave.earth.strips import in_strips
from forebay.wave.kernels.stencil import second_derivative

MARGIN = 1.25
"""How many times more often than the band asks for."""
FLOOR = 0.1
"""Of the median of what is lit: less light than this is not divided by."""
SAMPLE, AROUND = 2**16, 0.02
"""How many values are looked at for a median, and how far from it, in parts of all, the true one may be."""
ORDER = 8
"""Of the Laplacian in the inverse-scattering condition: that of the waves."""
DARK = 1e-9
"""Of the largest illumination: what has less was not reached by the source's wave."""


@dataclass(frozen=True, eq=False)
class Imaging:
    """What is to be made of two waves that meet."""

    image: Any
    """to which their product is added"""
    illumination: Any
    """to which the square of the source's wave is added"""
    record: Any
    """the source's wave"""
    factor: float
    """that both are multiplied by"""


@dataclass(frozen=True, eq=False)
class Sensing:
    """What a gradient adds up in a step of the adjoint."""

    total: Any
    """to which the product of a record with what the velocity multiplies in the step is added"""
    record: Any
    """the pressure before that step"""
    factor: float
    """that the product is multiplied by"""


def imaging_interval(frequency: float, dt: float) -> int:
    """Return how many steps may lie between two contributions to an image, for waves up to a frequency.

    The product of two such waves holds frequencies up to twice that one. Its sum over time is its part at frequency
    zero, and taking one sample in k adds those at multiples of 1 / (k dt) to it. Where 1 / (k dt) exceeds twice the
    frequency there is nothing to add, and the sum is what it was. `MARGIN` is kept from that limit, enough for data
    that `band_limited` lets fade out above the frequency.

    Examples
    --------
    >>> imaging_interval(42.0, dt=0.001)
    9
    """
    return max(1, int(1 / (MARGIN * 2 * frequency * dt))) if frequency > 0 else 1


def check_every(every: int | None) -> None:
    """Refuse an interval that is none."""
    if every is not None and every < 1:
        raise WaveError(f"every={every}: give 1 for each step, or more")


def normalise(image: Any, illumination: Any) -> Any:
    """Divide an image by the light that the source cast there, which evens out amplitudes with depth.

    Both are in one memory, and so is what is returned, as an array like the image.

    Where there is less light than `FLOOR` times the median of what is lit, that much is divided by instead. The largest
    illumination says nothing of how much is little: it is the source's own, and in three dimensions light falls off so
    fast that a share of it would be above nearly all the rest.

    Examples
    --------
    >>> normalise(np.ones(4), np.array([1000.0, 4.0, 2.0, 0.0])).tolist()
    [0.001, 0.25, 0.5, 2.5]
    """
    shade, light = (computable(values, "an image") for values in (image, illumination))
    usual = _median_above(light, DARK * light.max())
    floor = 1 if usual is None else FLOOR * usual
    even = np.empty_like(shade)

    def divide(strip: slice) -> None:
        even[strip] = shade[strip] / np.maximum(light[strip], floor)

    _everywhere(divide, shade)
    return returned(even, image)


def _median_above(values: Any, least: Any) -> Any:
    """Return the median of what exceeds a value, on the host by all cores; None where nothing does.

    There a sample tells between which values it lies. The few that are between are sorted, and the rest counted.
    """
    if not isinstance(values, np.ndarray):
        above = values[values > least]
        return np.median(above, overwrite_input=True) if above.size else None
    sample = values.reshape(-1)[:: values.size // SAMPLE | 1]
    sample = sample[sample > least]
    if not sample.size:
        sample = values.reshape(-1)
    low, high = np.quantile(sample, (0.5 - AROUND, 0.5 + AROUND), method="nearest")
    counted, between = dict[int, tuple[int, int]](), dict[int, NDArray[Any]]()

    def look(strip: slice) -> None:
        part = values[strip]
        above = part[part > least]
        counted[strip.start] = above.size, int(np.count_nonzero(above < low))
        between[strip.start] = above[(above >= low) & (above <= high)]

    in_strips(look, values.shape)
    count, fewer = (sum(numbers) for numbers in zip(*counted.values(), strict=True))
    near = np.concatenate([between[start] for start in sorted(between)])
    first, last = (count - 1) // 2 - fewer, count // 2 - fewer
    if not count:
        return None
    if first < 0 or last >= near.size:  # the sample has misled
        return np.median(values[values > least])
    near.partition((first, last))
    return near[first : last + 1].mean()


def laplacian_filter(image: Any, grid: Grid, order: int = 2) -> Any:
    """Take the negative Laplacian, which removes the smooth shade where both waves run along one path.

    The image may be on a GPU, where what is returned is too. An image has twice the wavenumbers of its waves, of which
    an order of 2 takes less than is there: of 6 points per wavelength of a wave two thirds.
    """
    shade, weights = computable(image, "an image"), second_derivative(order).tolist()
    filtered, last, radius = np.empty_like(shade), len(shade), order // 2

    def take(strip: slice) -> None:
        first, end = strip.start - radius, strip.stop + radius
        around = shade[max(first, 0) : end]
        edges = (max(-first, 0), max(end - last, 0)), *((radius, radius),) * (grid.ndim - 1)
        filtered[strip] = _negative_laplacian(np.pad(around, edges, mode="edge"), grid.spacing, weights)

    _everywhere(take, shade)
    return returned(filtered, image)


def inverse_scattering(image: Any, illumination: Any, grid: Grid) -> Any:
    """Return what the inverse-scattering condition makes of two waves, divided by the light that the source cast.

    With S and R the waves of the source and of the receivers, the condition sums over time

        S_t R_t / v^2 - grad S . grad R

    (Op 't Root, Stolk and de Hoop, "Linearized inverse scattering based on seismic reverse time migration", Journal de
    Mathématiques Pures et Appliquées 98, 2012; Whitmore and Crawley, "Applications of RTM inverse scattering imaging
    conditions", SEG 2012; the scaling of each frequency by itself, which the former have, is left out). Where both run
    along one path it is zero, which rids an image of the smooth shade above sharp steps; where they meet at an opening
    angle of 2 a it is cos^2 a times what it is where they run against each other.

    Since both waves obey p_tt = v^2 lap(p), the sum is minus half the Laplacian of their plain product, wherever v
    varies (Douma, Yingst, Vasconcelos and Tromp, "On the connection between artifact filtering in reverse-time
    migration and adjoint tomography", Geophysics 75, 2010). So it is taken of the image itself, and no wave needs to be
    kept or differentiated for it, by a stencil of order 8. `Migration.clean` takes the Laplacian after the division
    instead, and so that of the illumination too, which is rough where the source's own echoes stand. Of variable
    density, and of the pressure waves of rock, the identity holds where the medium is smooth; in VTI and TTI rock as
    far as velocities are the same at all angles, and with attenuation as far as little is lost.

    Examples
    --------
    >>> depth = np.arange(50.0)[:, None] + np.zeros(40)
    >>> shade, echo = np.exp(-depth / 20), np.exp(-((depth - 30) ** 2))
    >>> found = inverse_scattering(shade + echo, np.ones((50, 40)), Grid((50, 40), 1.0))
    >>> int(found[:, 20].argmax()), bool(abs(found[5:25]).max() < 0.01 * found.max())
    (30, True)
    """
    return normalise(scattered(image, grid), illumination)


def scattered(image: Any, grid: Grid) -> Any:
    """Return what the inverse-scattering condition makes of the plain product of two waves."""
    return laplacian_filter(image, grid, ORDER) / 2


def _everywhere(work: Callable[[slice], object], array: Any) -> None:
    """Call something with strips of an array on the host, by all cores, or at once with all of one on a GPU."""
    if isinstance(array, np.ndarray):
        in_strips(work, array.shape)
    else:
        work(slice(0, len(array)))


def _negative_laplacian(
    padded: NDArray[np.floating], spacing: Sequence[float], weights: Sequence[float]
) -> NDArray[np.floating]:
    """Take the negative Laplacian of all but the outermost points, by the weights of a point and of those beside it."""
    radius = len(weights) - 1
    inner = (slice(radius, -radius),) * padded.ndim
    image = padded[inner]
    total, middle = np.zeros_like(image), weights[0] * image
    for axis, step in enumerate(spacing):
        second, points = middle.copy(), image.shape[axis]
        for away, weight in enumerate(weights[1:], 1):
            before, after = (
                (*inner[:axis], slice(start, start + points), *inner[axis + 1 :])
                for start in (radius - away, radius + away)
            )
            second += weight * (padded[before] + padded[after])
        second /= step**2
        total -= second
    return total
