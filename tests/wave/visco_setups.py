"""Standard linear solids that several tests share."""

import numpy as np
from tests.wave.setups import random_model, smooth_model

from forebay.wave import ViscoModel

NAMES = ("velocity", "attenuation")
FREQUENCY = 15.0


def random_clay(shape, *, seed=0, **options):
    """Make rock that is rough in all it has, loses nothing in places, on a grid that treats no axis like another."""
    model, rng = random_model(shape, seed=seed, **options), np.random.default_rng(seed + 100)
    attenuation = np.maximum(rng.uniform(-0.03, 0.1, shape), 0.0)
    return ViscoModel(model.velocity, attenuation, model.grid, FREQUENCY)


def smooth_clay(shape=(60, 70), **options):
    """Make rock that gets faster with depth, below which and beside which waves are lost less."""
    model = smooth_model(shape, **options)
    deep = np.clip(np.arange(shape[0]) / shape[0], 0.1, 0.8).reshape(-1, *(1,) * (len(shape) - 1))
    return ViscoModel(model.velocity, np.broadcast_to(0.06 * (1 - deep), shape).copy(), model.grid, FREQUENCY)


def moved(model, changes, size=1.0):
    """Return a model with its arrays changed."""
    arrays = (getattr(model, name) + size * changes.get(name, 0.0) for name in NAMES)
    return ViscoModel(*arrays, model.grid, model.frequency, model.max_vel)
