"""Small models and shots that several tests share."""

import numpy as np

from forebay.wave import AcousticModel, Grid, Shot, largest_dt, ricker


def random_model(shape, *, seed=0, absorb=8, free_surface=False, roughness=700.0):
    """Make a rough medium on a grid that treats no axis like another."""
    spacing, origin = (10.0, 9.0, 11.0)[: len(shape)], (5.0, -3.0, 2.0)[: len(shape)]
    grid = Grid(shape, spacing, origin, absorb=absorb, free_surface=free_surface)
    rng = np.random.default_rng(seed)
    return AcousticModel(1800.0 + roughness * rng.random(shape), grid)


def random_positions(grid, count, seed=0):
    """Choose positions anywhere in a model, but below its surface."""
    low, high = np.add(grid.origin, grid.spacing), np.asarray(grid.end)
    return low + np.random.default_rng(seed).random((count, grid.ndim)) * (high - low)


def random_shot(model, *, sources=3, receivers=5, samples=60, wavelet=None):
    """Place points at random; the wavelet is silent unless given."""
    sent = np.zeros((samples, sources)) if wavelet is None else wavelet
    dt = 0.9 * largest_dt(model)
    return Shot(random_positions(model.grid, sources, 1), random_positions(model.grid, receivers, 2), sent, dt)


def smooth_model(shape=(60, 70), *, absorb=20, free_surface=False):
    """Make a medium that gets faster with depth, with a slow lens."""
    grid = Grid(shape, 10.0, absorb=absorb, free_surface=free_surface)
    z, x = np.meshgrid(*(np.arange(points) for points in shape), indexing="ij")
    lens = np.exp(-(((z - shape[0] / 2) / 8) ** 2) - ((x - shape[1] / 2) / 10) ** 2)
    return AcousticModel(2000.0 + 8.0 * z - 200.0 * lens, grid)


def surface_shot(model, *, samples=150, dt=0.004, frequency=12.0):
    """Place one source near the surface between receivers on both sides."""
    width = model.grid.end[-1]
    receivers = [(23.0, x) for x in np.linspace(0.0, width, 15)]
    return Shot((31.0, 0.4 * width), receivers, ricker(frequency, dt, samples), dt)
