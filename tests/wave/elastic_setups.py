"""Small elastic models and shots that several tests share."""

import numpy as np
from tests.wave.setups import random_positions

from forebay.wave import ElasticModel, Grid, Shot, largest_dt, ricker


def uniform(grid, vp=3000.0, vs=1700.0, rho=2200.0):
    """Make the same rock everywhere."""
    return ElasticModel(*(np.full(grid.shape, value) for value in (vp, vs, rho)), grid)


def random_rock(shape, *, seed=0, absorb=8, free_surface=False, fluid=True):
    """Make a rough medium, some of it fluid, on a grid that treats no axis like another."""
    spacing, origin = (10.0, 9.0, 11.0)[: len(shape)], (5.0, -3.0, 2.0)[: len(shape)]
    grid = Grid(shape, spacing, origin, absorb=absorb, free_surface=free_surface)
    rng = np.random.default_rng(seed)
    vp, share, rho = 1800.0 + 700.0 * rng.random(shape), 0.45 + 0.1 * rng.random(shape), 1500 + 900 * rng.random(shape)
    if fluid:
        share.reshape(-1)[::7] = 0.0
    return ElasticModel(vp, share * vp, rho, grid)


def smooth_rock(shape=(50, 60), *, absorb=20, free_surface=False):
    """Make a medium that changes slowly, its three properties each in its own way."""
    grid = Grid(shape, 10.0, absorb=absorb, free_surface=free_surface)
    z, x = np.meshgrid(*(np.arange(points) for points in shape), indexing="ij")
    lens = np.exp(-(((z - shape[0] / 2) / 8) ** 2) - ((x - shape[1] / 2) / 10) ** 2)
    return ElasticModel(
        2600.0 + 6.0 * z - 200.0 * lens, 1400.0 + 5.0 * z + 2.0 * x, 2000.0 + 4.0 * x + 150 * lens, grid
    )


def all_kinds(grid):
    """Name everything that can be sent and heard."""
    axes = "zx" if grid.ndim == 2 else "zyx"
    return ["explosion", *(f"force {axis}" for axis in axes)], ["pressure", *(f"velocity {axis}" for axis in axes)]


def mixed_shot(model, *, samples=60, wavelet=None):
    """Place a source and two receivers of every kind at random; the wavelet is silent unless given."""
    sends, hears = all_kinds(model.grid)
    sent = np.zeros((samples, len(sends))) if wavelet is None else wavelet
    places = random_positions(model.grid, len(sends), 1), random_positions(model.grid, 2 * len(hears), 2)
    return Shot(*places, sent, 0.9 * largest_dt(model), sends=sends, hears=2 * hears)


def surface_shot(model, *, sends="explosion", hears="pressure", samples=150, dt=0.003, frequency=9.0):
    """Place one source near the surface between receivers on both sides."""
    width = model.grid.end[-1]
    receivers = [(23.0, x) for x in np.linspace(0.0, width, 11)]
    kinds = {"explosion": 1.0, "force z": 1e9, "force x": 1e9}
    return Shot(
        (31.0, 0.4 * width), receivers, kinds[sends] * ricker(frequency, dt, samples), dt, sends=sends, hears=hears
    )
