"""TTI models that several tests share."""

from dataclasses import replace

import numpy as np
from tests.wave.vti_setups import NAMES as NAMES
from tests.wave.vti_setups import random_shale, smooth_shale
from tests.wave.vti_setups import transpose as transpose

from forebay.wave import TTIModel


def tilted(shale, tilt, azimuth=None):
    """Return a VTI model whose axis leans, by numbers or arrays."""
    shape = shale.grid.shape
    angles = [None if angle is None else np.broadcast_to(angle, shape).copy() for angle in (tilt, azimuth)]
    return TTIModel(*shale.arrays, shale.grid, shale.max_vel, tilt=angles[0], azimuth=angles[1])


def random_tilted(shape, *, seed=0, **options):
    """Make rock that is rough in all it has: the axis points anywhere."""
    rng = np.random.default_rng(seed + 200)
    angles = [rng.uniform(-most, most, shape) for most in (3.0, 6.0)][: len(shape) - 1]
    return tilted(random_shale(shape, seed=seed, **options), *angles)


def smooth_tilted(shape=(60, 70), **options):
    """Make rock that gets faster, more anisotropic and steeper with depth."""
    deep = np.linspace(0.0, 1.0, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    return tilted(smooth_shale(shape, **options), *(0.7 * deep, 2.0 * deep)[: len(shape) - 1])


def moved(model, changes, size=1.0):
    """Return a model with its arrays changed."""
    return replace(model, **{name: getattr(model, name) + size * changes.get(name, 0.0) for name in NAMES})
