"""A model that is crossed by waves from all sides, and its shots: small enough to be inverted in a test."""

import numpy as np

from forebay.wave import AcousticModel, Grid, Shot, ricker, simulate

GRID = Grid((22, 26), 10.0, absorb=8)
FASTEST = 2600.0


def box(extra=150.0):
    """Return a velocity with a fast box in it."""
    velocity = np.full(GRID.shape, 2000.0)
    velocity[9:14, 9:16] += extra
    return velocity


def start():
    """Return the model without the box."""
    return AcousticModel(np.full(GRID.shape, 2000.0), GRID)


def shots(count=3, **options):
    """Return what receivers above and below hear of the box."""
    heard = []
    receivers = [(depth, x) for depth in (10.0, 200.0) for x in np.arange(0.0, 251.0, 25.0)]
    for x in np.linspace(30.0, 220.0, count):
        shot = Shot((10.0, x), receivers, ricker(12.0, 0.0016, 190), 0.0016)
        heard.append(shot.with_data(simulate(shot, AcousticModel(box(), GRID, max_vel=FASTEST), **options)))
    return heard
