"""Built-in velocity models: generated from stated parameters and a seed, small or as large as in the literature."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.errors import WaveError
from forebay.processors import processors
from forebay.tier.capacity import check_free
from forebay.wave.earth.fused import Sheet, filled, traced
from forebay.wave.earth.geology import Array, Fault, below, mix, random_column, rolling
from forebay.wave.earth.strips import in_strips

WATER = 1500.0
"""metres per second"""
SALT = 4480.0
STRIP = 2**22
"""Points of a strip, about, whose surfaces are worked out once: so long that threads do not wait for each other."""
SLAB = 2**18
"""Points made at a time, about: what is computed on the way lies in memory that is asked of the system once."""

ByDepth = Callable[[Any], Any]
Ground = Callable[[Any, Any], ByDepth]


@dataclass(frozen=True, eq=False)
class Velocity:
    """Velocities on a regular grid, depth first."""

    values: Any
    """metres per second, float32 of NumPy, or of CuPy where a GPU has made them"""
    spacing: tuple[float, ...]
    """metres from one point to the next along each axis"""
    origin: tuple[float, ...]
    """metres"""


@dataclass(frozen=True)
class BuiltinModel:
    """How a model is made, and in which sizes."""

    build: Callable[[np.random.Generator, float], Ground]
    """``build(rng, thickness)(x, y)`` gives the velocity as a function of depth z, where x is along the second axis of
    the model and y along the third; all in kilometres"""
    extent: tuple[float, float, float]
    """kilometres in depth, along the section and across it"""
    full: tuple[int, ...]
    """points at full size"""
    small: tuple[int, ...]
    steps: int | None = None
    """of a shot at full size, where one was published"""


def make(
    name: str,
    *,
    size: str = "small",
    dims: int | None = None,
    shape: Sequence[int] | None = None,
    seed: int = 0,
    device: Any = None,
) -> Velocity:
    """Make a built-in model.

    Parameters
    ----------
    name
        "layers", "marmousi", "marmousi3d", "salt" or "large".
    size
        "small" or "full".
    dims
        2 for the section through the middle of a model that has three axes.
    shape
        Points along each axis instead of `size`; the ground stays as wide and deep as it is. Two points make a section.
    seed
        Other layers, folds and bodies of the same kind.
    device
        The GPU that makes it, a `kernels.device.Device`, where the velocities stay. There exponentials may be rounded
        another way than here: of a million velocities some differ, by the last bit of their 24.

    Examples
    --------
    >>> salt = make("salt", dims=2)
    >>> salt.values.shape, salt.spacing
    ((155, 338), (40.0, 40.0))
    >>> float(salt.values.min()), float(salt.values.max())
    (1500.0, 4480.0)
    """
    if name not in BUILTIN:
        raise WaveError(f"no built-in model is called {name!r}: take one of {', '.join(BUILTIN)}")
    recipe = BUILTIN[name]
    if size not in ("small", "full"):
        raise WaveError(f"size={size!r}: take 'small' or 'full', or give a shape")
    points = tuple(shape) if shape is not None else getattr(recipe, size)
    if dims is not None:
        if dims not in (2, 3) or dims > len(points):
            raise WaveError(f"dims={dims} of {name}, which has {len(points)} axes: take 2, or 3 where it has three")
        points = points[:dims]
    if len(points) not in (2, 3) or min(points) < 2:
        raise WaveError(f"a model of shape {points}: give two or three axes of at least 2 points each")
    check_free(4 * math.prod(points), f"a model of shape {points}")
    # A cell for each point: so full and small sizes have spacings that divide evenly.
    spacing = tuple(1000 * length / count for length, count in zip(recipe.extent, points, strict=False))
    ground = recipe.build(np.random.default_rng(seed), spacing[0] / 1000)
    z, x = (np.arange(count) * step / 1000 for count, step in zip(points[:2], spacing[:2], strict=True))
    y = np.arange(points[2]) * spacing[2] / 1000 if len(points) == 3 else np.array([recipe.extent[2] / 2])
    if device is not None:
        return Velocity(_made_on(device, ground, z, x, y).reshape(points), spacing, (0.0,) * len(points))
    values = np.empty((*points[:2], len(y)), np.float32)

    def fill(part: slice) -> None:
        velocity = ground(x[part][None, :, None], y[None, None, :])
        thick = max(1, SLAB // values[0, part].size)
        for top in range(0, len(z), thick):
            values[top : top + thick, part] = velocity(z[top : top + thick, None, None])

    in_strips(fill, values.shape, axis=1, points=STRIP)
    return Velocity(values.reshape(points), spacing, (0.0,) * len(points))


def _made_on(device: Any, ground: Ground, z: Array, x: Array, y: Array) -> Any:
    """Return velocities made by a GPU, of surfaces that the host works out in strips."""
    sheets = dict[int, Sheet]()

    def write(part: slice) -> None:
        along = x[part]
        velocity = ground(along[None, :, None], y[None, None, :])
        sheets[part.start] = traced(velocity, z[:, None, None], len(along), len(y))

    in_strips(write, (len(x), len(y)), points=-(-len(x) // processors()) * len(y))  # one for each core
    return filled(device, [sheets[start] for start in sorted(sheets)], (len(z), len(x), len(y)))


def _layers(rng: np.random.Generator, cell: float) -> Ground:
    """Five layers under water, each faster than the one above and tilted its own way a little."""
    tops, speeds = (0.25, 0.75, 1.05, 1.45, 1.75), (WATER, 1800.0, 2150.0, 2000.0, 2600.0, 3100.0)
    bumps = [rolling(rng, 3.0) for _ in tops]
    tilts = rng.uniform(-0.04, 0.04, (len(tops), 2))

    def ground(x: Any, y: Any) -> ByDepth:
        tilted = []
        for number, top in enumerate(tops):
            tilt = tilts[number, 0] * (x - 2) + tilts[number, 1] * (y - 2)
            tilted.append(top + (number > 0) * (tilt + 0.02 * bumps[number](x, y)))  # the sea's floor is flat

        def velocity(z: Any) -> Any:
            total: Any = WATER
            for top, speed in zip(tilted, speeds[1:], strict=True):
                total = mix(total, speed, below(top, z, cell))
            return total

        return velocity

    return ground


def _large(rng: np.random.Generator, cell: float) -> Ground:
    """Folded layers, cut by two faults, over a faster basement."""
    column = random_column(rng, 6.0, (0.08, 0.3), lambda depth: 1700 + 480 * depth, 0.07)
    folds, finer, floor = rolling(rng, 4.0), rolling(rng, 1.3), rolling(rng, 3.5)
    faults = [Fault(0.9, 0.45, 0.22, 0.5, 0.4, 0.1, 0.1), Fault(4.7, -0.4, -0.3, 0.7, 0.5, -0.12, 0.1)]

    def ground(x: Any, y: Any) -> ByDepth:
        folded, deepest = 0.18 * folds(x, y) + 0.03 * finer(x, y), 4.1 + 0.25 * floor(x, y)

        def velocity(z: Any) -> Any:
            sunk = sum(fault.sunk(z, x, y, cell) for fault in faults)
            sediments = column.mean(z - folded * np.clip(z / 2.5, 0, 1.2) - sunk, cell)
            basement = below(deepest + sunk, z, cell)
            return mix(mix(WATER, sediments, below(0.2, z, cell)), 4800 + 60 * z, basement)

        return velocity

    return ground


def _marmousi(rng: np.random.Generator, cell: float) -> Ground:
    """Blocks that tilt towards growth faults, over an anticline with fast layers and lenses of salt."""
    upper = random_column(rng, 6.0, (0.03, 0.1), lambda depth: 1580 + 680 * depth, 0.09)
    lower = random_column(rng, 6.0, (0.05, 0.16), lambda depth: 1900 + 560 * depth, 0.13)
    folds, finer, top = rolling(rng, 5.0), rolling(rng, 1.8), rolling(rng, 3.0)
    faults = [
        Fault(2.6, 0.55, 0.42, 0.3, 1.3, 0.10, 0.25, 1.3),
        Fault(3.7, 0.50, 0.48, 0.25, 1.3, 0.06, 0.25, 1.2),
        Fault(4.9, 0.45, 0.50, 0.3, 1.3, -0.05, 0.25, 1.4),
    ]

    def ground(x: Any, y: Any) -> ByDepth:
        tilt, bent = 0.045 * (x - 4.5), finer(x, y)
        dome = 0.85 * np.exp(-(((x - 5.4 - 0.4 * (y - 1.5)) / 1.35) ** 2)) - 0.09 * (x - 4.5)
        folded, rugged, lenses = 0.09 * folds(x, y), top(x, y), []
        cut, seabed = 2.35 - 0.5 * dome + 0.05 * rugged, 0.16 + 0.012 * rugged
        for middle, reach, depth, slope, thick in ((0.6, 2.6, 2.75, 0.06, 0.3), (8.3, 2.4, 2.95, -0.1, 0.34)):
            lens = thick * np.clip(1 - ((x - middle) / reach) ** 2, 0, None) ** 1.5
            lenses.append((depth + slope * (x - middle) - lens / 2 + 0.02 * bent, lens))

        def velocity(z: Any) -> Any:
            sunk = sum(fault.sunk(z, x, y, cell) for fault in faults)
            bend = tilt * np.clip(z / 2, 0, 1) + 0.03 * bent * z
            above, beneath = upper.mean(z - sunk - bend, cell), lower.mean(z + dome + folded, cell)
            rocks = mix(above, beneath, below(cut, z, cell))
            for roof, lens in lenses:
                rocks = mix(rocks, SALT, below(roof, z, cell) * (1 - below(roof + lens, z, cell)))
            return mix(WATER, rocks, below(seabed, z, cell))

        return velocity

    return ground


def _salt(rng: np.random.Generator, cell: float) -> Ground:
    """Raise a diapir with an overhang and a rugged roof, in sediments that it lifts and breaks."""
    column = random_column(rng, 9.0, (0.1, 0.32), lambda depth: 1650 + 420 * depth, 0.055)
    deep = random_column(rng, 9.0, (0.15, 0.4), lambda depth: 2500 + 260 * depth, 0.06)
    folds, finer, rough, base = rolling(rng, 7.0), rolling(rng, 2.0), rolling(rng, 1.4, 20), rolling(rng, 5.0)
    centre = 6.7, 6.7
    faults = [
        Fault(5.6, -0.35, -0.16, 0.55, 0.5, 0.15, 0.1, 1.2),
        Fault(8.4, 0.4, 0.14, 0.5, 0.5, -0.1, 0.1, 1.2),
        Fault(11.2, 0.5, 0.22, 0.8, 0.8, 0.1, 0.1, 2.0),
        Fault(2.2, -0.4, -0.2, 0.9, 0.8, 0.1, 0.1, 2.0),
    ]

    def ground(x: Any, y: Any) -> ByDepth:
        across, along = (x - centre[0]) / 1.0, (y - centre[1]) / 1.35
        folded, rolled, rugged, deepest = folds(x, y), finer(x, y), rough(x, y), base(x, y)
        away = np.hypot(across, along) + 0.12 * rugged
        # The roof is a broad dome; the body narrows below it to a stem and flares again where it feeds from.
        roof = 1.15 + 0.055 * away**2 + 0.06 * rugged + 0.03 * finer(2 * x, 2 * y) + 0.05 * across
        floor, seabed = 4.75 + 0.12 * deepest, 0.32 + 0.02 * folded
        waves, jagged, tilt = 0.16 * folded + 0.03 * rolled, 0.1 * rugged, 0.02 * (x - 6)

        def velocity(z: Any) -> Any:
            lean = 0.35 * np.clip((3.0 - z) / 1.8, -1, 1)
            radius = 1.15 + 1.35 * np.exp(-(((z - 1.75) / 0.62) ** 2)) + 1.9 * np.clip((z - 3.2) / 1.6, 0, 1) ** 2
            distance = np.hypot(across + lean, along) + jagged
            inside = np.clip((radius - distance) / (2 * cell) + 0.5, 0, 1)
            under = below(floor, z, cell)
            body = inside * below(roof, z, cell) * (1 - under)
            # Sediments are dragged up along the flanks, and lie in a dome over the roof.
            lift = 0.5 * np.exp(-((distance / 2.6) ** 2)) * np.clip((z - 0.35) / 1.4, 0, 1)
            lift = lift + 0.28 * np.exp(-np.maximum(distance - radius, 0) / 0.7) * np.clip((z - 1.0) / 1.2, 0, 1)
            sunk = sum(fault.sunk(z, x, y, cell) for fault in faults) * (1 - below(3.6, z, 1.2))
            sediments = column.mean(z - waves * np.clip(z / 2.5, 0, 1) - sunk + lift, cell)
            bottom = deep.mean(z - 0.12 * deepest - tilt, cell)
            rocks = mix(mix(sediments, bottom, under), SALT, body)
            return mix(WATER, rocks, below(seabed, z, cell))

        return velocity

    return ground


BUILTIN = {
    "layers": BuiltinModel(_layers, (2.4, 4.8, 4.8), (240, 480), (120, 240)),
    "marmousi": BuiltinModel(_marmousi, (3.51, 9.01, 3.01), (351, 901), (176, 451)),
    "marmousi3d": BuiltinModel(_marmousi, (3.51, 9.01, 3.01), (351, 901, 301), (70, 180, 60), 6751),
    "salt": BuiltinModel(_salt, (6.2, 13.52, 13.52), (310, 676, 676), (155, 338, 338), 3751),
    "large": BuiltinModel(_large, (5.0, 5.0, 5.0), (500, 500, 500), (100, 100, 100), 3001),
}
