"""Fluids of variable density, and what their adjoint leaves at sources, which several tests share."""

import numpy as np
from tests.wave.setups import random_model, smooth_model

from forebay.wave import Adjoint, DensityModel


def random_fluid(shape, *, seed=0, **options):
    """Make a fluid that is rough in velocity and density, on a grid that treats no axis like another."""
    model = random_model(shape, seed=seed, **options)
    density = 1000.0 + 1500.0 * np.random.default_rng(seed + 100).random(shape)
    return DensityModel(model.velocity, density, model.grid)


def smooth_fluid(shape=(60, 70), **options):
    """Make a fluid that gets faster and heavier with depth, with a slow lens, and a step in density."""
    model = smooth_model(shape, **options)
    density = np.where(np.arange(shape[0]) < shape[0] // 2, 1000.0, 2100.0).reshape(-1, *(1,) * (len(shape) - 1))
    return DensityModel(model.velocity, density + 0.1 * (model.velocity - 2000.0), model.grid)


def moved(model, changes, size=1.0):
    """Return a model with its arrays changed."""
    arrays = (getattr(model, name) + size * changes.get(name, 0.0) for name in ("velocity", "density"))
    return DensityModel(*arrays, model.grid, model.max_vel)


def transpose(loop, data):
    """Return what arrives at the sources of what the receivers sent: the adjoint carries it times the density."""
    adjoint, arrived = Adjoint(loop, data), np.zeros(loop.sent.shape)
    kernels, propagator = loop.kernels, loop.propagator
    for step in reversed(range(loop.steps)):
        adjoint.back_to(step + 1)
        light, heard = adjoint.state["p"] / propagator.density, kernels.zeros(loop.sent.shape[1:])
        kernels.gather(light, loop.sources.points, heard)
        arrived[step] = kernels.get(heard)
    return arrived
