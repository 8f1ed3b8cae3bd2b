"""Pieces that built-in models are made of: smooth random surfaces, columns of layers, faults and bodies.

Everything is a function of position in kilometres, so that a model looks the same on a fine grid as on a coarse one.
Positions are depth z, x along a section and y across it, arrays that broadcast against each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SLOWEST = 1540.0
"""metres per second of any sediment"""

Surface = Callable[[Any, Any], Any]


def rolling(rng: np.random.Generator, scale: float, count: int = 12) -> Surface:
    """Make a smooth random function of x and y: waves about `scale` kilometres long, root mean square near 1."""
    angle, phase = rng.uniform(0, np.pi, count), rng.uniform(0, 2 * np.pi, count)
    number = 2 * np.pi / scale * rng.uniform(0.5, 1.5, count)

    def height(x: Any, y: Any) -> Any:
        total = 0.0
        for k, a, p in zip(number, angle, phase, strict=True):
            total = total + np.cos(k * np.cos(a) * x + k * np.sin(a) * y + p)
        return total * np.sqrt(2 / count)

    return height


@dataclass(frozen=True)
class Column:
    """Layers one above the other: what a well would find."""

    tops: Array
    """kilometres, ascending; the first layer reaches upwards without end, the last downwards"""
    velocities: Array
    """metres per second, one for each layer"""

    def mean(self, depth: Any, thickness: float) -> Any:
        """Return the mean velocity between depth - thickness / 2 and depth + thickness / 2.

        A cell that a boundary crosses is given the mean of what lies in it, so that dipping boundaries have no stairs.
        """
        far = 1e3
        knots = np.concatenate([[-far], self.tops[1:], [far]])
        sums = np.concatenate([[0.0], np.cumsum(self.velocities * np.diff(knots))])
        below, above = np.interp(depth + thickness / 2, knots, sums), np.interp(depth - thickness / 2, knots, sums)
        return (below - above) / thickness


def random_column(
    rng: np.random.Generator,
    bottom: float,
    thickness: tuple[float, float],
    trend: Callable[[Any], Any],
    contrast: float,
) -> Column:
    """Stack layers of random thickness down to `bottom`; velocities scatter around a trend with depth.

    Parameters
    ----------
    rng
        Where chance comes from.
    bottom
        Kilometres.
    thickness
        The thinnest and the thickest layer, in kilometres.
    trend
        Metres per second as a function of depth.
    contrast
        Of one layer to the next, relative; signs mostly alternate, so that most boundaries reflect.
    """
    tops = np.cumsum(rng.uniform(*thickness, int(bottom / thickness[0]) + 2))
    tops = np.concatenate([[0.0], tops[tops < bottom]])
    signs = (-1.0) ** np.arange(len(tops)) * rng.choice([1, 1, 1, -1], len(tops))
    jumps = 0.7 * contrast * signs * (0.4 + np.abs(rng.normal(size=len(tops))))
    return Column(tops, np.maximum(trend(tops) * (1 + jumps), SLOWEST))


@dataclass(frozen=True)
class Fault:
    """A surface along which one side has slid down: flatter with depth, and bending along its strike."""

    x: float
    """where it meets the surface, in kilometres, at y = 0"""
    dip: float
    """kilometres that it runs along x for each of depth; negative towards smaller x"""
    throw: float
    """kilometres that the side at larger x has sunk"""
    top: float = 0.0
    """kilometres of depth above which nothing has moved: it grew while sediments came down"""
    growth: float = 0.3
    """kilometres below `top` over which the throw becomes whole"""
    strike: float = 0.0
    """kilometres along x for each along y"""
    bend: float = 0.0
    """of its run with depth: 0 is a plane, above 0 it grows flatter"""
    width: float = np.inf
    """kilometres from the fault over which the sunken side comes up again, its layers tilted towards the fault"""

    def sunk(self, z: Any, x: Any, y: Any, sharp: float) -> Any:
        """Return how far each point has been let down; the fault is `sharp` kilometres wide."""
        line = self.x + self.strike * y + self.dip * z * (1 + self.bend * z)
        side = np.clip((x - line) / sharp + 0.5, 0, 1) * np.exp(-np.maximum(x - line, 0) / self.width)
        return self.throw * np.clip((z - self.top) / self.growth, 0, 1) * side


def below(surface: Any, z: Any, thickness: float) -> Any:
    """Return the share of each cell that lies below a surface, from 0 to 1."""
    return np.clip((z - surface) / thickness + 0.5, 0, 1)


def mix(upper: Any, lower: Any, share: Any) -> Any:
    """Return the velocity of cells that hold `share` of the lower and the rest of the upper medium."""
    return upper + (lower - upper) * share
