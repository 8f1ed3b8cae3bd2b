"""VTI models that several tests share."""

import numpy as np
from tests.wave.setups import random_model, smooth_model

from forebay.wave import Adjoint, VTIModel

NAMES = ("velocity", "epsilon", "delta")


def random_shale(shape, *, seed=0, **options):
    """Make rock that is rough in all it has, and elliptical in places, on a grid that treats no axis like another."""
    model, rng = random_model(shape, seed=seed, **options), np.random.default_rng(seed + 100)
    delta = rng.uniform(-0.15, 0.2, shape)
    apart = np.maximum(rng.uniform(-0.1, 0.25, shape), 0.0)  # elliptical in two of seven cells
    return VTIModel(model.velocity, delta + apart, delta, model.grid)


def smooth_shale(shape=(60, 70), **options):
    """Make rock that gets faster and more anisotropic with depth, below isotropic rock in which sources are."""
    model = smooth_model(shape, **options)
    deep = np.clip((np.arange(shape[0]) - 8.0) / shape[0], 0.0, None).reshape(-1, *(1,) * (len(shape) - 1))
    epsilon, delta = (np.broadcast_to(most * deep, shape).copy() for most in (0.25, 0.1))
    return VTIModel(model.velocity, epsilon, delta, model.grid)


def moved(model, changes, size=1.0):
    """Return a model with its arrays changed."""
    arrays = (getattr(model, name) + size * changes.get(name, 0.0) for name in NAMES)
    return VTIModel(*arrays, model.grid, model.max_vel)


def transpose(loop, data):
    """Return what arrives at the sources of what the receivers sent."""
    adjoint, arrived = Adjoint(loop, data), np.zeros(loop.sent.shape)
    for step in reversed(range(loop.steps)):
        adjoint.back_to(step + 1)
        heard = loop.kernels.zeros(loop.sent.shape[1:])
        loop.propagator.record(adjoint.state, loop.sources, heard)
        arrived[step] = loop.kernels.get(heard)
    return arrived
